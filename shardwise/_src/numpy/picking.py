"""Selecting elements by index along a dimension, and writing to them: take, put and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import array_or_host, check_alive, type_of
from shardwise._src.messages.called import public_call
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.ordering.searching import flatnonzero, nonzero, ranks, truth
from shardwise._src.numpy.shapes import no_lists, ravel, reshape
from shardwise._src.ops import basis
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_rules import (
    GatherDimensionNumbers,
    GatherScatterMode,
    as_scatter,
)
from shardwise._src.ops.indexing.gather_scatter import gather, scatter
from shardwise._src.ops.logical import clamp, where
from shardwise._src.ops.shape import canonical_axis, tile
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, OutSharding
from shardwise._src.types.dtypes import is_integer
from shardwise._src.types.symbolic import broadcast_shapes
from shardwise._src.values import binary
from shardwise._src.values.at import update
from shardwise._src.values.convert import broadcast_values, cast, reject_out, strip_weak_type
from shardwise._src.values.index_pattern import ALL, ARRAY, HOST, SCALAR
from shardwise._src.values.indexing import around, index_dtype, narrowed, read, wrapped


def _who() -> str:
    return public_call() or "compress"


def must_be_integers(name: str, indices: Any) -> None:
    if not is_integer(type_of(indices).dtype):
        raise TypeError(
            f"{name}: indices must be integers; got {type_of(indices).str_short(True)}."
        )


def not_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"{name}: arrays are immutable; pass inplace=False to get a new one.")


# -- take --


@fused(arrays=2)
def _take(
    x: Any,
    indices: Any,
    axis: int | None,
    mode: str,
    fill_value: Any = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
) -> Any:
    """axis: None to index the flat array."""
    if axis is None:
        x, axis = reshape(x, shape=(type_of(x).size,)), 0
    n = type_of(x).shape[axis]
    if mode == "wrap":
        indices = around(indices, n)
    elif mode == "clip":
        indices = clamped(indices, n)
    kind = HOST if mode in ("wrap", "clip") else ARRAY if type_of(indices).ndim else SCALAR
    pattern = (*[ALL] * axis, kind, *[ALL] * (type_of(x).ndim - axis - 1))
    return read(
        x,
        indices,
        pattern=pattern,
        mode="fill" if mode == "fill" else "promise_in_bounds",
        fill_value=fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
    )


def _wide(indices: Any, x: Any) -> Any:
    return narrowed(indices, index_dtype((indices,), type_of(x).shape))


def clamped(indices: Any, n: int) -> Any:
    indices = narrowed(indices, index_dtype((indices,), (n,)))
    return clamp(lit(0, indices), indices, lit(max(n - 1, 0), indices))


@eager_jit(arrays=2)
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The elements of `a` at `indices` along `axis`; without an axis, of the flat array.

    mode: for indices out of bounds. "fill" (the default) returns `fill_value`, or else NaN, the
    smallest integer, or True; negative indices count from the end. "clip" clamps them; "wrap" takes
    them modulo the size.
    """
    no_lists("take", a, indices)
    if out is not None:
        raise NotImplementedError("take: arrays are immutable, so `out` must be None.")
    chosen = "fill" if mode is None else mode
    if isinstance(chosen, GatherScatterMode):
        chosen = chosen.value
    if chosen not in ("fill", "clip", "wrap", "promise_in_bounds"):
        raise ValueError(f"take: mode must be 'fill', 'clip' or 'wrap'; got {mode!r}.")
    must_be_integers("take", indices)
    if axis is not None:
        axis = canonical_axis(axis, type_of(a).ndim)
    elif out_sharding is None:
        a, axis = ravel(a), 0
    if type_of(indices).size and not (type_of(a).size if axis is None else type_of(a).shape[axis]):
        raise IndexError(f"take: dimension {axis or 0} is empty, so there is nothing to take.")
    how = axis, chosen, fill_value, unique_indices, indices_are_sorted
    return placed(_take, out_sharding, a, indices, *how)


# -- along an axis --


