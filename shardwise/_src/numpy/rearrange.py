"""Rearranging elements along dimensions: roll, repeat, tile and related functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import (
    ConcretizationTypeError,
    ShapeError,
    TracerArrayConversionError,
)
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import array_or_host, as_arraylike, is_array, type_of
from shardwise._src.numpy.shapes import axes_of, no_lists, ravel, reshape
from shardwise._src.ops import basis
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import shape as ops
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.indexing.gather_rules import ScatterDimensionNumbers
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, scatter_add
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, Ints, OutSharding
from shardwise._src.types.dtypes import is_integer
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.values import binary
from shardwise._src.values.at import At
from shardwise._src.values.convert import as_integer, broadcast_to, cast
from shardwise._src.values.index_pattern import ALL, HOST
from shardwise._src.values.indexing import INT32, read

UINT32 = np.dtype(np.uint32)
MAX_RUNS = 16  # pieces that a static rearrangement is assembled from


def known(x: Any, what: str) -> np.ndarray:
    """The concrete value of an argument that determines shapes."""
    try:
        return np.asarray(eval_trace().readable(as_arraylike(x)))
    except TracerArrayConversionError as error:
        raise ConcretizationTypeError(
            f"{what} must be concrete, since the result's shape depends on it; got a traced "
            f"{type_of(x).str_short(True)}, {x.not_concrete()}"
        ) from error


# -- static indices --


def take_static(x: Any, places: np.ndarray, axis: int) -> Any:
    """The elements at static indices along `axis`: slices if these suffice, else a gather."""
    runs = _runs(places)
    if len(runs) > MAX_RUNS or not len(places):
        return take_inside(x, places.astype(np.int32), axis)
    parts = [_run(x, start, count, step, axis) for start, count, step in runs]
    return ops.concatenate(*parts, dimension=axis) if len(parts) > 1 else parts[0]


def take_inside(x: Any, places: Any, axis: int) -> Any:
    """The elements at indices along `axis` that are not negative, and in bounds."""
    rest = type_of(x).ndim - axis - 1
    return read(x, places, pattern=(*[ALL] * axis, HOST, *[ALL] * rest))


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """Indices as (start, count, step) with steps of -1, 0 and 1."""
    runs: list[tuple[int, int, int]] = []
    for place in places.tolist():
        if runs:
            start, count, step = runs[-1]
            delta = place - (start + (count - 1) * step)
            if (count == 1 and abs(delta) <= 1) or (count > 1 and delta == step):
                runs[-1] = (start, count + 1, delta)
                continue
        runs.append((place, 1, 1))
        if len(runs) > MAX_RUNS:
            break
    return runs


def _run(x: Any, start: int, count: int, step: int, axis: int) -> Any:
    if step == 0:
        shape = list(type_of(x).shape)
        shape[axis] = count
        return broadcast_in_place(ops.slice_in_dim(x, start, start + 1, axis), tuple(shape))
    low = start if step > 0 else start - count + 1
    part = ops.slice_in_dim(x, low, low + count, axis)
    return ops.rev(part, dimensions=(axis,)) if step < 0 and count > 1 else part


def broadcast_in_place(x: Any, shape: tuple) -> Any:
    """Dimensions of size 1 broadcast to `shape`, of the same rank."""
    if type_of(x).shape == shape:
        return x
    return basis.broadcast_in_dim(x, shape=shape, dims=tuple(range(len(shape))))


# -- roll --


@fused(arrays=1)
def _roll(x: Any, shifts: tuple, axes: tuple) -> Any:
    for axis in dict.fromkeys(axes):
        n = type_of(x).shape[axis]
        shift = sum([s for s, i in zip(shifts, axes, strict=True) if i == axis])
        cut = -shift % n if n else 0
        if isinstance(cut, Symbolic) or cut:
            head = ops.slice_in_dim(x, 0, cut, axis)
            tail = ops.slice_in_dim(x, cut, n, axis)
            x = ops.concatenate(tail, head, dimension=axis)
    return x


@fused(arrays=2)
def _roll_by(x: Any, shifts: Any, axes: tuple) -> Any:
    """Rolls by amounts that are known only at run time, once along each axis."""
    t = type_of(x)
    each = broadcast_to(ravel(shifts), (len(axes),))
    for axis in dict.fromkeys(axes):
        n = t.shape[axis]
        if n:
            mine = np.array([k for k, i in enumerate(axes) if i == axis])
            start = cast(ew.sub(np.uint32(n), _sum_modulo(take_static(each, mine, 0), n)), INT32)
            starts = [start if d == axis else np.int32(0) for d in range(t.ndim)]
            twice = ops.concatenate(x, x, dimension=axis)
            x = dynamic_slice(twice, *starts, slice_sizes=t.shape)
    return x


def _sum_modulo(x: Any, n: int) -> Any:
    """u32[]: the sum of integers modulo n, adding only as many at a time as uint32 can hold."""
    dtype = type_of(x).dtype
    x = x if is_integer(dtype) and dtype.itemsize >= 4 else cast(x, INT32)
    x = cast(binary.remainder(x, np.asarray(n).astype(type_of(x).dtype)), UINT32)
    while type_of(x).size > 1:
        count = min(type_of(x).size, 2**32 // n)
        x = ops.pad(x, np.uint32(0), padding_config=((0, -type_of(x).size % count, 0),))
        rows = basis.reshape(x, shape=(type_of(x).size // count, count))
        x = ew.rem(basis.reduce_sum(rows, axes=(1,)), np.uint32(n))
    return basis.reshape(x, shape=())


@eager_jit
def roll(a: ArrayLike, shift: ArrayLike | Sequence[int], axis: Ints | None = None) -> Array:
    """Elements shifted by `shift` along `axis`; elements that leave at the end return at the front.

    Several shifts and axes are paired; without an axis, the array is rolled as if flat.
    """
    no_lists("roll", a)
    t = type_of(a)
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), t.shape)
    axes = tuple([canonical_axis(i, t.ndim) for i in _several(axis)])
    shift = as_arraylike(shift)
    if is_array(shift):
        if type_of(shift).ndim > 1:
            raise ValueError(
                f"roll: shift must be a scalar or a vector; got {type_of(shift).str_short(True)}."
            )
        if type_of(shift).size not in (1, len(axes)) and len(axes) > 1:
            raise ValueError(f"roll: there are {type_of(shift).size} shifts for axes {axis}.")
        if len(axes) == 1 and type_of(shift).size > 1:
            axes = axes * type_of(shift).size
        return _roll_by(a, shift, axes)
    shifts = [as_integer(s, "roll: a shift") for s in _several(shift)]
    try:
        pairs = np.broadcast(shifts, axes)
    except ValueError:
        raise ValueError(
            f"roll: shifts {shift} and axes {axis} must correspond one to one."
        ) from None
    each = [(int(s), int(i)) for s, i in pairs]
    return _roll(a, tuple(s for s, _ in each), tuple(i for _, i in each))


def _several(x: Any) -> tuple:
    return tuple(x) if isinstance(x, Sequence) or getattr(x, "ndim", 0) else (x,)


# -- repeat, tile, resize --


@fused(arrays=1)
def _repeat(x: Any, count: int, axis: int) -> Any:
    shape = type_of(x).shape
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    kept = tuple(i + (i > axis) for i in range(len(shape)))
    out = basis.broadcast_in_dim(x, shape=wide, dims=kept)
    return basis.reshape(out, shape=(*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


@fused(arrays=2)
def _repeat_each(x: Any, repeats: Any, axis: int, total: int) -> Any:
    """Repeats by counts that are known only at run time; the result has size `total`."""
    n = type_of(x).shape[axis]
    counts = broadcast_to(cast(repeats, INT32), (n,))
    ends = ops.slice_in_dim(cumsum(counts, axis=0, reverse=False), 0, n - 1, 0)
    steps = basis.broadcast_in_dim(np.int32(0), shape=(total,), dims=())
    ones = basis.broadcast_in_dim(np.int32(1), shape=(n - 1,), dims=())
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    vectors = basis.reshape(ends, shape=(n - 1, 1))
    steps = scatter_add(steps, vectors, ones, dimension_numbers=numbers, mode="fill")
    return take_inside(x, cumsum(steps, axis=0, reverse=False), axis)


@fused(arrays=1)
def take_runs(x: Any, places: tuple, axis: int) -> Any:
    return take_static(x, np.array(places, np.int64), axis)


@eager_jit
def repeat(
    a: ArrayLike,
    repeats: ArrayLike,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Each element repeated, all equally often or each according to `repeats`.

    total_repeat_length: the size of the result, required if `repeats` is traced: excess elements
        are dropped, missing ones are copies of the last element.
    """
    no_lists("repeat", a)
    if out_sharding is not None:
        if total_repeat_length is None:
            repeats = _known_counts(repeats).tolist()
        length = {"total_repeat_length": total_repeat_length}
        return placed(repeat, out_sharding, a, repeats, axis, **length)
    if axis is None:
        a, axis = ravel(a), 0
    elif not type_of(a).ndim:
        a = reshape(a, (1,))
    axis = canonical_axis(axis, type_of(a).ndim)
    n = type_of(a).shape[axis]
    each: Any = as_arraylike(repeats)
    if total_repeat_length is None and not is_array(each) and np.ndim(each) == 0:
        count = as_integer(each, "repeat: `repeats`")
        if count < 0:
            raise ShapeError(f"repeat: counts must not be negative; got {count}.")
        return _repeat(a, count, axis)
    if total_repeat_length is not None:
        total = as_integer(total_repeat_length, "repeat: total_repeat_length")
        counts = array_or_host(repeats)
        _check_counts(type_of(counts).shape, n)
        if not n:
            return eval_trace().new_array(a) if not is_array(a) else a
        if type_of(counts).ndim == 0 or type_of(counts).shape == (1,):
            counts = reshape(counts, (1,))
        return _repeat_each(a, counts, axis, total)
    counts = _known_counts(repeats)
    _check_counts(counts.shape, n)
    places = np.repeat(np.arange(n), np.broadcast_to(counts, (n,)))
    return take_runs(a, tuple(places.tolist()), axis)


