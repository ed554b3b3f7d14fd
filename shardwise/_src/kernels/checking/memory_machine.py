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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.errors import KernelError
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Equation
from shardwise._src.kernels.checking.inner_programs import Steps
from shardwise._src.kernels.checking.shadow_memory import (
    Buffer,
    Clock,
    Event,
    Kind,
    Semaphore,
    Signal,
    Value,
    as_text,
    lifted,
)
from shardwise._src.kernels.copying.copies import Region, between_cores, kernel_copy, kernel_signal
from shardwise._src.kernels.launch_checks import FILLS
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.simulation import value as fill_value
from shardwise._src.messages.source import Site, describe
from shardwise._src.types.array_type import ArrayType

NOT_ENTERED = (
    "which may not have started the kernel yet. Let the devices wait for each other first: see "
    "`get_barrier_semaphore`."
)


class Version(NamedTuple):
    """A version of a ref: elements of a buffer, in the shape of the ref."""

    buffer: Buffer
    ids: np.ndarray


@dataclass(eq=False)
class Core:
    """Runs programs one after another: those that do not differ along parallel axes."""

    thread: tuple[Any, ...]
    clock: Clock
    scratch: list[Buffer]


class Machine:
    """What devices share, and the messages for what they do.

    axes: of the mesh, names to sizes; None for one device. seed: of the order in which devices run:
    that of their numbers if None.
    copies: pairs of memory, and the event of a copy that uses it. unclear: copies and signals that
    may not have ended after a wait. changes: counts copies and operations on semaphores.
    """

    def __init__(self, launch: Launch, axes: Mapping[Any, int] | None, seed: int | None = None):
        self.launch, self.axes, self.seed, self.changes = launch, axes, seed, 0
        self.events = [Event(0, None, 0, "entry", None, 0, ())]
        self.devices: list[Any] = []
        self.copies: list[tuple[Buffer, Event]] = []
        self.unclear: set[Event] = set()

    def check_end(self, buffers: Iterable[Buffer], cores: Iterable[Core], moment: str) -> None:
        """Raises if memory ends while copies use it, or with semaphores that are not 0.

        cores: that have used it until then.
        """
        held = [*buffers]
        for buffer, event in self.copies:
            if buffer in held and not any(event.known_to(core.clock) for core in cores):
                what = self.does(event, self.text(buffer))
                raise self.error(f"{what}, and may not have ended {moment}. Call its `wait`.")
        for buffer in held:
            for element, semaphore in sorted(buffer.semaphores.items()):
                if semaphore.count:
                    place, last = buffer.place(element), semaphore.signals[-1].event
                    at = f"[{', '.join(map(str, place))}]" if place else ""
                    raise self.error(
                        f"the semaphore {self.text(buffer, at=at)} has {semaphore.count}"
                        f"{buffer.unit} {moment}, and must have 0. Its last signal is from "
                        f"{self.where(last)}."
                    )

    # -- messages --

    def error(self, text: str) -> KernelError:
        return KernelError(f"kernel {self.launch.name}: {text}")

    def who(self, actor: Event | Device) -> str:
        """The subject of a sentence: the device and program."""
        parts = [] if self.axes is None else [f"device {actor.device}"]
        if self.launch.grid:
            parts.append(f"program {as_text(actor.program)}")
        return ", ".join(parts) or "the kernel"

    def where(self, actor: Event | Device) -> str:
        """The same, and the user's line."""
        return f"{self.who(actor)}, at {describe(actor.site)}"

    def text(self, buffer: Buffer, element: int | None = None, at: str = "") -> str:
        """The memory, or an element of it, of a device."""
        name = buffer.name + at if element is None else buffer.text(element)
        return name if self.axes is None else f"{name} of device {buffer.device.device}"

    def does(self, event: Event, what: str = "it") -> str:
        who, where = self.who(event), describe(event.site)
        if event.is_copy:
            return f"the copy that {who} starts at {where} {event.kind} {what}"
        return f"{who} {event.kind} {what} at {where}"

    def race(self, buffer: Buffer, element: int, first: Event, second: Event) -> KernelError:
        """Of two accesses that nothing orders."""
        if first.kind == "entry":
            return self.error(f"{self.does(second, 'to ' + self.text(buffer))}, {NOT_ENTERED}")
        return self.error(
            f"a race on {self.text(buffer, element)}: {self.does(first)}, and {self.does(second)}, "
            f"and neither waits for the other. {self._advice(buffer.device.device, first, second)}"
        )

    def _advice(self, here: int, first: Event, second: Event) -> str:
        """here: the device of the memory."""
        copies = [e for e in (first, second) if e.is_copy]
        if not self.unclear.isdisjoint(copies):
            return (
                "A wait for the semaphore of the copy may have ended because of another one that "
                "signals it: give each its own."
            )
        if first.device != second.device and here in (first.device, second.device):
            other = first.device + second.device - here
            return (
                f"Device {here} must wait for what arrives before it uses it (`wait_recv`), and "
                f"signal device {other} when it may be overwritten (`semaphore_signal`)."
            )
        if first.device != second.device:
            return (
                "Let the one device signal a semaphore of the other, which waits for it "
                "(`semaphore_signal`, `semaphore_wait`)."
            )
        if len(copies) == 2:
            return "Wait for the first copy before the second one starts."
        if copies:
            return "Call the copy's `wait` first."
        both = "write" if "reads" not in (first.kind, second.kind) else "use"
        return (
            "The programs differ along a parallel axis of the grid, so that they may run at the "
            f"same time, and both {both} the element. Use `atomic_add` and the other atomics, or "
            "an axis that is not parallel."
        )