def _paired(shape: tuple, indices: Any, axis: int) -> tuple[GatherDimensionNumbers, Any]:
    """Dimension numbers and index vectors that pair all dimensions except `axis`."""
    others = tuple(i for i in range(len(shape)) if i != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    return numbers, basis.reshape(indices, shape=(*type_of(indices).shape, 1))


def _matched(x: Any, shape: tuple) -> Any:
    """Dimensions of size 1 broadcast to `shape`."""
    return basis.broadcast_in_dim(x, shape=shape, dims=tuple(range(len(shape))))


@fused(arrays=2)
def _take_along(
    x: Any, indices: Any, axis: int, mode: str, fill_value: Any = None, wrap: bool = True
) -> Any:
    shape, given = list(type_of(x).shape), list(type_of(indices).shape)
    n, count = shape[axis], given[axis]
    shape[axis] = given[axis] = 1
    common = list(broadcast_shapes(tuple(shape), tuple(given)))
    common[axis] = n
    x = _matched(x, tuple(common))
    indices = wrapped(_wide(indices, x), n) if wrap else _wide(indices, x)
    common[axis] = count
    numbers, vectors = _paired(tuple(common), _matched(indices, tuple(common)), axis)
    if 0 in common:
        return basis.zeros(type_of(x).update(shape=tuple(common)))
    return gather(
        x,
        vectors,
        dimension_numbers=numbers,
        slice_sizes=(1,) * len(common),
        mode=mode,
        fill_value=fill_value,
    )


@eager_jit(arrays=2)
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool = True,
) -> Array:
    """The elements at `indices` along `axis`, with separate indices for each other position.

    mode: for indices out of bounds: "fill" (the default; see `take`), "clip" or
    "promise_in_bounds".
    wrap_negative_indices: whether negative ones count from the end; else they are out of bounds.
    """
    no_lists("take_along_axis", arr, indices)
    must_be_integers("take_along_axis", indices)
    chosen = GatherScatterMode.from_any(mode).value
    if axis is None:
        if type_of(indices).ndim != 1:
            raise ValueError("take_along_axis: without an axis, indices must be a vector.")
        arr, axis = ravel(arr), 0
    axis = _checked_along("take_along_axis", arr, indices, axis)
    return _take_along(arr, indices, axis, chosen, fill_value, bool(wrap_negative_indices))


def _checked_along(name: str, arr: Any, indices: Any, axis: int) -> int:
    """The non-negative axis that the indices refer to."""
    x, given = type_of(arr), type_of(indices)
    if x.ndim != given.ndim:
        raise ValueError(
            f"{name}: array and indices must have the same number of dimensions; got "
            f"{x.str_short(True)} and {given.str_short(True)}."
        )
    axis = canonical_axis(axis, x.ndim)
    for i, (n, m) in enumerate(zip(x.shape, given.shape, strict=True)):
        if i != axis and n != m and 1 not in (n, m):
            raise ValueError(
                f"{name}: array and indices must have equal sizes, or size 1, along all "
                f"dimensions but axis {axis}; got {x.str_short(True)} and {given.str_short(True)}."
            )
    return axis


@fused(arrays=3)
def _put_along(x: Any, indices: Any, values: Any, axis: int, mode: str) -> Any:
    t = type_of(x)
    given = type_of(indices).shape
    common = tuple(given[i] if i == axis else n for i, n in enumerate(t.shape))
    indices = _matched(wrapped(_wide(indices, x), t.shape[axis]), common)
    numbers, vectors = _paired(common, indices, axis)
    values = cast(values, t.dtype, t.weak_type)
    values = broadcast_values(values, common, "put_along_axis")
    return scatter(x, vectors, values, dimension_numbers=as_scatter(numbers), mode=mode)


@eager_jit(arrays=3)
def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """`arr` with `values` written to `indices` along `axis` (see `take_along_axis`)."""
    not_in_place("put_along_axis", inplace)
    no_lists("put_along_axis", arr, indices)
    must_be_integers("put_along_axis", indices)
    chosen = GatherScatterMode.from_any(mode).value
    if axis is None:
        flat = put_along_axis(ravel(arr), indices, values, 0, False, mode=mode)
        return reshape(flat, type_of(arr).shape)
    axis = _checked_along("put_along_axis", arr, indices, axis)
    return _put_along(arr, indices, values, axis, chosen)


# -- put, place --


