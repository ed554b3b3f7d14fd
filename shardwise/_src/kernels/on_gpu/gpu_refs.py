"""Refs in GPU memory: where a block starts, and loads, stores and atomics with masks.

A ref of a block is a pointer to its first element with a stride for each dimension. Elements
beyond the end of the array are masked: loads give 0 there, stores drop them.

A thread sees what another thread of its program wrote only after a barrier, and may read what
another one writes until then. So reads after writes are preceded by a barrier, and writes after
reads, unless each element is surely read and written by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

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
from shardwise._src.kernels.ref_access import Place
from shardwise._src.kernels.size_arithmetic import row_major_strides
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_inexact, is_unsigned

INT8 = np.dtype("int8")
MOST_THREADS = 1024  # of a program


@dataclass(eq=False)
class Buffer:
    """The memory of an operand or result.

    what:    its name, for messages.
    pointer: its first element.
    result:  whether the kernel may write to it.
    written: how it was written since the last barrier: "store", "atomic" or "".
    by:      the equation that did so, if only that one did.
    read:    what was read since the last barrier.
    """

    what: str
    pointer: str
    type: ArrayType
    result: bool = False
    written: str = ""
    by: Any = None
    read: set[Any] = field(default_factory=set)

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
class Memory:
    """A ref in memory: its first element, and for each dimension size, stride, and bound."""

    buffer: Buffer
    pointer: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    bounds: tuple[Bound | None, ...]


class Region(Place):
    """Elements of a ref, whose starts are values in Triton's text."""

    __slots__ = ()

    @property
    def place(self) -> Any:
        """Equal for regions whose elements are accessed by the same threads; they all access
        different ones if there are enough."""
        if math.prod(self.sizes) < MOST_THREADS:
            return object()
        return tuple([s.name for s in self.starts]), self.sizes, self.strides

    def is_all(self, shape: Sequence[int]) -> bool:
        """Whether these are all elements of a ref of this shape, with all of its dimensions."""
        zeros = all(s.known is not None and s.known == 0 for s in self.starts)
        return zeros and self.sizes == tuple(shape) and all(self.kept)


def everything(text: TritonText, shape: Sequence[int]) -> Region:
    n = len(shape)
    return Region((text.integer(0),) * n, tuple(shape), (1,) * n, (True,) * n)


def block_of(text: TritonText, buffer: Buffer, tile: Tile, at: Sequence[Value]) -> Memory:
    """The ref of a block with these indices."""
    strides, start, rows = row_major_strides(tile.type.shape), text.integer(0, buffer.index), []
    for d, (i, n) in enumerate(zip(at, tile.sizes, strict=True)):
        first, (low, high) = i if tile.element[d] else text.times(i, n), tile.padding[d]
        start = text.plus(start, text.times(text.widened(first, buffer.index), strides[d]))
        bound = Bound(first, tile.type.shape[d], low > 0) if low or high else None
        if tile.kept[d]:
            rows.append((n, strides[d], bound))
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), ())
    return Memory(buffer, moved(text, buffer.pointer, buffer.kind, start), *columns)


def moved(text: TritonText, pointer: str, kind: str, offset: Value) -> str:
    """Pointers with an offset."""
    if offset.known is not None and offset.known == 0:
        return pointer
    name = text.fresh()
    text.line(f"{name} = tt.addptr {pointer}, {offset.name} : {kind}, {offset.type}")
    return name


def pointers(text: TritonText, ref: Memory, region: Region) -> tuple[str, str, Value | None]:
    """The pointers of a region, their type, and the mask of the elements that exist."""
    index, shape, kind = ref.buffer.index, region.shape, ref.buffer.kind
    start, offsets, mask, axis = text.integer(0, index), None, None, 0
    for d, (first, n) in enumerate(zip(region.starts, region.sizes, strict=True)):
        step, bound = region.strides[d], ref.bounds[d]
        start = text.plus(start, text.times(text.widened(first, index), ref.strides[d]))
        steps, masks = None, []
        if region.kept[d]:
            steps = text.range(n)
            masks.append(text.inside((n,), (0,)))
            if n > 1:
                far = text.scaled(text.extended(steps, index), step * ref.strides[d])
                offsets = text.total(offsets, text.along(far, axis, shape), shape)
        if bound is not None and not _is_inside(bound, first, n, step):
            masks += _within(text, bound, first, steps and text.scaled(steps, step))
        for m in masks:
            if m is not None:
                mask = text.both(mask, text.along(m, axis, shape) if m.shape else m, shape)
        axis += region.kept[d]
    pointer = moved(text, ref.pointer, kind, start)
    if shape:
        whole, name = type_text(shape, kind), text.fresh()
        text.line(f"{name} = tt.splat {pointer} : {kind} -> {whole}")
        pointer, kind = name, whole
        if offsets is not None:
            pointer = moved(text, name, whole, text.broadcast(offsets, shape))
    return pointer, kind, mask