def _known_counts(repeats: ArrayLike) -> np.ndarray:
    return np.asarray(known(repeats, "repeat: without total_repeat_length, `repeats`"))


def _check_counts(shape: tuple, n: int) -> None:
    if shape not in ((), (1,), (n,)):
        raise ValueError(f"repeat: counts of shape {shape} do not match {n} elements.")


@fused(arrays=1)
def _tile(x: Any, reps: tuple) -> Any:
    shape = type_of(x).shape
    rank = max(len(shape), len(reps))
    x = ops.expand_dims(x, tuple(range(rank - len(shape))))
    return ops.tile(x, (1,) * (rank - len(reps)) + reps)


@eager_jit
def tile(A: ArrayLike, reps: Ints) -> Array:
    """The array repeated `reps` times along each dimension."""
    no_lists("tile", A)
    counts = tuple([as_integer(r, "tile: reps") for r in _several(reps)])
    if any(r < 0 for r in counts):
        raise ValueError(f"tile: counts must not be negative; got {reps}.")
    return _tile(A, counts)


@fused(arrays=1)
def _resize(x: Any, shape: tuple) -> Any:
    size, old = int(np.prod(shape)), type_of(x).size
    if not size or not old:
        return basis.zeros(type_of(x).update(shape=shape))
    flat = basis.reshape(x, shape=(old,))
    wide = ops.tile(flat, (-(-size // old),))
    return basis.reshape(ops.slice_in_dim(wide, 0, size, 0), shape=shape)


@eager_jit
def resize(a: ArrayLike, new_shape: Ints) -> Array:
    """The elements in another shape of any size, repeated or truncated."""
    no_lists("resize", a)
    shape = tuple([as_integer(n, "resize: a size") for n in _several(new_shape)])
    if any(n < 0 for n in shape):
        raise ValueError(f"resize: sizes must not be negative; got {shape}.")
    return _resize(a, shape)


# -- diagonals --


@fused(arrays=1)
def _diagonal(x: Any, offset: int, axis1: int, axis2: int) -> Any:
    perm = [i for i in range(type_of(x).ndim) if i not in (axis1, axis2)]
    x = basis.transpose(x, perm=(*perm, axis1, axis2))
    rows, columns = type_of(x).shape[-2:]
    first = (max(-offset, 0), max(offset, 0))
    count = max(0, min(rows - first[0], columns - first[1]))
    k = np.arange(count, dtype=np.int32)
    pattern = (*[ALL] * len(perm), HOST, HOST)
    return read(x, k + np.int32(first[0]), k + np.int32(first[1]), pattern=pattern)


@eager_jit
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements at which the second of two indices is the first plus `offset`."""
    no_lists("diagonal", a)
    i, j = axes_of((axis1, axis2), type_of(a).ndim)
    return _diagonal(a, as_integer(offset, "diagonal: offset"), i, j)


@eager_jit(arrays=2)
def fill_diagonal(
    a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True
) -> Array:
    """`a` with `val` where all indices are equal; requires `inplace=False`."""
    if inplace:
        raise NotImplementedError(
            "fill_diagonal: arrays are immutable; pass inplace=False to get a new one."
        )
    if wrap:
        raise NotImplementedError("fill_diagonal: wrap=True is not supported.")
    shape = type_of(a).shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ValueError(
            f"fill_diagonal needs a matrix, or equal sizes in all dimensions; got shape {shape}."
        )
    k = np.arange(min(shape), dtype=np.int32)
    val = array_or_host(val)
    flat = resize(val, (len(k),)) if type_of(val).ndim else val
    return At(a)[(k,) * len(shape)].set(flat, unique_indices=True)
