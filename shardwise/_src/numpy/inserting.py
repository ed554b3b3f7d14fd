"""Removing and inserting elements: delete, insert, trim_zeros.

For example:

    insert([1, 4], 1, [2, 3])            # [1, 2, 3, 4]
    delete(x, 0, axis=1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import array_or_host, as_arraylike, is_array, type_of
from shardwise._src.numpy.rearrange import known, take_inside, take_runs, take_static
from shardwise._src.numpy.shapes import axes_of, moveaxis, no_lists, ravel, reshape
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import shape as ops
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sort import sort
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_bool, is_integer
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.values.at import At
from shardwise._src.values.convert import broadcast_to, broadcast_values, cast
from shardwise._src.values.indexing import INT32, wrapped


@eager_jit
def delete(
    arr: ArrayLike,
    obj: ArrayLike | slice | Sequence[int],
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Array:
    """Removes the elements that `obj`, an integer, a slice, or an array of integers or booleans,
    selects along `axis`.

    assume_unique_indices: promises that no integer occurs twice; `obj` may then be traced.
    """
    no_lists("delete", arr, obj)
    if axis is None:
        arr, axis = ravel(arr), 0
    axis = canonical_axis(axis, type_of(arr).ndim)
    n = type_of(arr).shape[axis]
    obj = as_arraylike(obj)
    if not isinstance(obj, slice):
        if assume_unique_indices and is_array(obj) and is_integer(type_of(obj).dtype):
            return _without_each(arr, obj, axis)
        obj = known(obj, "delete: `obj`")
        if not (is_integer(obj.dtype) or is_bool(obj.dtype)):
            raise TypeError(f"delete: `obj` must consist of integers or booleans; got {obj.dtype}.")
        if obj.ndim == 0 and not is_bool(obj.dtype):
            place = int(obj)
            if not -n <= place < n:
                raise ValueError(
                    f"delete: index {place} is out of bounds for axis {axis} of size {n}."
                )
            return _without(arr, place % n, axis)
    try:
        places = np.delete(np.arange(n), obj)
    except IndexError as error:
        raise IndexError(f"delete: {error}.") from None
    return take_runs(arr, tuple(places.tolist()), axis)


@fused(arrays=2)
def _without_each(x: Any, places: Any, axis: int) -> Any:
    n, count = type_of(x).shape[axis], type_of(places).size
    gone = At(full(False, (n,), np.dtype(bool)))[ravel(places)].set(True)
    order = iota(dtype=INT32, shape=(n,), dimension=0)
    left = sort(cast(gone, INT32), order, dimension=0, num_keys=2)[1]
    return take_inside(x, ops.slice_in_dim(left, 0, max(n - count, 0), 0), axis)


@fused(arrays=1)
def _without(x: Any, place: int, axis: int) -> Any:
    n = type_of(x).shape[axis]
    parts = [ops.slice_in_dim(x, *ends, axis) for ends in ((0, place), (place + 1, n))]
    return ops.concatenate(*parts, dimension=axis)


@fused(arrays=2)
def _insert_at(x: Any, values: Any, place: int, axis: int) -> Any:
    t = type_of(x)
    low, high = [ops.slice_in_dim(x, *ends, axis) for ends in ((0, place), (place, t.shape[axis]))]
    return ops.concatenate(low, cast(values, t.dtype, t.weak_type), high, dimension=axis)


@fused(arrays=2)
def _insert(x: Any, values: Any, order: tuple, axis: int) -> Any:
    t = type_of(x)
    both = ops.concatenate(x, cast(values, t.dtype, t.weak_type), dimension=axis)
    return take_static(both, np.array(order, np.int64), axis)


def insert(
    arr: ArrayLike,
    obj: ArrayLike | slice | Sequence[int],
    values: ArrayLike,
    axis: int | None = None,
) -> Array:
    """Inserts `values` before the indices `obj` of `arr`, along `axis`."""
    no_lists("insert", arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    t = type_of(arr)
    axis = canonical_axis(axis, t.ndim)
    n = t.shape[axis]
    values, obj = array_or_host(values), as_arraylike(obj)
    if (_not_known(obj) or isinstance(n, Symbolic)) and is_integer(type_of(obj).dtype):
        return _insert_by(arr, values, obj, axis)
    places = np.arange(n)[obj] if isinstance(obj, slice) else known(obj, "insert: `obj`")
    places = np.flatnonzero(places) if is_bool(places.dtype) else places
    if places.size and not is_integer(places.dtype):
        raise ValueError(f"insert: `obj` must consist of integers or booleans; got {places.dtype}.")
    places = places.astype(np.int64)
    if places.size == 1 and type_of(values).ndim:  # all values are inserted at the one index
        values = _of_rank(values, t.ndim)
        values = moveaxis(values, 0, axis) if places.ndim == 0 else values
        places = np.repeat(places, type_of(values).shape[axis])
    places = np.atleast_1d(places)
    places = np.clip(np.where(places < 0, places + n, places), 0, n)
    shape = (*t.shape[:axis], len(places), *t.shape[axis + 1 :])
    filled = _filled(values, shape, "insert")
    if len(places) and np.all(places == places[0]):
        return _insert_at(arr, filled, int(places[0]), axis)
    order = np.argsort(np.concatenate([np.arange(n) + 0.5, places]), kind="stable")
    return _insert(arr, filled, tuple(order.tolist()), axis)


def _not_known(x: Any) -> bool:
    return hasattr(x, "needed_for_shape") and x.concrete() is None


@fused(arrays=3)
def _insert_by(x: Any, values: Any, places: Any, axis: int) -> Any:
    """Inserts at indices that are known only at run time; there are as many as values."""
    t, p = type_of(x), type_of(places)
    n = t.shape[axis]
    if p.ndim > 1:
        raise ValueError(f"insert: `obj` must be a scalar or a vector; got {p.str_short(True)}.")
    if p.size == 1 and type_of(values).ndim:  # all values are inserted at the one index
        values = _of_rank(values, t.ndim)
        values = moveaxis(values, 0, axis) if p.ndim == 0 else values
        places = broadcast_to(ravel(places), (type_of(values).shape[axis],))
    places = wrapped(ravel(places), n)
    places = cast(ew.clamp(lit(0, places), places, lit(n, places)), INT32)
    count = type_of(places).size
    before = ew.mul(iota(dtype=INT32, shape=(n,), dimension=0), np.int32(2))
    before = ew.add(before, np.int32(1))  # elements are between the insertion points
    keys = ops.concatenate(before, ew.mul(places, np.int32(2)), dimension=0)
    _, order = sort(keys, iota(dtype=INT32, shape=(n + count,), dimension=0), dimension=0)
    shape = (*t.shape[:axis], count, *t.shape[axis + 1 :])
    filled = cast(broadcast_to(values, shape), t.dtype, t.weak_type)
    return take_inside(ops.concatenate(x, filled, dimension=axis), order, axis)


_filled = fused(broadcast_values)


def _of_rank(values: Any, ndim: int) -> Any:
    t = type_of(values)
    return reshape(values, (1,) * (ndim - t.ndim) + t.shape)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Array:
    """Removes zeros from the front ("f") and the back ("b") of a concrete array.

    axis: the dimensions to trim; by default all. Removes the outer slices that are entirely zero.
    """
    no_lists("trim_zeros", filt)
    x = as_arraylike(filt)
    x = x if is_array(x) else eval_trace().new_array(x)
    sides = trim.lower()
    if not sides or set(sides) - {"f", "b"}:
        raise ValueError(f"trim_zeros: trim must consist of 'f' and 'b'; got {trim!r}.")
    ndim = type_of(x).ndim
    axes = tuple(range(ndim)) if axis is None else axes_of(axis, ndim)
    places = np.nonzero(known(x, "trim_zeros: the array"))
    kept: list[slice] = []
    for i, (n, at) in enumerate(zip(type_of(x).shape, places, strict=True)):
        first, last = (int(at.min()), int(at.max())) if at.size else (n, n - 1)
        start, stop = first if "f" in sides else 0, last + 1 if "b" in sides else n
        if i not in axes:
            start, stop = 0, n
        kept.append(slice(start, stop if at.size or i not in axes else start))
    return x[tuple(kept)]
