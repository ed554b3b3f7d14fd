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
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.checking.fault_texts import Faults
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
from shardwise._src.kernels.copies import Region
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
        """Subtracts an amount, and adds to the clock what this tells. Returns the events of which
        it does not tell whether they have ended."""
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


@dataclass(eq=False)
class Device:
    """buffers: by a key that is equal on all devices. waits: for what, if it waits. end: what is
    known at its end."""

    number: int
    entry: int
    arguments: list[Buffer]
    results: list[Buffer]
    buffers: dict[Hashable, Buffer]
    cores: dict[tuple[int, ...], Core] = field(default_factory=dict)
    core: Any = None
    program: tuple[int, ...] = ()
    waits: tuple[Buffer, Any, int, Site | None] | None = None
    end: Clock = field(default_factory=dict)


class Copy(NamedTuple):
    source: Buffer
    target: Buffer
    read: Event
    write: Event


class Machine:
    """names: of the inputs, results and scratch. axes: of the mesh, names to sizes; None for one
    device. seed: of the order in which devices run: that of their numbers if None."""

    def __init__(
        self,
        launch: Launch,
        names: Sequence[str],
        axes: Mapping[Any, int] | None,
        seed: int | None = None,
    ):
        self.launch, self.names, self.faults = launch, names, Faults(launch, axes is not None)
        self.axes, self.seed = axes or {}, seed
        self.events = [Event(None, 0, ENTRY, None, 0, ())]
        self.copies: list[Copy] = []
        self.changes = 0
        self.devices: list[Device] = []
        self.count = math.prod(self.axes.values())

    def add_device(self, operands: Sequence[Any]) -> Device:
        number = len(self.devices)
        self.events.append(Event(("entry", number), 1, ENTRY, None, number, ()))
        device = Device(number, len(self.events) - 1, [], [], {})
        _, prefetched, inputs = self.launch.parts(operands)
        count = len(prefetched) + len(inputs)
        aliased = {j: i for i, j in self.launch.aliases}
        tiles = [*[None] * len(prefetched), *self.launch.ins]
        for name, tile, x in zip(self.names, tiles, (*prefetched, *inputs), strict=False):
            buffer = self.buffer(device, name, type_of(x), tile, x)
            buffer.is_readonly = True
            device.arguments.append(buffer)
        for j, tile in enumerate(self.launch.outs):
            x = inputs[aliased[j]] if j in aliased else None
            buffer = self.buffer(device, self.names[count + j], tile.type, tile, x)
            device.results.append(buffer)
            device.buffers["result", j] = buffer
        self.devices.append(device)
        return device

    def buffer(
        self, device: Device, name: str, t: ArrayType, tile: Tile | None = None, x: Any = None
    ) -> Buffer:
        pads = tile.padding if tile is not None else ((0, 0),) * t.ndim
        shape = tuple([low + n + high for (low, high), n in zip(pads, t.shape, strict=True)])
        fills = fill_value(FILLS[0], t), fill_value(FILLS[1], t)
        a, b = [np.full(shape, fill, t.dtype) for fill in fills]
        if x is not None:
            inside = tuple([slice(low, low + n) for (low, _), n in zip(pads, t.shape, strict=True)])
            a[inside] = b[inside] = np.asarray(x)
        lows = tuple([low for low, _ in pads])
        return Buffer(
            name, t, shape, a.ravel(), b.ravel(), fills, lows, device.number, device.entry,
            self.events,
        )  # fmt: skip

    def core(self, device: Device, at: tuple[int, ...]) -> Core:
        """The core of these positions along the parallel axes."""
        if at not in device.cores:
            names = self.names[len(self.names) - len(self.launch.scratch) :]
            thread = device.number, at
            clock = {thread: 1, ("entry", device.number): 1}
            scratch = []
            for j, (name, s) in enumerate(zip(names, self.launch.scratch, strict=True)):
                made = self.buffer(device, name, s.type)
                made.set_space(s.space.name)
                device.buffers["scratch", at, j] = made
                scratch.append(made)
            device.cores[at] = Core(thread, clock, scratch)
        return device.cores[at]

    def event(self, device: Device, kind: str, site: Site | None, **fields: Any) -> int:
        """The number of a new event of the core that runs."""
        core = device.core
        time = core.clock[core.thread]
        made = Event(core.thread, time, kind, site, device.number, device.program, **fields)
        self.events.append(made)
        return len(self.events) - 1

    # -- regions, and devices --

    def region(
        self, version: Version, region: Region, starts: Any, device: Device, site: Any
    ) -> Any:
        """The ids of accessed elements. Raises if they are outside of the ref."""
        index: list[Any] = []
        rows = zip(starts, *region, version.ids.shape, strict=True)
        for d, (start, size, stride, keep, n) in enumerate(rows):
            at = self.number(start, device, site)
            last = at + (size - 1) * stride
            if size and (at < 0 or last >= n):
                raise self.faults.outside(version, d, at, last, n, device, site)
            index.append(slice(at, max(last + 1, at), stride) if keep else at)
        return version.ids[(*index, ...)]

    def number(self, value: Value, device: Device, site: Site | None) -> int:
        if not value.is_defined:
            raise self.faults.undefined("an index or amount", value.origin, device, site)
        return int(np.asarray(value.a))

    def other(self, version: Version, number: int, device: Device, site: Site | None) -> Version:
        """The same ref of another device."""
        if not 0 <= number < self.count:
            raise self.faults.no_device(number, self.count, device, site)
        there = self.devices[number]
        key = next(k for k, b in device.buffers.items() if b is version.buffer)
        if isinstance(key, tuple) and key[0] == "scratch":
            self.core(there, key[1])
        if key not in there.buffers:
            raise self.faults.not_entered(version.buffer.name, there.number, device, site)
        return Version(there.buffers[key], version.ids)

    # -- copies and semaphores --

    def copy(self, device: Device, eqn: Equation, operands: Sequence[Any]) -> None:
        form, site = eqn.params["form"], eqn.site
        versions, starts, rest = form.parts(operands)
        if form.axes:
            number = self.number(rest[0], device, site)
            versions[1:3] = [self.other(v, number, device, site) for v in versions[1:3]]
        ids = [
            self.region(v, r, at, device, site)
            for v, r, at in zip(versions, form.regions, starts, strict=True)
        ]
        source, target = versions[0].buffer, versions[1].buffer
        numbers = [self._copy_event(device, kind, site) for kind in (COPY_READ, COPY_WRITE)]
        read, write = [self.events[n] for n in numbers]
        before = {**device.core.clock}
        source.read(ids[0], numbers[0], before, self.faults.race)
        moved = source.value(ids[0], site)
        if not moved.is_defined:
            write = Event(*[getattr(write, n) for n in _FIELDS], origin=moved.origin)
            self.events[numbers[1]] = write
        target.write(ids[1], numbers[1], before, self.faults.race)
        target.put(ids[1], moved.a.reshape(ids[1].shape), moved.b.reshape(ids[1].shape))
        self.copies.append(Copy(source, target, read, write))
        size = math.prod(form.regions[1].sizes) * target.type.dtype.itemsize
        both = before | {read.thread: 1, write.thread: 1}
        self._add(versions[2], ids[2], Signal(size, write, both))
        if form.axes:
            self._add(versions[3], ids[3], Signal(size, read, before | {read.thread: 1}))
        device.core.clock[device.core.thread] += 1

    def _copy_event(self, device: Device, kind: str, site: Site | None) -> int:
        thread = "copy", len(self.copies), kind
        self.events.append(Event(thread, 1, kind, site, device.number, device.program))
        return len(self.events) - 1

    def signal(self, device: Device, eqn: Equation, operands: Sequence[Any]) -> None:
        form, site = eqn.params["form"], eqn.site
        (version,), (at,), (amount, *rest) = form.parts(operands)
        event = self.events[self.event(device, SIGNAL, site)]
        if form.axes:
            number = self.number(rest[0], device, site)
            version = self.other(version, number, device, site)
            entry = self.events[self.devices[number].entry]
            if not (version.buffer.is_barrier or entry.known_to(device.core.clock)):
                raise self.faults.not_entered(version.buffer.name, number, device, site)
        ids = self.region(version, form.regions[0], at, device, site)
        added = self.number(amount, device, site)
        self._add(version, ids, Signal(added, event, {**device.core.clock}))
        device.core.clock[device.core.thread] += 1

    def _add(self, version: Version, ids: np.ndarray, signal: Signal) -> None:
        self.changes += 1
        self.semaphore(version, ids).signals.append(signal)

    def semaphore(self, version: Version, ids: np.ndarray) -> Semaphore:
        return version.buffer.semaphores.setdefault(int(ids), Semaphore())

    # -- ends --

    def check_end(self, buffers: Sequence[Buffer], clock: Clock, moment: str) -> None:
        """Raises if memory ends while copies use it, or with semaphores that are not 0."""
        held = {*map(id, buffers)}
        for copy in self.copies:
            for buffer, event in ((copy.target, copy.write), (copy.source, copy.read)):
                if id(buffer) in held and not event.known_to(clock):
                    raise self.faults.not_waited(buffer, event, moment)
        for buffer in buffers:
            for element, semaphore in sorted(buffer.semaphores.items()):
                if semaphore.count:
                    raise self.faults.left(buffer, element, semaphore, moment)


_FIELDS = "thread", "time", "kind", "site", "device", "program", "is_atomic"
