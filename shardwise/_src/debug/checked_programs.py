"""Checks as values: a program is rewritten to report which of its checks failed first.

`check` is an op without results; `checked_program` runs a program equation by equation and adds, to
each that can fail, a test of its results or operands. The rewritten program additionally returns a
*code*: 0, or the number of the first place that failed, and the values for every place's message. A
place is a `Place`; their list is known when the program is staged, so codes are plain arrays, which
pass through `jit`, `vmap` and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.base.errors import Documented
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.core.program import Equation, Program, eval_program
from shardwise._src.core.program_tools import derived, pruned
from shardwise._src.effects.ordering import CHECK, OPTIONAL_CHECK
from shardwise._src.messages.source import Site, describe
from shardwise._src.numpy.statistics.reductions import argmax
from shardwise._src.ops.basis import batch_first, broadcast_in_dim, reshape, zeros
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import add
from shardwise._src.ops.logical import bitwise_or, eq, gt, lt, ne, select_n
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.sharded.varying import everywhere
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_inexact

USER, NAN, DIV, INDEX, ERROR, MAPPED = "user", "nan", "div", "index", "error", "mapped"


@dataclass(frozen=True)
class Message:
    """The message of a check: `str.format` with its arguments, which are arrays except `static`
    ones.

    kind: one of `USER`, `NAN`, `DIV`, `INDEX`; or `ERROR`: the message of another error; `MAPPED`:
      those of all devices of a `shard_map`.
    tree: the pytree of the arguments; for an index, the array's shape; for errors, their places.
    optional: whether the check is omitted from programs that are not checked.
    """

    kind: str
    fmt: str
    tree: Any = None
    optional: bool = False

    def text(self, values: Sequence[Any]) -> str:
        if self.kind == ERROR:
            return text_of(self.tree, values[0], values[1:])
        if self.kind == INDEX:
            index, axis, shape = int(values[0]), int(values[1]), self.tree
            return (
                f"out-of-bounds indexing for array of shape {shape}: index {index} is out of "
                f"bounds for axis {axis} with size {shape[axis]}. "
            )
        if self.kind != USER:
            return self.fmt
        args, kwargs = self.tree.unflatten(map(eval_trace().new_array, values))
        return f"{self.fmt.format(*args, **kwargs)} (`check` failed)"


@dataclass(frozen=True)
class Place:
    """Where a program checks something. types: of the values that its message takes."""

    message: Message
    types: tuple[ArrayType, ...]
    site: Site | None

    def where(self) -> str:
        if self.message.kind == MAPPED:
            return " or ".join(dict.fromkeys(place.where() for place in self.message.tree))
        return describe(self.site)


def text_of(places: Sequence[Place], codes: Any, slots: Sequence[Any]) -> str:
    """The message of the place that failed; one for each element of `codes` that is not 0."""
    lines = []
    for index, text in _messages(places, codes, slots):
        at = f"at mapped index {', '.join(map(str, index))}: " if index else ""
        lines.append(at + text)
    return "\n".join(lines)


def _messages(places: Sequence[Place], codes: Any, slots: Sequence[Any]) -> Iterator[Any]:
    """(index, message) of all failures."""
    for index in zip(*np.nonzero(codes), strict=True) if np.ndim(codes) else [()]:
        code = int(codes[index])
        before = sum(len(p.types) for p in places[: code - 1])
        place = places[code - 1]
        values = [x[index] for x in slots[before : before + len(place.types)]]
        if place.message.kind == MAPPED:
            inner = _messages(place.message.tree, values[0], values[1:])
            yield from (((*index, *more), text) for more, text in inner)
        else:
            yield index, place.message.text(values)


# -- the op --


def _dims(op: Op, pred: ArrayType, *values: ArrayType, message: Message, levels: int) -> Dims:
    names = letters(sum(t.ndim for t in (pred, *values)))
    rows, start = [], 0
    for t in (pred, *values):
        rows.append(names[start : start + t.ndim])
        start += t.ndim
    return Dims(tuple(rows), ())


def _expand(op: Op, types: Any, params: dict[str, Any], platform: Any) -> Program | None:
    """An optional check does nothing."""
    return program_of(lambda *xs: [], types, "check") if params["message"].optional else None


def _lower(op: Op, *_: Any, message: Message, levels: int) -> list[str]:
    raise ValueError(
        f"checkify.check with the message {message.fmt!r} is in a compiled program, which "
        "cannot raise exceptions. Wrap the function in "
        "`shardwise.experimental.checkify.checkify`, inside or outside of "
        "jit: it returns the error as a value."
    )


def _eager(op: Op, args: Any, params: dict[str, Any]) -> list[Any]:
    failed = np.logical_not(np.asarray(args[0]))
    if not params["message"].optional and failed.any():
        first = np.unravel_index(failed.argmax(), failed.shape)
        values = [np.asarray(v)[first] for v in args[1:]]
        raise CheckError(params["message"].text(values))
    return []


class CheckError(Documented, ValueError):
    """A check that failed. (`checkify.JaxRuntimeError` is another name of it.)"""


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, message: Message, levels: int
) -> tuple[list[Any], list[Any]]:
    moved = [batch_first(mapped.size, x, d) for x, d in zip(args, dims, strict=True)]
    return op(*moved, message=message, levels=levels + 1), []


check_op = Op(
    "check",
    type_rule=lambda op, pred, *values, **p: (),
    dims=_dims,
    lower=_lower,
    expand=_expand,
    eager=_eager,
    jvp=lambda op, primals, tangents, **p: (op(*primals, **p), []),
    batch=_batch,
    effects=frozenset({CHECK}),
    multiple=True,
    user_code=True,
)
# Does nothing outside of `checkify`, so that loops under `vmap` may contain it.
optional_check_op = replace(check_op, name="debug_check", effects=frozenset({OPTIONAL_CHECK}))


# -- making programs report failures --


CODE = array_type((), np.dtype("int32"))
NONE = np.int32(0)


class Checked:
    """The checks of a program that is run equation by equation.

    enabled: kinds of checks. code, slots: which place failed first, and each place's values.
    """

    def __init__(self, enabled: frozenset[str]):
        self.enabled = enabled
        self.places: list[Place] = []
        self.slots: list[Any] = []
        self.code: Any = convert_element_type(NONE, dtype=CODE.dtype, weak=False)

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        """The results of a program, whose checks are added to this object's."""
        return eval_program(program, args, self.equation)

    def equation(self, eqn: Equation, values: list[Any]) -> list[Any]:
        if eqn.op is check_op or eqn.op is optional_check_op:
            self._user_check(eqn, values)
            return []
        op = eqn.op
        # The axes of an op that binds some are not in scope here, where its places are unknown.
        if op.programs and (
            op.contains.binds or any(_places(p, self.enabled) for p in eqn.programs())
        ):
            if op.enter is not None:
                return self._enter(eqn, values)
            if any(_places(p, self.enabled & {USER}) for p in eqn.programs()):
                raise NotImplementedError(
                    "checkify does not support checks in the functions "
                    f"of {eqn.op.name}, at {describe(eqn.site)}. Check its inputs and outputs "
                    "instead."
                )
        result = eqn.op(*values, **eqn.params)
        outs = list(result) if eqn.op.multiple else [result]
        for kind, test in _TESTS.items():
            if kind in self.enabled:
                test(self, eqn, values, outs)
        return outs

    def _enter(self, eqn: Equation, values: list[Any]) -> list[Any]:
        """The results of an op whose programs have checks; adds their findings."""
        programs = () if eqn.op.contains.binds else tuple(dict.fromkeys(eqn.programs()))
        inside = _Checking(self.enabled, programs)
        state = [*map(zeros, inside.types)]
        outs, (code, *slots) = inside.enter(eqn, values, state)
        code = select_n(eq(code, NONE), add(code, np.int32(len(self.places))), code)
        self._set(code)
        self.places += inside.places
        self.slots += slots
        return outs

    def fail(self, failed: Any, message: Message, values: Sequence[Any], site: Any) -> None:
        """Adds a place that failed where `failed` (bool[]) is true."""
        values = [_strong(v) for v in values]
        types = tuple([type_of(v) for v in values])
        self.places.append(Place(message, types, site))
        self.slots += values
        self._set(select_n(failed, NONE, np.int32(len(self.places))))

    def _set(self, code: Any) -> None:
        """Sets the code, unless there is one."""
        self.code = select_n(eq(self.code, NONE), self.code, code)

    def state(self) -> list[Any]:
        """The code and the values of all places; places record the types of these."""
        slots = [everywhere(x) for x in self.slots]
        rest = iter(map(type_of, slots))
        self.places = [replace(p, types=tuple([next(rest) for _ in p.types])) for p in self.places]
        return [everywhere(self.code), *slots]

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


