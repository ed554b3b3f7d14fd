"""Determinants and pseudo-inverses, with derivatives even where those of factors do not exist.

For example:

    det(x)                     # f32[*, n, n] → f32[*]
    adjugate(x)                # det(x) x⁻¹, and its limit if x is singular
    slogdet(x, method="lu")    # [sign, logarithm of the absolute value]
    pinv(x, rtol)              # singular values below rtol times the largest are treated as zero
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.cumulative import cumprod
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    columns_of,
    diagonal,
    eye,
    matrix_op,
    on_diagonal,
    rows_of,
    scaled,
    spread,
    trace,
)
from shardwise._src.ops.linalg.lu import lu, solve
from shardwise._src.ops.linalg.qr import geqrf
from shardwise._src.ops.linalg.singular_values import svd
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    conjugate,
    product,
    rows_and_columns,
    turned,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_max, reduce_prod
from shardwise._src.ops.shape import pad
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_complex, real_dtype

# -- det --


def _product_of_pivots(x: Any) -> Any:
    found, pivots, _ = lu(x)
    last = type_of(x).ndim - 2
    return ew.mul(reduce_prod(diagonal(found), axes=(last,)), _parity(pivots, type_of(x).dtype))


def _parity(pivots: Any, dtype: Any) -> Any:
    """-1 if an odd number of rows was exchanged, else 1."""
    t = type_of(pivots)
    last = t.ndim - 1
    moved = as_dtype(ew.ne(pivots, iota(dtype=INT32, shape=t.shape, dimension=last)), INT32)
    odd = ew.bitwise_and(reduce_sum(moved, axes=(last,)), np.int32(1))
    return as_dtype(ew.sub(np.int32(1), ew.mul(np.int32(2), odd)), dtype)


def _det_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Jacobi's formula."""
    (x,), (dx,) = primals, tangents
    n = type_of(x).ndim
    change = reduce_sum(ew.mul(turned(adjugate(x)), dx), axes=(n - 2, n - 1))
    return op(x), change


det = matrix_op(
    "det",
    (2,),
    results=lambda x: [((), x.dtype)],
    body=_product_of_pivots,
    square=True,
    multiple=False,
    jvp=_det_jvp,
)

# -- adjugate: the adjugate of a product is the reversed product of adjugates. So for x = u s vᴴ
#    it is the adjugate of s, a diagonal of products of all singular values but one, between
#    det(vᴴ) v and det(u) uᴴ --


def _by_singular_values(x: Any) -> Any:
    s, u, vh = svd(x, full_matrices=False, vectors=True)
    n = type_of(x).shape[-1]
    axis = type_of(x).ndim - 1
    values = rows_of(s, n)
    others = where(on_diagonal(type_of(x).shape), lit(1, s), values)
    return _turned_back(scaled(adjoint(vh), reduce_prod(others, axes=(axis,))), u, vh)


def _turned_back(left: Any, u: Any, vh: Any) -> Any:
    """left uᴴ, times the determinants of both."""
    found = product(left, adjoint(u))
    return ew.mul(found, spread(ew.mul(det(u), det(vh)), type_of(found).shape))


def _adjugate_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """If a diagonal s is perturbed by b, element i, j of the adjugate changes by -b_ij times all s
    but the i-th and j-th; on the diagonal by the sum over j of b_jj times all but these.
    """
    (x,), (dx,) = primals, tangents
    s, u, vh = svd(x, full_matrices=False, vectors=True)
    b = product(product(adjoint(u), dx), adjoint(vh))
    rest = as_dtype(_all_but_two(s), type_of(x).dtype)
    axis = type_of(x).ndim - 1
    sums = reduce_sum(ew.mul(rest, rows_of(diagonal(b), type_of(x).shape[-1])), axes=(axis,))
    inner = ew.neg(ew.mul(rest, b))
    n = type_of(x).shape[-1]
    inner = ew.add(inner, ew.mul(eye(type_of(inner).shape, type_of(x).dtype), columns_of(sums, n)))
    return op(x), _turned_back(product(adjoint(vh), inner), u, vh)


def _all_but_two(s: Any) -> Any:
    """At i, j the product of all elements but the i-th and j-th; zeros on the diagonal.

    This multiplies the products before both, between them, and after both, without division.
    """
    t = type_of(s)
    n, axis = t.shape[-1], t.ndim - 1
    before = _exclusive(s, axis, False)
    after = _exclusive(s, axis, True)
    upper = ew.lt(*rows_and_columns((*t.shape, n)))
    later = where(upper, rows_of(s, n), lit(1, s))
    between = _exclusive(later, axis + 1, False)  # from after the row to before the column
    found = ew.mul(ew.mul(columns_of(before, n), between), rows_of(after, n))
    found = where(upper, found, lit(0, s))
    return ew.add(found, turned(found))


