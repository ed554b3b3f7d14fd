"""Linear systems and matrix properties under NumPy's names: `linalg.solve`, `inv`, `pinv`, `lstsq`,
`det`, `slogdet`, `matrix_rank`, `cond`.

The last two dimensions are matrices; the others are batch dimensions. Integers become floats. For
singular matrices, results are infinite or NaN, where NumPy raises an error.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg import norms
from shardwise._src.linalg.decompositions import singular_values
from shardwise._src.numpy import rearrange, shapes
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import determinant, lu
from shardwise._src.ops.linalg.lapack_kernels import columns_of, hermitian_part
from shardwise._src.ops.linalg.triangular import check_matrices, product
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_max, reduce_or
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, finfo, real_dtype
from shardwise._src.values.convert import (
    as_integer,
    broadcast_to,
    cast,
    common_shape,
    promote_inexact,
)


class SlogdetResult(NamedTuple):
    sign: Any
    logabsdet: Any


def _eps(dtype: Any) -> float:
    return float(finfo(dtype).eps)


# -- determinants --


@fused(arrays=1)
def det(a: ArrayLike) -> Array:
    """Determinants of square matrices, (…, n, n): (…).

    First and second derivatives are correct for every matrix, including singular ones; third
    derivatives, if all singular values are distinct.
    """
    return determinant.det(*promote_inexact(a))


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Signs of determinants, and logarithms of their absolute values.

    Args:
      a: (…, n, n).
      method: "lu", which is the default, or "qr": the decomposition to use.

    Returns:
      (sign, logabsdet): 0 and -inf for a singular matrix; complex signs have modulus 1.
    """
    if method not in (None, "lu", "qr"):
        raise ValueError(f"slogdet: method must be 'lu', 'qr' or None; got {method!r}.")
    return SlogdetResult(*determinant.slogdet(*promote_inexact(a), method=method or "lu"))


# -- solutions --


def with_columns(name: str, a: Any, b: Any) -> tuple[Any, Any, bool]:
    """Operands with a common batch, and whether b is a vector, which becomes a column."""
    t, s = type_of(a), type_of(b)
    check_matrices(name, t)
    if not s.ndim or s.shape[-2:][0] != t.shape[-1]:
        raise ValueError(
            f"{name}: b must be a vector or matrices with as many rows as a; got "
            f"{t.str_short(True)} and {s.str_short(True)}."
        )
    if s.ndim == 1:
        b = reshape(b, shape=(*s.shape, 1))
    leading = common_shape([t.shape[:-2], type_of(b).shape[:-2]])
    a, b = [broadcast_to(x, (*leading, *type_of(x).shape[-2:])) for x in (a, b)]
    return a, b, s.ndim == 1


def without_column(x: Any, vector: bool) -> Any:
    return reshape(x, shape=type_of(x).shape[:-1]) if vector else x


