"""Blocks: which part of an array each program of a kernel sees.

Block((8, 128), lambda i, j: (i, j))       # the block (i, j) of 8 × 128 elements
Block((None, 128), lambda i, j: (i, j))    # row i, without its dimension: refs are f32[128]
Block((Element(10), 128), lambda i: (8 * i, 0))    # from element 8 i on, not from block 8 i
Block()                                    # the whole array
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.kernels.spaces import SEMAPHORE, Space
from shardwise._src.messages.formatting import short_repr
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.symbolic import Symbolic


class Squeezed:
    """A dimension of one element that refs do not have; None means the same."""

    def __repr__(self) -> str:
        return "Squeezed()"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("kernels.Squeezed")


read_by("kernels.Squeezed", Squeezed)


@dataclass(frozen=True)
class Blocked:
    """A dimension in blocks; an integer means the same."""

    block_size: int


@dataclass(frozen=True)
class Element:
    """A dimension whose index is that of the first element, so that blocks may overlap.

    padding: how many elements before and after the array may be read; they are not specified.
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoundedSlice:
    """A dimension whose index is a slice, `ds(start, size)`, of a traced size up to `block_size`.

    Refs have `block_size` elements. What is read of them beyond the size is not specified, and what
    is written there is dropped.
    """

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A dimension whose index is an array of `block_size` integers, or a ref of them.

    Refs have the elements at these indices; what is written to a result goes to them. On hardware
    the block has the whole dimension; TPUs cannot gather from it yet. One dimension can be so.
    """

    block_size: int


BlockDim = Element | Squeezed | Blocked | BoundedSlice | Indirect


class RevisitMode(enum.Enum):
    """When programs may return to a block of a result: at the next step only, or at ANY one."""

    IMMEDIATE = "immediate"
    ANY = "any"


@dataclass(frozen=True)
class Buffered:
    """How Mosaic, the compiler for TPUs, buffers a block; without effect elsewhere.

    buffer_count: 2, so that copies overlap with programs, or 1. use_lookahead: False.
    revisit: of a result; `RevisitMode.ANY` reads its block again, and needs one buffer. On CPUs all
      programs may return to a block.
    """

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None


@dataclass(frozen=True)
class Block:
    """The blocks of one operand or result.

    shape: for each dimension, a size, None or `Squeezed()` for one element without its dimension,
           `Element(size)`, `BoundedSlice(size)` or `Indirect(size)`. None: the whole array.
    index: the indices of the block of a program, from the indices of the program (and refs of
           scalars that are prefetched). None: zeros.
    space: the memory space of its refs. buffered: how TPUs buffer them.
    """

    shape: Sequence[Any] | None = None
    index: Callable[..., Any] | None = None
    space: Space | None = None
    buffered: Buffered | None = field(default=None, repr=False)

    @property
    def indirect(self) -> int | None:
        """The dimension that is `Indirect`."""
        found = [d for d, e in enumerate(self.shape or ()) if isinstance(e, Indirect)]
        return found[0] if found else None

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("kernels.Block", self.shape, self.index, self.space, self.buffered)


read_by("kernels.Block", Block)


@dataclass(frozen=True)
class Tile:
    """A block with checked sizes, of an array of a known type.

    sizes:   along each dimension of the array.
    kept:    which dimensions its refs have.
    element: for which dimensions the index is that of an element.
    padding: of the array, before and after, so that every block is inside.
    ragged:  the dimensions of `BoundedSlice`s, whose sizes follow the indices of a block.
    buffered: how TPUs buffer it; None: as they do by default.
    is_indirect: whether programs use, of a dimension that it has, the elements at some indices.
    """

    type: ArrayType
    sizes: tuple[int, ...]
    kept: tuple[bool, ...]
    element: tuple[bool, ...]
    padding: tuple[tuple[int, int], ...]
    space: Space
    ragged: tuple[int, ...] = ()
    buffered: Buffered | None = None
    is_indirect: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of refs."""
        return tuple([n for n, keep in zip(self.sizes, self.kept, strict=True) if keep])

    @property
    def ref_type(self) -> ArrayType:
        return self.type.update(shape=self.shape, spec=None, mesh=None).strong()

    @property
    def bounds(self) -> tuple[list[int], list[int]]:
        """The least and greatest indices of blocks that are inside, along each dimension."""
        low, high = [], []
        rows = zip(self.type.shape, self.sizes, self.element, self.padding, strict=True)
        for n, size, is_element, (before, after) in rows:
            low.append(-before if is_element else 0)
            high.append(n + after - size if is_element else (n - 1) // size if n else 0)
        return low, high

    @property
    def is_whole(self) -> bool:
        return self.sizes == self.type.shape and all(self.kept) and not any(self.element)

    @property
    def buffer_count(self) -> int:
        """How many buffers TPUs have for it; of a whole array in VMEM one is enough."""
        if self.is_whole and self.space.name == "vmem":
            return 1
        return 2 if self.buffered is None else self.buffered.buffer_count

    @property
    def is_shared(self) -> bool:
        """Whether refs have all elements along their dimensions, so that programs write parts."""
        rows = zip(self.sizes, self.type.shape, self.kept, strict=True)
        return not any(self.element) and all(size == n or not keep for size, n, keep in rows)


def tile_of(who: str, what: str, block: Block, t: ArrayType, space: Space) -> Tile:
    """Checks a block of an array. what: its name, for messages."""
    if not isinstance(block, Block):
        raise TypeError(f"{who}: the block of {what} must be a Block; got {short_repr(block)}.")
    if not isinstance(block.space, Space | None):
        raise TypeError(
            f"{who}: the space of the block of {what} is a memory space, such as `kernels.VMEM`, "
            f"or None; got {short_repr(block.space)}."
        )
    space = block.space or space
    if space == SEMAPHORE or space.is_semaphore:
        raise NotImplementedError(
            f"{who}: {what} is in SEMAPHORE memory. Kernels have semaphores of their own: pass "
            "them as `scratch`, or use `run_scoped`."
        )
    if block.shape is None:
        n = t.ndim
        kept, element, padding = (True,) * n, (False,) * n, ((0, 0),) * n
        return Tile(t, t.shape, kept, element, padding, space, buffered=block.buffered)
    entries = tuple(block.shape)
    if len(entries) != t.ndim:
        raise ValueError(
            f"{who}: the block of {what} has {len(entries)} dimensions, {short_repr(entries)}, but "
            f"{what} is {t.str_short(True)}. Write a size for each dimension, or None for one "
            "element without its dimension."
        )
    rows = [_entry(who, what, d, *row) for d, row in enumerate(zip(entries, t.shape, strict=True))]
    ragged = tuple([d for d, entry in enumerate(entries) if isinstance(entry, BoundedSlice)])
    sizes, kept, element, padding = zip(*rows, strict=True) if rows else ((), (), (), ())
    count = sum(isinstance(entry, Indirect) for entry in entries)
    if count > 1:
        raise ValueError(
            f"{who}: the block of {what} has {count} Indirect dimensions, {short_repr(entries)}. A "
            "block has one at most: take the elements along the others in the kernel."
        )
    return Tile(t, sizes, kept, element, padding, space, ragged, block.buffered, count > 0)


def _entry(
    who: str, what: str, d: int, entry: Any, n: Any
) -> tuple[int, bool, bool, tuple[int, int]]:
    """The size, whether refs have the dimension, whether its index is that of an element, and the
    padding, along a dimension of `n` elements."""
    if entry is None or isinstance(entry, Squeezed):
        return 1, False, False, (0, 0)
    if isinstance(entry, Blocked):
        entry = entry.block_size
    size = getattr(entry, "block_size", entry)
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ValueError(
            f"{who}: the block of {what} has {short_repr(entry)} along dimension {d}; expected a "
            "positive integer, None, Element(size), BoundedSlice(size) or Indirect(size)."
        )
    size = int(size)
    if isinstance(entry, Indirect):
        return n, True, False, (0, 0)
    if isinstance(entry, BoundedSlice):
        return size, True, True, (0, size)  # so that no slice is moved
    if not isinstance(entry, Element):
        return size, True, False, (0, size - 1 if isinstance(n, Symbolic) else -n % size)
    if min(entry.padding) < 0:
        raise ValueError(f"{who}: the block of {what} has negative padding: {entry!r}.")
    before, after = map(int, entry.padding)
    return size, True, True, (before, after)
