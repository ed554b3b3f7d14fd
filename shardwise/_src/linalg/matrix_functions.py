"""Matrix functions and matrix equations, under SciPy's names.

    sqrtm(a)   funm(a, exp)   polar(a)   expm_frechet(a, e)   solve_sylvester(a, b, c)

Square roots, matrix functions and Sylvester equations are solved in Schur form, where they are
recurrences over columns, each of which is a triangular system.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.autodiff.grad import jvp
from shardwise._src.control.scan_api import scan
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.custom.implicit import custom_linear_solve
from shardwise._src.lax.dynamic_slices import dynamic_slice_in_dim, dynamic_update_slice_in_dim
from shardwise._src.linalg.decompositions import eigvals
from shardwise._src.linalg.polar import unitary
from shardwise._src.linalg.special_matrices import expm
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where as select
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import move_axis, reduce_sum, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import forms, lu, spectral
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    columns_of,
    diagonal,
    eye,
    hermitian_part,
    on_diagonal,
    rows_of,
    scaled,
    spread,
)
from shardwise._src.ops.linalg.singular_values import svd
from shardwise._src.ops.linalg.triangular import (
    INT32,
    adjoint,
    check_matrices,
    product,
    solve_triangle,
    triangle,
    turned,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_and, reduce_max, reduce_min
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import complex_dtype, finfo, is_complex
from shardwise._src.values.binary import hypot
from shardwise._src.values.convert import broadcast_to, common_shape, promote_inexact

# -- recurrences over columns --


def _complex_schur(a: Any) -> tuple[Any, Any]:
    t, z = forms.schur(as_dtype(a, complex_dtype(type_of(a).dtype)), vectors=True)
    return t, z


def _by_columns(start: Any, step: Callable, *given: Any) -> Any:
    """Matrices whose columns 0, 1, … are replaced, in order, by step(matrices, index, …).

    given: inputs with a row for each step: columns of other matrices, and scalars.
    """
    t = type_of(start)

    def turn(y: Any, given: Any) -> Any:
        k, *own = given
        at = ew.eq(iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1), k)
        return where(at, columns_of(step(y, k, *own), t.shape[-1]), y), None

    numbers = iota(dtype=INT32, shape=t.shape[-1:], dimension=0)
    last = [move_axis(x, type_of(x).ndim - 1, 0) for x in given]
    return scan(turn, start, (numbers, *last))[0]


def _plus(a: Any, number: Any) -> Any:
    """a + number · I."""
    t = type_of(a)
    return ew.add(a, ew.mul(eye(t.shape, t.dtype), spread(number, t.shape)))


def _times(a: Any, v: Any) -> Any:
    """Matrix-vector products."""
    return _column(product(a, reshape(v, shape=(*type_of(v).shape, 1))))


def _column(x: Any) -> Any:
    return reshape(x, shape=type_of(x).shape[:-1])


def _before(v: Any, k: Any) -> Any:
    """The first k elements of vectors, and zeros elsewhere."""
    t = type_of(v)
    return where(ew.lt(iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1), k), v, lit(0, v))


def _with(v: Any, k: Any, number: Any) -> Any:
    """Vectors with element k replaced."""
    t = type_of(v)
    at = ew.eq(iota(dtype=INT32, shape=t.shape, dimension=t.ndim - 1), k)
    return where(at, spread(number, t.shape), v)


def _solved(upper: Any, v: Any) -> tuple[Any, Any]:
    """The solutions of upper triangular systems, and which pivots are 0 and replaced by 1."""
    zero = ew.eq(diagonal(upper), lit(0, upper))
    upper = where(
        ew.bitwise_and(
            on_diagonal(type_of(upper).shape), columns_of(zero, type_of(upper).shape[-1])
        ),
        lit(1, upper),
        upper,
    )
    v = reshape(v, shape=(*type_of(v).shape, 1))
    return _column(solve_triangle(upper, v, False)), zero


# -- square roots --


@custom_jvp
@fused(arrays=1)
def _sqrtm(a: Any) -> Any:
    t, z = _complex_schur(a)
    roots = ew.sqrt(diagonal(t))

    def step(u: Any, k: Any, column: Any, root: Any) -> Any:
        found, zero = _solved(_plus(u, root), _before(column, k))
        none = ew.bitwise_and(zero, ew.ne(found, lit(0, found)))
        return _with(where(none, lit(complex(np.nan, np.nan), found), found), k, root)

    start = scaled(eye(type_of(t).shape, type_of(t).dtype), roots)
    found = _by_columns(start, step, t, roots)
    return product(product(z, found), adjoint(z))


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """s ds + ds s = da."""
    s = _sqrtm(*primals)
    change = as_dtype(tangents[0], type_of(s).dtype)
    return s, _sylvester(s, s, change, "schur", 0.0)


def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """The principal square roots of matrices, (…, n, n): always complex, unlike in SciPy.

    Source: Björck, Hammarling, "A Schur method for the square root of a matrix" (1983). If a
    singular matrix has no square root, the result contains NaN.

    Args:
      blocksize: has no effect.
    """
    (a,) = promote_inexact(A)
    check_matrices("sqrtm", type_of(a))
    return _sqrtm(a)


# -- matrix functions --


@fused(arrays=1)
def _schur_and_diagonal(a: Any) -> Any:
    t, z = _complex_schur(a)
    return [t, z, diagonal(t)]


@fused(arrays=3)
def _parlett(t: Any, z: Any, values: Any) -> Any:
    """f t = t f, with these values on the diagonal of f."""
    values = as_dtype(values, type_of(t).dtype)
    own = diagonal(t)

    def step(f: Any, k: Any, column: Any, value: Any, number: Any) -> Any:
        wanted = _before(_times(_plus(f, ew.neg(value)), _before(column, k)), k)
        return _with(_solved(_plus(t, ew.neg(number)), wanted)[0], k, value)

    start = scaled(eye(type_of(t).shape, type_of(t).dtype), values)
    f = _by_columns(start, step, t, values, own)
    found = product(product(z, f), adjoint(z))
    return [found, _error(t, own, found)]


def _error(t: Any, own: Any, found: Any) -> Any:
    """SciPy's estimate: the off-diagonal norm of t over the least distance of eigenvalues."""
    s = type_of(t)
    n, axes = s.shape[-1], (s.ndim - 2, s.ndim - 1)
    tol = lit(float(finfo(s.dtype).eps), ew.real(t))
    gaps = ew.abs(ew.sub(rows_of(own, n), columns_of(own, n)))
    gaps = where(on_diagonal(s.shape), lit(np.inf, gaps), gaps)
    first = ew.abs(_before(own, np.int32(1)))
    least = ew.min(reduce_min(gaps, axes=axes), reduce_max(first, axes=(s.ndim - 2,)))
    least = where(ew.eq(least, lit(0, least)), tol, least)
    sums = reduce_sum(ew.abs(triangle(t, False, strict=True)), axes=axes[:1])
    error = ew.mul(ew.div(tol, least), reduce_max(sums, axes=axes[:1]))
    error = ew.min(ew.max(error, tol), lit(1, error))
    finite = reduce_and(ew.is_finite(ew.abs(found)), axes=axes)
    return where(finite, error, lit(np.inf, error))