class Device:
    """A device, and what it does with its memory.

    device:  its number. program, core, site: those that run.
    buffers: by a key that is equal on all devices.
    waits:   if it waits: the semaphore, its buffer, the amount.
    """

    core: Core

    def __init__(self, machine: Machine, operands: Sequence[Any]):
        self.machine, self.device = machine, len(machine.devices)
        machine.devices.append(self)
        self.buffers: dict[Any, Buffer] = {}
        self.cores: dict[tuple[int, ...], Core] = {}
        self.program: tuple[int, ...] = ()
        self.site: Site | None = None
        self.waits: tuple[Semaphore, Buffer, int] | None = None
        self.entry = self.event("entry", ("entry", self.device))
        launch = machine.launch
        _, prefetched, inputs = launch.parts(operands)
        aliased = {j: inputs[i] for i, j in launch.aliases}
        paddings = [*[()] * launch.prefetch, *[t.padding for t in launch.ins]]
        pairs = zip((*prefetched, *inputs), paddings, strict=True)
        rows = [(type_of(x), pads, x) for x, pads in pairs]
        rows += [(t.type, t.padding, aliased.get(j)) for j, t in enumerate(launch.outs)]
        named = enumerate(zip(launch.ref_names, rows, strict=False))
        made = [self.buffer(("array", i), name, *row) for i, (name, row) in named]
        self.arguments, self.results = made[: len(paddings)], made[len(paddings) :]
        for buffer in self.arguments:
            buffer.is_readonly = True

    def buffer(
        self, key: Any, name: str, t: ArrayType, pads: Any = (), x: Any = None, **fields: Any
    ) -> Buffer:
        """New memory. x: the values of the array."""
        pads, fills = pads or ((0, 0),) * t.ndim, [fill_value(fill, t) for fill in FILLS]
        made = Buffer(key, name, t, pads, fills, self, **fields)
        if x is not None:
            made.a[made.inside] = made.b[made.inside] = np.asarray(x).ravel()
        self.buffers[key] = made
        return made

    def core_at(self, at: tuple[int, ...]) -> Core:
        """The core of these positions along the parallel axes."""
        if at not in self.cores:
            launch, thread = self.machine.launch, (self.device, at)
            names = launch.ref_names[len(self.arguments) + len(self.results) :]
            scratch = [
                self.buffer(("scratch", at, j), name, s.type, space=s.space.name)
                for j, (name, s) in enumerate(zip(names, launch.scratch, strict=True))
            ]
            self.cores[at] = Core(thread, {thread: 1, ("entry", self.device): 1}, scratch)
        return self.cores[at]

    def event(self, kind: Kind, thread: Any = None, **fields: Any) -> Event:
        """A new event: of the core that runs, or of another thread."""
        time, events = 1, self.machine.events
        if thread is None:
            thread, time = self.core.thread, self.core.clock[self.core.thread]
        at = self.site, self.device, self.program
        events.append(Event(len(events), thread, time, kind, *at, **fields))
        return events[-1]

    def waiting(self) -> str:
        """What it waits for."""
        assert self.waits is not None
        semaphore, buffer, amount = self.waits
        who, where = self.machine.who(self), describe(self.site)
        what = f"waits for {amount}{buffer.unit} of" if amount else "reads"
        name, count = buffer.name, semaphore.count
        return f"{who} {what} the semaphore {name}, which has {count}, at {where}"

    # -- accesses --

    def read(self, buffer: Buffer, ids: np.ndarray, thread: Any = None) -> Value:
        """The elements. thread: that reads them; by default the core."""
        buffer.read(ids, self.event("reads", thread), self.core.clock)
        return buffer.value(ids, self.site)

    def write(self, buffer: Buffer, ids: np.ndarray, new: Value, **fields: Any) -> None:
        event = self.event("writes", origin=new.origin, **fields)
        buffer.write(ids, new, event, self.core.clock)

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
                raise self.machine.error(
                    f"{version.buffer.name}: {what} outside of the ref of "
                    f"{as_text(version.ids.shape)} elements along dimension {d}, of size {n}: "
                    f"{self.machine.where(self)}. Compiled, other elements are accessed."
                )
            index.append(places.clip(0, n - 1))
        dropped = tuple([d for d, keep in enumerate(region.kept) if not keep])
        return version.ids[np.ix_(*index)].squeeze(dropped)

    def known(self, value: Value, what: str) -> np.ndarray:
        """Raises if a value depends on memory that was not written."""
        if not value.is_defined:
            raise self.machine.error(f"{what} of {self.machine.where(self)}, {value.origin.text}")
        return np.asarray(value.a)

    def other(self, buffer: Buffer, number: Value) -> Buffer:
        """The same memory of another device."""
        to, count = int(self.known(number, "the number of a device")), len(self.machine.devices)
        if not 0 <= to < count:
            raise self.machine.error(
                f"there is no device {to}: the mesh has {count} devices: "
                f"{self.machine.where(self)}."
            )
        there, key = self.machine.devices[to], buffer.key
        if key[0] == "scratch":
            there.core_at(key[1])
        if key not in there.buffers:
            raise self.not_entered(buffer, to)
        return there.buffers[key]

    def not_entered(self, buffer: Buffer, number: int) -> KernelError:
        return self.machine.error(
            f"{self.machine.where(self)}, accesses {buffer.name} of device {number}, {NOT_ENTERED}"
        )

    # -- copies and semaphores --

    def synchronize(self, eqn: Equation, operands: Sequence[Any]) -> Steps:
        """A copy, or an operation on semaphores."""
        params = eqn.params["copy_params"]
        versions, starts, rest = params.parts(operands)
        rows = zip(versions, params.regions, starts, strict=True)
        if eqn.op not in (kernel_copy, kernel_signal):  # a wait does not access the ref of a copy
            rows = [*rows][-1:]
        places = [(v.buffer, self.region(v, *row)) for v, *row in rows]
        amount = math.prod(params.regions[0].sizes) * versions[0].buffer.type.dtype.itemsize
        if params.amount:
            amount = int(self.known(rest.pop(0), "the amount"))
        if params.core:
            core, own = [int(self.known(x, "the number of a core")) for x in rest[:2]]
            if core != own:
                raise self.machine.error(f"{self.machine.where(self)}: {between_cores(core, own)}")
        to = rest[-2] if params.axes else None
        if eqn.op is kernel_copy:
            self._copy(places, amount, to, params.add)
        elif eqn.op is kernel_signal:
            self._signal(*places[0], amount, to)
        else:
            yield from self._wait(*places[0], amount)
        return []

    def _copy(
        self, places: list[tuple[Buffer, np.ndarray]], size: int, to: Value | None, adds: bool
    ) -> None:
        """places: the source, the target, and the semaphores."""
        if to is not None:
            places[1:3] = [(self.other(buffer, to), ids) for buffer, ids in places[1:3]]
        (source, taken), (target, ids), *semaphores = places
        machine, before = self.machine, {**self.core.clock}
        threads = [("copy", len(machine.copies), kind) for kind in ("reads", "writes")]
        moved = self.read(source, taken, threads[0])
        read = machine.events[-1]
        moved = lifted(lambda x: x.reshape(ids.shape), moved)
        if adds:
            moved = lifted(np.add, target.value(ids, self.site), moved)
        self.write(target, ids, moved, thread=threads[1])
        write = machine.events[-1]
        machine.copies += [(target, write), (source, read)]
        ends = [(write, threads), (read, threads[:1])]
        for place, (event, ended) in zip(semaphores, ends, strict=False):
            self._add(*place, Signal(size, event, before | dict.fromkeys(ended, 1)))

    def _signal(self, buffer: Buffer, ids: np.ndarray, amount: int, to: Value | None) -> None:
        if to is not None:
            buffer = self.other(buffer, to)
            has_started = ("entry", buffer.device.device) in self.core.clock
            if not (buffer.space == "barrier_semaphore" or has_started):
                raise self.not_entered(buffer, buffer.device.device)
        self._add(buffer, ids, Signal(amount, self.event("signals"), {**self.core.clock}))

    def _add(self, buffer: Buffer, ids: np.ndarray, signal: Signal) -> None:
        buffer.semaphores[int(ids)].signals.append(signal)
        self.core.clock[self.core.thread] += 1

    def _wait(self, buffer: Buffer, ids: np.ndarray, amount: int) -> Steps:
        semaphore = buffer.semaphores[int(ids)]
        while semaphore.count < amount:
            self.waits = semaphore, buffer, amount
            yield False
        self.waits = None
        self.machine.unclear.update(semaphore.take(amount, self.core.clock))
        return []


def _selects(mask: Value, region: Region, d: int, outside: np.ndarray) -> bool:
    """Whether a mask selects elements at some positions along dimension `d`."""
    shape = [n for n, keep in zip(region.sizes, region.kept, strict=True) if keep]
    return bool(
        np.broadcast_to(selected(mask), shape).reshape(region.sizes).compress(outside, d).any()
    )


def selected(mask: Value) -> np.ndarray:
    """Which elements a mask may select."""
    return np.asarray(mask.a) | np.asarray(mask.b)
