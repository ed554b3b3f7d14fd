"""Refs in GPU memory: where a block starts, and loads, stores and atomics with masks.

A ref of a block is a pointer to its first element with a stride for each dimension. Elements
beyond the end of the array are masked: loads give 0 there, stores drop them.

A thread sees what another thread of its program wrote only after a barrier, so accesses of memory
that was written before are preceded by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.on_gpu.triton_text import (
    BOOL,
    INT32,
    INT64,
    TritonText,
    Value,
    element,
    type_text,
)
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact, is_unsigned

INT8 = np.dtype("int8")


@dataclass(eq=False)
class Buffer:
    """The memory of an operand or result.

    what:    its name, for messages.
    pointer: its first element.
    written: how it was written since the last barrier: "store", "atomic" or "".
    by:      the equation that did so, if only that one did.
    """

    what: str
    pointer: str
    type: ArrayType
    written: str = ""
    by: Any = None

    @property
    def index(self) -> Any:
        """The dtype of offsets."""
        return INT64 if self.type.size >= 1 << 31 else INT32

    @property
    def element(self) -> str:
        return "i8" if is_bool(self.type.dtype) else element(self.type.dtype)


@dataclass(frozen=True)
class Bound:
    """The elements of an array along a dimension that a ref may extend beyond.

    start: of the block; size: of the array; below: whether the block may start before it.
    """

    start: Value
    size: int
    below: bool


@dataclass(frozen=True, eq=False)
class Memory:
    """A ref in memory: its first element, and for each dimension size, stride, and bound."""

    buffer: Buffer
    pointer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bounds: tuple[Bound | None, ...]


@dataclass(frozen=True)
class Region:
    """Elements of a ref: see `accesses`."""

    starts: tuple[Value, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[bool, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([n for n, keep in zip(self.sizes, self.kept, strict=True) if keep])

    def is_all(self, shape: Sequence[int]) -> bool:
        """Whether these are all elements of a ref of this shape, with all of its dimensions."""
        zeros = all(s.known is not None and s.known == 0 for s in self.starts)
        return zeros and self.sizes == tuple(shape) and all(self.kept)


@dataclass
class Access:
    """The pointers of a region, and which of its elements are in the array."""

    pointers: str
    type: str
    mask: Value | None
    shape: tuple[int, ...]
    static: bool = field(default=False)


def block_of(text: TritonText, buffer: Buffer, tile: Tile, at: Sequence[Value]) -> Memory:
    """The ref of a block with these indices."""
    strides = row_major(tile.type.shape)
    pointer, shape, own, bounds = text.integer(0, buffer.index), [], [], []
    for d, (i, n) in enumerate(zip(at, tile.sizes, strict=True)):
        start = i if tile.element[d] else text.times(i, n)
        far = text.times(text.widened(start, buffer.index), strides[d])
        pointer = text.plus(pointer, far)
        if tile.kept[d]:
            low, high = tile.padding[d]
            shape.append(n)
            own.append(strides[d])
            bounds.append(Bound(start, tile.type.shape[d], low > 0) if low or high else None)
    return Memory(
        buffer, _moved(text, buffer, buffer.pointer, pointer), tuple(shape), tuple(own),
        tuple(bounds),
    )  # fmt: skip


def row_major(shape: Sequence[int]) -> list[int]:
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return strides[::-1]


def _moved(text: TritonText, buffer: Buffer, pointer: str, offset: Value) -> str:
    if offset.known is not None and offset.known == 0:
        return pointer
    kind = f"!tt.ptr<{buffer.element}>"
    name = text.fresh()
    text.line(f"{name} = tt.addptr {pointer}, {offset.name} : {kind}, {offset.type}")
    return name


def pointers(text: TritonText, ref: Memory, region: Region) -> Access:
    """The pointers of a region, with the mask of the elements that exist."""
    buffer = ref.buffer
    index, shape = buffer.index, region.shape
    start, offsets, mask = text.integer(0, index), None, None
    axis = 0
    for d, s in enumerate(region.starts):
        far = text.times(text.widened(s, index), ref.strides[d])
        start = text.plus(start, far)
        n, step, bound = region.sizes[d], region.strides[d], ref.bounds[d]
        positions = None
        if region.kept[d]:
            positions = text.range(n) if shape else None
            if n > 1 and positions is not None:
                by = step * ref.strides[d]
                row = _scaled(text, positions, by, index)
                row = text.along(row, axis, shape)
                if offsets is None:
                    offsets = row
                else:
                    offsets = _sum(text, offsets, row, shape)
            row_mask = text.inside((n,), (0,))
            if row_mask is not None:
                mask = text.both(mask, text.along(row_mask, axis, shape), shape)
        if bound is not None and not _surely_inside(bound, s, n, step):
            inner = _within(text, bound, s, positions, step)
            if inner.shape:
                inner = text.along(inner, axis, shape)
            mask = text.both(mask, inner, shape)
        axis += region.kept[d]
    pointer = _moved(text, buffer, ref.pointer, start)
    kind = f"!tt.ptr<{buffer.element}>"
    static = all(s.known is not None for s in region.starts)
    if not shape:
        return Access(pointer, kind, mask, shape, static)
    whole = type_text(shape, kind)
    name = text.fresh()
    text.line(f"{name} = tt.splat {pointer} : {kind} -> {whole}")
    if offsets is not None:
        offsets = text.broadcast(offsets, shape)
        moved = text.fresh()
        text.line(f"{moved} = tt.addptr {name}, {offsets.name} : {whole}, {offsets.type}")
        name = moved
    return Access(name, whole, mask, shape, static)


def _scaled(text: TritonText, x: Value, n: int, index: Any) -> Value:
    if index != INT32:
        x = text.extended(x, index)
    return x if n == 1 else text.binary("arith.muli", x, text.constant(n, x.shape, index))


def _sum(text: TritonText, x: Value, y: Value, shape: Sequence[int]) -> Value:
    x, y = text.broadcast(x, shape), text.broadcast(y, shape)
    return text.binary("arith.addi", x, y)


def _surely_inside(bound: Bound, start: Value, n: int, step: int) -> bool:
    if bound.start.known is None or start.known is None:
        return False
    first = int(bound.start.known) + int(start.known)
    return first >= 0 and first + (n - 1) * step < bound.size


def _within(
    text: TritonText, bound: Bound, start: Value, positions: Value | None, step: int
) -> Value:
    """Which positions of a region along a dimension are inside of the array."""
    at = text.plus(bound.start, start)
    if positions is not None:
        steps = _scaled(text, positions, step, INT32)
        at = text.binary("arith.addi", text.splat(at, steps.shape), steps)
    mask = text.compare("slt", at, text.constant(bound.size, at.shape, INT32))
    if bound.below:
        above = text.compare("sge", at, text.constant(0, at.shape, INT32))
        mask = text.binary("arith.andi", mask, above)
    return mask


def _ordered(text: TritonText, buffer: Buffer, kind: str, by: Any, static: bool) -> None:
    """A barrier, if another thread may have written the elements that are accessed.

    Elements that the same store writes again are written by the same threads.
    """
    again = kind == "store" and static and buffer.by is not None and buffer.by is by
    if buffer.written and not again and not kind == buffer.written == "atomic":
        text.line("gpu.barrier")
        buffer.written, buffer.by = "", None


def load(
    text: TritonText,
    ref: Memory,
    region: Region,
    mask: Value | None = None,
    other: Value | None = None,
) -> Value:
    """The elements of a region; `other` where the mask is False or the array ends."""
    _ordered(text, ref.buffer, "load", None, False)
    access = pointers(text, ref, region)
    return load_at(text, ref.buffer, access, mask, other)


def load_at(
    text: TritonText, buffer: Buffer, access: Access, mask: Value | None, other: Value | None
) -> Value:
    dtype, shape = buffer.type.dtype, access.shape
    stored = _stored(dtype)
    mask = text.both(mask, access.mask, shape)
    more = ""
    if mask is not None:
        if other is None:
            other = text.constant(0, shape, stored)
        elif is_bool(dtype):
            other = text.extended(other, stored)
        more = f", {mask.name}, {text.broadcast(other, shape).name}"
    x = text.let(f"tt.load {access.pointers}{more} : {access.type}", shape, stored)
    if not is_bool(dtype):
        return replace(x, dtype=dtype)
    return text.compare("ne", x, text.constant(0, shape, stored))


def store(
    text: TritonText, ref: Memory, region: Region, value: Value, mask: Value | None, by: Any
) -> None:
    """Writes a region, where the mask is True. by: the equation that does so."""
    buffer = ref.buffer
    access = pointers(text, ref, region)
    _ordered(text, buffer, "store", by, access.static)
    store_at(text, buffer, access, value, mask)
    if not buffer.written:
        buffer.by = by if access.static else None
    elif buffer.by is not by:
        buffer.by = None
    buffer.written = "store"


def store_at(
    text: TritonText, buffer: Buffer, access: Access, value: Value, mask: Value | None
) -> None:
    shape = access.shape
    mask = text.both(mask, access.mask, shape)
    if is_bool(value.dtype):
        value = text.extended(value, _stored(value.dtype))
    value = text.broadcast(value, shape)
    more = "" if mask is None else f", {mask.name}"
    text.line(f"tt.store {access.pointers}, {value.name}{more} : {access.type}")


def atomic(
    text: TritonText, ref: Memory, region: Region, mode: str, value: Value, mask: Value | None
) -> Value:
    """Combines a value with the elements of a region; returns the elements from before."""
    buffer = ref.buffer
    _ordered(text, buffer, "atomic", None, False)
    found = atomic_at(text, buffer, pointers(text, ref, region), mode, value, mask)
    buffer.written, buffer.by = "atomic", None
    return found


def atomic_at(
    text: TritonText, buffer: Buffer, access: Access, mode: str, value: Value, mask: Value | None
) -> Value:
    """mode: "add", "max", "min", "and", "or" or "xor"."""
    dtype, shape = buffer.type.dtype, access.shape
    mask = text.both(mask, access.mask, shape)
    if mask is None:
        mask = text.constant(True, shape, BOOL)
    kind = mode
    if mode == "add" and is_inexact(dtype):
        kind = "fadd"
    elif mode in ("max", "min") and is_unsigned(dtype):
        kind = f"u{mode}"
    value = text.broadcast(value, shape)
    types = f"({access.type}, {value.type}, {mask.type}) -> {value.type}"
    return text.let(
        f"tt.atomic_rmw {kind}, acq_rel, gpu, {access.pointers}, {value.name}, {mask.name} "
        f": {types}",
        shape,
        dtype,
    )


def _stored(dtype: Any) -> Any:
    """The dtype in memory: booleans are bytes."""
    return INT8 if is_bool(dtype) else dtype