def funm(A: ArrayLike, func: Callable[..., Any], disp: bool = True) -> Array | tuple[Array, Array]:
    """A function of matrices, (…, n, n), from its values at eigenvalues; not differentiable.

    Always complex, unlike in SciPy; inaccurate if eigenvalues are close to each other.
    Source: Parlett's recurrence; Golub, Van Loan, "Matrix computations", algorithm 9.1.1.

    Args:
      func: takes the eigenvalues, complex and (…, n), and returns the function's values.
      disp: if False, also return an estimate of the relative error: (result, error).
    """
    (a,) = promote_inexact(A)
    check_matrices("funm", type_of(a))
    t, z, own = _schur_and_diagonal(a)
    found, error = _parlett(t, z, func(own))
    return found if disp else (found, error)


@fused(arrays=2)
def _frechet(a: Any, e: Any, both: bool) -> Any:
    a, e = promote_inexact(a, e)
    for x in (a, e):
        check_matrices("expm_frechet", type_of(x))
    shape = common_shape([type_of(a).shape, type_of(e).shape])
    pair = jvp(expm, (broadcast_to(a, shape),), (broadcast_to(e, shape),))
    return list(pair) if both else pair[1]


def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, Array]:
    """Matrix exponentials and their Fréchet derivatives along E, (…, n, n); or only derivatives.

    method: "SPS", "blockEnlarge" or None; has no effect: derivatives are those of `expm`.
    """
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(
            f"expm_frechet: method must be 'SPS', 'blockEnlarge' or None; got {method!r}."
        )
    found = _frechet(A, E, bool(compute_expm))
    return tuple(found) if compute_expm else found  # pyright: ignore[reportReturnType] (a pair)


