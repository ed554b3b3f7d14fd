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
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.errors import KernelError
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation
from shardwise._src.kernels.checking.memory_errors import NOT_ENTERED, MemoryErrors, depends
from shardwise._src.kernels.checking.shadow_memory import (
    COPY_READ,
    COPY_WRITE,
    ENTRY,
    READ,
    SIGNAL,
    WRITE,
    Buffer,
    Clock,
    Event,
    Value,
    as_text,
    join,
    lifted,
)
from shardwise._src.kernels.copying.copies import Region
from shardwise._src.kernels.launch_checks import FILLS
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.simulation import value as fill_value
from shardwise._src.messages.source import Site, describe
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


class Machine:
    """What devices share.

    axes: of the mesh, names to sizes; None for one device. seed: of the order in which devices run:
    that of their numbers if None.
    copies: pairs of memory, and the event of a copy that uses it.
    """

    def __init__(self, launch: Launch, axes: Mapping[Any, int] | None, seed: int | None = None):
        self.launch, self.errors = launch, MemoryErrors(launch, axes is not None)
        self.axes, self.seed = axes or {}, seed
        self.events = [Event(None, 0, ENTRY, None, 0, ())]
        self.devices: list[Any] = []
        self.copies: list[tuple[Buffer, Event]] = []
        self.changes = 0  # counts copies and operations on semaphores

    def check_end(self, buffers: Iterable[Buffer], clock: Clock, moment: str) -> None:
        """Raises if memory ends while copies use it, or with semaphores that are not 0."""
        errors, held = self.errors, [*buffers]
        for buffer, event in self.copies:
            if buffer in held and not event.known_to(clock):
                raise errors.error(
                    f"{errors.does(event, errors.text(buffer))}, and may not have ended {moment}. "
                    "Call its `wait`."
                )
        for buffer in held:
            for element, semaphore in sorted(buffer.semaphores.items()):
                if not semaphore.count:
                    continue
                place, last = buffer.place(element), semaphore.signals[-1].event
                name = buffer.name + (f"[{', '.join(map(str, place))}]" if place else "")
                name += f" of device {buffer.device}" if errors.in_mesh else ""
                raise errors.error(
                    f"the semaphore {name} has {semaphore.count}{buffer.unit} {moment}, and must "
                    f"have 0. Its last signal is from {errors.who(last.device, last.program)}, at "
                    f"{describe(last.site)}."
                )


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
        self.entry = self.event(ENTRY, ("entry", self.number))
        launch = machine.launch
        _, prefetched, inputs = launch.parts(operands)
        paddings = [*[()] * launch.prefetch, *[t.padding for t in launch.ins]]
        rows = zip((*prefetched, *inputs), launch.ref_names, paddings, strict=False)
        self.arguments = [
            self.buffer(("argument", i), name, type_of(x), pads, x, is_readonly=True)
            for i, (x, name, pads) in enumerate(rows)
        ]
        aliased = {j: inputs[i] for i, j in launch.aliases}
        rows = zip(launch.outs, launch.ref_names[len(paddings) :], strict=False)
        self.results = [
            self.buffer(("result", j), name, t.type, t.padding, aliased.get(j))
            for j, (t, name) in enumerate(rows)
        ]

    def buffer(
        self, key: Any, name: str, t: ArrayType, pads: Any = (), x: Any = None, **fields: Any
    ) -> Buffer:
        """New memory. x: the values of the array."""
        pads, fills = pads or ((0, 0),) * t.ndim, [fill_value(fill, t) for fill in FILLS]
        events = self.machine.events
        made = Buffer(key, name, t, pads, fills, self.number, self.entry, events, **fields)
        if x is not None:
            made.a[made.inside] = made.b[made.inside] = np.asarray(x).ravel()
        self.buffers[key] = made
        return made

    def core_at(self, at: tuple[int, ...]) -> Core:
        """The core of these positions along the parallel axes."""
        if at not in self.cores:
            launch, thread = self.machine.launch, (self.number, at)
            names = launch.ref_names[len(self.arguments) + len(self.results) :]
            scratch = [
                self.buffer(("scratch", at, j), name, s.type, space=s.space.name)
                for j, (name, s) in enumerate(zip(names, launch.scratch, strict=True))
            ]
            self.cores[at] = Core(thread, {thread: 1, ("entry", self.number): 1}, scratch)
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

    def here(self) -> str:
        """The program that runs, and the user's line."""
        return f"{self.errors.who(self.number, self.program)}, at {describe(self.site)}"

    def waiting(self) -> str:
        """What it waits for."""
        assert self.waits is not None
        semaphore, buffer, amount = self.waits
        who, where = self.errors.who(self.number, self.program), describe(self.site)
        what = f"waits for {amount}{buffer.unit} of" if amount else "reads"
        name, count = buffer.name, semaphore.count
        return f"{who} {what} the semaphore {name}, which has {count}, at {where}"

    # -- accesses --

    def read(self, buffer: Buffer, ids: np.ndarray, kind: str = READ, thread: Any = None) -> Value:
        """The elements. thread: that reads them; by default the core."""
        buffer.read(ids, self.event(kind, thread), self.core.clock, self.errors.race)
        return buffer.value(ids, self.site)

    def write(
        self, buffer: Buffer, ids: np.ndarray, new: Value, kind: str = WRITE, **fields: Any
    ) -> None:
        number = self.event(kind, origin=new.origin, **fields)
        buffer.write(ids, new, number, self.core.clock, self.errors.race)

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
            if outside.any() and (mask is None or _selects(mask, region, d, outside)):
                what = f"element {at} is" if size == 1 else f"elements {at} to {places[-1]} are"
                raise self.errors.error(
                    f"{version.buffer.name}: {what} outside of the ref of "
                    f"{as_text(version.ids.shape)} elements along dimension {d}, of size {n}: "
                    f"{self.here()}. Compiled, other elements are accessed."
                )
            index.append(places.clip(0, n - 1))
        dropped = tuple([d for d, keep in enumerate(region.kept) if not keep])
        return version.ids[np.ix_(*index)].squeeze(dropped)

    def known(self, value: Value, what: str) -> np.ndarray:
        """Raises if a value depends on memory that was not written."""
        if not value.is_defined:
            raise self.errors.error(f"{what} of {self.here()}, {depends(value.origin)}")
        return np.asarray(value.a)

    def other(self, version: Version, number: Value) -> Version:
        """The same ref of another device."""
        to, count = int(self.known(number, "the number of a device")), len(self.machine.devices)
        if not 0 <= to < count:
            raise self.errors.error(
                f"there is no device {to}: the mesh has {count} devices: {self.here()}."
            )
        there, key = self.machine.devices[to], version.buffer.key
        if key[0] == "scratch":
            there.core_at(key[1])
        if key not in there.buffers:
            raise self.not_entered(version.buffer, to)
        return Version(there.buffers[key], version.ids)

    def not_entered(self, buffer: Buffer, number: int) -> KernelError:
        return self.errors.error(
            f"{self.here()}, accesses {buffer.name} of device {number}, {NOT_ENTERED}"
        )

    # -- copies and semaphores --

    def copy(self, eqn: Equation, operands: Sequence[Any]) -> None:
        copy_params, machine, before = eqn.params["copy_params"], self.machine, {**self.core.clock}
        versions, starts, rest = copy_params.parts(operands)
        if copy_params.axes:
            versions[1:3] = [self.other(v, rest[0]) for v in versions[1:3]]
        rows = zip(versions, copy_params.regions, starts, strict=True)
        ids = [self.region(*row) for row in rows]
        source, target = versions[0].buffer, versions[1].buffer
        threads = [("copy", len(machine.copies), kind) for kind in (COPY_READ, COPY_WRITE)]
        moved = self.read(source, ids[0], COPY_READ, threads[0])
        read = machine.events[-1]
        moved = lifted(lambda x: x.reshape(ids[1].shape), moved)
        self.write(target, ids[1], moved, COPY_WRITE, thread=threads[1])
        write = machine.events[-1]
        machine.copies += [(target, write), (source, read)]
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
            if not (version.buffer.space == "barrier_semaphore" or has_started):
                raise self.not_entered(version.buffer, version.buffer.device)
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


def _selects(mask: Value, region: Region, d: int, outside: np.ndarray) -> bool:
    """Whether a mask selects elements at some positions along dimension `d`."""
    shape = [n for n, keep in zip(region.sizes, region.kept, strict=True) if keep]
    return bool(
        np.broadcast_to(selected(mask), shape).reshape(region.sizes).compress(outside, d).any()
    )


def selected(mask: Value) -> np.ndarray:
    """Which elements a mask may select."""
    return np.asarray(mask.a) | np.asarray(mask.b)


def semaphore_of(version: Version, ids: np.ndarray) -> Semaphore:
    return version.buffer.semaphores.setdefault(int(ids), Semaphore())
