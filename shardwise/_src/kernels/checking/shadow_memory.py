"""Memory of a kernel that records the last write of each element, and the reads since then.

An access is an `Event` of a thread: of a core, which runs programs one after another, or of a copy,
which reads and writes at any time after its start. A clock has the events that certainly happened
before others: `clock[thread]` is the time of a thread that is known. Two accesses of one element of
which neither is known to the other, and of which one writes, are a race.

Values are pairs: `a`, and `b`, which is another array if they depend on memory that was not written
(such memory has different values in the two). So masks and selections need no special rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from shardwise._src.messages.source import Site, describe
from shardwise._src.types.array_type import ArrayType

Clock = dict[Any, int]
Kind = Literal["entry", "reads", "writes", "signals"]


@dataclass(frozen=True, eq=False)
class Event:
    """What a thread does at a time.

    number: among all events. site: the user's line. device, program: which of them does it.
    origin: of a written value that depends on memory that was not written: where that was read.
    """

    number: int
    thread: tuple[Any, ...] | None
    time: int
    kind: Kind
    site: Site | None
    device: int
    program: tuple[int, ...]
    is_atomic: bool = False
    origin: Any = None

    @property
    def is_copy(self) -> bool:
        return self.thread is not None and self.thread[0] == "copy"

    def known_to(self, clock: Clock) -> bool:
        return clock.get(self.thread, 0) >= self.time


class Origin(NamedTuple):
    """A read of elements that was not written: the first of them, as text, and the user's line."""

    element: str
    is_outside: bool
    site: Site | None

    @property
    def text(self) -> str:
        """What a value depends on: the end of a message."""
        how = "read" if self.is_outside else "which was not written before it is read"
        advice = " Mask it." if self.is_outside else ""
        return f"depends on {self.element}, {how} at {describe(self.site)}.{advice}"


class Value(NamedTuple):
    """A pair of arrays; `b is a` if the value is defined everywhere. origin: an `Origin`, if it is
    not."""

    a: Any
    b: Any
    origin: Any = None

    @property
    def is_defined(self) -> bool:
        return self.b is self.a


def defined(a: Any) -> Value:
    return Value(a, a)


def lifted(f: Callable[..., Any], *values: Value) -> Value:
    """The value of a function of arrays."""
    return several(lambda *xs: [f(*xs)], values)[0]


def several(f: Callable[..., Sequence[Any]], values: Sequence[Value]) -> list[Value]:
    """The same for several results. `b` is `a` again where they are equal."""
    first = f(*[v.a for v in values])
    origins = [v.origin for v in values if not v.is_defined]
    if not origins:
        return [*map(defined, first)]
    rows = zip(first, f(*[v.b for v in values]), strict=True)
    return [
        Value(a, b, origins[0]) if differ(np.asarray(a), np.asarray(b)).any() else defined(a)
        for a, b in rows
    ]