def _exclusive(x: Any, axis: int, reverse: bool) -> Any:
    """Products of all elements before each element, or after it."""
    shift = (-1, 1, 0) if reverse else (1, -1, 0)
    config = [(0, 0, 0)] * type_of(x).ndim
    config[axis] = shift
    return cumprod(pad(x, lit(1, x), padding_config=tuple(config)), axis=axis, reverse=reverse)


adjugate = matrix_op(
    "adjugate",
    (2,),
    results=lambda x: [(x.shape, x.dtype)],
    body=_by_singular_values,
    square=True,
    multiple=False,
    jvp=_adjugate_jvp,
)

# -- slogdet --


def _slogdet_results(x: ArrayType, *, method: str) -> list:
    return [((), x.dtype), ((), real_dtype(x.dtype))]


def _slogdet_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, method: str) -> list[str]:
    return e.via({"lu": _by_pivots, "qr": _by_reflections}[method], ins, x)


def _by_pivots(x: Any) -> list[Any]:
    found, pivots, _ = lu(x)
    return _of_triangle(found, _parity(pivots, type_of(x).dtype))


def _by_reflections(x: Any) -> list[Any]:
    """The determinant of a reflection is -tau / conj(tau), or 1 for tau = 0."""
    found, taus = geqrf(x)
    still = ew.eq(taus, lit(0, taus))
    own = ew.div(ew.neg(taus), where(still, lit(1, taus), conjugate(taus)))
    own = where(still, lit(1, taus), own)
    return _of_triangle(found, reduce_prod(own, axes=(type_of(taus).ndim - 1,)))


def _of_triangle(x: Any, sign: Any) -> list[Any]:
    """From the product of the diagonal and a sign."""
    values, last = diagonal(x), type_of(x).ndim - 2
    signs = reduce_prod(ew.sign(values), axes=(last,))
    return [ew.mul(signs, sign), reduce_sum(ew.log(ew.abs(values)), axes=(last,))]


def _slogdet_jvp(op: Op, primals: Any, tangents: Any, *, method: str) -> tuple[Any, Any]:
    (x,), (dx,) = primals, tangents
    sign, size = op(x, method=method)
    change = trace(solve(x, dx))
    if not is_complex(type_of(x).dtype):
        return [sign, size], [None, change]
    turn = ew.mul(ew.sub(change, as_dtype(ew.real(change), type_of(x).dtype)), sign)
    return [sign, size], [turn, ew.real(change)]


slogdet = matrix_op(
    "slogdet", (2,), results=_slogdet_results, lower=_slogdet_lower, square=True, jvp=_slogdet_jvp
)

# -- pinv --


def _pinv_results(x: ArrayType, rtol: ArrayType) -> list:
    if rtol.dtype != real_dtype(x.dtype):
        raise TypeError(
            f"[pinv] rtol must be a real number of x's width; got {rtol.str_short(True)} for "
            f"{x.str_short(True)}."
        )
    return [(x.shape[::-1], x.dtype)]


def _pinv_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, rtol: str) -> str:
    if 0 in ins[0].shape[-2:]:
        return e.constant(0, outs[0])
    return e.via(_by_large_values, ins, x, rtol)[0]


def _by_large_values(x: Any, rtol: Any) -> Any:
    s, u, vh = svd(x, full_matrices=False, vectors=True)
    t = type_of(s)
    largest = reduce_max(s, axes=(t.ndim - 1,))
    bound = columns_of(ew.mul(rtol, largest), t.shape[-1])
    inverse = where(ew.gt(s, bound), ew.div(lit(1, s), s), lit(0, s))
    unknown = ew.ne(s, s)
    inverse = where(unknown, s, inverse)
    return product(scaled(adjoint(vh), inverse), adjoint(u))


def _pinv_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Source: Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least
    squares problems whose variables separate" (1973); for constant rank.
    """
    (x, rtol), (dx, _) = primals, tangents
    p = op(x, rtol)
    if dx is None:
        return p, None
    ph, dxh = adjoint(p), adjoint(dx)
    change = ew.neg(product(product(p, dx), p))
    # p pᴴ dxᴴ (I - x p) + (I - p x) dxᴴ pᴴ p
    first = product(p, product(ph, dxh))
    first = ew.sub(first, product(product(first, x), p))
    second = product(product(dxh, ph), p)
    second = ew.sub(second, product(p, product(x, second)))
    return p, ew.add(change, ew.add(first, second))


pinv = matrix_op(
    "pinv", (2, 0), results=_pinv_results, lower=_pinv_lower, multiple=False, jvp=_pinv_jvp
)
