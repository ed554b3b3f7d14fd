"""The devices that run a kernel, for its check: their memory, copies and semaphores.

A copy reads and writes at unknown times after its start. The machine moves the data when it starts,
and records both accesses as events that no other thread knows of, until one waits for the copy. So
what is found does not depend on when the data moves.

A wait for a semaphore learns from those signals and copies without which it could not have ended:
if two copies signal one semaphore, and a kernel waits for the amount of one, neither has certainly
ended.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation
from shardwise._src.kernels.checking.memory_errors import MemoryErrors
from shardwise._src.kernels.checking.shadow_memory import (
    COPY_READ,
    COPY_WRITE,
    ENTRY,
    SIGNAL,
    Buffer,
    Clock,
    Event,
    Value,
    join,
)
from shardwise._src.kernels.copying.copies import Region
from shardwise._src.kernels.launch_checks import FILLS
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.simulation import value as fill_value
from shardwise._src.messages.source import Site
from shardwise._src.types.array_type import ArrayType


class Version(NamedTuple):
    """A version of a ref: elements of a buffer, in the shape of the ref."""

    buffer: Buffer
    ids: np.ndarray


class Signal(NamedTuple):
    """What a signal or copy adds to a semaphore, and what whoever waits for it then knows."""

    amount: int
    event: Event
    clock: Clock


@dataclass(eq=False)
class Semaphore:
    """signals: those since it was last 0. taken: of their sum, by waits."""

    signals: list[Signal] = field(default_factory=list)
    taken: int = 0

    @property
    def count(self) -> int:
        return sum([s.amount for s in self.signals]) - self.taken

    def take(self, amount: int, clock: Clock) -> list[Event]:
        """Subtracts an amount, and adds to the clock the events that have certainly ended. Returns
        those that may not have ended."""
        self.taken += amount
        unclear = []
        for signal in self.signals:
            others = [
                s.amount
                for s in self.signals
                if s is not signal and not signal.event.known_to(s.clock)
            ]
            if sum(others) < self.taken:
                join(clock, signal.clock)
            else:
                unclear.append(signal.event)
        if not self.count:
            self.signals, self.taken = [], 0
        return unclear


@dataclass(eq=False)
class Core:
    """Runs programs one after another: those that do not differ along parallel axes."""

    thread: Hashable
    clock: Clock
    scratch: list[Buffer]


class Copy(NamedTuple):
    source: Buffer
    target: Buffer
    read: Event
    write: Event


class Machine:
    """What devices share.

    axes: of the mesh, names to sizes; None for one device. seed: of the order in which devices run:
    that of their numbers if None.
    """

    def __init__(self, launch: Launch, axes: Mapping[Any, int] | None, seed: int | None = None):
        self.launch, self.errors = launch, MemoryErrors(launch, axes is not None)
        self.axes, self.seed = axes or {}, seed
        self.events = [Event(None, 0, ENTRY, None, 0, ())]
        self.devices: list[Any] = []
        self.copies: list[Copy] = []
        self.changes = 0  # counts copies and operations on semaphores

    def check_end(self, buffers: Sequence[Buffer], clock: Clock, moment: str) -> None:
        """Raises if memory ends while copies use it, or with semaphores that are not 0."""
        held = {*map(id, buffers)}
        for copy in self.copies:
            for buffer, event in ((copy.target, copy.write), (copy.source, copy.read)):
                if id(buffer) in held and not event.known_to(clock):
                    raise self.errors.not_waited(buffer, event, moment)
        for buffer in buffers:
            for element, semaphore in sorted(buffer.semaphores.items()):
                if semaphore.count:
                    raise self.errors.left(buffer, element, semaphore, moment)


class Device:
    """A device, and what it does with its memory.

    buffers: by a key that is equal on all devices. program, core, site: those that run.
    waits:   if it waits: the semaphore, its buffer, the amount.
    """

    core: Core

    def __init__(self, machine: Machine, operands: Sequence[Any]):
        self.machine, self.errors, self.number = machine, machine.errors, len(machine.devices)
        machine.devices.append(self)
        self.buffers: dict[Any, Buffer] = {}
        self.cores: dict[tuple[int, ...], Core] = {}
        self.program: tuple[int, ...] = ()
        self.site: Site | None = None
        self.waits: tuple[Semaphore, Buffer, int] | None = None
        self.entry = self.event(ENTRY, thread=("entry", self.number))
        launch = machine.launch
        _, prefetched, inputs = launch.parts(operands)
        names, tiles = iter(launch.ref_names), [*[None] * len(prefetched), *launch.ins]
        self.arguments: list[Buffer] = []
        for tile, x in zip(tiles, (*prefetched, *inputs), strict=True):
            pads = () if tile is None else tile.padding
            self.arguments.append(self.buffer(next(names), type_of(x), pads, x))
            self.arguments[-1].is_readonly = True
        aliased = {j: inputs[i] for i, j in launch.aliases}
        self.results = [
            self.buffer(next(names), t.type, t.padding, aliased.get(j), key=("result", j))
            for j, t in enumerate(launch.outs)
        ]

    def buffer(
        self, name: str, t: ArrayType, pads: Any = (), x: Any = None, key: Any = None
    ) -> Buffer:
        """New memory. x: the values of the array."""
        pads = pads or ((0, 0),) * t.ndim
        fills = [fill_value(fill, t) for fill in FILLS]
        made = Buffer(name, t, pads, fills, self.number, self.entry, self.machine.events)
        if x is not None:
            made.a[made.inside] = made.b[made.inside] = np.asarray(x).ravel()
        if key is not None:
            self.buffers[key] = made
        return made

    def core_at(self, at: tuple[int, ...]) -> Core:
        """The core of these positions along the parallel axes."""
        if at not in self.cores:
            launch, thread = self.machine.launch, (self.number, at)
            names = launch.ref_names[::-1][: len(launch.scratch)][::-1]
            scratch = []
            for j, (name, s) in enumerate(zip(names, launch.scratch, strict=True)):
                scratch.append(self.buffer(name, s.type, key=("scratch", at, j)))
                scratch[-1].set_space(s.space.name)
            clock = {thread: 1, ("entry", self.number): 1}
            self.cores[at] = Core(thread, clock, scratch)
        return self.cores[at]

    def event(self, kind: str, thread: Any = None, **fields: Any) -> int:
        """The number of a new event: of the core that runs, or of another thread."""
        time = 1
        if thread is None:
            thread, time = self.core.thread, self.core.clock[self.core.thread]
        made = Event(thread, time, kind, self.site, self.number, self.program, **fields)
        self.machine.events.append(made)
        return len(self.machine.events) - 1

    def end_clock(self) -> Clock:
        """What is known when all programs have ended."""
        clock: Clock = {}
        for core in self.cores.values():
            join(clock, core.clock)
        return clock

    # -- regions, and other devices --

    def region(
        self, version: Version, region: Region, starts: Sequence[Any], mask: Value | None = None
    ) -> np.ndarray:
        """The ids of accessed elements. Raises if one that `mask` selects is outside of the ref;
        others outside have any ids."""
        index: list[np.ndarray] = []
        rows = zip(starts, *region, version.ids.shape, strict=True)
        for d, (start, size, stride, _, n) in enumerate(rows):
            at = int(self.known(start, "an index"))
            places = at + stride * np.arange(size)
            outside = (places < 0) | (places >= n)
            if outside.any() and (mask is None or _selected(mask, region, d, outside)):
                raise self.errors.outside(version, d, at, int(places[-1]), n, self)
            index.append(places.clip(0, n - 1))
        dropped = tuple([d for d, keep in enumerate(region.kept) if not keep])
        return version.ids[np.ix_(*index)].squeeze(dropped)

    def known(self, value: Value, what: str) -> np.ndarray:
        """Raises if a value depends on memory that was not written."""
        if not value.is_defined:
            raise self.errors.undefined(what, value.origin, self)
        return np.asarray(value.a)

    def other(self, version: Version, number: Value) -> Version:
        """The same ref of another device."""
        to, count = int(self.known(number, "the number of a device")), len(self.machine.devices)
        if not 0 <= to < count:
            raise self.errors.no_device(to, count, self)
        there, buffer = self.machine.devices[to], version.buffer
        key = next(k for k, b in self.buffers.items() if b is buffer)
        if key[0] == "scratch":
            there.core_at(key[1])
        if key not in there.buffers:
            raise self.errors.not_entered(buffer, to, self)
        return Version(there.buffers[key], version.ids)

    # -- copies and semaphores --

    def copy(self, eqn: Equation, operands: Sequence[Any]) -> None:
        copy_params, machine = eqn.params["copy_params"], self.machine
        versions, starts, rest = copy_params.parts(operands)
        if copy_params.axes:
            versions[1:3] = [self.other(v, rest[0]) for v in versions[1:3]]
        rows = zip(versions, copy_params.regions, starts, strict=True)
        ids = [self.region(*row) for row in rows]
        source, target = versions[0].buffer, versions[1].buffer
        threads = [("copy", len(machine.copies), kind) for kind in (COPY_READ, COPY_WRITE)]
        before = {**self.core.clock}
        number = self.event(COPY_READ, threads[0])
        read = machine.events[number]
        source.read(ids[0], number, before, self.errors.race)
        moved = source.value(ids[0], self.site)
        number = self.event(COPY_WRITE, threads[1], origin=moved.origin)
        write = machine.events[number]
        target.write(ids[1], number, before, self.errors.race)
        target.put(ids[1], moved.a.reshape(ids[1].shape), moved.b.reshape(ids[1].shape))
        machine.copies.append(Copy(source, target, read, write))
        size = ids[1].size * target.type.dtype.itemsize
        self._add(versions[2], ids[2], Signal(size, write, before | dict.fromkeys(threads, 1)))
        if copy_params.axes:
            self._add(versions[3], ids[3], Signal(size, read, before | {threads[0]: 1}))

    def signal(self, eqn: Equation, operands: Sequence[Any]) -> None:
        copy_params = eqn.params["copy_params"]
        (version,), (at,), (amount, *rest) = copy_params.parts(operands)
        if copy_params.axes:
            version = self.other(version, rest[0])
            has_started = ("entry", version.buffer.device) in self.core.clock
            if not (version.buffer.is_barrier or has_started):
                raise self.errors.not_entered(version.buffer, version.buffer.device, self)
        ids = self.region(version, copy_params.regions[0], at)
        event = self.machine.events[self.event(SIGNAL)]
        added = int(self.known(amount, "the amount"))
        self._add(version, ids, Signal(added, event, {**self.core.clock}))

    def _add(self, version: Version, ids: np.ndarray, signal: Signal) -> None:
        semaphore_of(version, ids).signals.append(signal)
        self.core.clock[self.core.thread] += 1

    def wait(self, eqn: Equation, operands: Sequence[Any]) -> Generator[bool, None, None]:
        copy_params = eqn.params["copy_params"]
        versions, starts, rest = copy_params.parts(operands)
        if copy_params.amount:
            amount = int(self.known(rest[0], "the amount"))
        else:
            amount = (
                math.prod(copy_params.regions[0].sizes) * versions[0].buffer.type.dtype.itemsize
            )
        version = versions[-1]
        semaphore = semaphore_of(version, self.region(version, copy_params.regions[-1], starts[-1]))
        while semaphore.count < amount:
            self.waits = semaphore, version.buffer, amount
            yield False
        self.waits = None
        self.errors.unclear.update(semaphore.take(amount, self.core.clock))


def _selected(mask: Value, region: Region, d: int, outside: np.ndarray) -> bool:
    """Whether a mask selects elements at some positions along dimension `d`."""
    taken = np.asarray(mask.a) | np.asarray(mask.b)
    if not region.kept[d]:
        return bool(taken.any())
    shape = [n for n, keep in zip(region.sizes, region.kept, strict=True) if keep]
    return bool(np.broadcast_to(taken, shape).compress(outside, sum(region.kept[:d])).any())


def semaphore_of(version: Version, ids: np.ndarray) -> Semaphore:
    return version.buffer.semaphores.setdefault(int(ids), Semaphore())