@fused(arrays=2)
def _rsf2csf(t: Any, z: Any) -> Any:
    t, z = promote_inexact(t, z)
    for x in (t, z):
        check_matrices("rsf2csf", type_of(x))
    shape, dtype = common_shape([type_of(t).shape, type_of(z).shape]), type_of(t).dtype
    t, z = [as_dtype(broadcast_to(x, shape), complex_dtype(dtype)) for x in (t, z)]
    n = shape[-1]
    row, column = [iota(dtype=INT32, shape=(n, n), dimension=d) for d in (0, 1)]

    def step(i: Any, carry: Any) -> Any:  # the block of rows and columns m - 1 and m
        m = n - i
        t, z = carry
        rows = dynamic_slice_in_dim(t, m - 1, 2, -2)
        turn = _triangular(dynamic_slice_in_dim(rows, m - 1, 2, -1), finfo(dtype).eps)
        rows = select(column[:2] >= m - 1, product(turn, rows), rows)
        t = dynamic_update_slice_in_dim(t, rows, m - 1, -2)
        pair, last = [dynamic_slice_in_dim(x, m - 1, 2, -1) for x in (t, z)]
        pair = select(row[:, :2] <= m, product(pair, adjoint(turn)), pair)
        t = dynamic_update_slice_in_dim(t, pair, m - 1, -1)
        z = dynamic_update_slice_in_dim(z, product(last, adjoint(turn)), m - 1, -1)
        return select((row == m) & (column == m - 1), 0, t), z

    return fori_loop(1, n, step, (t, z)) if n > 1 else (t, z)


def _triangular(block: Any, eps: float) -> Any:
    """The rotations that make matrices, c64[..., 2, 2], upper triangular; I where they are."""
    low, last = block[..., 1, 0], block[..., 1, 1]
    needed = abs(low) > eps * (abs(block[..., 0, 0]) + abs(last))
    gap = select(needed, eigvals(block)[..., 0] - last, 1)
    low = select(needed, low, 0)
    length = as_dtype(hypot(abs(gap), abs(low)), type_of(low).dtype)
    c, s = gap / length, low / length
    return stack([stack([c.conj(), s], -1), stack([-s, c], -1)], -2)


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Converts real Schur forms, (…, n, n), to complex Schur forms: (t, z), as SciPy does.

    A rotation of two rows and columns removes each element below the diagonal, the last one first.
    """
    t, z = _rsf2csf(T, Z)
    return t, z


# -- Sylvester equations --


def _by_schur(a: Any, b: Any, c: Any, tol: float) -> Any:
    """With Schur forms r and s of a and b: (r + s[k, k]) y[k] = c[k] - Σ y[i] s[i, k], i < k."""
    dtype = type_of(c).dtype
    (r, u), (s, v) = map(_complex_schur, (a, b))
    c = product(product(adjoint(u), as_dtype(c, type_of(u).dtype)), v)
    own = diagonal(s)

    def step(y: Any, k: Any, wanted: Any, column: Any, number: Any) -> Any:
        wanted = ew.sub(wanted, _times(y, _before(column, k)))
        wanted = reshape(wanted, shape=(*type_of(wanted).shape, 1))
        return _column(solve_triangle(_plus(r, number), wanted, False))

    y = _by_columns(ew.mul(c, lit(0, c)), step, c, s, own)
    found = product(product(u, y), adjoint(v))
    return _unless_singular(found, diagonal(r), own, tol, dtype)


def _by_eig(a: Any, b: Any, c: Any, tol: float) -> Any:
    dtype = type_of(c).dtype
    (r, u), (s, v) = [spectral.eig(x, left=False, right=True, differentiable=False) for x in (a, b)]
    c = product(lu.solve(u, as_dtype(c, type_of(u).dtype)), v)
    y = ew.div(c, _sums(r, s))
    found = adjoint(lu.solve(adjoint(v), adjoint(product(u, y))))
    return _unless_singular(found, r, s, tol, dtype)


def _sums(r: Any, s: Any) -> Any:
    m, n = type_of(r).shape[-1], type_of(s).shape[-1]
    return ew.add(columns_of(r, n), rows_of(s, m))


def _unless_singular(x: Any, r: Any, s: Any, tol: float, dtype: Any) -> Any:
    x = x if is_complex(dtype) else ew.real(x)
    t = type_of(x)
    if not t.size:
        return x
    least = reduce_min(ew.abs(_sums(r, s)), axes=(t.ndim - 2, t.ndim - 1))
    bad = spread(ew.lt(least, lit(tol, least)), t.shape)
    nan = complex(np.nan, np.nan) if is_complex(dtype) else np.nan
    return where(bad, lit(nan, x), x)


@fused(arrays=3)
def _sylvester(a: Any, b: Any, c: Any, method: str, tol: float) -> Any:
    by = _by_schur if method == "schur" else _by_eig
    return custom_linear_solve(
        lambda x: ew.add(product(a, x), product(x, b)),
        c,
        solve=lambda _, c: by(a, b, c, tol),
        transpose_solve=lambda _, c: by(turned(a), turned(b), c, tol),
    )


@fused(arrays=3)
def _solve_sylvester(a: Any, b: Any, c: Any, method: str, tol: float) -> Any:
    a, b, c = promote_inexact(a, b, c)
    types = [type_of(x) for x in (a, b, c)]
    check_matrices("solve_sylvester", types[2], square=False)
    for t, n in zip(types[:2], types[2].shape[-2:], strict=True):
        check_matrices("solve_sylvester", t)
        if t.shape[-1] != n:
            raise ValueError(
                "solve_sylvester takes (…, m, m), (…, n, n) and (…, m, n); got shapes "
                f"{', '.join(str(t.shape) for t in types)}."
            )
    leading = common_shape([t.shape[:-2] for t in types])
    a, b, c = [broadcast_to(x, (*leading, *type_of(x).shape[-2:])) for x in (a, b, c)]
    return _sylvester(a, b, c, method, tol)


@eager_jit(arrays=3)
def solve_sylvester(
    A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8
) -> Array:
    """The solution x of the Sylvester equation A x + x B = C.

    Args:
      A, B, C: (…, m, m), (…, n, n), (…, m, n); the batches broadcast.
      method: "schur", or "eigen", which is less accurate if eigenvectors are nearly parallel.
      tol: if the sum of an eigenvalue of A and one of B is smaller, the result is NaN.

    Source: Bartels, Stewart, "Solution of the matrix equation AX + XB = C" (1972), in complex form.
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f"solve_sylvester: method must be 'schur' or 'eigen'; got {method!r}.")
    return _solve_sylvester(A, B, C, method, float(tol))