def _strong(x: Any) -> Any:
    t = type_of(x)
    return convert_element_type(x, dtype=t.dtype, weak=False) if t.weak_type else x


def _row(x: Any, levels: int, which: Any) -> Any:
    shape = type_of(x).shape
    count = int(np.prod(shape[:levels]))
    return reshape(x, shape=(count, *shape[levels:]))[which]


# -- tests for ops --


def _test_nan(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    op = eqn.op
    if not (op.elements is Elements.COMPUTED or (op.programs and op.enter is None)):
        return
    for x in outs:
        t = type_of(x)
        if is_inexact(t.dtype):
            bad = reduce_or(ne(x, x), axes=tuple(range(t.ndim)))
            text = f"nan generated by primitive: {op.name}."
            checks.fail(bad, Message(NAN, text), [], eqn.site)


def _test_div(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    if eqn.op.divisor is None:
        return
    x = values[eqn.op.divisor]
    t = type_of(x)
    bad = reduce_or(eq(x, np.zeros((), t.dtype)[()]), axes=tuple(range(t.ndim)))
    checks.fail(bad, Message(DIV, "division by zero"), [], eqn.site)


def _test_index(checks: Checked, eqn: Equation, values: list[Any], outs: list[Any]) -> None:
    """Index vectors along the last dimension of `indices` must leave room for a window."""
    found = None if eqn.op.windows is None else eqn.op.windows(eqn.op, values, **eqn.params)
    if found is None:
        return
    x, indices, numbers, sizes = found
    shape, t = type_of(x).shape, type_of(indices)
    if not t.size:
        return
    if t.dtype.itemsize < 4:  # which may be too small for the sizes
        indices = convert_element_type(indices, dtype=CODE.dtype, weak=False)
        t = type_of(indices)
    count = len(numbers)
    last = np.asarray([shape[d] - sizes[d] for d in numbers])
    flat = reshape(indices, shape=(t.size // count, count))
    none = np.zeros((), t.dtype)[()]
    last = broadcast_in_dim(last.astype(t.dtype), shape=type_of(flat).shape, dims=(1,))
    bad = bitwise_or(lt(flat, none), gt(flat, last))
    first = argmax(reshape(bad, shape=(t.size,)))
    index = reshape(flat, shape=(t.size,))[first]
    axes = convert_element_type(np.asarray(numbers, np.int32), dtype=CODE.dtype, weak=False)
    axis = axes[first % np.int32(count)]
    failed = reduce_or(bad, axes=(0, 1))
    checks.fail(failed, Message(INDEX, "", shape), [index, axis], eqn.site)


# In order: a division by zero is reported as such, not as the NaN that it returns.
_TESTS: dict[str, Callable[..., None]] = {DIV: _test_div, NAN: _test_nan, INDEX: _test_index}


# -- ops that contain programs --


@derived
def checked_program(program: Program, enabled: frozenset[str]) -> tuple[Program, tuple[Place, ...]]:
    """The program that returns its results, then the code, then the values of its places."""
    made: list[Checked] = []

    def run(*args: Any) -> list[Any]:
        made.append(Checked(enabled))
        outs = made[-1].run(program, args)
        return [*outs, *made[-1].state()]

    new = program_of(run, program.in_types, program.name)
    return new, tuple(made[-1].places)


def _places(program: Program, enabled: frozenset[str]) -> tuple[Place, ...]:
    return checked_program(program, enabled)[1]


class _Checking(Inside):
    """The checks in the programs of an op. The state: a code, and the values of all places."""

    name = "checkify"

    def __init__(self, enabled: frozenset[str], programs: tuple[Program, ...]):
        self.enabled = enabled
        self.key = enabled, programs
        self.places: list[Place] = []
        self._start: dict[Program, int] = {}  # the number of places before those of a program
        for program in programs:
            self._start[program] = len(self.places)
            self.places += _places(program, enabled)
        self.types = [CODE, *[t for place in self.places for t in place.types]]

    def has(self, program: Program) -> bool:
        return bool(_places(program, self.enabled))

    def run(
        self, program: Program, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """The code and values of the first failure."""
        new, places = checked_program(program, self.enabled)
        outs, count = new(*args), len(program.outvars)
        before = self._start[program]
        code = select_n(eq(outs[count], NONE), add(outs[count], np.int32(before)), outs[count])
        first = 1 + sum(len(place.types) for place in self.places[:before])
        last = first + sum(len(place.types) for place in places)
        after = [code, *state[1:first], *outs[count + 1 :], *state[last:]]
        failed = ne(state[0], NONE)
        rows = zip(state, after, strict=True)
        return outs[:count], [select_n(failed, now, then) for then, now in rows]

    def plain(self, program: Program) -> Program:
        new, _ = checked_program(program, self.enabled)
        return pruned(new, new.outvars[: len(program.outvars)])

    def fresh(self, op: Op, program: Program) -> Program:
        new, places = checked_program(program, self.enabled)
        self.places = list(places)
        return new

    def join(self, state: Sequence[Any], states: Sequence[Any]) -> list[Any]:
        """One place for the failures of all devices."""
        codes, *_ = states
        message = Message(MAPPED, "", tuple(self.places))
        self.places = [Place(message, tuple(map(type_of, states)), None)]
        failed = reduce_or(ne(codes, NONE), axes=(0,))
        return [convert_element_type(failed, dtype=CODE.dtype, weak=False), *states]
