"""Stored elements: conversion from and to dense arrays, sorting, deduplication, layouts."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

from shardwise._src.base.warn import warn
from shardwise._src.core.fused import fused
from shardwise._src.lax.lax_reductions import sort
from shardwise._src.numpy.creation import asarray, full, ones, zeros
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import nonzero, where
from shardwise._src.numpy.padding import pad
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.numpy.statistics.scans import cumsum
from shardwise._src.sparse.base import (
    M,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    Stored,
    added,
    coordinates,
    each,
    grid,
    masked,
    scattered,
    sizes_like,
    taken,
)
from shardwise._src.transforms.tracer import Tracer


def known(count: Any, what: str) -> int:
    """The number of elements, which must be concrete."""
    if isinstance(count, Tracer):
        raise count.needed_for_shape(f"{what}: nse, the number of stored elements,")
    return index(count if isinstance(count, int) else count.item())


def from_dense(
    cls: type[Any], mat: Any, nse: int | None, n_batch: int, n_dense: int, index_dtype: Any
) -> Any:
    """The nonzero elements of a dense array (blocks, with dense dimensions)."""
    mat = asarray(mat)
    n, what = mat.ndim - n_dense, f"{cls.__name__}.fromdense"
    if not 0 <= n_batch <= n <= mat.ndim:
        raise ValueError(
            f"{what}: n_batch={n_batch} and n_dense={n_dense} are not valid for an array of shape "
            f"{mat.shape}."
        )
    nse = known(_count(mat, n_batch, n) if nse is None else nse, what)
    data, indices = _taken(mat, nse, n_batch, n, np.dtype(index_dtype))
    return cls((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def _mask(mat: Any, n_batch: int, n: int) -> Any:
    """bool[*batch, positions]: whether an element is nonzero."""
    flat = (*mat.shape[:n_batch], math.prod(mat.shape[n_batch:n]))
    return (mat != 0).any(tuple(range(n, mat.ndim))).reshape(flat)


@fused
def _count(mat: Any, n_batch: int, n: int) -> Any:
    return _mask(mat, n_batch, n).sum(-1).max(initial=0)


@fused
def _taken(mat: Any, nse: int, n_batch: int, n: int, index_dtype: Any) -> tuple[Any, Any]:
    sparse = mat.shape[n_batch:n]
    total = math.prod(sparse)
    find = each(lambda m: nonzero(m, size=nse, fill_value=total)[0], n_batch)
    places = find(_mask(mat, n_batch, n))  # i32[*batch, nse]
    indices = unflat(places, sparse, index_dtype)
    data = taken(mat, indices)
    return masked(data, places < total), indices


def unflat(places: Any, sizes: tuple[int, ...], dtype: Any) -> Any:
    """Coordinates from indices of the flat array; all out of bounds if an index is."""
    left, columns = places, []
    for n in reversed(sizes):
        columns.append(left % max(n, 1))
        left = left // max(n, 1)
    if not sizes:
        return zeros((*places.shape, 0), dtype)
    inside = places < math.prod(sizes)
    rows = zip(columns[::-1], sizes, strict=True)
    return stack([where(inside, c, n) for c, n in rows], -1).astype(dtype)


def to_dense(mat: Stored) -> Any:
    data, indices = mat.whole()
    return _dense(data, indices, mat.shape)


_dense = fused(scattered, arrays=2)


def extracted(indices: Any, arr: Any, assume_unique: bool = True) -> Any:
    """Data for `indices`; optionally 0 for all duplicates except the first."""
    n_batch, n_sparse = indices.ndim - 2, indices.shape[-1]
    indices = broadcast_to(indices, arr.shape[:n_batch] + indices.shape[n_batch:])
    data = taken(arr, indices)
    if assume_unique:
        return data
    sizes = arr.shape[n_batch : n_batch + n_sparse]
    first = each(lambda i: unique(i, sizes)[2], n_batch)(indices)
    return masked(data, first)


# -- order and duplicates --


def unique(indices: Any, sizes: Any) -> tuple[Any, Any, Any, Any]:
    """Sorted unique rows, followed by out-of-bounds padding; for unbatched indices.

    Also the index of each row among these (past the end if out of bounds), whether it is the first
    of its duplicates, and the number of unique rows in bounds.
    """
    n, k = indices.shape
    if not k or not n:
        zero = zeros(n, "int32")
        return indices, zero, arange(n) == 0, asarray(min(n, 1))
    limit = sizes_like(sizes, indices)
    inside = (indices < limit).all(-1)
    indices = where(inside[:, None], indices, limit)
    *keys, order = sort([*[indices[:, i] for i in range(k)], arange(n)], num_keys=k)
    rows = stack(keys, -1)
    new = concatenate([ones(1, bool), (rows[1:] != rows[:-1]).any(-1)])
    valid = keys[0] < limit[0]
    rank = cumsum(new) - 1
    place = zeros(n, rank.dtype).at[order].set(where(valid, rank, 2**31 - 1))
    first = zeros(n, bool).at[order].set(new & valid)
    out = broadcast_to(limit, (n, k)).at[rank].set(rows)
    return out, place, first, (new & valid).sum()


def bcoo_sum_duplicates(mat: M, nse: int | None = None) -> M:
    """Sums duplicates; the resulting elements are sorted, and padded to `nse` elements.

    nse: by default the number of unique indices, which must then be known: not under `jit`.
      Further elements are dropped.
    """
    sizes = mat.split()[1]
    data, indices = mat.whole()
    out, place, count = _grouped(indices, sizes)
    nse = known(count if nse is None else nse, "sum_duplicates")
    return mat.made(*_collected(data, place, out, nse, sizes), mat.shape, True, True)


@fused
def _grouped(indices: Any, sizes: Any) -> tuple[Any, Any, Any]:
    out, place, _, count = each(lambda i: unique(i, sizes), indices.ndim - 2)(indices)
    return out, place, count.max(initial=0)


@fused(arrays=3)
def _collected(data: Any, place: Any, out: Any, nse: int, sizes: Any) -> tuple[Any, Any]:
    dense = data.shape[place.ndim :]
    put = each(lambda p, d: added(zeros((nse, *dense), d.dtype), (p,), d), place.ndim - 1)
    return put(place, data), resized(out, nse, sizes)


def resized(indices: Any, nse: int, sizes: Any) -> Any:
    """Truncates rows, or pads them out of bounds."""
    more = nse - indices.shape[-2]
    if more <= 0:
        return indices[..., :nse, :]
    extra = broadcast_to(sizes_like(sizes, indices), (*indices.shape[:-2], more, len(sizes)))
    return concatenate([indices, extra], -2)


def with_nse(mat: Any, nse: int) -> Any:
    """The same array padded to more elements, out of bounds."""
    data, indices = mat.whole()
    more = [(0, 0)] * data.ndim
    more[mat.n_batch] = (0, nse - mat.nse)
    return mat.made(pad(data, more), resized(indices, nse, mat.split()[1]), mat.shape)


def without_zeros(mat: Any, nse: int | None) -> Any:
    data, indices = mat.whole()
    zero = (data == 0).all(tuple(range(data.ndim - mat.n_dense, data.ndim)))
    limit = sizes_like(mat.split()[1], indices)
    moved = where(zero[..., None], limit, indices)
    return bcoo_sum_duplicates(mat.made(data, moved, mat.shape), nse)


def bcoo_sort_indices(mat: M) -> M:
    """The same elements, sorted by their coordinates."""
    data, indices = mat.whole()
    k = mat.n_sparse

    def ordered(d: Any, i: Any) -> tuple[Any, Any]:
        *_, order = sort([*[i[:, c] for c in range(k)], arange(len(i))], num_keys=k)
        return d[order], i[order]

    if k:
        data, indices = each(ordered, mat.n_batch)(data, indices)
    return mat.made(data, indices, mat.shape, True, mat.unique_indices)


# -- layouts --


def bcoo_update_layout(
    mat: M,
    *,
    n_batch: int | None = None,
    n_dense: int | None = None,
    on_inefficient: str | None = "error",
) -> M:
    """The same array with other numbers of batch and dense dimensions.

    on_inefficient: what to do if dimensions greater than 1 become batch or dense dimensions, so
      that zeros are stored: "error" (`SparseEfficiencyError`), "warn", or None.
    """
    batch = mat.n_batch if n_batch is None else index(n_batch)
    dense = mat.n_dense if n_dense is None else index(n_dense)
    shape, end = mat.shape, mat.ndim - mat.n_dense
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(
            "update_layout: on_inefficient must be 'error', 'warn' or None; got "
            f"{on_inefficient!r}."
        )
    if batch < 0 or dense < 0 or batch + dense > mat.ndim:
        raise ValueError(
            f"update_layout: n_batch={batch} and n_dense={dense} are not valid for an array of "
            f"shape {shape}."
        )
    more = [*shape[mat.n_batch : batch], *shape[mat.ndim - dense : end]]
    if on_inefficient is not None and any(n > 1 for n in more):
        text = (
            f"update_layout of shape {shape} from n_batch={mat.n_batch}, n_dense={mat.n_dense} to "
            f"n_batch={batch}, n_dense={dense} stores many zeros. Pass on_inefficient=None if that "
            "is intended."
        )
        if on_inefficient == "error":
            raise SparseEfficiencyError(text)
        warn(text, SparseEfficiencyWarning)
    if dense < mat.n_dense:
        mat = _dense_to_sparse(mat, mat.n_dense - dense)
    if batch < mat.n_batch:
        mat = _batch_to_sparse(mat, batch)
    if dense > mat.n_dense:
        mat = _sparse_to_dense(mat, dense - mat.n_dense)
    return _sparse_to_batch(mat, batch - mat.n_batch) if batch > mat.n_batch else mat


def _dense_to_sparse(mat: Any, n: int) -> Any:
    data, indices = mat.whole()
    batch, _, dense = mat.split()
    more = grid(dense[:n], indices.dtype)
    shape = (*batch, mat.nse, len(more))
    left = broadcast_to(indices[..., None, :], (*shape, mat.n_sparse))
    both = concatenate([left, broadcast_to(more, (*shape, n))], -1)
    nse = mat.nse * len(more)
    return mat.made(
        data.reshape((*batch, nse, *dense[n:])),
        both.reshape((*batch, nse, mat.n_sparse + n)),
        mat.shape,
    )


def _batch_to_sparse(mat: Any, keep: int) -> Any:
    data, indices = mat.whole()
    places = stack(coordinates(indices)[keep:], -1)
    batch, _, dense = mat.split()
    nse = math.prod(batch[keep:]) * mat.nse
    return mat.made(
        data.reshape((*batch[:keep], nse, *dense)),
        places.reshape((*batch[:keep], nse, places.shape[-1])),
        mat.shape,
    )


def _sparse_to_dense(mat: Any, n: int) -> Any:
    data, indices = mat.whole()
    batch, sparse, dense = mat.split()
    at = coordinates(indices[..., None, :])[: len(batch) + 1]
    at = [a[..., 0] for a in at] + [indices[..., i - n] for i in range(n)]
    new = added(zeros((*batch, mat.nse, *sparse[-n:], *dense), data.dtype), tuple(at), data)
    return mat.made(new, indices[..., :-n], mat.shape)


def _sparse_to_batch(mat: Any, n: int) -> Any:
    data, indices = mat.whole()
    batch, sparse, dense = mat.split()
    at = [a[..., 0] for a in coordinates(indices[..., None, :])[: len(batch) + 1]]
    at[len(batch) :] = [*[indices[..., i] for i in range(n)], at[-1]]
    new = added(zeros((*batch, *sparse[:n], mat.nse, *dense), data.dtype), tuple(at), data)
    left = indices[..., n:].reshape((*batch, *[1] * n, mat.nse, mat.n_sparse - n))
    return mat.made(new, left, mat.shape)


def empty_of(
    cls: type[Any], shape: Any, dtype: Any, index_dtype: Any, n_batch: int, n_dense: int, nse: int
) -> Any:
    shape = tuple(shape)
    end = len(shape) - n_dense
    if not 0 <= n_batch <= end <= len(shape) or nse < 0:
        raise ValueError(
            f"{cls.__name__}: n_batch={n_batch}, n_dense={n_dense} and nse={nse} do not fit the "
            f"shape {shape}."
        )
    indices = full((*shape[:n_batch], nse, end - n_batch), 0, index_dtype)
    indices = indices + sizes_like(shape[n_batch:end], indices)
    data = zeros((*shape[:n_batch], nse, *shape[end:]), dtype)
    return cls((data, indices), shape=shape, indices_sorted=True, unique_indices=True)
