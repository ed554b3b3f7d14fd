"""Checks as values: a program is made to say which of its checks failed first.

`check` is an op without results; `checkified` runs a program equation by equation and adds, to each
that can fail, a test of what it gave or got. What comes out beside the results is a *code*: 0, or
the number of the first place that failed, and the values for every place's message. A place is a
`Place`; their list is known when the program is staged, so codes are plain arrays, which pass
through `jit`, `vmap` and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from shardwise.control.call import call
from shardwise.control.cond import cond
from shardwise.control.custom_common import ForgetfulCache
from shardwise.control.programs import program_of
from shardwise.control.scan import parts, scan, sliced_type, with_counts
from shardwise.control.while_loop import while_loop
from shardwise.core.infer import type_of
from shardwise.core.op import Op
from shardwise.core.program import Equation, Literal, Program, derived
from shardwise.core.source import Site, describe
from shardwise.numpy.searching import argmax, where
from shardwise.ops.basis import batch_first, broadcast_in_dim, reshape, zeros
from shardwise.ops.cast import convert_element_type
from shardwise.ops.logical import bitwise_and, bitwise_or, eq, lt, ne, select_n
from shardwise.ops.reduce import reduce_and, reduce_or
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dims import Dims, letters
from shardwise.types.dtypes import is_inexact

CHECK = "check"  # the effect
CODE = array_type((), np.dtype("int32"))
USER, NAN, DIV, INDEX = "user", "nan", "div", "index"


@dataclass(frozen=True)
class Message:
    """What a check says: `str.format` with its arguments, which are arrays but for `static` ones.

    kind: of the check, one of `USER`, `NAN`, `DIV`, `INDEX`.
    """

    kind: str
    fmt: str
    tree: Any = None

    def text(self, values: Sequence[Any]) -> str:
        if self.kind == INDEX:
            index, axis, shape = int(values[0]), int(values[1]), self.tree
            return (
                f"out-of-bounds indexing for array of shape {shape}: index {index} is out of "
                f"bounds for axis {axis} with size {shape[axis]}. "
            )
        if self.kind != USER:
            return self.fmt
        args, kwargs = self.tree.unflatten(values)
        return f"{self.fmt.format(*args, **kwargs)} (`check` failed)"


@dataclass(frozen=True)
class Place:
    """Where a program checks something. types: of the values that its message takes."""

    message: Message
    types: tuple[ArrayType, ...]
    site: Site | None

    def where(self) -> str:
        return describe(self.site)


# -- the op --


def _type(pred: ArrayType, *values: ArrayType, message: Message, levels: int) -> tuple[()]:
    return ()


def _dims(pred: ArrayType, *values: ArrayType, message: Message, levels: int) -> Dims:
    names = letters(sum(t.ndim for t in (pred, *values)))
    rows, start = [], 0
    for t in (pred, *values):
        rows.append(names[start : start + t.ndim])
        start += t.ndim
    return Dims(tuple(rows), ())


def _lower(*_: Any, message: Message, levels: int) -> NoReturn:
    raise ValueError(
        f"checkify.check with the message {message.fmt!r} is in a program that is compiled, where "
        "it cannot raise anything. Wrap the function in `checkify.checkify`, inside or outside of "
        "jit: it gives the error as a value."
    )


def _eager(args: Any, params: dict[str, Any]) -> list[Any]:
    failed = np.logical_not(np.asarray(args[0]))
    if failed.any():
        first = np.unravel_index(failed.argmax(), failed.shape)
        values = [np.asarray(v)[first] for v in args[1:]]
        raise CheckError(params["message"].text(values))
    return []


class CheckError(RuntimeError):
    """A check that failed. (Its public name is that of the runtime's error.)"""


def _jvp(primals: Any, tangents: Any, **p: Any) -> tuple[list[Any], list[Any]]:
    return check_op(*primals, **p), []


def _batch(
    size: int, args: Any, dims: Any, *, message: Message, levels: int
) -> tuple[list[Any], list[Any]]:
    moved = [batch_first(size, x, d) for x, d in zip(args, dims, strict=True)]
    return check_op(*moved, message=message, levels=levels + 1), []


check_op = Op(
    "check", type_rule=_type, dims=_dims, lower=_lower, eager=_eager, jvp=_jvp, batch=_batch,
    effects=frozenset({CHECK}), multiple=True,
)
check_op.inferred = ForgetfulCache()


# -- making programs say what failed --


class Checked:
    """The checks of a program that is being run equation by equation.

    enabled: kinds of checks. code, slots: which place failed first, and each place's values.
    """

    def __init__(self, enabled: frozenset[str]):
        self.enabled = enabled
        self.places: list[Place] = []
        self.slots: list[Any] = []
        self.code: Any = convert_element_type(np.int32(0), dtype=CODE.dtype, weak=False)

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """The results of a program, whose checks are added to these."""
        inputs = (*program.constants, *args)
        env: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
        for eqn in program.equations:
            values = [a.value if a.__class__ is Literal else env[a] for a in eqn.inputs]
            env.update(zip(eqn.outputs, self.equation(eqn, values), strict=True))
        return [a.value if a.__class__ is Literal else env[a] for a in program.outputs]

    def equation(self, eqn: Equation, values: list[Any]) -> list[Any]:
        if eqn.op is check_op:
            self._user_check(eqn, values)
            return []
        if eqn.op.programs and any(_places(p, self.enabled) for p in eqn.programs()):
            rule = _HOLDERS.get(eqn.op.name, _called if "program" in eqn.params else None)
            if rule is None:
                raise NotImplementedError(
                    f"checkify cannot look into {eqn.op.name}, whose functions have checks, at "
                    f"{describe(eqn.site)}. Check what goes in and what comes out of it instead."
                )
            return rule(self, values, **eqn.params)
        result = eqn.op(*values, **eqn.params)
        outs = list(result) if eqn.op.multiple else [result]
        for kind, test in _TESTS.items():
            if kind in self.enabled:
                test(self, eqn, values, outs)
        return outs

    def fail(self, failed: Any, message: Message, values: Sequence[Any], site: Any) -> None:
        """Adds a place, which failed where `failed` (bool[]) says so."""
        types = tuple([type_of(v) for v in values])
        self.places.append(Place(message, types, site))
        self.slots += values
        code = select_n(failed, np.int32(0), np.int32(len(self.places)))
        self.code = select_n(eq(self.code, np.int32(0)), self.code, code)

    def merge(self, places: Sequence[Place], code: Any, slots: Sequence[Any]) -> None:
        """Adds the places of a program that ran, by its code."""
        code = select_n(eq(code, np.int32(0)), code + np.int32(len(self.places)), code)
        self.code = select_n(eq(self.code, np.int32(0)), self.code, code)
        self.places += places
        self.slots += slots

    def _user_check(self, eqn: Equation, values: list[Any]) -> None:
        if USER not in self.enabled:
            return
        pred, *rest = values
        levels = eqn.params["levels"]
        failed = eq(pred, False)
        if levels:
            first = argmax(reshape(failed, shape=(type_of(failed).size,)))
            rest = [_row(v, levels, first) for v in rest]
            failed = reduce_or(failed, axes=tuple(range(levels)))
        self.fail(failed, eqn.params["message"], rest, eqn.site)


def _row(x: Any, levels: int, which: Any) -> Any:
    shape = type_of(x).shape
    count = int(np.prod(shape[:levels]))
    return reshape(x, shape=(count, *shape[levels:]))[which]


# -- what ops are tested for --

_QUIET = ("select_n", "neg", "abs", "stop_gradient", "copy", "convert_element_type", "real", "imag")
_FAMILIES = ("elementwise", "reduction", "contract", "cumulative")


def _test_nan(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    name = eqn.op.name
    if eqn.op.family not in _FAMILIES or name in _QUIET:
        return
    for x in outs:
        t = type_of(x)
        if is_inexact(t.dtype):
            bad = reduce_or(ne(x, x), axes=tuple(range(t.ndim)))
            text = f"nan generated by primitive: {name}."
            checks.fail(bad, Message(NAN, text), [], eqn.site)


def _test_div(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    if eqn.op.name not in ("div", "rem"):
        return
    t = type_of(values[1])
    bad = reduce_or(eq(values[1], np.zeros((), t.dtype)[()]), axes=tuple(range(t.ndim)))
    checks.fail(bad, Message(DIV, "division by zero"), [], eqn.site)


def _test_index(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    name, p = eqn.op.name, eqn.params
    if name == "gather" and p["mode"] != "clip":
        numbers, sizes = p["dimension_numbers"].start_index_map, p["slice_sizes"]
        _test_bounds(checks, eqn, values[0], values[1], numbers, sizes)
    elif eqn.op.family == "scatter" and p["mode"] != "clip":
        dims = p["dimension_numbers"]
        sizes = window_sizes(type_of(values[0]), type_of(values[2]), dims)
        numbers = dims.scatter_dims_to_operand_dims
        _test_bounds(checks, eqn, values[0], values[1], numbers, sizes)
    elif name in ("dynamic_slice", "dynamic_update_slice"):
        first = 1 if name == "dynamic_slice" else 2
        sizes = p["slice_sizes"] if first == 1 else type_of(values[1]).shape
        starts = values[first:]
        if starts:
            column = [broadcast_in_dim(s, shape=(1,), dims=()) for s in starts]
            vector = concatenate(*column, dimension=0) if len(column) > 1 else column[0]
            _test_bounds(checks, eqn, values[0], vector, range(len(sizes)), sizes)


def _test_bounds(
    checks: Checked, eqn: Equation, x: Any, indices: Any, numbers: Sequence[int],
    sizes: Sequence[int],
) -> None:
    """Index vectors along the last dimension of `indices` must leave room for a window."""
    shape, t = type_of(x).shape, type_of(indices)
    if not t.size:
        return
    numbers = np.asarray(list(numbers), np.int32)
    last = np.asarray([shape[d] - sizes[d] for d in numbers])
    flat = reshape(indices, shape=(t.size // len(numbers), len(numbers)))
    bad = bitwise_or(lt(flat, np.zeros((), t.dtype)), flat > last.astype(t.dtype))
    first = argmax(reshape(bad, shape=(t.size,)))
    index = reshape(flat, shape=(t.size,))[first]
    axis = array_of(numbers)[first % np.int32(len(numbers))]
    failed = reduce_or(bad, axes=(0, 1))
    checks.fail(failed, Message(INDEX, "", shape), [index, axis], eqn.site)


_TESTS: dict[str, Callable[..., None]] = {NAN: _test_nan, DIV: _test_div, INDEX: _test_index}
