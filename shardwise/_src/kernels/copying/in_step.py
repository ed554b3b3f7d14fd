"""Kernels that communicate, on CPU: the devices run the same operations in step.

A copy to another device is an operation of all devices together (`copies`), so that all
must come to it. A branch with such operations is therefore run by all devices, and `active` states
which of them take it: the refs of the others change only by what arrives.

A wait for something that has not arrived cannot be satisfied later, since the other devices are at
the same operation. Such waits are counted, and the count is an error when the kernel ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.cond_api import cond as choose
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation, Literal, Program, eval_program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.debug.host_callbacks import debug_function
from shardwise._src.kernels.accesses import INT32, kernel_store
from shardwise._src.kernels.copying.copies import (
    kernel_copy,
    kernel_signal,
    kernel_wait,
    kernel_wait_copy,
)
from shardwise._src.kernels.simulation import kernel_check
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.families import BOOL
from shardwise._src.ops.reduce import reduce_min
from shardwise._src.ops.sharded.varying import pcast, pvary
from shardwise._src.transforms.entering import Inside
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.values.convert import cast

# For each op that changes refs: its operands whose next versions are its results.
CHANGES = {
    kernel_store: (0,),
    kernel_copy: (1, 2, 3),
    kernel_wait_copy: (0, 1),
    kernel_signal: (0,),
    kernel_wait: (0,),
}
WAITS = {kernel_wait: 0, kernel_wait_copy: 1}  # which of their results is the semaphore


def _sends(eqn: Equation) -> bool:
    return eqn.op in (kernel_copy, kernel_signal) and bool(eqn.params["copy_params"].axes)


@derived
def communicates(program: Program) -> bool:
    """Whether a program copies to other devices, or signals them."""
    return any(map(_sends, walk(program)))


def run_in_step(program: Program, args: Sequence[Any], missed: Any) -> tuple[list[Any], Any]:
    """The results of a body, and `missed` plus the number of waits for what had not arrived."""
    names = frozenset().union(*[v.aval.varying for v in program.outvars])
    outs, state = _InStep(False, names).run(program, args, (missed,))
    return list(outs), state[0]


def report_missed(name: str, missed: Any) -> None:
    """Raises, when the program runs, if there were such waits."""

    def fail(count: Any) -> None:
        raise RuntimeError(
            f"kernel {name} waited {int(count)} times for a copy or signal that had not been sent "
            "yet. On CPU all devices run a kernel in step, so that sending must come before "
            "waiting in the program, whichever device does it: move it there. If no device sends, "
            "this is a deadlock."
        )

    choose(ew.gt(missed, np.int32(0)), lambda: debug_function(fail, missed), lambda: None)


@derived
def versions(program: Program) -> tuple[int | None, ...]:
    """For each result the argument of which it is a later version; None if it is another value."""
    found: dict[Any, int] = {v: i for i, v in enumerate(program.invars)}

    def of(atom: Any) -> int | None:
        return None if isinstance(atom, Literal) else found.get(atom)

    for eqn in program.eqns:
        for out, at in zip(eqn.outvars, _changed(eqn), strict=False):
            origin = None if at is None else of(eqn.invars[at])
            if origin is not None:
                found[out] = origin
    return tuple([of(v) for v in program.outvars])


def _changed(eqn: Equation) -> Sequence[int | None]:
    """For each result the operand of which it is a later version."""
    if eqn.op in CHANGES:
        return CHANGES[eqn.op]
    if eqn.op is pcast:
        return (0,)
    numbers = range(len(eqn.invars))
    if eqn.op is while_loop:
        return _changed_by_turns(eqn, *WhileParams(**eqn.params).parts(numbers)[1:])
    if eqn.op is scan:
        return _changed_by_turns(eqn, *ScanParams(**eqn.params).parts(numbers)[:2])
    inner = [versions(p) for p in eqn.programs()]
    if not inner or any(row != inner[0] for row in inner):
        return ()
    skipped = 1 if eqn.op is cond else 0
    return [None if i is None else i + skipped for i in inner[0]]


def _changed_by_turns(eqn: Equation, consts: range, carry: range) -> Sequence[int | None]:
    """As `_changed`: those parts of the carry that an iteration changes in place."""
    rows = enumerate(zip(versions(eqn.params["body"]), carry, strict=False), len(consts))
    return [at if origin == j else None for j, (origin, at) in rows]


class _InStep(Inside):
    """The state: whether this device takes the branch, within branches, and how many waits
    failed.

    names: the mesh axes along which all values vary.
    """

    at_lowering = True
    name = "kernels on CPU"

    def __init__(self, in_branch: bool, names: frozenset[Any]):
        self.in_branch, self.names, self.key = in_branch, names, (in_branch, names)
        flag, count = array_type((), BOOL), array_type((), INT32)
        self.types = (flag, count) if in_branch else (count,)

    def types_here(self) -> tuple[ArrayType, ...]:
        return tuple([t.update(varying=self.names) for t in self.types])

    def has(self, program: Program) -> bool:
        return any(eqn.op in CHANGES for eqn in walk(program))

    def join(self, state: Sequence[Any], states: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError("shard_map cannot be called inside of a kernel.")

    def run(
        self, program: Program, args: Sequence[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        held = [pvary(x, self.names) for x in state]

        def bind(eqn: Equation, values: list[Any]) -> Sequence[Any]:
            outs, state = self._bound(eqn, values, held)
            held[:] = [pvary(x, self.names) for x in state]
            return outs

        return eval_program(program, args, bind), held

    def _bound(
        self, eqn: Equation, values: list[Any], state: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        op, active = eqn.op, state[0] if self.in_branch else None
        if op is cond and any(map(communicates, eqn.params["branches"])):
            outs, missed = self._branches(eqn, values, active, state[-1])
            return outs, (*state[:-1], missed)
        if op not in (*CHANGES, kernel_check) and any(map(self.has, eqn.programs())):
            return self.enter(eqn, values, state)
        if active is not None and (op is kernel_check or _sends(eqn)):
            at = 0 if op is kernel_check else -1  # whether the check fails, whether it sends
            values[at] = ew.bitwise_and(values[at], active)
        result = op(*values, **eqn.params)
        outs = list(result) if op.multiple else [result]
        missed = state[-1]
        if op in WAITS:
            failed = cast(ew.lt(_least(outs[WAITS[op]]), np.int32(0)), INT32)
            if active is not None:
                failed = _select(active, failed, np.int32(0))
            missed = ew.add(missed, failed)
        if active is not None and op in CHANGES and not _sends(eqn):
            pairs = zip(outs, CHANGES[op], strict=False)
            outs = [_select(active, new, values[at]) for new, at in pairs]
        return outs, (*state[:-1], missed)

    def _branches(
        self, eqn: Equation, values: list[Any], active: Any, missed: Any
    ) -> tuple[list[Any], Any]:
        """All branches, one after another, each of which changes refs only where it is taken."""
        branches = eqn.params["branches"]
        which, *args = values
        rows = [versions(branch) for branch in branches]
        chosen: list[Any] = []
        for i, branch in enumerate(branches):
            taken = ew.eq(cast(which, INT32), np.int32(i))
            if active is not None:
                taken = ew.bitwise_and(active, taken)
            _check_received(branch, rows[i])
            outs, (_, missed) = _InStep(True, self.names).run(branch, args, (taken, missed))
            for at, out in zip(rows[i], outs, strict=True):
                if at is not None:
                    args[at] = out
            chosen = [
                _select(taken, new, old) for new, old in zip(outs, chosen or outs, strict=True)
            ]
        for j, origins in enumerate(zip(*rows, strict=True)):
            if origins[0] is not None and len({*origins}) == 1:
                chosen[j] = args[origins[0]]
        return chosen, missed


def _check_received(branch: Program, origins: Sequence[int | None]) -> None:
    """Rejects a branch after which it is not known what arrived in a ref."""
    for eqn in branch.eqns:
        if _sends(eqn):
            for at in CHANGES[eqn.op][:2]:
                atom = eqn.invars[at]
                if atom in branch.invars and branch.invars.index(atom) not in origins:
                    raise NotImplementedError(
                        f"kernel: {type_of(atom).str_short(True)} receives from other devices in a "
                        "branch, in which it is also written with an index of arrays. Write it "
                        "outside of the branch, or with slices."
                    )


def _least(semaphore: Any) -> Any:
    axes = tuple(range(type_of(semaphore).ndim))
    return reduce_min(semaphore, axes=axes) if axes else semaphore


def _select(taken: Any, new: Any, old: Any) -> Any:
    if new is old:
        return new
    shape = type_of(new).shape
    return ew.where(broadcast_in_dim(taken, shape=shape, dims=()) if shape else taken, new, old)
