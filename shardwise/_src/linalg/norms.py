"""Norms, powers, and products of several matrices.

Matrix decompositions are in `decompositions.py`, and linear solvers in `linear_systems.py`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import singular_values
from shardwise._src.numpy.products import contractions
from shardwise._src.numpy.products.contractions import product
from shardwise._src.numpy.shapes import matrix_transpose as matrix_transpose
from shardwise._src.numpy.statistics.reductions import add_up, axes_of, kept, summed_dtype
from shardwise._src.numpy.unary import absolute
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape, transpose
from shardwise._src.ops.linalg.lapack_kernels import eye
from shardwise._src.ops.linalg.lu import inv
from shardwise._src.ops.reduce import reduce_max, reduce_min
from shardwise._src.types.annotations import (
    Array,
    ArrayLike,
    Axis,
    DTypeLike,
    OutSharding,
    PrecisionLike,
)
from shardwise._src.types.dtypes import is_complex, is_inexact
from shardwise._src.values.convert import promote_inexact

INT32 = np.dtype(np.int32)

# -- norms --


def _vector_norm(x: Any, axes: tuple, order: Any, keepdims: bool) -> Any:
    """√Σ|x|² and other vector norms over `axes`; `x` is a float or complex."""
    if order in (2, "fro", None):
        squares = ew.real(ew.mul(x, ew.conj(x))) if is_complex(type_of(x).dtype) else ew.mul(x, x)
        return ew.sqrt(add_up(squares, axes, type_of(squares).dtype, keepdims))
    size = ew.abs(x)
    dtype = type_of(size).dtype
    if order in (np.inf, -np.inf):
        op = reduce_max if order > 0 else reduce_min
        if order < 0 and 0 in [type_of(x).shape[i] for i in axes]:
            raise ValueError(f"norm: order {order} requires a nonempty array; got {type_of(x)}.")
        out = kept(op(size, axes=axes), axes, keepdims)
        return ew.max(out, np.zeros((), dtype)[()]) if order > 0 else out
    if order == 0:
        return add_up(ew.ne(x, np.zeros((), type_of(x).dtype)[()]), axes, dtype, keepdims)
    if order == 1:
        return add_up(size, axes, dtype, keepdims)
    if isinstance(order, str):
        raise ValueError(f"norm: invalid order {order!r} for a vector.")
    power = np.asarray(order).astype(dtype)[()]
    total = add_up(ew.pow(size, power), axes, dtype, keepdims)
    return ew.pow(total, np.asarray(1 / order).astype(dtype)[()])


def _matrix_norm(x: Any, axes: tuple, order: Any, keepdims: bool) -> Any:
    if order in (None, "fro"):
        return _vector_norm(x, axes, 2, keepdims)
    if order in (2, -2, "nuc"):
        return _spectral_norm(x, axes, order, keepdims)
    if order not in (1, -1, np.inf, -np.inf):
        raise ValueError(f"norm: invalid order {order!r} for a matrix.")
    rows, columns = axes
    summed, compared = (rows, columns) if order in (1, -1) else (columns, rows)
    size = ew.abs(x)
    sums = add_up(size, (summed,), type_of(size).dtype, True)
    op = reduce_max if order > 0 else reduce_min
    if 0 in [type_of(x).shape[i] for i in axes]:
        raise ValueError(f"norm: order {order!r} requires a nonempty array; got {type_of(x)}.")
    both = tuple(sorted((summed, compared)))
    return kept(op(sums, axes=both), both, keepdims)


def _spectral_norm(x: Any, axes: tuple, order: Any, keepdims: bool) -> Any:
    """The largest, the smallest or the sum of the singular values."""
    others = tuple([i for i in range(type_of(x).ndim) if i not in axes])
    values = singular_values(transpose(x, perm=(*others, *axes)))
    t = type_of(values)
    last = (t.ndim - 1,)
    if order == "nuc" or not t.shape[-1]:
        if order == -2:
            raise ValueError(f"norm: order -2 requires a nonempty array; got {type_of(x)}.")
        out = add_up(values, last, t.dtype, False)
    else:
        out = (reduce_max if order == 2 else reduce_min)(values, axes=last)
    shape = tuple([1 if i in axes else n for i, n in enumerate(type_of(x).shape)])
    return reshape(out, shape=shape) if keepdims else out


@fused(arrays=1)
def norm(
    x: ArrayLike, ord: int | float | str | None = None, axis: Axis = None, keepdims: bool = False
) -> Array:
    """Norm of vectors along an axis, or of matrices along two.

    Args:
      ord: for vectors any number, inf and -inf; for matrices "fro" (the default), 1, -1, inf, -inf,
        and by singular values the largest (2), the smallest (-2) or the sum ("nuc").
      axis: one or two; by default all of `x`, as one vector if there is no `ord`.
    """
    (x,) = promote_inexact(x)
    t = type_of(x)
    if axis is None and ord is None:
        return _vector_norm(x, tuple(range(t.ndim)), 2, keepdims)
    axes = axes_of(axis, t.ndim)
    if len(axes) not in (1, 2):
        raise ValueError(
            f"norm takes one or two axes; got {len(axes)} for {t.str_short(True)}. With neither "
            "ord nor axis, the array is flattened to a vector."
        )
    if len(axes) == 1:
        return _vector_norm(x, axes, 2 if ord is None else ord, keepdims)
    return _matrix_norm(x, axes, ord, keepdims)


@fused(arrays=1)
def vector_norm(
    x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: int | float | str | None = 2
) -> Array:
    """Norm of the vectors along `axis`: None for all elements, several axes for a joint vector."""
    t = type_of(x)
    if ord == 1 and not is_inexact(t.dtype):  # integers have an integer sum
        return add_up(absolute(x), axes_of(axis, t.ndim), summed_dtype(t.dtype), keepdims)
    (x,) = promote_inexact(x)
    return _vector_norm(x, axes_of(axis, t.ndim), ord, keepdims)


@eager_jit
def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: int | float | str | None = "fro"
) -> Array:
    """Norm of the matrices in the last two dimensions; `ord` as for `norm`."""
    return norm(x, ord, (-2, -1), keepdims)


# -- matrix powers and products --


def _square_product(a: Any, b: Any) -> Any:
    rank = type_of(a).ndim
    batch = tuple(range(rank - 2))
    return product(a, b, (((rank - 1,), (rank - 2,)), (batch, batch)))


@fused(arrays=1)
def _matrix_power(a: Any, n: int) -> Any:
    t = type_of(a)
    if t.ndim < 2 or t.shape[-1] != t.shape[-2]:
        raise TypeError(f"matrix_power takes square matrices; got {t.str_short(True)}.")
    if n < 0:
        (a,) = promote_inexact(a)
        a, n = inv(a), -n
    if n == 0:
        return eye(t.shape, type_of(a).dtype)
    out = None
    while n:
        if n & 1:
            out = a if out is None else _square_product(out, a)
        n >>= 1
        if n:
            a = _square_product(a, a)
    return out


@eager_jit
def matrix_power(a: ArrayLike, n: int) -> Array:
    """The square matrices in the last two dimensions to the power `n`; inverted for n < 0."""
    return _matrix_power(a, operator.index(n))


@cached(256)
def _best_order(sizes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Where to split each chain of sizes[i] × sizes[i+1] matrices for the fewest products."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    split = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            found = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], split[i, j] = min(found)
    return split


@fused
def _multi_dot(*arrays: Any, precision: Any) -> Any:
    shapes = [type_of(x).shape for x in arrays]
    ends = {1, 2}
    if (
        len(arrays) < 2
        or len(shapes[0]) not in ends
        or len(shapes[-1]) not in ends
        or any(len(s) != 2 for s in shapes[1:-1])
    ):
        raise ValueError(
            "multi_dot takes two or more matrices, of which the first and the last may be vectors; "
            f"got shapes {', '.join(map(str, shapes))}."
        )
    row, column = len(shapes[0]) == 1, len(shapes[-1]) == 1
    xs = list(arrays)
    xs[0] = reshape(xs[0], shape=(1, *shapes[0])) if row else xs[0]
    xs[-1] = reshape(xs[-1], shape=(*shapes[-1], 1)) if column else xs[-1]
    wide = [type_of(x).shape for x in xs]
    if any(p[1] != q[0] for p, q in itertools.pairwise(wide)):
        raise ValueError(f"multi_dot: shapes {', '.join(map(str, shapes))} are not aligned.")
    split = _best_order((*[s[0] for s in wide], wide[-1][1]))

    def chain(i: int, j: int) -> Any:
        if i == j:
            return xs[i]
        k = split[i, j]
        return product(chain(i, k), chain(k + 1, j), (((1,), (0,)), ((), ())), precision)

    out = chain(0, len(xs) - 1)
    gone = (*([0] if row else []), *([1] if column else []))
    shape = tuple(n for i, n in enumerate(type_of(out).shape) if i not in gone)
    return reshape(out, shape=shape) if gone else out


def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """Product of several matrices, in the order with the fewest multiplications."""
    return _multi_dot(*arrays, precision=precision)


# -- array API functions, with their stricter signatures --


def matmul(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Matrix product over the last two dimensions; see `shardwise.numpy.matmul`."""
    return contractions.matmul(
        x1, x2, precision=precision, preferred_element_type=preferred_element_type
    )


@eager_jit(arrays=2)
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Inner products of the vectors along `axis`; see `shardwise.numpy.vecdot`."""
    return contractions.vecdot(
        x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type
    )


@eager_jit(arrays=2)
def tensordot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sum of products over pairs of dimensions; see `shardwise.numpy.tensordot`."""
    return contractions.tensordot(
        x1,
        x2,
        axes,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


@eager_jit(arrays=2)
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Product of each element of one vector with each element of another."""
    shapes = type_of(x1).shape, type_of(x2).shape
    if len(shapes[0]) != 1 or len(shapes[1]) != 1:
        raise ValueError(f"outer takes vectors; got shapes {shapes[0]} and {shapes[1]}.")
    return contractions.outer(x1, x2)


@eager_jit(arrays=2)
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Cross product of vectors with 3 components along `axis`."""
    sizes = type_of(x1).shape[axis], type_of(x2).shape[axis]
    if sizes != (3, 3):
        raise ValueError(
            f"cross: both vectors must have 3 components; got {sizes[0]} and {sizes[1]}."
        )
    return contractions.cross(x1, x2, axis=axis)


@eager_jit
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Sum along the diagonal of the last two dimensions."""
    return contractions.trace(x, offset, -2, -1, dtype)
