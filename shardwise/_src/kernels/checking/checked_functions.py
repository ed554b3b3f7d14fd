"""`checked`: a function in which each launch of a kernel is checked.

Operations run one by one, programs without launches as usual. Within `shard_map`, the values of all
devices are computed up to a launch, which then runs for all of them together.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import is_array
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Atom, Equation, Program, Var, held_in
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.kernels.checking.inner_programs import Steps, finished, run_inner
from shardwise._src.kernels.checking.memory_interpreter import check_memory
from shardwise._src.kernels.launch_checks import are_checked
from shardwise._src.kernels.launch_checks import check as check_launch
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.launches import LAUNCHES, Source, kernel_loop
from shardwise._src.maps.shard_map_op import ShardMapParams, shard_map
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.transforms.tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = "blocks", "memory"
Noted = Callable[[Launch, Exception | None], None]
_KERNELS = *LAUNCHES, kernel_loop


def checked(f: F, level: str = "memory", note: Noted | None = None) -> F:
    """A function that does the same as `f`, and checks each launch of a kernel in it, also in
    functions that are jitted, in loops and branches, and in `shard_map`. It replaces the own checks
    of launches, `kernels.call(check=…)`.

        kernels.checked(step)(state, batch)

    It is slow: use small arrays. Launches of the backward pass are checked like others; of those
    that also compute tangents, and of loops that are differentiated, the launch without these.

    Args:
      f: a function of arrays. The result may not be called inside of `jit` and other transforms.
      level: "memory", or "blocks" for what `check=True` checks: see `kernels.call`.
      note: is called with the record of each launch, and the error if it has one.

    Raises:
      KernelError: when it is called, for the first error.
    """
    if level not in LEVELS:
        raise ValueError(f"checked: the level is 'memory' or 'blocks'; got {short_repr(level)}.")

    @functools.wraps(f)
    @hides_frames
    def run(*args: Any, **kwargs: Any) -> Any:
        with are_checked(True), _Checking(level, name_of(f), note).entered():
            return f(*args, **kwargs)

    return run  # type: ignore[return-value]


@derived
def _has_launches(program: Program) -> bool:
    return any(eqn.op in _KERNELS for eqn in walk(program))


def _launches(op: Op, params: dict[str, Any]) -> bool:
    """Whether an operation launches kernels."""
    return op in _KERNELS or (
        params.get("length") != 0 and any(map(_has_launches, held_in(op, params)))
    )


class _Checking(Interpreter):
    """Runs operations like the eager interpreter, and checks launches."""

    __slots__ = ("level", "note")

    def __init__(self, level: str, function: str, note: Noted | None):
        super().__init__(None, "kernels.checked", function)
        self.parent, self.level, self.note = eval_trace(), level, note

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if op.user_code and op.eager is not None and not [*held_in(op, params)]:
            return op.eager(op, args, params)
        if _launches(op, params) and op not in (*_KERNELS, shard_map):
            rows = [[x] for x in args]
            outs = finished(run_inner(op, params, rows, _on_one_device, _condition, _on_devices))
            return [x if is_array(x) else eval_trace().new_array(x) for (x,) in outs]
        with are_checked(False), self.parent_context().entered():
            if op in _KERNELS and (found := self.launch(op, [args], params)) is not None:
                return found[0]
            if op is shard_map and _launches(op, params):
                return _OverMesh(self, ShardMapParams(**params)).whole(args)
            return op(*args, **params)

    def launch(
        self, op: Op, known: Sequence[Sequence[Any]], params: dict[str, Any], axes: Any = None
    ) -> list[list[Any]] | None:
        """Checks a launch; returns the results of each device. None if the op has others: it also
        computes tangents, or is the loop that reverse mode made of a launch.

        known: the operands, of each device. Those that a loop does not have are zeros here, and of
        those that are mapped, it takes the first elements.
        """
        if op in LAUNCHES and params["launch"].primal is None:
            return self.check(known, **params, axes=axes)
        count = len(known[0])
        rest = {"unknown": (None,) * count, "mapped": (0,) * count}
        source = params.get("source") or Source(**params, **rest)
        body, maps, launch = source.launch.primal or (source.body, source.maps, source.launch)
        types = source.unknown[: launch.dynamic + launch.prefetch + len(launch.ins)]
        operands = []
        for row in known:
            xs = iter([np.asarray(x)[(0,) * n] for x, n in zip(row, source.mapped, strict=True)])
            operands.append([next(xs) if t is None else np.zeros(t.shape, t.dtype) for t in types])
        self.check(operands, body, maps, launch, axes)
        return None

    def check(
        self, operands: Sequence[Any], body: Program, maps: Any, launch: Launch, axes: Any
    ) -> list[list[Any]]:
        """The results of each device. axes: of the mesh, names to sizes; None outside of one."""
        if any(isinstance(x, Tracer) for x in operands[0]):
            raise ValueError(
                f"kernel {launch.name}: `kernels.checked` cannot be called inside of `jit` and "
                "other transforms. Call it outside of them: `checked(jit(f))`."
            )
        if self.level == "blocks" and axes is not None:
            raise ValueError(
                f"kernel {launch.name}: level='blocks' does not check kernels inside of "
                "`shard_map`. Use level='memory'."
            )
        note = self.note or (lambda launch, error: None)
        try:
            if self.level == "memory":
                found = check_memory(body, maps, launch, operands, axes)
            else:
                found = [check_launch(body, maps, launch, operands[0])]
        except Exception as error:
            note(launch, error)
            raise
        note(launch, None)
        return found


# -- operations that contain launches, on lists or arrays of the values of devices --


def _on_one_device(program: Program, rows: Sequence[Any]) -> Steps:
    yield from ()
    return [[y] for y in program(*[x for (x,) in rows])]


def _on_devices(f: Callable[..., Any], *rows: Sequence[Any]) -> np.ndarray:
    return np.stack([f(*xs) for xs in zip(*rows, strict=True)])


def _condition(row: Sequence[Any]) -> np.ndarray:
    first, *others = map(np.asarray, row)
    if any(other != first for other in others):
        raise NotImplementedError(
            "checked: a condition around a kernel differs between devices inside of `shard_map`. "
            "Put the condition into the kernel."
        )
    return first


# -- shard_map --


@derived
def _parts(program: Program) -> tuple[tuple[bool, Program], ...]:
    """A program in parts, which return what others need: single equations with launches (True), and
    those in between."""
    groups = itertools.groupby(program.eqns, lambda e: _launches(e.op, e.params) and id(e))
    return tuple([(bool(has), _part(program, [*eqns])) for has, eqns in groups])


def _part(program: Program, eqns: Sequence[Equation]) -> Program:
    made = dict.fromkeys([v for e in eqns for v in e.outvars])
    atoms = dict.fromkeys([a for e in eqns for a in e.invars if a not in made])
    others = [e for e in program.eqns if made.keys().isdisjoint(e.outvars)]
    needed = {a for e in others for a in e.invars} | {*program.outvars}
    outs = [v for v in made if v in needed or len(eqns) == 1]
    return Program([a for a in atoms if isinstance(a, Var)], outs, eqns)


class _OverMesh:
    """A program of `shard_map`. Its values are arrays with a first dimension for the devices along
    whose axes they vary: see `ShardMapParams.of_rows`."""

    def __init__(self, check: _Checking, own: ShardMapParams):
        self.check, self.own, sizes = check, own, own.place.mesh.shape
        self.axes = {a: sizes[a] for a in own.axes}
        self.devices = [*np.ndindex(*self.axes.values())]

    def whole(self, args: Sequence[Any]) -> list[Any]:
        own = self.own
        ins, outs = [[*map(Var, types)] for types in (own.program.in_types, own.program.out_types)]
        rows = own.of_rows(Program(ins, ins, ()), in_specs=own.in_specs)(*args)
        found = finished(self.run(own.program, rows))
        return own.of_rows(Program(outs, outs, ()), out_specs=own.out_specs)(*found)

    def run(self, program: Program, args: Sequence[Any]) -> Steps:
        pairs = zip(program.constvars, program.consts, strict=True)
        consts = [self._rows(v, [c] * len(self.devices)) for v, c in pairs]
        env: dict[Any, Any] = dict(zip(program.inputs, (*consts, *args), strict=True))

        def value(a: Any) -> Any:
            return env[a] if isinstance(a, Var) else self._rows(a, [a.value] * len(self.devices))

        for has_launches, part in _parts(program):
            eqn, values, outs = part.eqns[0], [*map(value, part.eqns[0].invars)], None
            if has_launches and eqn.op in _KERNELS:
                outs = self._launch(eqn, values)
            elif has_launches:
                run = self.run, _condition, _on_devices
                outs = yield from run_inner(eqn.op, eqn.params, values, *run)
            if outs is None:
                outs = self.own.of_rows(part)(*map(value, part.invars))
            env.update(zip(part.outvars, outs, strict=True))
        return [*map(value, program.outvars)]

    def _launch(self, eqn: Equation, values: Sequence[Any]) -> list[Any] | None:
        pairs = [(a.aval, np.asarray(x)) for a, x in zip(eqn.invars, values, strict=True)]
        operands = [[x[self.own.row(t, d)] for t, x in pairs] for d in self.devices]
        found = self.check.launch(eqn.op, operands, eqn.params, self.axes)
        if found is None:
            return None
        columns = zip(eqn.outvars, zip(*found, strict=True), strict=True)
        return [self._rows(v, each) for v, each in columns]

    def _rows(self, a: Atom, each: Sequence[Any]) -> np.ndarray:
        """The array for the values of each device."""
        rows = {self.own.row(a.aval, d): x for d, x in zip(self.devices, each, strict=True)}
        return np.stack([np.asarray(rows[i]) for i in sorted(rows)])