@fused(arrays=2)
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution x of a x = b.

    Args:
      a: (…, n, n).
      b: (n,), or (…, n, k); batch dimensions broadcast.

    Returns:
      (…, n) or (…, n, k); infinite or NaN if a is singular.
    """
    a, b = promote_inexact(a, b)
    wide, b, vector = with_columns("solve", a, b)
    factors, _, order = lu.lu(ew.stop_gradient(a))
    *leading, n, _ = type_of(wide).shape
    factors, order = broadcast_to(factors, (*leading, n, n)), broadcast_to(order, (*leading, n))
    return without_column(lu.lu_solve(wide, factors, order, b, form="N"), vector)


@fused(arrays=1)
def inv(a: ArrayLike) -> Array:
    """Inverses of square matrices, (…, n, n); infinite or NaN if singular."""
    (a,) = promote_inexact(a)
    check_matrices("inv", type_of(a))
    return lu.inv(a)


@fused
def _pinv(a: Any, *rtol: Any, hermitian: bool) -> Any:
    (a,) = promote_inexact(a)
    t = type_of(a)
    if hermitian:
        check_matrices("pinv", t)
        a = hermitian_part(a)
    bound = rtol[0] if rtol else 10.0 * max(t.shape[-2:], default=0) * _eps(t.dtype)
    bound = broadcast_to(cast(bound, real_dtype(t.dtype)), t.shape[:-2])
    return determinant.pinv(a, bound)


@eager_jit(arrays=2)
def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """Pseudo-inverses of matrices, (…, m, n): (…, n, m).

    Args:
      rtol: singular values up to rtol times the largest count as zero; by default 10 max(m, n)
        times the machine epsilon.
      hermitian: whether a is Hermitian; then (a + aᴴ) / 2 is used.
      rcond: the same as rtol.

    Derivatives assume a constant rank.
    """
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: rtol and rcond are aliases; pass one of them.")
    given = [x for x in (rtol, rcond) if x is not None]
    return _pinv(a, *given, hermitian=hermitian)


def _whole() -> np.dtype[Any]:
    """The dtype of counts: the default integer."""
    return np.dtype(canonicalize(int).name)


@fused(arrays=3)
def _lstsq(a: Any, b: Any, rcond: Any) -> Any:
    a, b = promote_inexact(a, b)
    t, s = type_of(a), type_of(b)
    if t.ndim != 2 or s.ndim not in (1, 2) or t.shape[0] != s.shape[0]:
        raise ValueError(
            "lstsq takes a matrix, and a vector or matrix with as many rows; got "
            f"{t.str_short(True)} and {s.str_short(True)}."
        )
    columns = b if s.ndim == 2 else reshape(b, shape=(*s.shape, 1))
    real = real_dtype(t.dtype)
    bound = cast(rcond, real)
    bound = where(ew.lt(bound, lit(0, bound)), lit(_eps(real), bound), bound)
    x = product(determinant.pinv(a, bound), columns)
    values = singular_values(a)
    if 0 in t.shape:
        rank = broadcast_to(_whole().type(0), ())
    else:
        largest = broadcast_in_dim(
            reduce_max(values, axes=(0,)), shape=type_of(values).shape, dims=()
        )
        large = ew.gt(values, ew.mul(bound, largest))
        rank = reduce_sum(cast(large, _whole()), axes=(0,))
    left = ew.abs(ew.sub(columns, product(a, x)))
    residuals = reduce_sum(ew.mul(left, left), axes=(0,))
    return [x if s.ndim == 2 else reshape(x, shape=t.shape[1:]), residuals, rank, values]


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The x of minimum norm that minimizes the sum of squares of b - a x.

    Args:
      a: (m, n).
      b: (m,) or (m, k).
      rcond: singular values up to rcond times the largest count as zero; by default max(m, n) times
        the machine epsilon.
      numpy_resid: whether the sums of squares are empty where NumPy's are: if the rank is less than
        n, or m ≤ n. The values must then be concrete.

    Returns:
      (x, sums of squares of the columns, rank, singular values).
    """
    if rcond is None:
        t = type_of(a)
        (like,) = promote_inexact(np.zeros((), t.dtype))
        rcond = max(t.shape, default=0) * _eps(type_of(like).dtype)
    x, residuals, rank, values = _lstsq(a, b, rcond)
    m, n = type_of(a).shape
    if numpy_resid and (m <= n or int(rank) < n):
        residuals = slice_in_dim(residuals, 0, 0, 0)
    return x, residuals, rank, values


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse of an array as a linear map from its last dimensions to the first `ind`.

    Args:
      a: the product of the first `ind` sizes must equal the product of the others.
    """
    count, shape = operator.index(ind), type_of(a).shape
    if count <= 0:
        raise ValueError(f"tensorinv: ind must be positive; got {ind}.")
    first, last = shape[:count], shape[count:]
    if math.prod(first) != math.prod(last):
        raise ValueError(
            f"tensorinv: the product of the first {count} sizes of shape {shape} must equal that "
            "of the others."
        )
    found = inv(shapes.reshape(a, (math.prod(first), math.prod(last))))
    return shapes.reshape(found, (*last, *first))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: tuple[int, ...] | None = None) -> Array:
    """The x with tensordot(a, x, x.ndim) = b.

    Args:
      a: its first dimensions are those of b, and their product equals the product of the others.
      axes: dimensions of a to move to the end first.
    """
    if axes is not None:
        last = type_of(a).ndim
        a = shapes.moveaxis(a, axes, tuple(range(last - len(axes), last)))
    shape, wanted = type_of(a).shape, type_of(b).shape
    out = shape[len(wanted) :]
    if shape[: len(wanted)] != wanted or math.prod(out) != math.prod(wanted):
        raise ValueError(
            f"tensorsolve: shape {shape} of a must begin with shape {wanted} of b, and the product "
            "of the rest must be the same."
        )
    size = math.prod(wanted)
    return shapes.reshape(solve(shapes.reshape(a, (size, size)), shapes.ravel(b)), out)


# -- properties of matrices --


@fused
def _rank(m: Any, *given: Any, relative: bool, hermitian: bool) -> Any:
    (m,) = promote_inexact(m)
    t = type_of(m)
    if t.ndim < 2:
        some = ew.ne(m, lit(0, m))
        return cast(reduce_or(some, axes=tuple(range(t.ndim))), _whole())
    values = singular_values(m, hermitian)
    v = type_of(values)
    if not v.shape[-1]:
        return broadcast_to(_whole().type(0), t.shape[:-2])
    bound = given[0] if given else max(t.shape[-2:]) * _eps(v.dtype)
    bound = broadcast_to(cast(bound, v.dtype), t.shape[:-2])
    if relative:
        bound = ew.mul(bound, reduce_max(values, axes=(v.ndim - 1,)))
    large = ew.gt(values, columns_of(bound, v.shape[-1]))
    return reduce_sum(cast(large, _whole()), axes=(v.ndim - 1,))


def matrix_rank(
    M: ArrayLike,
    rtol: ArrayLike | None = None,
    *,
    hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> Array:
    """The number of singular values that are not close to zero.

    Args:
      M: (…, m, n); for a vector or a number, whether any element is nonzero.
      rtol: values up to rtol times the largest count as zero, as in NumPy; by default max(m, n)
        times the machine epsilon.
      hermitian: whether M is Hermitian, so that eigenvalues are used.
      tol: values up to tol itself count as zero.
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: pass one of rtol and tol, not both.")
    given = [x for x in (rtol, tol) if x is not None]
    return _rank(M, *given, relative=tol is None, hermitian=hermitian)


