"""Refs in GPU memory: where a block starts, and loads, stores and atomics with masks.

A ref of a block is a pointer to its first element with a stride for each dimension. Elements
beyond the end of the array are masked: loads give 0 there, stores drop them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.emitted.emitted_programs import InMemory
from shardwise._src.kernels.on_gpu.barriers import Access
from shardwise._src.kernels.on_gpu.triton_elementwise import convert
from shardwise._src.kernels.on_gpu.triton_text import (
    BOOL,
    INT32,
    INT64,
    TritonText,
    Value,
    element,
    type_text,
)
from shardwise._src.kernels.size_arithmetic import row_major_strides
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact, is_unsigned

INT8 = np.dtype("int8")
MOST_THREADS = 1024  # of a program


@dataclass(frozen=True, eq=False)
class Buffer:
    """The memory of an operand or result.

    what:    its name, for messages.
    pointer: its first element.
    result:  whether the kernel may write to it.
    """

    what: str
    pointer: str
    type: ArrayType
    result: bool = False

    @property
    def index(self) -> Any:
        """The dtype of offsets."""
        return INT64 if self.type.size >= 1 << 31 else INT32

    @property
    def stored(self) -> Any:
        """The dtype in memory: booleans are bytes."""
        return INT8 if is_bool(self.type.dtype) else self.type.dtype

    @property
    def kind(self) -> str:
        return f"!tt.ptr<{element(self.stored)}>"


class Bound(NamedTuple):
    """An array's size along a dimension, beyond which a block may extend.

    start: of the block; below: whether it may start before the array.
    """

    start: Value
    size: int
    below: bool


@dataclass(frozen=True, eq=False)
class Memory(InMemory):
    """A ref in memory: its first element, and for each dimension size, stride, and bounds."""

    buffer: Buffer
    pointer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bounds: tuple[tuple[Bound, ...], ...]


class Row(NamedTuple):
    """Positions along a dimension: `start + step * steps`.

    steps: integers that broadcast to the elements; None for one position.
    last:  the greatest of `step * steps`; None if unknown: positions may be outside of the ref.
    """

    start: Value
    steps: Value | None = None
    step: int = 1
    last: int | None = None


class Elements(NamedTuple):
    """Elements of a ref: their shape, and a row for each dimension of the ref.

    place: equal for elements that are accessed by the same threads; they all access different ones
           if there are enough.
    is_whole: whether these are all elements, with all dimensions.
    """

    shape: tuple[int, ...]
    rows: tuple[Row, ...]
    place: Any = None
    is_whole: bool = False


def region(
    text: TritonText, ref: Memory, starts: Sequence[Value], sizes: Any, strides: Any, kept: Any
) -> Elements:
    """Elements from a start on along each dimension."""
    shape = tuple([n for n, keep in zip(sizes, kept, strict=True) if keep])
    rows, axis = [], 0
    for start, n, step, keep in zip(starts, sizes, strides, kept, strict=True):
        steps = text.along(text.range(n), axis, shape) if n > 1 else None
        rows.append(Row(start, steps, step, (n - 1) * step))
        axis += keep
    is_whole = all(s.known == 0 for s in starts) and sizes == ref.shape and all(kept)
    place: Any = object()
    if math.prod(sizes) >= MOST_THREADS:
        place = tuple([s.name for s in starts]), sizes, strides
    return Elements(shape, tuple(rows), place, is_whole)


def everything(text: TritonText, ref: Memory) -> Elements:
    n = len(ref.shape)
    return region(text, ref, (text.integer(0),) * n, ref.shape, (1,) * n, (True,) * n)


def at_indices(text: TritonText, at: Sequence[Value]) -> Elements:
    """Elements at indices, one array for each dimension."""
    return Elements(at[0].shape, tuple([Row(text.integer(0), i) for i in at]), object())


def block_of(text: TritonText, buffer: Buffer, tile: Tile, at: Sequence[Value]) -> Memory:
    """The ref of a block with these indices."""
    strides, start, rows = row_major_strides(tile.type.shape), text.integer(0, buffer.index), []
    for d, (i, n) in enumerate(zip(at, tile.sizes, strict=True)):
        first, (low, high) = i if tile.element[d] else text.times(i, n), tile.padding[d]
        start = text.plus(start, text.times(convert(text, first, buffer.index), strides[d]))
        bound = (Bound(first, tile.type.shape[d], low > 0),) if low or high else ()
        if tile.kept[d]:
            rows.append((n, strides[d], bound))
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), ())
    return Memory(buffer, _moved(text, buffer.pointer, buffer.kind, start), *columns)


def _moved(text: TritonText, pointer: str, kind: str, offset: Value) -> str:
    """Pointers with an offset."""
    if offset.known == 0:
        return pointer
    return text.named(f"tt.addptr {pointer}, {offset.name} : {kind}, {offset.type}")


def _accessed(
    text: TritonText, ref: Memory, at: Elements, kind: str, mask: Value | None, by: Any = None
) -> tuple[str, str, Value | None]:
    """The pointers of elements, their type, and the mask of those that exist. mask: of others."""
    buffer, shape = ref.buffer, at.shape
    if buffer.result:
        whole = at.is_whole and mask is None
        access = Access(text.indented("gpu.barrier"), buffer, kind, at.place, by, whole)
        text.lines.append(access)
    start = offset = text.integer(0, buffer.index)
    inside = text.inside(shape, range(len(shape)))
    for row, stride, bounds, size in zip(at.rows, ref.strides, ref.bounds, ref.shape, strict=True):
        start = text.plus(start, text.times(convert(text, row.start, buffer.index), stride))
        if row.steps is not None:
            far = text.times(convert(text, row.steps, buffer.index), row.step * stride)
            offset = text.plus(offset, far, shape)
        if row.last is None:
            bounds = (Bound(text.integer(0), size, True), *bounds)
        for bound in bounds:
            inside = text.both(inside, _within(text, bound, row), shape)
    kind, pointer = buffer.kind, _moved(text, ref.pointer, buffer.kind, start)
    if shape:
        kind = type_text(shape, buffer.kind)
        pointer = text.named(f"tt.splat {pointer} : {buffer.kind} -> {kind}")
        if offset.known != 0:
            pointer = _moved(text, pointer, kind, text.broadcast(offset, shape))
    return pointer, kind, text.both(mask, inside, shape)


def _within(text: TritonText, bound: Bound, row: Row) -> Value | None:
    """Which positions along a dimension are inside of the array; None if all are."""
    at = text.plus(bound.start, row.start)
    if at.known is not None and row.last is not None and 0 <= at.known < bound.size - row.last:
        return None
    if row.steps is not None:
        at = text.plus(at, text.times(row.steps, row.step), row.steps.shape)
    found = text.compare("slt", at, text.constant(bound.size, at.shape, INT32))
    if not bound.below:
        return found
    above = text.compare("sge", at, text.constant(0, at.shape, INT32))
    return text.binary("arith.andi", found, above)


def load(
    text: TritonText,
    ref: Memory,
    at: Elements,
    mask: Value | None = None,
    other: Value | None = None,
) -> Value:
    """Elements of a ref; `other` where the mask is False or the array ends."""
    buffer, more = ref.buffer, ""
    where, kind, mask = _accessed(text, ref, at, "load", mask)
    if mask is not None:
        if other is None:
            other = text.constant(0, at.shape, buffer.stored)
        other = convert(text, text.broadcast(other, at.shape), buffer.stored)
        more = f", {mask.name}, {other.name}"
    x = text.let(f"tt.load {where}{more} : {kind}", at.shape, buffer.stored)
    return convert(text, x, buffer.type.dtype)


def store(
    text: TritonText, ref: Memory, at: Elements, value: Value, mask: Value | None, by: Any = None
) -> None:
    """Writes elements, where the mask is True. by: the equation that does so."""
    is_static = all(row.start.known is not None and row.last is not None for row in at.rows)
    where, kind, mask = _accessed(text, ref, at, "store", mask, by if is_static else None)
    value = text.broadcast(convert(text, value, ref.buffer.stored), at.shape)
    more = "" if mask is None else f", {mask.name}"
    text.line(f"tt.store {where}, {value.name}{more} : {kind}")


def atomic(
    text: TritonText, ref: Memory, at: Elements, mode: str, value: Value, mask: Value | None
) -> Value:
    """Combines a value with elements; returns the elements from before."""
    dtype = ref.buffer.type.dtype
    where, kind, mask = _accessed(text, ref, at, "atomic", mask)
    mask = mask or text.constant(True, at.shape, BOOL)
    if mode == "add" and is_inexact(dtype):
        mode = "fadd"
    elif mode == "xchg":
        mode = "exch"
    elif mode in ("max", "min") and is_unsigned(dtype):
        mode = f"u{mode}"
    value = text.broadcast(value, at.shape)
    return text.let(
        f"tt.atomic_rmw {mode}, acq_rel, gpu, {where}, {value.name}, {mask.name} : "
        f"({kind}, {value.type}, {mask.type}) -> {value.type}",
        at.shape,
        dtype,
    )


def compare_and_swap(text: Any, ref: Memory, at: Elements, compared: Value, value: Value) -> Value:
    """Writes `value` to elements that are equal to `compared`; returns those from before."""
    where, kind, inside = _accessed(text, ref, at, "atomic", None)
    if inside is not None:
        raise text.unsupported(
            "atomic_cas",
            "has no mask on GPUs: of blocks that divide the array, with sizes that are powers of "
            "two. Use such blocks, or one element, `ref.at[i]`",
        )
    compared, value = text.broadcast(compared, at.shape), text.broadcast(value, at.shape)
    return text.let(
        f"tt.atomic_cas acq_rel, gpu, {where}, {compared.name}, {value.name} : "
        f"({kind}, {value.type}, {value.type}) -> {value.type}",
        at.shape,
        ref.buffer.type.dtype,
    )
