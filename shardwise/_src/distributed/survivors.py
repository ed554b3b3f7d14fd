"""Going on after processes were lost: who is left, on which mesh, with which arrays.

    try:
        state = step(state, batch)
    except ProcessFailureError:
        left = survivors()              # all that are left come here
        mesh = left.mesh(mesh)          # smaller, without the devices of the lost ones
        step = left.least(step)         # the last that all have finished
        state = left.arrays(states[step], mesh)

A mesh of survivors has its devices in another order than before: XLA keeps the broken connections
of each group of devices, and finds them by the order of these.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.api.array_creation import make_array_from_single_device_arrays
from shardwise._src.api.placement import device_put
from shardwise._src.base.errors import ProcessFailureError
from shardwise._src.base.lazy import public
from shardwise._src.distributed.recorder import record_of
from shardwise._src.distributed.shard_recovery import (
    is_spread,
    parts_for,
    spans_of,
    what_is_wrong,
    words,
)
from shardwise._src.distributed.start import here
from shardwise._src.runtime import backend, processes, threads
from shardwise._src.runtime.in_flight import CPU_WINDOW
from shardwise._src.tree.functions import flatten_with_path
from shardwise._src.tree.registration import keystr
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.sharding import NamedSharding

DRAIN = 2.0  # seconds that programs in flight have to end by themselves, and after that by force


def survivors() -> Survivors:
    """Meets all processes that are left after others failed, and lets these go on.

    To be called in every process that is left, at one point of the program, as after catching a
    `ProcessFailureError`. What was computed before and has not failed is still there; programs over
    devices of lost processes are refused from now on.

    Raises:
      RuntimeError: this process has joined no others; or programs in flight do not end.
      ProcessFailureError: a process that is alive does not come within `wait_timeout_secs`.
    """
    state = here()
    if state is None:
        raise RuntimeError("survivors: this process has not joined others (`initialize`).")
    if not state.watch.failures and not _lost.ranks:
        raise RuntimeError("survivors: no process has failed.")
    _end_programs()
    found = tuple(state.watch.census(range(state.count), "survivors"))
    lost = tuple([r for r in range(state.count) if r not in found])
    state.watch.go_on_without(lost)
    _lost.ranks, _lost.times = lost, _lost.times + 1
    devices = tuple([d for d in backend.devices() if d.process_index in found])
    return Survivors(found, lost, devices, _lost.times)


def flight_record() -> str:
    """What this process did last with the others, in readable lines: launches, meetings, waits.

    Raises:
      RuntimeError: this process has joined no others.
    """
    state = here()
    if state is None:
        raise RuntimeError("flight_record: this process has not joined others (`initialize`).")
    return record_of(state.watch)


class _Lost:
    ranks: tuple[int, ...] = ()
    times = 0


_lost = _Lost()


def _end_programs() -> None:
    """Waits for programs in flight, of which some can only fail."""
    for _ in range(2):
        if threads.start(CPU_WINDOW.drain, "drain").join(DRAIN):
            return
        processes.break_connections()
    raise RuntimeError("survivors: programs that wait for lost processes do not end.")


@public("shardwise.distributed")
@dataclass(frozen=True)
class Survivors:
    """Who is left after others failed (`survivors`).

    processes: the indices of those that go on; lost: of those that do not.
    devices:   of those that go on.
    times:     how often the program has gone on so.
    """

    processes: tuple[int, ...]
    lost: tuple[int, ...]
    devices: tuple[Any, ...]
    times: int

    def mesh(self, mesh: Mesh, axes: Sequence[str] | None = None) -> Mesh:
        """The largest mesh of the same axes without devices of the lost processes.

        axes: those that may become shorter; None for any. Take the axes over which data is
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
                f"Survivors.mesh: no device of {mesh} is left where only {list(axes or ())} may "
                "become shorter."
            )
        return Mesh(self._turned(left), mesh.axis_names, axis_types=mesh.axis_types)

    def least(self, number: int) -> int:
        """The smallest of a number of each process: of steps, the last that all have finished.

        One may have finished a step in which another one failed. To be called in every process
        that is left.
        """
        state = here()
        assert state is not None
        told = state.watch.meet("Survivors.least", span=self.processes, payload=str(int(number)))
        return min(map(int, told))

    def arrays(self, tree: Any, mesh: Mesh) -> Any:
        """The arrays of a tree as they are on the survivors, on a mesh of these.

        Arrays on devices of this process alone stay where they are, and so does what is no array.
        To be called in every process that is left, with the same tree.

        Args:
          tree: of arrays with a `NamedSharding`, whose parts are each held by a survivor.
          mesh: from `Survivors.mesh`.

        Raises:
          ProcessFailureError: naming those of which no survivor has all parts, or that the program
            that failed was to compute, or whose memory it took.
        """
        leaves, tree_of = flatten_with_path(tree)
        state = here()
        assert state is not None
        found = [what_is_wrong(leaf) for _, leaf in leaves]
        told = state.watch.meet(
            "Survivors.arrays", span=self.processes, payload=json.dumps(found),
        )
        everyone = [json.loads(one) for one in told]
        missing = [
            f"{keystr(path) or 'the array'} ({why})"
            for i, (path, leaf) in enumerate(leaves)
            if (why := next((one[i] for one in everyone if one[i]), "") or self._gap(leaf))
        ]
        if missing:
            raise ProcessFailureError(
                f"Survivors.arrays: not whole without processes {list(self.lost)}: "
                f"{'; '.join(missing)}. Take these from a checkpoint, or keep them replicated over "
                "processes.", self.lost,
            )
        return tree_of.unflatten([self._moved(leaf, mesh) for _, leaf in leaves])

    def _gap(self, leaf: Any) -> str:
        """What no survivor has of an array, in words; "" if nothing."""
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
        return make_array_from_single_device_arrays(
            leaf.shape, sharding, found, dtype=leaf.dtype
        )

    def _turned(self, devices: Any) -> Any:
        """Devices in an order that no failure has made useless."""
        for axis, size in enumerate(devices.shape):
            turn = self.times % size
            devices = (
                np.roll(devices, turn, axis) if turn and size > 2 else np.flip(devices, axis)
            )
        return devices


def _largest(lost: np.ndarray, axes: tuple[int, ...]) -> list[list[int]]:
    """The indices, of each axis, of the largest part of a grid with nothing lost in it.

    lost: bool, one for each device. axes: those that may become shorter. Each lost device goes with
    all that share its place along one axis; which one is tried out as long as there are few.
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