def bounded(text: TritonText, ref: Memory) -> Memory:
    """The ref with bounds, for regions that may begin or end outside of it."""
    rows = zip(ref.bounds, ref.shape, strict=True)
    bounds = [
        Bound(text.integer(0), n, True) if b is None else b._replace(below=True) for b, n in rows
    ]
    return replace(ref, bounds=tuple(bounds))


def _is_inside(bound: Bound, start: Value, n: int, step: int) -> bool:
    if bound.start.known is None or start.known is None:
        return False
    first = int(bound.start.known) + int(start.known)
    return first >= 0 and first + (n - 1) * step < bound.size


def _within(text: TritonText, bound: Bound, start: Value, steps: Value | None) -> list[Value]:
    """Which positions along a dimension are inside of the array."""
    at = text.plus(bound.start, start)
    if steps is not None:
        at = text.binary("arith.addi", text.splat(at, steps.shape), steps)
    found = [text.compare("slt", at, text.constant(bound.size, at.shape, INT32))]
    if bound.below:
        found.append(text.compare("sge", at, text.constant(0, at.shape, INT32)))
    return found


def ordered(text: TritonText, buffer: Buffer, kind: str, place: Any = None, by: Any = None) -> None:
    """A barrier before an access, if one is needed.

    kind: "load", "store", "atomic" or "branch", in which there may be any of these.
    by: an equation that writes the same elements each time, by the same threads.
    """
    again = by is not None and buffer.by is by
    after_write = buffer.written and not again and not kind == buffer.written == "atomic"
    if after_write or (kind != "load" and buffer.read - {place}):
        text.line("gpu.barrier")
        buffer.written, buffer.read = "", set()
    if kind == "load" and buffer.result:
        buffer.read = buffer.read | {place}
    elif kind in ("store", "atomic"):
        buffer.by = by if not buffer.written or again else None
        buffer.written = kind


def load(
    text: TritonText,
    ref: Memory,
    region: Region,
    mask: Value | None = None,
    other: Value | None = None,
) -> Value:
    """The elements of a region; `other` where the mask is False or the array ends."""
    buffer, shape = ref.buffer, region.shape
    ordered(text, buffer, "load", region.place)
    where, kind, inside = pointers(text, ref, region)
    return _loaded(text, buffer, where, kind, shape, text.both(mask, inside, shape), other)


def _loaded(
    text: TritonText,
    buffer: Buffer,
    where: str,
    kind: str,
    shape: tuple[int, ...],
    mask: Value | None,
    other: Value | None,
) -> Value:
    more = ""
    if mask is not None:
        if other is None:
            other = text.constant(0, shape, buffer.stored)
        other = text.extended(text.broadcast(other, shape), buffer.stored)
        more = f", {mask.name}, {other.name}"
    x = text.let(f"tt.load {where}{more} : {kind}", shape, buffer.stored)
    if is_bool(buffer.type.dtype):
        return text.compare("ne", x, text.constant(0, shape, buffer.stored))
    return replace(x, dtype=buffer.type.dtype)


def store(
    text: TritonText, ref: Memory, region: Region, value: Value, mask: Value | None, by: Any
) -> None:
    """Writes a region, where the mask is True. by: the equation that does so."""
    static = all(s.known is not None for s in region.starts)
    ordered(text, ref.buffer, "store", region.place, by if static else None)
    where, kind, inside = pointers(text, ref, region)
    mask = text.both(mask, inside, region.shape)
    value = text.broadcast(text.extended(value, ref.buffer.stored), region.shape)
    more = "" if mask is None else f", {mask.name}"
    text.line(f"tt.store {where}, {value.name}{more} : {kind}")