def differ(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    unequal = x != y
    return unequal & ~((x != x) & (y != y)) if unequal.any() else unequal


def join(clock: Clock, other: Clock) -> None:
    for thread, time in other.items():
        if clock.get(thread, 0) < time:
            clock[thread] = time


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
            event, rest = signal.event, [s for s in self.signals if s is not signal]
            others = [s.amount for s in rest if not event.known_to(s.clock)]
            if sum(others) < self.taken:
                join(clock, signal.clock)
            else:
                unclear.append(event)
        if not self.count:
            self.signals, self.taken = [], 0
        return unclear


@dataclass(eq=False)
class Buffer:
    """An array, a result, scratch memory or semaphores, of a device (`memory_machine.Device`).

    key:     equal for the same memory of other devices. space: the name of its memory space.
    type, padding: of the array.
    a, b:    the elements of the padded array, flat, and last what is outside of it. fills: their
             values before they are written.
    ids:     their numbers, in its shape. inside: which of them the array has.
    writer:  for each element the number of the event that wrote it.
    readers: for each thread that has read since, the same.
    semaphores: by element.
    """

    key: tuple[Any, ...]
    name: str
    type: ArrayType
    padding: Sequence[tuple[int, int]]
    fills: Sequence[Any]
    device: Any
    is_readonly: bool = False
    space: str = ""

    def __post_init__(self) -> None:
        self.unit = " bytes" if self.space == "dma_semaphore" else ""
        shape = self.type.shape
        whole = np.pad(np.ones(shape, bool), self.padding or 0)
        self.inside = np.append(whole, False)
        self.ids = np.arange(whole.size, dtype=np.int32).reshape(whole.shape)
        self.a, self.b = [np.full(self.inside.size, x, self.type.dtype) for x in self.fills]
        self.writer = np.full(self.inside.size, self.device.entry.number, np.int32)
        self.readers: dict[Hashable, np.ndarray] = {}
        self.semaphores: defaultdict[int, Semaphore] = defaultdict(Semaphore)

    def place(self, element: int) -> tuple[int, ...]:
        """The index of an element in the array."""
        at = np.unravel_index(element, self.ids.shape)
        return tuple([int(i) - low for i, (low, _) in zip(at, self.padding, strict=True)])

    # -- values --

    def value(self, ids: np.ndarray, site: Site | None) -> Value:
        """The elements. Ids of -1 are outside of the memory: read, they are undefined, and writing
        has no effect."""
        a, b = self.a[ids], self.b[ids]
        different = differ(a, b)
        if not different.any():
            return Value(a, a)
        first = int(ids[different].ravel()[0])
        if first < 0:
            name, is_outside = f"what is outside of the block or ref of {self.name}", True
        elif (origin := self.written_by(first).origin) is not None:
            return Value(a, b, origin)
        else:
            is_outside = not self.inside[first]
            name = self.text(first) + (", outside of the array" if is_outside else "")
        return Value(a, b, Origin(name, is_outside, site))

    def written_by(self, element: int) -> Event:
        return self.device.machine.events[self.writer[element]]

    def text(self, element: int) -> str:
        place = self.place(element)
        return f"element {as_text(place)} of {self.name}" if place else self.name

    # -- accesses --

    def read(self, ids: np.ndarray, event: Event, clock: Clock) -> None:
        """Records a read; raises if there is a write that it may or may not see."""
        if self.is_readonly:
            return
        ids = ids[ids >= 0]
        self._check(self.writer, ids, event, clock)
        marks = self.readers.get(event.thread)
        if marks is None:
            marks = self.readers[event.thread] = np.zeros(self.a.size, np.int32)
        marks[ids] = event.number

    def write(self, ids: np.ndarray, new: Value, event: Event, clock: Clock) -> None:
        """Records a write, and changes the elements."""
        inside, ids = ids >= 0, ids[ids >= 0]
        self._check(self.writer, ids, event, clock)
        for thread, marks in [*self.readers.items()]:
            self._check(marks, ids, event, clock)
            marks[ids] = 0
            if event.is_copy and not marks.any():
                del self.readers[thread]
        self.writer[ids] = event.number
        self.a[ids], self.b[ids] = [np.asarray(x)[inside] for x in (new.a, new.b)]

    def _check(self, marks: np.ndarray, ids: np.ndarray, event: Event, clock: Clock) -> None:
        found, machine = marks[ids], self.device.machine
        for number in _distinct(found):
            other = machine.events[number]
            if not (other.known_to(clock) or (other.is_atomic and event.is_atomic)):
                raise machine.race(self, int(ids[(found == number).argmax()]), other, event)


def _distinct(numbers: np.ndarray) -> Iterable[int]:
    if not numbers.size:
        return ()
    first = int(numbers[0])
    return (first,) if (numbers == first).all() else np.unique(numbers).tolist()


def as_text(place: Iterable[Any]) -> str:
    return str(tuple(map(int, place)))
