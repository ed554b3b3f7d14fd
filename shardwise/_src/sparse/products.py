"""Products with sparse arrays.

With a dense array: gathers its elements at the stored indices, multiplies them, and scatter-adds
the products. With another sparse array: compares all pairs of stored elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.lax.contraction import dot_general
from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.ops.precision import ALGORITHMS, DotAlgorithm, canonical_precision
from shardwise._src.sparse.base import (
    M,
    Stored,
    added,
    coordinates,
    each,
    masked,
    read,
    sizes_like,
    taken,
)
from shardwise._src.sparse.entries import bcoo_sum_duplicates, bcoo_update_layout, extracted
from shardwise._src.sparse.sparse_shapes import reject_sharding
from shardwise._src.types.annotations import Array
from shardwise._src.values.binary import maximum

Numbers = Any  # ((contracting dims of lhs, of rhs), (batch dims of lhs, of rhs))


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Numbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Stored | Array:
    """Generalized dot product, like `lax.dot_general`.

    Args:
      lhs, rhs: at least one is a BCOO array. If both are, batch dimensions must be batch
        dimensions of both layouts, contracting ones must be sparse, and there must be no dense
        dimensions.
      precision: as for `lax.dot_general`; for two sparse arrays not an algorithm.
      out_sharding: must be None.

    Returns:
      A dense array; for two sparse arrays, a sparse array with an element per pair (or as many as
      fit in the shape).
    """
    reject_sharding("bcoo_dot_general", out_sharding)
    how = canonical_precision(precision)
    numbers = _numbers(dimension_numbers)
    sparse = isinstance(lhs, Stored), isinstance(rhs, Stored)
    if all(sparse):
        if precision is not None and isinstance(how, ALGORITHMS):
            raise NotImplementedError(
                f"bcoo_dot_general: the dot product of two sparse arrays does not support {how}, "
                "as elements are multiplied one by one. Use a Precision, or make one of them dense."
            )
        return _of_two(lhs, rhs, numbers, preferred_element_type)
    if sparse[0]:
        return _with_dense(lhs, asarray(rhs), numbers, how, preferred_element_type)
    if not sparse[1]:
        return dot_general(lhs, rhs, numbers, how, preferred_element_type)
    (c, d), (b, e) = numbers
    lhs = asarray(lhs)
    out = _with_dense(rhs, lhs, ((d, c), (e, b)), _turned(how), preferred_element_type)
    n, own = len(b), rhs.ndim - len(d)
    return out.transpose((*range(n), *range(own, out.ndim), *range(n, own)))


def _turned(precision: Any) -> Any:
    """The precision for swapped operands."""
    if isinstance(precision, DotAlgorithm):
        lhs, rhs, total, left, right, count, imprecise = precision
        return DotAlgorithm(rhs, lhs, total, right, left, count, imprecise)
    return precision[::-1] if isinstance(precision, tuple) else precision


def _numbers(given: Numbers) -> Numbers:
    (c, d), (b, e) = given
    return (tuple(c), tuple(d)), (tuple(b), tuple(e))


def _check(lhs: Any, rhs: Any, numbers: Numbers) -> None:
    (c, d), (b, e) = numbers
    pairs = [*zip(c, d, strict=True), *zip(b, e, strict=True)]
    if any(lhs.shape[i] != rhs.shape[j] for i, j in pairs):
        raise TypeError(
            f"bcoo_dot_general: shapes {lhs.shape} and {rhs.shape} differ in paired dimensions: "
            f"{numbers}."
        )


def _with_dense(lhs: Any, rhs: Any, numbers: Numbers, precision: Any, preferred: Any) -> Any:
    _check(lhs, rhs, numbers)
    if any(i >= lhs.n_batch for i in numbers[1][0]):
        raise NotImplementedError(
            "bcoo_dot_general: batch dimensions must be batch dimensions in the sparse array's "
            "layout. Change the layout with `update_layout`."
        )
    preferred = None if preferred is None else np.dtype(preferred)
    data, indices = lhs.whole()
    return _gathered(data, indices, rhs, lhs.shape, numbers, precision, preferred)


@fused(arrays=3)
def _gathered(
    data: Any, indices: Any, rhs: Any, shape: Any, numbers: Numbers, precision: Any, preferred: Any
) -> Any:
    """Mapped over batch dimensions of the result; other batch dimensions are treated as sparse."""
    (c, d), (b, e) = numbers
    n = indices.ndim - 2
    free = [i for i in range(n) if i not in (*b, *c)]
    inner = [i for i in range(n) if i in c]
    data, indices = [x.transpose((*b, *free, *inner, *range(n, x.ndim))) for x in (data, indices)]
    rest = [j for j in range(rhs.ndim) if j not in e]
    rhs = rhs.transpose((*e, *rest))
    own = [*inner, *range(n, len(shape))]
    pairs = tuple([own.index(i) for i in c]), tuple([rest.index(j) for j in d])
    sizes = [shape[i] for i in own]

    def one(x: Any, i: Any, y: Any) -> Any:
        return _added_up(x, i, y, sizes, pairs, precision, preferred)

    fun = each(one, len(free), in_axes=(0, 0, None))
    return each(fun, len(b))(data, indices, rhs)


def _added_up(
    data: Any,
    indices: Any,
    rhs: Any,
    shape: Sequence[int],
    numbers: Any,
    precision: Any,
    preferred: Any,
) -> Any:
    c, d = numbers
    n_batch = indices.ndim - 2
    end, dense = n_batch + indices.shape[-1], data.shape[n_batch + 1 :]
    at = [x.reshape(-1) for x in coordinates(indices)]
    data = data.reshape((-1, *dense))
    through = [(i, j) for i, j in zip(c, d, strict=True) if i < end]
    inner = [(i, j) for i, j in zip(c, d, strict=True) if i >= end]
    rest = [j for j in range(rhs.ndim) if j not in d]
    rows = rhs.transpose([*[j for _, j in through], *[j for _, j in inner], *rest])
    if through:
        rows = read(rows, tuple([at[i] for i, _ in through]))
    else:
        rows = broadcast_to(rows, (len(data), *rows.shape))
    pairs = [i - end + 1 for i, _ in inner], [1 + i for i in range(len(inner))]
    products = dot_general(data, rows, (pairs, ((0,), (0,))), precision, preferred)
    free = [i for i in range(end) if i not in c]
    if not free:
        return products.sum(0, dtype=products.dtype)
    whole = [shape[i] for i in free] + [*products.shape[1:]]
    return added(zeros(whole, products.dtype), tuple([at[i] for i in free]), products)


def _of_two(lhs: Any, rhs: Any, numbers: Numbers, preferred: Any) -> Any:
    _check(lhs, rhs, numbers)
    (c, d), (b, e) = numbers
    for m, contracted, batch in ((lhs, c, b), (rhs, d, e)):
        in_order = all(i < m.n_batch for i in batch)
        if m.n_dense or not in_order or any(i < m.n_batch for i in contracted):
            raise NotImplementedError(
                "bcoo_dot_general of two sparse arrays: batch dimensions must be batch dimensions "
                "in their layouts, contracted ones sparse, and none dense. Change the layout with "
                "`update_layout`."
            )
    own = [[i for i in range(m.n_batch) if i not in x] for m, x in ((lhs, b), (rhs, e))]
    c, d = [i - lhs.n_batch for i in c], [i - rhs.n_batch for i in d]
    left = [i for i in range(lhs.n_sparse) if i not in c]
    right = [i for i in range(rhs.n_sparse) if i not in d]
    if own[1] and left:
        raise NotImplementedError(
            "bcoo_dot_general of two sparse arrays: batch dimensions of the second that are not "
            "batch dimensions of the product would come after sparse dimensions of the first."
        )
    arrays = [
        x.transpose((*first, *others, m.n_batch, *range(m.n_batch + 1, x.ndim)))
        for m, first, others in ((lhs, b, own[0]), (rhs, e, own[1]))
        for x in m.whole()
    ]
    sizes, others = lhs.split()[1], rhs.split()[1]
    shape = (
        *[lhs.shape[i] for i in (*b, *own[0])],
        *[rhs.shape[i] for i in own[1]],
        *[sizes[i] for i in left],
        *[others[i] for i in right],
    )
    limit = math.prod(shape[len(shape) - len(left) - len(right) :])
    nse = min((lhs.nse if left else 1) * (rhs.nse if right else 1), limit)

    def one(x: Any, i: Any, y: Any, j: Any) -> Any:
        same = _same(i, j, c, d, [sizes[k] for k in c])
        product = dot_general(x[:, None], y[None], (((1,), (0,)), ((), ())), None, preferred)
        data = masked(product, same).reshape(-1)
        wide = (*same.shape, len(left) + len(right))
        both = [broadcast_to(i[:, None], (*same.shape, i.shape[1]))[..., k] for k in left]
        both += [broadcast_to(j[None], (*same.shape, j.shape[1]))[..., k] for k in right]
        places = (
            concatenate([p[..., None] for p in both], -1)
            if both
            else (zeros((*same.shape, 0), i.dtype))
        )
        tail = shape[len(shape) - wide[-1] :]
        made = lhs.made(data, places.reshape((len(data), wide[-1])), tail)
        return bcoo_sum_duplicates(made, nse=nse)

    fun = each(one, len(own[1]), in_axes=(None, None, 0, 0))
    fun = each(fun, len(own[0]), in_axes=(0, 0, None, None))
    return each(fun, len(b))(*arrays)


def _same(i: Any, j: Any, c: Sequence[int], d: Sequence[int], sizes: Sequence[int]) -> Any:
    """Which pairs of rows are in bounds and equal in these columns."""
    out = broadcast_to(asarray(True), (len(i), len(j)))
    for p, q, n in zip(c, d, sizes, strict=True):
        out = out & (i[:, None, p] == j[None, :, q]) & (i[:, None, p] < n)
    return out


def bcoo_dot_general_sampled(
    A: Array, B: Array, indices: Array, *, dimension_numbers: Numbers
) -> Array:
    """Elements of a product of dense arrays at `indices`, as `data` of a BCOO array."""
    (c, d), (b, _) = numbers = _numbers(dimension_numbers)
    A, B, indices = asarray(A), asarray(B), asarray(indices)
    left = [i for i in range(A.ndim) if i not in c]
    right = [i for i in range(B.ndim) if i not in d]
    if b or indices.ndim > 2 or indices.shape[-1] != len(left) + len(right) or not (left and right):
        return extracted(indices, dot_general(A, B, numbers))
    at = [indices[:, i] for i in range(indices.shape[1])]
    rows = read(A.transpose((*left, *c)), tuple(at[: len(left)]))
    columns = read(B.transpose((*right, *d)), tuple(at[len(left) :]))
    inner = list(range(1, rows.ndim))
    return dot_general(rows, columns, ((inner, inner), ((0,), (0,))))


def bcoo_multiply_dense(sp_mat: Any, v: Array) -> Array:
    """The data of an elementwise product with a dense array, which may broadcast."""
    return sp_mat.whole()[0] * at_places(sp_mat, asarray(v), 0)


def at_places(mat: Any, v: Any, fill: Any) -> Any:
    """The elements of a broadcast dense array at the indices of a sparse array."""
    v, shape = asarray(v), mat.shape
    one = (1,) * (mat.ndim - v.ndim) + v.shape
    if not v.ndim or not mat.n_batch + mat.n_sparse:
        return v
    if len(one) != mat.ndim or any(n not in (1, m) for n, m in zip(one, shape, strict=True)):
        raise NotImplementedError(
            f"a dense array of shape {v.shape} does not broadcast to the shape of the sparse "
            f"array, {shape}. Use `broadcast_in_dim` on the sparse array, or `todense`."
        )
    indices, n = mat.whole()[1], mat.n_batch
    wide = np.array([size != 1 for size in mat.split(one)[1]], indices.dtype)
    return taken(broadcast_to(v.reshape(one), shape[:n] + one[n:]), indices * wide, fill)


def bcoo_multiply_sparse(lhs: M, rhs: Any) -> M:
    """The elementwise product of two sparse arrays, which may broadcast; it stores an element for
    each pair of stored elements."""
    if lhs.ndim != rhs.ndim or lhs.n_dense != rhs.n_dense:
        raise NotImplementedError(
            "bcoo_multiply_sparse: arrays must have the same number of dimensions, and of dense "
            f"ones; got {lhs} and {rhs}."
        )
    n = min(lhs.n_batch, rhs.n_batch)
    lhs, rhs = bcoo_update_layout(lhs, n_batch=n), bcoo_update_layout(rhs, n_batch=n)
    shape = tuple(
        [max(a, b) if 0 not in (a, b) else 0 for a, b in zip(lhs.shape, rhs.shape, strict=True)]
    )
    if any(
        a not in (1, s) or b not in (1, s)
        for a, b, s in zip(lhs.shape, rhs.shape, shape, strict=True)
    ):
        raise TypeError(f"bcoo_multiply_sparse: shapes {lhs.shape} and {rhs.shape} do not match.")
    sizes, others = lhs.split()[1], rhs.split()[1]
    compared = [k for k, (a, b) in enumerate(zip(sizes, others, strict=True)) if a != 1 and b != 1]
    goal = lhs.split(shape)[1]

    def one(x: Any, i: Any, y: Any, j: Any) -> tuple[Any, Any]:
        inside = [(p < sizes_like(s, p)).all(-1) for p, s in ((i, sizes), (j, others))]
        same = _same(i, j, compared, compared, [sizes[k] for k in compared])
        same = same & inside[0][:, None] & inside[1][None]
        product = x[:, None] * y[None]
        data = masked(product, same)
        places = where(same[..., None], maximum(i[:, None], j[None]), sizes_like(goal, i))
        return (data.reshape((-1, *data.shape[2:])), places.reshape((-1, places.shape[-1])))

    pairs = [broadcast_to(a, shape[:n] + a.shape[n:]) for m in (lhs, rhs) for a in m.whole()]
    data, indices = each(one, n)(*pairs)
    return lhs.made(data, indices, shape)


def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Stored:
    """A one-dimensional convolution of arrays of shape (1, 1, n), one of which is sparse, without
    strides, dilation or groups. See `lax.conv_general_dilated`."""
    reject_sharding("bcoo_conv_general_dilated", out_sharding)
    plain = [window_strides, lhs_dilation or (1,), rhs_dilation or (1,)]
    groups = feature_group_count, batch_group_count
    shapes = lhs.shape, rhs.shape
    if (
        any(tuple(p) != (1,) for p in plain)
        or groups != (1, 1)
        or any(len(s) != 3 or s[:2] != (1, 1) for s in shapes)
        or dimension_numbers not in (None, ("NCH", "OIH", "NCH"))
    ):
        raise NotImplementedError(
            "bcoo_conv_general_dilated: arrays must have shapes (1, 1, n), in this order, without "
            f"strides, dilation and groups; got shapes {shapes[0]} and {shapes[1]}."
        )
    n, m = shapes[0][2], shapes[1][2]
    if isinstance(padding, str):
        below = {"VALID": 0, "SAME": (m - 1) // 2, "SAME_LOWER": m // 2}[padding.upper()]
        ((low, high),) = ((below, 0 if padding.upper() == "VALID" else m - 1 - below),)
    else:
        ((low, high),) = padding
    size = max(0, n + low + high - m + 1)
    (x, i), (y, j) = [_flat(a) for a in (lhs, rhs)]
    data = (x[:, None] * y[None]).reshape(-1)
    data = data if preferred_element_type is None else data.astype(preferred_element_type)
    inside = (i[:, None] < n) & (j[None] < m)
    at = i[:, None] - j[None] + low
    at = where(inside & (at >= 0) & (at < size), at, size).reshape(-1)
    made = lhs if isinstance(lhs, Stored) else rhs
    zero = at[:, None] * 0
    return made.made(data, concatenate([zero, zero, at[:, None]], -1), (1, 1, size))


def _flat(x: Any) -> tuple[Any, Any]:
    """The elements of an array of shape (1, 1, n), and their indices."""
    if isinstance(x, Stored):
        x = bcoo_update_layout(x, n_batch=0, n_dense=0)
        return x.data, x.indices[:, 2]
    data = asarray(x).reshape(-1)
    return data, arange(len(data))