@fused(arrays=3)
def _put(x: Any, places: Any, values: Any, mode: str) -> Any:
    t = type_of(x)
    n, count = t.size, type_of(places).size
    flat = basis.reshape(x, shape=(n,))
    places = basis.reshape(places, shape=(count,))
    if mode == "wrap":
        places = around(places, n)
    elif mode == "clip":
        places = clamped(places, n)
    values = basis.reshape(cast(values, t.dtype), shape=(type_of(values).size,))
    values = tile(values, (-(-count // type_of(values).size),))
    values = values[:count]
    kind = ARRAY if mode == "fill" else HOST
    return basis.reshape(update(flat, values, places, pattern=(kind,), method="set"), shape=t.shape)


@eager_jit(arrays=3)
def put(
    a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True
) -> Array:
    """`a` with `v`, repeated as needed, written to indices of the flat array.

    mode: for indices out of bounds: "clip" clamps, "wrap" takes them modulo the size; by default
          they are clamped, but negative ones count from the end.
    """
    not_in_place("put", inplace)
    no_lists("put", a)
    chosen = "clip" if mode is None else mode
    if chosen not in ("clip", "wrap"):
        raise ValueError(f"put: mode must be 'clip' or 'wrap'; got {mode!r}.")
    ind, v = array_or_host(ind), array_or_host(v)
    must_be_integers("put", ind)
    if not type_of(ind).size or not type_of(v).size:
        return check_alive(a)
    if mode is None:
        ind = _wrap_negative(ind, type_of(a).size)
    return _put(a, ind, v, chosen)


@fused(arrays=1)
def _wrap_negative(i: Any, n: int) -> Any:
    return wrapped(narrowed(i, index_dtype((i,), (n,))), n)


# -- compress, extract, place --


def compress(
    condition: ArrayLike,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """The slices of `a` along `axis` where `condition` is true.

    size: the size of the result, required if the condition is traced: missing elements are
        `fill_value`.
    """
    no_lists("compress", a)
    reject_out("compress", out)
    condition = array_or_host(condition)
    if type_of(condition).ndim != 1:
        raise ValueError(f"{_who()}: the condition must be a vector.")
    if axis is None:
        a, axis = ravel(a), 0
    axis = canonical_axis(axis, type_of(a).ndim)
    n, count = type_of(a).shape[axis], type_of(condition).size
    places = flatnonzero(condition, size=size, fill_value=max(n, count))
    if size is None and count > n and bool(np.any(np.asarray(places) >= n)):
        raise ValueError(f"{_who()}: the condition is true beyond the {n} elements of the array.")
    return take(a, places, axis, mode="fill", fill_value=fill_value)


@hides_frames
def extract(
    condition: ArrayLike, arr: ArrayLike, *, size: int | None = None, fill_value: ArrayLike = 0
) -> Array:
    """The elements of the flat array where the condition is true (see `compress`)."""
    flat = ravel(array_or_host(condition)), ravel(array_or_host(arr))
    return strip_weak_type(compress(*flat, size=size, fill_value=fill_value))


@fused(arrays=3)
def _place(x: Any, mask: Any, values: Any) -> Any:
    t = type_of(x)
    flat = basis.reshape(x, shape=(t.size,))
    inside = basis.reshape(truth(mask), shape=(t.size,))
    count = type_of(values).size
    rank = ranks(inside)
    number = binary.remainder(rank, count)
    values = basis.reshape(cast(values, t.dtype), shape=(count,))
    picked = read(values, number, pattern=(HOST,))
    out = basis.reshape(where(inside, picked, flat), shape=t.shape)
    return cast(out, t.dtype, t.weak_type)


@eager_jit(arrays=3)
def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """`arr` with `vals`, repeated as needed, written in order where the mask is true."""
    not_in_place("place", inplace)
    no_lists("place", arr)
    mask, vals = array_or_host(mask), array_or_host(vals)
    if type_of(mask).size != type_of(arr).size:
        raise ValueError("place: array and mask must have the same number of elements.")
    if not type_of(vals).size:
        if type_of(arr).size:
            raise ValueError("place: there are no values to write.")
        return check_alive(arr)
    return _place(arr, mask, vals)


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors shaped so that indexing with them selects rows, columns, … independently."""
    out = []
    for k, x in enumerate(args):
        x = array_or_host(x)
        if type_of(x).ndim != 1:
            raise ValueError(f"ix_ takes vectors; got {type_of(x).str_short(True)}.")
        if type_of(x).dtype.kind == "b":
            (x,) = nonzero(x)
        elif not type_of(x).size:
            x = cast(x, np.dtype(np.int32))
        out.append(reshape(x, tuple(-1 if i == k else 1 for i in range(len(args)))))
    return tuple(out)