def atomic(
    text: TritonText, ref: Memory, region: Region, mode: str, value: Value, mask: Value | None
) -> Value:
    """Combines a value with the elements of a region; returns the elements from before."""
    shape = region.shape
    ordered(text, ref.buffer, "atomic", region.place)
    where, kind, inside = pointers(text, ref, region)
    return _rmw(text, ref.buffer, mode, where, kind, value, text.both(mask, inside, shape), shape)


def compare_and_swap(
    text: Any, ref: Memory, region: Region, compared: Value, value: Value
) -> Value:
    """Writes `value` to the elements of a region that are equal to `compared`; returns those from
    before."""
    dtype, shape = ref.buffer.type.dtype, region.shape
    ordered(text, ref.buffer, "atomic", region.place)
    where, kind, inside = pointers(text, ref, region)
    if inside is not None:
        raise text.unsupported(
            "atomic_cas",
            "has no mask on GPUs: of blocks that divide the array, with sizes that are powers of "
            "two. Use such blocks, or one element, `ref.at[i]`",
        )
    compared, value = text.broadcast(compared, shape), text.broadcast(value, shape)
    return text.let(
        f"tt.atomic_cas acq_rel, gpu, {where}, {compared.name}, {value.name} : "
        f"({kind}, {value.type}, {value.type}) -> {value.type}",
        shape,
        dtype,
    )


def _rmw(
    text: TritonText,
    buffer: Buffer,
    mode: str,
    where: str,
    kind: str,
    value: Value,
    mask: Value | None,
    shape: tuple[int, ...],
) -> Value:
    dtype = buffer.type.dtype
    mask = mask or text.constant(True, shape, BOOL)
    if mode == "add" and is_inexact(dtype):
        mode = "fadd"
    elif mode == "xchg":
        mode = "exch"
    elif mode in ("max", "min") and is_unsigned(dtype):
        mode = f"u{mode}"
    value = text.broadcast(value, shape)
    return text.let(
        f"tt.atomic_rmw {mode}, acq_rel, gpu, {where}, {value.name}, {mask.name} : "
        f"({kind}, {value.type}, {mask.type}) -> {value.type}",
        shape,
        dtype,
    )


def pointers_at(
    text: TritonText, ref: Memory, at: Sequence[Value], shape: tuple[int, ...]
) -> tuple[str, str, Value | None]:
    """The pointers of elements at indices, their type, and the mask of those inside of the ref."""
    mask, offsets = text.inside(shape, range(len(shape))), None
    for i, stride, bound, size in zip(at, ref.strides, ref.bounds, ref.shape, strict=True):
        far = text.scaled(text.extended(i, ref.buffer.index), stride)
        offsets = text.total(offsets, far, shape)
        for limits in (Bound(text.integer(0), size, True), bound):
            for m in _within(text, limits, text.integer(0), i) if limits else []:
                mask = text.both(mask, m, shape)
    kind, name = type_text(shape, ref.buffer.kind), text.fresh()
    text.line(f"{name} = tt.splat {ref.pointer} : {ref.buffer.kind} -> {kind}")
    return (name if offsets is None else moved(text, name, kind, offsets)), kind, mask


def load_at(text: TritonText, ref: Memory, at: Sequence[Value]) -> Value:
    """The elements at indices, one array for each dimension."""
    buffer, shape = ref.buffer, at[0].shape
    ordered(text, buffer, "load", object())
    where, kind, mask = pointers_at(text, ref, at, shape)
    return _loaded(text, buffer, where, kind, shape, mask, None)


def store_at(text: TritonText, ref: Memory, at: Sequence[Value], value: Value, mode: str) -> None:
    """Writes to elements at indices, one array for each dimension; those outside are dropped.

    mode: "set", or that of an atomic update.
    """
    buffer, shape = ref.buffer, value.shape
    ordered(text, buffer, "store" if mode == "set" else "atomic")
    where, kind, mask = pointers_at(text, ref, at, shape)
    if mode == "set":
        value = text.broadcast(text.extended(value, buffer.stored), shape)
        more = "" if mask is None else f", {mask.name}"
        text.line(f"tt.store {where}, {value.name}{more} : {kind}")
        return
    _rmw(text, buffer, mode, where, kind, value, mask, shape)
