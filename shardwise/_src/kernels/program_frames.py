"""Functions for the bodies of kernels: indices of the program, sizes of the grid, conditions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.control.cond_api import cond
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.simulation import PLAIN, Simulation
from shardwise._src.messages.formatting import short_repr
from shardwise._src.types.annotations import Array

GLOBAL = "get_global"  # keys of memory for users begin with it
I = TypeVar("I", int, Array)  # noqa: E741
R = TypeVar("R")
S = TypeVar("S")


@dataclass(frozen=True)
class Frame:
    """A kernel that is being traced: the `kernel` of the context.

    ids, sizes: along each axis of its grid; names: of these. barrier: the semaphore of all devices.
    varying: the mesh axes along which values of its refs differ.
    simulation: what CPUs do where its behavior is not specified.
    own: refs of memory that it has for functions of the library, by a key: see `own_memory`.
    """

    name: str
    ids: Sequence[Any]
    sizes: Sequence[Any]
    names: Sequence[Any]
    barrier: Any = None
    varying: frozenset[Any] = frozenset()
    simulation: Simulation = PLAIN
    own: Mapping[str, Any] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)  # of such memory

    @property
    def facts(self) -> tuple[Any, ...]:
        """What a function that is traced in the kernel can depend on without capturing a tracer:
        part of the keys under which such programs are cached."""
        sizes = [(type(n), n) if isinstance(n, int | np.integer) else None for n in self.sizes]
        return tuple(sizes), tuple(self.names), self.varying, self.simulation

    @contextmanager
    def entered(self) -> Generator[None]:
        with current().replace(kernel=self).entered():
            yield


def frame_here() -> Frame | None:
    """The kernel that is being traced."""
    return current().kernel


def require_frame(who: str) -> Frame:
    frame = frame_here()
    if frame is None:
        raise ValueError(f"{who} is for the body of a kernel, and is called outside of one.")
    return frame


class MoreMemory(BaseException):
    """Raised when a kernel that is traced needs memory of its own: it is traced again with that."""

    def __init__(self, key: str, memory: Any):
        super().__init__(key)
        self.key, self.memory = key, memory


def traced_with_memory(
    trace: Callable[[S], R], start: S, grow: Callable[[S, MoreMemory], S]
) -> tuple[R, S]:
    """The result of tracing a kernel, again with more memory as often as it needs that; and the
    last argument of `trace`, which has the memory."""
    while True:
        try:
            return trace(start), start
        except MoreMemory as more:
            start = grow(start, more)


def own_memory(who: str, key: str, memory: Any) -> Any:
    """A ref of memory that the kernel has besides its scratch memory, as long as that.

    memory: a `Scratch`.
    """
    frame = require_frame(who)
    if key not in frame.own:
        raise MoreMemory(key, memory)
    return frame.own[key]


def simulation() -> Simulation:
    """That of the kernel that is being traced."""
    frame = frame_here()
    return PLAIN if frame is None else frame.simulation


def _axis(who: str, axis: Any) -> tuple[Frame, int]:
    frame = require_frame(who)
    if axis in frame.names and axis is not None:
        return frame, frame.names.index(axis)
    if isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < len(frame.ids):
        named = [name for name in frame.names if name is not None]
        grid = f"{len(frame.ids)} axes" + (f" with the names {named}" if named else "")
        raise ValueError(f"{who}: {frame.name} has a grid of {grid}; got axis {short_repr(axis)}.")
    return frame, axis


def program_id(axis: Any) -> Array:
    """The index of this program along an axis of the grid (a number, or its name): an int32."""
    frame, at = _axis("program_id", axis)
    return frame.ids[at]


def num_programs(axis: Any) -> int | Array:
    """The size of the grid along an axis (a number, or its name)."""
    frame, at = _axis("num_programs", axis)
    return frame.sizes[at]


def cdiv(a: I, b: int) -> I:
    """a / b, rounded up: the number of blocks of size b in a elements."""
    return (a + (b - 1)) // b


def when(condition: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """A decorator that runs a function without arguments, at once, if a condition holds.

    @when(program_id(0) == 0)
    def _():
        out[...] = jnp.zeros_like(out)
    """
    if callable(condition):
        raise TypeError(
            f"when: the condition is one boolean; got {short_repr(condition)}. Write "
            "`@when(condition)` above the function."
        )

    def decorate(f: Callable[[], None]) -> Callable[[], None]:
        if isinstance(condition, bool):
            if condition:
                f()
        else:
            t = type_of(condition)
            if t.shape or t.dtype.name != "bool":
                raise TypeError(f"when: the condition is one boolean; got {t.str_short(True)}.")
            cond(condition, lambda: _nothing(f), lambda: None)
        return f

    return decorate


def _nothing(f: Callable[[], None]) -> None:
    if (result := f()) is not None:
        raise TypeError(f"when: the function returns nothing; it returned {short_repr(result)}.")
