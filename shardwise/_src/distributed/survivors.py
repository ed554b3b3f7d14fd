"""Continuing after processes were lost: the surviving processes, their mesh, and their arrays.

    try:
        state = step(state, batch)
    except ProcessFailureError:
        left = survivors()              # called by all survivors
        mesh = left.mesh(mesh)          # smaller, without the devices of lost processes
        step = left.least(step)         # the last that all have finished
        state = left.arrays(states[step], mesh)

A mesh of survivors has its devices in a different order than before: XLA caches the broken
connections of each group of devices, keyed by the order of the devices.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.base.lazy import public
from shardwise._src.distributed.recorder import record_of
from shardwise._src.distributed.shard_recovery import parts_for, spans_of, what_is_wrong, words
from shardwise._src.distributed.start import here
from shardwise._src.distributed.tiles import is_spread
from shardwise._src.placement.array_creation import make_array_from_single_device_arrays
from shardwise._src.placement.device_put import device_put
from shardwise._src.runtime import backend, processes, threads
from shardwise._src.runtime.in_flight import CPU_WINDOW
from shardwise._src.tree.functions import flatten_with_path
from shardwise._src.tree.registration import keystr
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.sharding import NamedSharding

DRAIN = 2.0  # seconds for programs in flight to end by themselves, and then again by force


def survivors() -> Survivors:
    """Waits for all processes that survived a failure, and lets them continue.

    Call it in every surviving process, at the same point of the program, for example after catching
    a `ProcessFailureError`. Results computed before the failure are still available; from now on,
    programs over the devices of lost processes are rejected.

    Raises:
      RuntimeError: this process has not joined others; or programs in flight do not end.
      ProcessFailureError: a live process does not arrive within `wait_timeout_secs`.
    """
    state = here()
    if state is None:
        raise RuntimeError("survivors: this process has not joined others (`initialize`).")
    if not state.watch.failures and not _Lost.ranks:
        raise RuntimeError("survivors: no process has failed.")
    _end_programs()
    found = tuple(state.watch.census(range(state.count), "survivors"))
    lost = tuple([r for r in range(state.count) if r not in found])
    state.watch.go_on_without(lost)
    _Lost.ranks, _Lost.times = lost, _Lost.times + 1
    devices = tuple([d for d in backend.devices() if d.process_index in found])
    return Survivors(found, lost, devices, _Lost.times)


def flight_record() -> str:
    """A readable log of this process's last launches, meetings and waits with other processes.

    Raises:
      RuntimeError: this process has not joined others.
    """
    state = here()
    if state is None:
        raise RuntimeError("flight_record: this process has not joined others (`initialize`).")
    return record_of(state.watch)


class _Lost:
    ranks: tuple[int, ...] = ()
    times = 0


def _end_programs() -> None:
    """Waits for programs in flight, some of which can only fail."""
    for _ in range(2):
        if threads.start(CPU_WINDOW.drain, "drain").join(DRAIN):
            return
        processes.break_connections()
    raise RuntimeError("survivors: programs that wait for lost processes did not finish.")


@public("shardwise.distributed")
@dataclass(frozen=True)
class Survivors:
    """The processes that survived a failure of others (`survivors`).

    processes: the indices of the surviving processes; lost: of the others.
    devices:   the devices of the surviving processes.
    times:     how many times the program has continued after a failure.
    """

    processes: tuple[int, ...]
    lost: tuple[int, ...]
    devices: tuple[Any, ...]
    times: int

    def mesh(self, mesh: Mesh, axes: Sequence[str] | None = None) -> Mesh:
        """The largest mesh with the same axes, without devices of lost processes.

        axes: the axes that may become shorter; None for any. Pass the axes over which data is
          sharded and parameters are replicated.

        Raises:
          ValueError: nothing would be left.
        """
        devices = np.asarray(mesh.devices)
        may = range(devices.ndim) if axes is None else [mesh.axis_names.index(a) for a in axes]
        kept = _largest(np.vectorize(lambda d: d.process_index in self.lost)(devices), tuple(may))
        left = devices[np.ix_(*kept)]
        if not left.size:
            raise ValueError(
                f"Survivors.mesh: no device of {mesh} is left if only axes {list(axes or ())} may "
                "shrink."
            )
        return Mesh(self._turned(left), mesh.axis_names, axis_types=mesh.axis_types)

    def least(self, number: int) -> int:
        """The minimum of a number over the processes: for steps, the last that all have finished.

        A process may have finished a step in which another one failed. Call it in every surviving
        process.
        """
        return min(map(int, self._met("Survivors.least", str(int(number)))))

    def _met(self, what: str, payload: str) -> list[str]:
        state = here()
        assert state is not None
        return state.watch.meet(what, span=self.processes, payload=payload)

    def arrays(self, tree: Any, mesh: Mesh) -> Any:
        """Moves the arrays of a pytree to a mesh of survivors.

        Arrays on devices of this process alone, and leaves that are not arrays, are returned
        unchanged. Call it in every surviving process, with the same pytree.

        Args:
          tree: a pytree of arrays with a `NamedSharding`; a survivor must have each shard.
          mesh: from `Survivors.mesh`.

        Raises:
          ProcessFailureError: names the arrays that have a shard on no survivor, or that are
            results of a failed program, or whose memory was deleted or donated.
        """
        leaves, tree_of = flatten_with_path(tree)
        found = [what_is_wrong(leaf) for _, leaf in leaves]
        answers = self._met("Survivors.arrays", json.dumps(found))
        everyone = [json.loads(one) for one in answers]
        missing = [
            f"{keystr(path) or 'the array'} ({why})"
            for i, (path, leaf) in enumerate(leaves)
            if (why := next((one[i] for one in everyone if one[i]), "") or self._gap(leaf))
        ]
        if missing:
            raise ProcessFailureError(
                f"Survivors.arrays: incomplete without processes {list(self.lost)}: "
                f"{'; '.join(missing)}. Restore these from a checkpoint, or keep them replicated "
                "over processes.",
                self.lost,
            )
        return tree_of.unflatten([self._moved(leaf, mesh) for _, leaf in leaves])

    def _gap(self, leaf: Any) -> str:
        """A message about a shard of an array that no survivor has; "" if none."""
        if not is_spread(leaf):
            return ""
        spans = spans_of(leaf.sharding, leaf.shape)
        held = {span for device, span in spans if device.process_index not in self.lost}
        gone = [span for _, span in spans if span not in held]
        if not gone:
            return ""
        return f"{leaf.aval.str_short(True)} lacks {words(gone[0], leaf.shape)}"

    def _moved(self, leaf: Any, mesh: Mesh) -> Any:
        if not is_spread(leaf):
            return leaf
        sharding = NamedSharding(mesh, leaf.sharding.spec)
        part = parts_for(leaf, sharding, self.processes, self._turned)
        found = [
            device_put(part(span), device)
            for device, span in spans_of(sharding, leaf.shape)
            if device.process_index == backend.process_index()
        ]
        return make_array_from_single_device_arrays(leaf.shape, sharding, found, dtype=leaf.dtype)

    def _turned(self, devices: Any) -> Any:
        """Reorders devices so that no earlier broken connection is reused."""
        for axis, size in enumerate(devices.shape):
            turn = self.times % size
            devices = np.roll(devices, turn, axis) if turn and size > 2 else np.flip(devices, axis)
        return devices


def _largest(lost: np.ndarray, axes: tuple[int, ...]) -> list[list[int]]:
    """The indices, along each axis, of the largest subgrid without lost devices.

    lost: bool, one for each device. axes: the axes that may become shorter. Removing a lost device
    removes all devices with its index along one axis; all choices of axes are tried if there are
    few lost devices.
    """
    everything = [list(range(n)) for n in lost.shape]
    places = [tuple(map(int, p)) for p in np.argwhere(lost)]
    ways = [(axis,) * len(places) for axis in axes]
    if len(places) <= 8:
        ways += [*itertools.product(axes, repeat=len(places))]
    best: list[list[int]] = [[] for _ in lost.shape]
    for way in ways:
        gone = {(axis, place[axis]) for axis, place in zip(way, places, strict=True)}
        kept = [[i for i in held if (a, i) not in gone] for a, held in enumerate(everything)]
        if math.prod(map(len, kept)) > math.prod(map(len, best)):
            best = kept
    return best
