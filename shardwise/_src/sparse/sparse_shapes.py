"""Shape operations on sparse arrays: transposes, slices, reshapes, and sums along dimensions.

Batch, sparse and dense dimensions keep their kind, and do not mix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any, NoReturn

import numpy as np

from shardwise._src.lax.dynamic_slices import dynamic_slice
from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import broadcast_to, flip, reshape
from shardwise._src.ops.indexing.gather_rules import GatherScatterMode
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.sparse.base import M, each, grid, masked, sizes_like
from shardwise._src.sparse.entries import bcoo_sum_duplicates, bcoo_update_layout, unflat, with_nse
from shardwise._src.types.annotations import Array
from shardwise._src.values.binary import maximum, minimum

_CLIP = GatherScatterMode.CLIP


def _reject(name: str, text: str) -> NoReturn:
    raise NotImplementedError(f"bcoo_{name}: {text} Change the layout with `update_layout` first.")


def _groups(name: str, mat: Any, dims: Sequence[int]) -> list[list[int]]:
    """Splits a permutation of all dimensions into one for each kind."""
    if sorted(dims) != list(range(mat.ndim)):
        raise ValueError(
            f"bcoo_{name}: {tuple(dims)} is not a permutation of the {mat.ndim} dimensions."
        )
    a, b = mat.n_batch, mat.n_batch + mat.n_sparse
    found = [list(dims[:a]), [d - a for d in dims[a:b]], [d - b for d in dims[b:]]]
    if any(sorted(g) != list(range(len(g))) for g in found):
        _reject(name, "batch, sparse and dense dimensions cannot be interchanged.")
    return found


def bcoo_transpose(mat: M, *, permutation: Sequence[int]) -> M:
    """Permutes dimensions, within the batch, sparse and dense dimensions."""
    permutation = [index(p) for p in permutation]
    batch, sparse, dense = _groups("transpose", mat, permutation)
    n = mat.n_batch
    data = mat.data.transpose((*batch, n, *[d + n + 1 for d in dense]))
    indices = mat.indices.transpose((*batch, n, n + 1))
    moved = sparse != list(range(len(sparse)))
    if moved:
        indices = indices[..., np.array(sparse)]
    shape = [mat.shape[p] for p in permutation]
    return mat.made(data, indices, shape, mat.indices_sorted and not moved, mat.unique_indices)


def bcoo_broadcast_in_dim(
    mat: M, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> M:
    """Broadcasts to a larger shape; `broadcast_dimensions` are the array's dimensions in it.

    New dimensions are sparse, except before the last batch and after the first dense dimension.
    sharding: must be None; place the arrays of the result instead.
    """
    reject_sharding("broadcast_in_dim", sharding)
    shape, places = tuple(shape), tuple(broadcast_dimensions)
    fits = all(n in (1, shape[p]) for n, p in zip(mat.shape, places, strict=True))
    if list(places) != sorted(set(places)) or not fits:
        raise ValueError(
            f"bcoo_broadcast_in_dim: shape {mat.shape} does not broadcast to {shape} at {places}."
        )
    batch, sparse, dense = mat.split(places)
    start, stop = max(batch, default=-1) + 1, min(dense, default=len(shape))
    data, indices = mat.whole()
    n, nse = mat.n_batch, mat.nse
    old = {p: (i, mat.shape[n + i]) for i, p in enumerate(sparse)}
    repeated = [d for d in range(start, stop) if d not in old or old[d][1] != shape[d]]
    more = grid([shape[d] for d in repeated], indices.dtype)
    wide, deep = shape[:start], shape[stop:]
    ones = [1] * len(wide)
    for axis, p in enumerate(batch):
        ones[p] = mat.shape[axis]
    inner = [1] * len(deep)
    for axis, p in enumerate(dense):
        inner[p - stop] = data.shape[n + 1 + axis]
    total = nse * len(more)
    data = broadcast_to(data.reshape((*ones, nse, 1, *inner)), (*wide, nse, len(more), *deep))
    indices = broadcast_to(
        indices.reshape((*ones, nse, 1, mat.n_sparse)), (*wide, nse, len(more), mat.n_sparse)
    )
    columns = []
    for d in range(start, stop):
        if d not in repeated:
            columns.append(indices[..., old[d][0]])
            continue
        new = broadcast_to(more[:, repeated.index(d)], (*wide, nse, len(more)))
        columns.append(where(indices[..., old[d][0]] < 1, new, shape[d]) if d in old else new)
    where_to = stack(columns, -1) if columns else indices[..., :0]
    return mat.made(
        data.reshape((*wide, total, *deep)), where_to.reshape((*wide, total, stop - start)), shape
    )


def reject_sharding(name: str, sharding: Any) -> None:
    if sharding is not None:
        raise NotImplementedError(
            f"{name}: the sharding of a sparse array must be None; place its `data` and `indices`."
        )


def bcoo_concatenate(operands: Sequence[M], *, dimension: int) -> M:
    """Concatenates arrays of equal layout along a batch or sparse dimension."""
    mats, first = list(operands), operands[0]
    axis = canonical_axis(index(dimension), first.ndim)
    layouts = {(m.ndim, m.n_batch, m.n_dense) for m in mats}
    if len(layouts) > 1:
        _reject(
            "concatenate", "operands have different numbers of batch, sparse or dense dimensions."
        )
    shapes = {m.shape[:axis] + m.shape[axis + 1 :] for m in mats}
    if len(shapes) > 1:
        raise TypeError(
            f"bcoo_concatenate: shapes {', '.join(str(m.shape) for m in mats)} differ in "
            f"dimensions other than {axis}."
        )
    n = first.n_batch
    shape = list(first.shape)
    shape[axis] = sum(m.shape[axis] for m in mats)
    if axis >= n + first.n_sparse:
        _reject("concatenate", f"dimension {axis} is dense.")
    if axis < n:
        most = max(m.nse for m in mats)
        pairs = [(m if m.nse == most else with_nse(m, most)).whole() for m in mats]
        along = axis
    else:
        pairs, along, offset = [], n, 0
        for m in mats:
            data, indices = m.whole()
            step = np.zeros(m.n_sparse, indices.dtype)
            step[axis - n] = offset
            limit = sizes_like(shape[n : n + m.n_sparse], indices)
            inside = m.inside(indices)[..., None]
            pairs.append((data, where(inside, indices + step, limit)))
            offset += m.shape[axis]
    data, indices = zip(*pairs, strict=True)
    return mats[0].made(concatenate(data, along), concatenate(indices, along), shape)


def bcoo_reshape(
    mat: M,
    *,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    sharding: Any = None,
) -> M:
    """Reshapes the array; `dimensions` permutes it first. sharding: must be None."""
    reject_sharding("reshape", sharding)
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    sizes = tuple([index(n) for n in new_sizes])
    batch, sparse, dense = mat.split()
    cuts, total = [], 1
    products = np.cumprod(sizes, dtype=np.int64)
    for part in (batch, sparse):
        total *= math.prod(part)
        cuts.append(int(products.searchsorted(total, side="right")))
    new = sizes[: cuts[0]], sizes[cuts[0] : cuts[1]], sizes[cuts[1] :]
    if [math.prod(p) for p in new] != [math.prod(p) for p in (batch, sparse, dense)]:
        if math.prod(sizes) != mat.size:
            raise TypeError(
                f"bcoo_reshape: shape {mat.shape} has a different number of elements than {sizes}."
            )
        raise ValueError(
            f"bcoo_reshape: {mat.shape} to {sizes} mixes batch, sparse and dense dimensions. "
            "Change the layout with `update_layout` first."
        )
    data, indices = mat.whole()
    flat = zeros(indices.shape[:-1], indices.dtype)
    for i, n in enumerate(sparse):
        flat = flat * n + indices[..., i]
    inside = mat.inside(indices)
    flat = where(inside, flat, math.prod(sparse))
    places = unflat(flat, new[1], indices.dtype)
    return mat.made(
        data.reshape((*new[0], mat.nse, *new[2])),
        places.reshape((*new[0], mat.nse, len(new[1]))),
        sizes,
        mat.indices_sorted,
        mat.unique_indices,
    )


def bcoo_rev(operand: M, dimensions: Sequence[int]) -> M:
    """Reverses the elements along `dimensions`."""
    a, b = operand.n_batch, operand.n_batch + operand.n_sparse
    data, indices = operand.whole()
    batch = tuple([d for d in dimensions if d < a])
    dense = tuple([d - b + a + 1 for d in dimensions if d >= b])
    data, indices = flip(data, batch + dense), flip(indices, batch)
    if any(a <= d < b for d in dimensions):
        limit = sizes_like(operand.split()[1], indices)
        turned = np.array([d + a in dimensions for d in range(operand.n_sparse)])
        inside = operand.inside(indices)[..., None]
        indices = where(turned & inside, limit - 1 - indices, indices)
    return operand.made(data, indices, operand.shape, unique=operand.unique_indices)


def bcoo_squeeze(arr: M, *, dimensions: Sequence[int]) -> M:
    """Removes some dimensions of size 1."""
    dims = {canonical_axis(d, arr.ndim) for d in dimensions}
    if any(arr.shape[d] != 1 for d in dims):
        raise ValueError(f"bcoo_squeeze: {sorted(dims)} of shape {arr.shape} are not of size 1.")
    data, indices = arr.whole()
    return _without(arr, masked(data, arr.inside(indices)), indices, dims)


def _without(mat: Any, data: Any, indices: Any, dims: set[int]) -> Any:
    """Drops dimensions that data and indices no longer have."""
    batch, sparse, dense = mat.split([i not in dims for i in range(mat.ndim)])
    shape = [n for i, n in enumerate(mat.shape) if i not in dims]
    kept = [i for i, keep in enumerate(sparse) if keep]
    wide = [n for n, keep in zip(data.shape, batch, strict=False) if keep]
    deep = [n for n, keep in zip(data.shape[mat.n_batch + 1 :], dense, strict=True) if keep]
    indices = indices[..., np.array(kept, int)] if len(kept) < mat.n_sparse else indices
    return mat.made(
        data.reshape((*wide, data.shape[mat.n_batch], *deep)),
        indices.reshape((*wide, indices.shape[mat.n_batch], len(kept))),
        shape,
    )


def bcoo_slice(
    mat: M,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> M:
    """Slices from `start_indices` to `limit_indices` with `strides`, per dimension."""
    starts, limits = [index(i) for i in start_indices], [index(i) for i in limit_indices]
    steps = [1] * mat.ndim if strides is None else [index(i) for i in strides]
    if not len(starts) == len(limits) == len(steps) == mat.ndim:
        raise ValueError(
            f"bcoo_slice: there must be {mat.ndim} start indices, limit indices and strides each."
        )
    rows = list(zip(starts, limits, steps, mat.shape, strict=True))
    if not all(0 <= a <= b <= n and s > 0 for a, b, s, n in rows):
        raise ValueError(
            f"bcoo_slice: {starts} to {limits} by {steps} is not a slice of shape {mat.shape}."
        )
    batch, _, dense = mat.split([slice(a, b, s) for a, b, s, _ in rows])
    data, indices = mat.whole()
    data, indices = data[(*batch, slice(None), *dense)], indices[batch]
    shape = [-(-(b - a) // s) for a, b, s, _ in rows]
    if not mat.n_sparse:
        return mat.made(data, indices, shape)
    first, last, step = [sizes_like(mat.split(x)[1], indices) for x in (starts, limits, steps)]
    keep = (indices >= first) & (indices < last) & ((indices - first) % step == 0)
    return _kept(mat, data, (indices - first) // step, keep, shape)


def _kept(mat: Any, data: Any, indices: Any, keep: Any, shape: Sequence[int]) -> Any:
    """Elements with new indices, where `keep` is all true; no more than fit in the shape."""
    sparse = mat.split(shape)[1]
    keep = keep.all(-1)
    indices = where(keep[..., None], indices, sizes_like(sparse, indices))
    made = mat.made(masked(data, keep), indices, shape, unique=mat.unique_indices)
    total = math.prod(sparse)
    return bcoo_sum_duplicates(made, nse=total) if mat.nse > total else made


def bcoo_dynamic_slice(mat: M, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> M:
    """A slice of fixed size with possibly traced start indices, which are clamped to the bounds."""
    sizes = tuple([index(n) for n in slice_sizes])
    if len(sizes) != mat.ndim or not all(n <= m for n, m in zip(sizes, mat.shape, strict=True)):
        raise TypeError(
            f"bcoo_dynamic_slice: slice sizes {sizes} must be within shape {mat.shape}."
        )
    starts = [asarray(i) for i in start_indices]
    starts = [where(i < 0, i + n, i) for i, n in zip(starts, mat.shape, strict=True)]
    batch, sparse, dense = mat.split(starts)
    wide, inner, deep = mat.split(sizes)
    data, indices = mat.whole()
    zero = (0,)
    data = dynamic_slice(data, (*batch, *zero, *dense), (*wide, mat.nse, *deep))
    indices = dynamic_slice(indices, (*batch, *zero, *zero), (*wide, *indices.shape[-2:]))
    if not mat.n_sparse:
        return mat.made(data, indices, sizes)
    most = [n - m for n, m in zip(mat.split()[1], inner, strict=True)]
    first = minimum(maximum(stack(sparse).astype(indices.dtype), 0), sizes_like(most, indices))
    moved = indices - first
    keep = (moved >= 0) & (moved < sizes_like(inner, indices))
    return _kept(mat, data, moved, keep, sizes)


def bcoo_reduce_sum(mat: M, *, axes: Sequence[int]) -> M:
    """Sums over `axes`. Batch dimensions are merged without additions: nse grows instead."""
    dims = {canonical_axis(a, mat.ndim) for a in axes}
    a, b = mat.n_batch, mat.n_batch + mat.n_sparse
    data, indices = mat.whole()
    data = data.sum(tuple([d - b + a + 1 for d in dims if d >= b]), keepdims=True)
    data = masked(data, mat.inside(indices))
    batch = sorted(d for d in dims if d < a)
    rest = [i for i in range(a) if i not in dims]
    nse = mat.nse * math.prod([mat.shape[d] for d in batch])

    def merged(x: Any) -> Any:
        moved = x.transpose((*rest, *batch, *range(a, x.ndim)))
        one = [1 if d in dims else mat.shape[d] for d in range(a)]
        return reshape(moved, (*one, nse, *x.shape[a + 1 :]))

    return _without(mat, merged(data), merged(indices), dims)


def bcoo_gather(
    operand: M,
    start_indices: Array,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> M:
    """Slices of equal size at many start indices, like `lax.gather`: a batch of dynamic slices.

    mode: None, "promise_in_bounds" or "clip"; slices are clamped to the bounds.
    """
    how = GatherScatterMode.from_any(mode)
    if mode is not None and how not in (GatherScatterMode.PROMISE_IN_BOUNDS, _CLIP):
        raise NotImplementedError(
            "bcoo_gather: mode must be None, 'promise_in_bounds' or 'clip', as fill values of "
            f"out-of-bounds indices would be stored; got {mode!r}. Index `todense()`, or the "
            "`data` and `indices`."
        )
    numbers = dimension_numbers
    along, dropped = numbers.start_index_map, numbers.collapsed_slice_dims
    if numbers.operand_batching_dims:
        raise NotImplementedError(
            "bcoo_gather: batching dimensions of the operand are not supported. Use `vmap` over "
            "batch dimensions of the layout."
        )
    n = start_indices.ndim - 1

    def one(at: Any) -> Any:
        starts = [at[along.index(d)] if d in along else 0 for d in range(operand.ndim)]
        piece = bcoo_dynamic_slice(operand, starts, slice_sizes)
        return bcoo_squeeze(piece, dimensions=dropped) if dropped else piece

    found = each(one, n)(start_indices)
    offset = list(numbers.offset_dims)
    first = [d for d in range(found.ndim) if d not in offset]
    if first == list(range(n)):
        return found
    order = [0] * found.ndim
    for position, d in enumerate([*first, *offset]):
        order[d] = position
    found = bcoo_update_layout(found, n_batch=0)
    return bcoo_transpose(found, permutation=order)