@fused(arrays=1)
def cond(x: ArrayLike, p: int | float | str | None = None) -> Array:
    """Condition numbers of matrices: norm(x) norm(x⁻¹); infinite if they are singular.

    Args:
      x: (…, m, n); must be square unless p is 2 or -2.
      p: the order of the norm, as for `norm`; None means 2: the largest singular value divided by
        the smallest.
    """
    (x,) = promote_inexact(x)
    t = type_of(x)
    if t.ndim < 2 or 0 in t.shape[-2:]:
        raise ValueError(f"cond takes nonempty matrices; got {t.str_short(True)}.")
    if p in (None, 2, -2):
        values = singular_values(x)
        axis = type_of(values).ndim - 1
        ends = [slice_in_dim(values, i, i + 1, axis) for i in (0, type_of(values).shape[-1] - 1)]
        first, last = [reshape(e, shape=t.shape[:-2]) for e in ends]
        found = ew.div(last, first) if p == -2 else ew.div(first, last)
    else:
        check_matrices("cond", t)
        found = ew.mul(*[norms.norm(m, p, (-2, -1)) for m in (x, lu.inv(x))])
    given = reduce_or(ew.ne(x, x), axes=(t.ndim - 2, t.ndim - 1))
    infinite = ew.bitwise_and(ew.ne(found, found), ew.bitwise_not(given))
    return where(infinite, lit(np.inf, found), found)


@eager_jit
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of the last two dimensions, or those `offset` positions to the right."""
    return rearrange.diagonal(x, as_integer(offset, "diagonal: offset"), -2, -1)