# -- polar decomposition --


@partial(custom_jvp, nondiff_argnums=(1, 2, 3))
@fused(arrays=1)
def _unitary(x: Any, method: str, eps: float | None, most: int) -> Any:
    if method == "qdwh":
        return unitary(x, eps, most)[0]
    _, u, vh = svd(x, full_matrices=False, vectors=True)
    return product(u, vh)


@_unitary.defjvp
def _unitary_jvp(method: str, eps: Any, most: int, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """du = u w + (1 - u uᴴ) dx h⁻¹, where h w + w h = uᴴ dx - dxᴴ u."""
    (x,), (dx,) = primals, tangents
    u = _unitary(x, method, eps, most)
    h = hermitian_part(product(adjoint(u), x))
    inner = product(adjoint(u), dx)
    turn = _sylvester(h, h, ew.sub(inner, adjoint(inner)), "schur", 0.0)
    rest = ew.sub(dx, product(u, inner))
    return u, ew.add(product(u, turn), adjoint(lu.solve(h, adjoint(rest))))


@eager_jit(arrays=1)
def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """(u, p): a = u p, or a = p u for side "left"; u with orthonormal columns or rows.

    Args:
      a: (…, m, n), of full rank; otherwise u is not unique, and "svd" returns one of them.
      method: "qdwh" (see `shardwise.lax.linalg.qdwh`, also for eps and max_iterations), or
        "svd".
    """
    if side not in ("right", "left") or method not in ("qdwh", "svd"):
        raise ValueError(
            "polar: side must be 'right' or 'left', and method 'qdwh' or 'svd'; got "
            f"{side!r} and {method!r}."
        )
    (a,) = promote_inexact(a)
    t = type_of(a)
    check_matrices("polar", t, square=False)
    tall = t.shape[-2] >= t.shape[-1]
    most = 10 if max_iterations is None else operator.index(max_iterations)
    u = _unitary(a if tall else adjoint(a), method, None if eps is None else float(eps), most)
    u = u if tall else adjoint(u)
    both = (adjoint(u), a) if side == "right" else (a, adjoint(u))
    return u, hermitian_part(product(*both))
