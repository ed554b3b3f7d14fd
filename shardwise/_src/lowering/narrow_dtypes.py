"""Ops that a platform's compiler lacks for a dtype: rejected, or computed in a wider one.

The platform's record lists them (`runtime.dtype_gaps`). An op in a wider dtype has the same
parameters, and operands and results are converted: the results must be equal. They would not be
if the op's rule derived values from the dtype, such as the one that `gather` returns for windows
out of bounds. The rule of such an op (its fact `own_values`) computes only a part in wider dtypes:

    return e.widened(op, ins, outs, [x], lambda ins, outs, x: e.reduce(x, ins[0], axes, …))[0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arrays.interchange import SUBBYTE
from shardwise._src.core.program import Equation, Program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.messages.source import describe
from shardwise._src.runtime.dtype_gaps import Gap
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, join_types
from shardwise._src.types.dtypes import exact_dtype, itemsize_bits


@derived
def _ops_by_dtype(program: Program) -> dict[str, dict[str, Equation]]:
    """The first equation of each op, for each dtype of its operands and results."""
    found: dict[str, dict[str, Equation]] = {}
    for eqn in walk(program):
        for atom in (*eqn.invars, *eqn.outvars):
            found.setdefault(atom.aval.dtype.name, {}).setdefault(eqn.op.name, eqn)
    return found


def check_dtypes(program: Program, platform: Platform) -> None:
    """Raises NotImplementedError if the platform's compiler lacks an op of a program."""
    rejecting = [gap for gap in platform.gaps if gap.dtypes]
    if not rejecting:
        return
    ops = _ops_by_dtype(program)
    for gap in rejecting:
        for dtype in gap.dtypes:
            for eqn in _of_gap(gap, ops.get(dtype, {})):
                raise _rejected(eqn, dtype, gap, platform)
            if not gap.ops:
                _check_ends(program, dtype, gap, platform)


def _of_gap(gap: Gap, found: dict[str, Equation]) -> Iterator[Equation]:
    yield from [eqn for name, eqn in found.items() if not gap.ops or name in gap.ops]


def _rejected(eqn: Equation, dtype: str, gap: Gap, platform: Platform) -> NotImplementedError:
    place = f" at {describe(eqn.site)}" if eqn.site is not None else ""
    types = join_types([a.aval for a in eqn.invars]) if eqn.invars else "no operands"
    what = f"[{eqn.op.name}] of {types}{place}"
    return NotImplementedError(_text(what, dtype, gap, platform))


def _check_ends(program: Program, dtype: str, gap: Gap, platform: Platform) -> None:
    """Raises if an argument or result has a dtype that all ops lack."""
    for t in (*program.in_types, *program.out_types):
        if t.dtype.name == dtype:
            what = f"{program.name} has an argument or a result of type {t.str_short(True)}, and"
            raise NotImplementedError(_text(what, dtype, gap, platform))


def _text(what: str, dtype: str, gap: Gap, platform: Platform) -> str:
    return (
        f"{what} cannot be compiled for {platform} with {dtype}: {gap.why}. Convert the operands "
        f"with `x.astype({gap.instead!r})`, or run this part on a CPU device."
    )


class NarrowDtypes:
    """Methods that emit ops in wider dtypes; a mixin of the emitter."""

    platform: Platform
    devices: int
    cast: Callable[[str, ArrayType, Any], str]
    barrier: Callable[[str, ArrayType], str]
    as_bits: Callable[[str, ArrayType, ArrayType], str]

    def lowered(
        self, op: Any, ins: list[ArrayType], outs: Sequence[ArrayType], xs: list[str], params: Any
    ) -> list[str]:
        """The results of an op's rule; in wider dtypes if the platform's compiler lacks these."""
        if self.platform.gaps and not op.own_values:
            return self.widened(op, ins, outs, xs, partial(op.lower, op, self, **params))
        results = op.lower(op, self, ins, outs, *xs, **params)
        return results if op.multiple else [results]

    def widened(
        self,
        op: Any,
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        xs: Sequence[str],
        write: Callable[..., Any],
    ) -> list[str]:
        """The results of an op, or of a part of its rule.

        write: `(ins, outs, *xs)` → as the rule; in wider types if the platform's compiler lacks
          the op for those given.
        """
        wide = _wide_types(op.name, (*ins, *outs), self.platform)
        if wide is None:
            found = write(ins, outs, *xs)
            return found if op.multiple else [found]
        wide_ins, wide_outs = wide[: len(ins)], tuple(wide[len(ins) :])
        xs = [self._converted(*row) for row in zip(xs, ins, wide_ins, strict=True)]
        found = write(wide_ins, wide_outs, *xs)
        results = found if op.multiple else [found]
        return [self._converted(*row) for row in zip(results, wide_outs, outs, strict=True)]

    def wide_rows(self, t: ArrayType) -> ArrayType:
        """The type of an array of which a loop reads or writes rows."""
        if not self.platform.rows_of_bytes or t.dtype.name not in SUBBYTE:
            return t
        bits = itemsize_bits(t.dtype) * math.prod(t.shape[1:])
        return t.update(dtype=np.dtype(SUBBYTE[t.dtype.name])) if bits % 8 else t

    def _converted(self, x: str, t: ArrayType, out: ArrayType) -> str:
        """A value as another dtype of the platform's table of gaps.

        The partitioner would send values in the narrow dtype, if barriers did not separate them.
        """
        if t.dtype == out.dtype:
            return x
        if itemsize_bits(t.dtype) == itemsize_bits(out.dtype):
            return self.as_bits(x, t, out)
        if self.devices == 1:
            return self.cast(x, t, out.dtype)
        return self.barrier(self.cast(self.barrier(x, t), t, out.dtype), out)


def _wide_types(
    name: str, types: Sequence[ArrayType], platform: Platform
) -> list[ArrayType] | None:
    """The types in which an op is computed; None if these can stay."""
    for gap in platform.gaps:
        if name in gap.ops and any([t.dtype.name in gap.wide for t in types]):
            return [t.update(dtype=_wide(t.dtype, gap)) for t in types]
    return None


def _wide(dtype: Any, gap: Gap) -> np.dtype[Any]:
    return exact_dtype(gap.wide[dtype.name]) if dtype.name in gap.wide else dtype
