"""`debug_nans` and `debug_infs`: check results, and find the op that produced a bad one.

Programs are compiled with checks only while one of the flags is on; the flags are part of all cache
keys. When a checked program returns a bad result, its equations run again one by one, down into
nested programs, until one of them returns a bad value. Host effects then happen again; and no
memory is donated, because the arguments must still exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.base.config import debug_infs, debug_nans
from shardwise._src.base.context import Context
from shardwise._src.core.eval_context import eval_context_without, eval_trace
from shardwise._src.core.fused import fused
from shardwise._src.core.program import Equation, Program, eval_program
from shardwise._src.messages.source import Site, describe, user_site
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import abs as absolute
from shardwise._src.ops.logical import eq, ne
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.types.extended import ExtendedDType


def watching() -> bool:
    return debug_nans.value or debug_infs.value


def watched(
    program: Program, run: Callable[[Sequence[Any]], Any], eager: bool
) -> Callable[[Sequence[Any]], Any]:
    """Wraps the function that runs a program: raises if a result is bad.

    eager: whether the program is an eager op or fused function, at the user's current line.

    Raises:
      FloatingPointError: naming the op, the types of its operands, and the line.
    """

    def checked(args: Sequence[Any]) -> Any:
        result = run(args)
        what = _bad_among(flatten(result)[0])
        if what:
            if any(a.__class__ is Array and a.is_deleted() for a in args):
                raise FloatingPointError(
                    f"invalid value ({what}) encountered in a result of {program.name}. The op "
                    "that produced it cannot be found, because arguments were donated: compile it "
                    f"while the flag debug_{what}s is on, which enables this check."
                )
            with _unwatched():
                _Search(program, what, user_site() if eager else None).run(args)
        return result

    return checked


def _unwatched() -> AbstractContextManager[Context]:
    """The context while values are checked."""
    return eval_context_without(debug_nans.name, debug_infs.name)


def _bad_among(values: Iterable[Any]) -> str:
    """'nan' or 'inf', if one of the values contains one that the flags check; else ''."""
    nans, infs = debug_nans.value, debug_infs.value
    with _unwatched():
        return _bad(values, nans, infs)


def _bad(values: Iterable[Any], nans: bool, infs: bool) -> str:
    floats = [x for x in values if x.__class__ is Array and _may_be_bad(x.dtype)]
    if nans and any([bool(_has(x, False)) for x in floats]):
        return "nan"
    return "inf" if infs and any([bool(_has(x, True)) for x in floats]) else ""


def _may_be_bad(dtype: Any) -> bool:
    return not isinstance(dtype, ExtendedDType) and is_inexact(dtype)


@fused(arrays=1)
def _has(x: Any, infinite: bool) -> Any:
    if x.dtype.itemsize < 2:  # the dtype may not have infinities
        x = convert_element_type(x, dtype=np.dtype("float32"), weak=False)
    bad = ne(x, x)
    if infinite:
        size = absolute(x)
        bad = eq(size, convert_element_type(np.inf, dtype=size.dtype, weak=False))
    return reduce_or(bad, axes=tuple(range(x.ndim)))


class _Search:
    """Runs a program equation by equation, until one returns a bad value."""

    def __init__(self, program: Program, what: str, site: Site | None):
        self.program, self.what, self.site = program, what, site

    def run(self, args: Sequence[Any]) -> NoReturn:
        arrays = eval_trace().arrays(args)
        self.through(self.program, arrays)
        raise FloatingPointError(
            f"invalid value ({self.what}) encountered in a result of {self.program.name}, which no "
            "single op of it produces when run alone: compiled together, ops can round "
            "differently. Use disable_jit to run it op by op."
        )

    def is_bad(self, values: Iterable[Any]) -> bool:
        return bool(_bad(values, self.what == "nan", self.what == "inf"))

    def through(self, program: Program, args: Sequence[Any]) -> list[Any]:
        return eval_program(program, args, self.equation)

    def equation(self, eqn: Equation, values: list[Any]) -> list[Any]:
        result = eqn.op(*values, **eqn.params)
        outs = list(result) if eqn.op.multiple else [result]
        if self.is_bad(outs):
            inner = None
            if (rule := eqn.op.contains.eval) is not None:  # may find it in a nested program
                inner = rule(eqn.op, self.through, values, **eqn.params)
            if inner is not None:
                raise self.error(inner, inner.invars, inner.outvars, "")
            raise self.found(eqn, values, outs)
        return outs

    def found(self, eqn: Equation, values: Sequence[Any], outs: Sequence[Any]) -> Exception:
        arrays = eval_trace().arrays(values)
        bad = [i for i, a in enumerate(arrays) if self.is_bad([a])]
        had = f" Operand {bad[0]} already has one." if bad else ""
        return self.error(eqn, arrays, outs, had)

    def error(self, eqn: Equation, ins: Any, outs: Any, had: str) -> Exception:
        types = ", ".join(x.aval.str_short(True) for x in ins) or "none"
        results = ", ".join(x.aval.str_short(True) for x in outs)
        where = describe(self.site or eqn.site)
        return FloatingPointError(
            f"invalid value ({self.what}) encountered in {eqn.op.name}: operands {types}, result "
            f"{results}, at {where}.{had} The flag debug_{self.what}s enables this check."
        )
