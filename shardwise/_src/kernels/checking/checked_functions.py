"""`checked`: a function in which each launch of a kernel is checked.

Operations run one by one, programs without launches as usual. Within `shard_map`, the values of all
devices are computed up to a launch, which then runs for all of them together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program, Var, held_in
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.custom.implicit import groups_of
from shardwise._src.custom.linear_call import linear_call_op
from shardwise._src.kernels.checking.memory_check import check_memory
from shardwise._src.kernels.launch_checks import check as check_launch
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.launches import kernel_call
from shardwise._src.maps.shard_map_op import ShardMapParams, shard_map
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.transforms.tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = "blocks", "memory"
Run = Callable[[Program, Sequence[Any]], list[Any]]
Noted = Callable[[Launch, Exception | None], None]


def checked(f: F, level: str = "memory", note: Noted | None = None) -> F:
    """A function that does the same as `f`, and checks each launch of a kernel in it, also in
    functions that are jitted, in loops and branches, and in `shard_map`.

        kernels.checked(step)(state, batch)

    It is slow: use small arrays. Reverse-mode derivatives of kernels are not checked, but the
    functions that are differentiated are.

    Args:
      f: a function of arrays. The result may not be called inside of `jit` and other transforms.
      level: "memory", or "blocks" for what `check=True` checks: see `kernels.call`.
      note: is called with the record of each launch, and the error if it has one.

    Raises:
      KernelError: when it is called, for the first fault.
    """
    if level not in LEVELS:
        raise ValueError(f"checked: the level is 'memory' or 'blocks'; got {short_repr(level)}.")

    @functools.wraps(f)
    @hides_frames
    def run(*args: Any, **kwargs: Any) -> Any:
        with _Checking(level, name_of(f), note).entered():
            return f(*args, **kwargs)

    return run  # type: ignore[return-value]


@derived
def has_launches(program: Program) -> bool:
    return any(eqn.op is kernel_call for eqn in walk(program))


class _Checking(Interpreter):
    """Runs operations like the eager interpreter, and checks launches."""

    __slots__ = ("level", "note")

    def __init__(self, level: str, function: str, note: Noted | None):
        super().__init__(None, "kernels.checked", function)
        self.parent, self.level, self.note = eval_trace(), level, note

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if op is kernel_call:
            with self.parent_context().entered():
                return self.launch(args, **params)
        programs = [*held_in(op, params)]
        if op.user_code and op.eager is not None and not programs:
            return op.eager(op, args, params)
        if op is shard_map and has_launches(params["program"]):
            with self.parent_context().entered():
                return _OverMesh(self, ShardMapParams(**params)).whole(args)
        if any(map(has_launches, programs)):
            return walked(op, params, args, lambda p, xs: p(*xs), _Plain)
        with self.parent_context().entered():
            return op(*args, **params)

    def launch(self, operands: Sequence[Any], body: Program, maps: Any, launch: Launch) -> Any:
        if any(isinstance(x, Tracer) for x in operands):
            raise ValueError(
                f"kernel {launch.name}: `kernels.checked` cannot be called inside of `jit` and "
                "other transforms. Call it outside of them: `checked(jit(f))`."
            )
        names = launch.ref_names[launch.prefetch :]

        def check() -> Any:
            if self.level == "memory":
                return check_memory(body, maps, launch, [operands])[0]
            return check_launch(body, maps, launch, operands, names)

        return self.noted(launch, check)

    def noted(self, launch: Launch, check: Callable[[], Any]) -> Any:
        try:
            found = check()
        except Exception as error:
            if self.note is not None:
                self.note(launch, error)
            raise
        if self.note is not None:
            self.note(launch, None)
        return found


# -- programs with launches --


class _Plain:
    """Values of one device."""

    @staticmethod
    def scalar(x: Any) -> Any:
        return np.asarray(x)

    @staticmethod
    def at(x: Any, i: int) -> Any:
        return np.asarray(x)[i]

    @staticmethod
    def stacked(xs: Sequence[Any]) -> Any:
        return np.stack([*map(np.asarray, xs)])


class _Rows:
    """Lists of the values of several devices."""

    @staticmethod
    def scalar(x: Any) -> Any:
        first, *others = map(np.asarray, x)
        if any(other != first for other in others):
            raise NotImplementedError(
                "checked: a condition around a kernel differs between devices inside of "
                "`shard_map`. Put the condition into the kernel."
            )
        return first

    @staticmethod
    def at(x: Any, i: int) -> Any:
        return [np.asarray(row)[i] for row in x]

    @staticmethod
    def stacked(xs: Sequence[Any]) -> Any:
        return [np.stack([*map(np.asarray, rows)]) for rows in zip(*xs, strict=True)]


def walked(op: Op, params: dict[str, Any], args: Sequence[Any], run: Run, values: Any) -> list[Any]:
    """The results of an operation that contains programs, by running these."""
    if op is cond:
        branches = params["branches"]
        which = int(values.scalar(args[0]))
        return run(branches[min(max(which, 0), len(branches) - 1)], args[1:])
    if op is while_loop:
        own = WhileParams(**params)
        tests, bodies, carry = own.parts(args)
        while values.scalar(run(own.test, [*tests, *carry])[0]):
            carry = run(own.body, [*bodies, *carry])
        return list(carry)
    if op is scan:
        return _scanned(ScanParams(**params), args, run, values)
    if op is linear_call_op:
        own, _, residuals, given = groups_of(args, params["counts"])
        return run(params["programs"][0], [*own, *residuals, *given])
    programs = [*held_in(op, params)]
    if len(programs) != 1:
        raise NotImplementedError(
            f"checked: a kernel is launched inside of {op.name}, which cannot be checked. Check "
            "the function inside of it."
        )
    return run(programs[0], args)


def _scanned(own: ScanParams, args: Sequence[Any], run: Run, values: Any) -> list[Any]:
    consts, carry, xs = own.parts(args)
    rows: list[list[Any]] = []
    for i in sorted(range(own.length), reverse=own.reverse):
        outs = run(own.body, [*consts, *carry, *[values.at(x, i) for x in xs]])
        carry = outs[: own.num_carry]
        rows.append(outs[own.num_carry :])
    columns = zip(*(reversed(rows) if own.reverse else rows), strict=True)
    return [*carry, *map(values.stacked, columns)]


@derived
def _parts(program: Program) -> tuple[tuple[Equation | None, Program], ...]:
    """A program in parts: equations with launches, and programs of those in between, which return
    what later parts need."""
    groups: list[list[Equation]] = [[]]
    for eqn in program.eqns:
        if eqn.op is kernel_call or any(map(has_launches, eqn.programs())):
            groups += [[eqn], []]
        else:
            groups[-1].append(eqn)
    return tuple([_part(program, group) for group in groups if group])


class _OverMesh:
    """A program of `shard_map`, on values of all its devices: lists of arrays."""

    def __init__(self, check: _Checking, own: ShardMapParams):
        self.check, self.own = check, own
        sizes = own.place.mesh.shape
        self.axes = {a: sizes[a] for a in own.axes}
        self.devices = [*np.ndindex(*self.axes.values())]

    def whole(self, args: Sequence[Any]) -> list[Any]:
        own = self.own
        rows = [
            [np.asarray(x)[self._shard(np.shape(x), spec, d)] for d in self.devices]
            for x, spec in zip(args, own.in_specs, strict=True)
        ]
        outs = self.run(own.program, rows)
        return [self._joined(x, spec) for x, spec in zip(outs, own.out_specs, strict=True)]

    def _shard(self, shape: Sequence[int], spec: Any, device: Sequence[int]) -> tuple[slice, ...]:
        """Which part of an array a device has."""
        at, found = dict(zip(self.axes, device, strict=True)), []
        for n, names in zip(shape, spec.dims(len(shape)), strict=True):
            number, count = 0, math.prod([self.axes.get(a, 1) for a in names])
            for a in names:
                number = number * self.axes.get(a, 1) + at.get(a, 0)
            found.append(slice(n // count * number, n // count * (number + 1)))
        return tuple(found)

    def _joined(self, rows: Sequence[Any], spec: Any) -> Any:
        shape = np.shape(rows[0])
        counts = [
            math.prod([self.axes.get(a, 1) for a in names]) for names in spec.dims(len(shape))
        ]
        shape = [n * m for n, m in zip(shape, counts, strict=True)]
        out = np.zeros(shape, np.asarray(rows[0]).dtype)
        for row, device in zip(rows, self.devices, strict=True):
            out[self._shard(out.shape, spec, device)] = row
        return eval_trace().place(out, self.own.place.with_spec(spec))

    def run(self, program: Program, args: Sequence[Any]) -> list[Any]:
        consts = [[c] * len(self.devices) for c in program.consts]
        env: dict[Any, Any] = dict(zip(program.inputs, (*consts, *args), strict=True))

        def value(atom: Any) -> Any:
            return env[atom] if isinstance(atom, Var) else [atom.value] * len(self.devices)

        for eqn, part in _parts(program):
            values = [*map(value, part.invars if eqn is None else eqn.invars)]
            if eqn is None:
                outs = self._without_launches(part, values)
            elif eqn.op is kernel_call:
                outs = self._launch(values, **eqn.params)
            else:
                outs = walked(eqn.op, eqn.params, values, self.run, _Rows)
            env.update(zip(part.outvars, outs, strict=True))
        return [*map(value, program.outvars)]

    def _without_launches(self, program: Program, values: Sequence[Any]) -> list[Any]:
        own, stacks = self.own, []
        for v, rows in zip(program.invars, values, strict=True):
            stack = {own.row(v.aval, d): row for d, row in zip(self.devices, rows, strict=True)}
            stacks.append(np.stack([np.asarray(stack[i]) for i in range(len(stack))]))
        outs = own.of_rows(program)(*stacks)
        return [
            [np.asarray(x)[own.row(v.aval, d)] for d in self.devices]
            for v, x in zip(program.outvars, outs, strict=True)
        ]

    def _launch(self, values: Sequence[Any], body: Program, maps: Any, launch: Launch) -> list[Any]:
        if self.check.level != "memory":
            raise ValueError(
                f"kernel {launch.name}: level='blocks' does not check kernels inside of "
                "`shard_map`. Use level='memory'."
            )
        operands = [*zip(*values, strict=True)] if values else [()] * len(self.devices)
        outs = self.check.noted(
            launch, lambda: check_memory(body, maps, launch, operands, self.axes)
        )
        return [*map(list, zip(*outs, strict=True))]


def _part(program: Program, group: Sequence[Equation]) -> tuple[Equation | None, Program]:
    eqns, first = [*group], group[0]
    made = {v: None for eqn in eqns for v in eqn.outvars}
    if len(eqns) == 1 and (first.op is kernel_call or any(map(has_launches, first.programs()))):
        return first, Program((), first.outvars, eqns)
    taken = {v: None for e in eqns for v in e.invars if isinstance(v, Var) and v not in made}
    inside = {*map(id, eqns)}
    needed = {a for e in program.eqns if id(e) not in inside for a in e.invars} | {*program.outvars}
    return None, Program(taken, [v for v in made if v in needed], eqns)
