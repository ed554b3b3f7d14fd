"""Special matrices under SciPy's names, and matrix exponentials.

Matrices that only depend on a size are made on the host, by SciPy.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.control.cond_api import cond
from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.norms import norm
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.shapes import atleast_1d, atleast_2d
from shardwise._src.numpy.unary import absolute
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg import lu
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, eye, spread
from shardwise._src.ops.linalg.triangular import (
    INT32,
    check_matrices,
    conjugate,
    product,
    solve_triangle,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.shape import pad
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import real_dtype
from shardwise._src.values.convert import broadcast_to, promote, promote_inexact

# -- determined by a size --


KEPT = 64  # number and maximum size of the matrices cached on the host


def _made(name: str, n: int, *args: Any, **options: Any) -> np.ndarray:
    with uninterrupted():
        import scipy.linalg

    return getattr(scipy.linalg, name)(n, *args, **options)


_kept = cached(KEPT)(_made)


def _on_host(name: str, n: Any, *args: Any, dtype: Any = None, **options: Any) -> Array:
    size = operator.index(n)
    made = (_kept if size <= KEPT else _made)(name, size, *args, **options)
    if dtype is None:
        dtype = complex if np.iscomplexobj(made) else float
    return asarray(made, dtype)


def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """The matrix of the discrete Fourier transform of size n; scale: None, "sqrtn" or "n"."""
    return _on_host("dft", n, scale, dtype=dtype)


def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """The Hadamard matrix of size n, a power of two."""
    return _on_host("hadamard", n, dtype=dtype)


def helmert(n: int, full: bool = False) -> Array:
    """The Helmert matrix: (n - 1, n), orthogonal; full: with a first row of equal elements."""
    return _on_host("helmert", n, full)


def hilbert(n: int) -> Array:
    """The Hilbert matrix, 1 / (i + j + 1)."""
    return _on_host("hilbert", n)


def invhilbert(n: int) -> Array:
    """The inverse of the Hilbert matrix."""
    return _on_host("invhilbert", n)


def pascal(n: int, kind: str | None = None) -> Array:
    """The Pascal matrix; kind: "symmetric" (the default), "lower" or "upper"."""
    return _on_host("pascal", n, kind=kind or "symmetric", exact=False)


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of the Pascal matrix of the same kind."""
    return _on_host("invpascal", n, kind=kind or "symmetric", exact=False)


# -- determined by vectors --


def _grid(rows: int, columns: int, form: str) -> np.ndarray:
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    return (i + j if form == "sum" else i - j).astype(np.int32)


@fused
def _toeplitz(c: Any, *row: Any) -> Any:
    r = row[0] if row else conjugate(c)
    c, r = promote(atleast_1d(c), atleast_1d(r))
    n, m = type_of(c).shape[-1], type_of(r).shape[-1]
    values = concatenate([c[..., ::-1], r[..., 1:]], axis=-1)
    return values[..., n - 1 - _grid(n, m, "difference")]


@eager_jit(arrays=2)
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column c, (…, n), and first row r, (…, m), constant along diagonals.

    r: its first element is ignored; by default the conjugate of c.
    """
    return _toeplitz(c) if r is None else _toeplitz(c, r)


@fused
def _hankel(c: Any, *row: Any) -> Any:
    r = row[0] if row else ew.mul(atleast_1d(c), lit(0, c))
    c, r = promote(atleast_1d(c), atleast_1d(r))
    values = concatenate([c, r[..., 1:]], axis=-1)
    return values[..., _grid(type_of(c).shape[-1], type_of(r).shape[-1], "sum")]


@eager_jit(arrays=2)
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """The matrix with first column c, (…, n), and last row r, (…, m), constant on antidiagonals.

    r: its first element is ignored; by default zeros.
    """
    return _hankel(c) if r is None else _hankel(c, r)


@fused(arrays=1)
def circulant(c: ArrayLike) -> Array:
    """The square matrix whose columns are c, (…, n), each shifted down by one element."""
    c = atleast_1d(c)
    n = type_of(c).shape[-1]
    return c[..., _grid(n, n, "difference") % max(n, 1)]


def _over_subdiagonal(first: Any, below: Any) -> Any:
    """A matrix with this first row and subdiagonal, and zeros elsewhere."""
    t = type_of(first)
    n = t.shape[-1]
    below = broadcast_to(below, (*t.shape[:-1], n - 1))
    shape = (*t.shape[:-1], n - 1, n)
    lower = ew.mul(broadcast_to(below[..., None], shape), eye(shape, t.dtype))
    return concatenate([first[..., None, :], lower], axis=-2)


@fused(arrays=1)
def companion(a: ArrayLike) -> Array:
    """The matrix whose characteristic polynomial has coefficients a, (…, n), highest first."""
    (p,) = promote_inexact(atleast_1d(a))
    t = type_of(p)
    n = t.shape[-1] - 1
    if n < 1:
        raise ValueError(f"companion: a must have two elements or more; got {t.str_short(True)}.")
    first = ew.neg(ew.div(p[..., 1:], broadcast_to(p[..., :1], (*t.shape[:-1], n))))
    return _over_subdiagonal(first, full(1, (n - 1,), t.dtype))


@fused(arrays=1)
def _fiedler_companion(a: Any, places: tuple) -> Any:
    (a,) = promote_inexact(a)
    t = type_of(a)
    minus = ew.neg(ew.div(a, broadcast_to(a[..., :1], t.shape)))
    ends = broadcast_to(np.asarray([0, 1], t.dtype), (*t.shape[:-1], 2))
    found = concatenate([minus[..., 1:], ends], axis=-1)
    return found[..., np.asarray(places, np.int32).reshape(len(places), -1)]


def fiedler_companion(a: ArrayLike) -> Array:
    """Another matrix with this characteristic polynomial, with five diagonals; a: (…, n)."""
    with uninterrupted():
        import scipy.linalg

    a = atleast_1d(a)
    t = type_of(a)
    n = t.shape[-1]
    if n == 0:
        raise ValueError(f"fiedler_companion takes nonempty vectors; got {t.str_short(True)}.")
    if n == 1:
        return full(0, (*t.shape[:-1], 0, 0), type_of(promote_inexact(a)[0]).dtype)
    own = scipy.linalg.fiedler_companion(np.arange(1.0, n + 1))  # -a[i] is -(i + 1)
    places = np.select([own < 0, own == 0], [-own - 2, n - 1], n).astype(int)
    return _fiedler_companion(a, tuple(map(tuple, places.tolist())))


@fused(arrays=1)
def _convolution_matrix(a: Any, n: int, mode: str) -> Any:
    a = atleast_1d(a)
    m = type_of(a).shape[-1]
    if n < 1 or not m:
        raise ValueError(
            f"convolution_matrix: n and the size of a must be positive; got {n} and {m}."
        )
    short = min(m, n) - 1
    start, rows = {
        "full": (0, m + n - 1),
        "same": (short // 2, max(m, n)),
        "valid": (short, max(m, n) - short),
    }[mode]
    places = _grid(rows, n, "difference") + start
    padded = concatenate([a, full(0, (*type_of(a).shape[:-1], 1), type_of(a).dtype)], axis=-1)
    return padded[..., np.where((places < 0) | (places >= m), m, places)]


@eager_jit
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """The matrix whose products with vectors v of size n are convolutions of a, (…, m), with v.

    mode: "full", "same" or "valid", as for `shardwise.numpy.convolve`.
    """
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"convolution_matrix: mode must be 'full', 'same' or 'valid'; got {mode!r}."
        )
    return _convolution_matrix(a, operator.index(n), mode)


@fused(arrays=2)
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """The Leslie matrix of births f, (…, n), in the first row, and survivals s, (…, n - 1)."""
    f, s = promote(atleast_1d(f), atleast_1d(s))
    shapes = type_of(f).shape, type_of(s).shape
    if shapes[0][-1] < 2 or shapes[1][-1] != shapes[0][-1] - 1:
        raise ValueError(
            "leslie: f must have two elements or more, and s one less; got shapes "
            f"{shapes[0]} and {shapes[1]}."
        )
    return _over_subdiagonal(f, s)


@fused(arrays=1)
def fiedler(a: ArrayLike) -> Array:
    """The absolute differences of all pairs of elements of a, (…, n)."""
    v: Any = atleast_1d(a)
    shape = (*v.shape, v.shape[-1])
    left, right = [broadcast_to(x, shape) for x in (v[..., :, None], v[..., None, :])]
    return absolute(ew.sub(left, right))


@fused
def _block_diag(*arrs: Any) -> Any:
    xs = promote(*[atleast_2d(x) for x in arrs])
    sizes = [type_of(x).shape for x in xs]
    if any(len(s) != 2 for s in sizes):
        raise ValueError(f"block_diag takes matrices; got shapes {', '.join(map(str, sizes))}.")
    rows, total, before = [], sum(s[1] for s in sizes), 0
    for x, (_, n) in zip(xs, sizes, strict=True):
        config = ((0, 0, 0), (before, total - before - n, 0))
        rows.append(pad(x, lit(0, x), padding_config=config))
        before += n
    return concatenate(rows, axis=0)


def block_diag(*arrs: ArrayLike) -> Array:
    """The block diagonal matrix of these matrices; vectors are rows."""
    return _block_diag(*arrs) if arrs else full(0, (1, 0), np.dtype(np.float32))


# -- exponentials --

# The Padé degree and the largest norm that it is valid for, by precision.
_APPROXIMANTS = {"float32": (7, 3.92572478313866), "float64": (13, 5.371920351148152)}


def _approximant(a: Any, degree: int) -> tuple[Any, Any]:
    """The odd and the even part of the numerator of the Padé approximant."""
    t = type_of(a)
    top, fact = degree, math.factorial
    weights = [
        fact(2 * top - k) * fact(top) // (fact(top - k) * fact(k)) / fact(2 * top)
        for k in range(top + 1)
    ]
    weights = [w / weights[0] for w in weights]
    square = product(a, a)
    power = eye(t.shape, t.dtype)
    odd, even = [ew.mul(lit(weights[k], a), power) for k in (1, 0)]
    for k in range(2, degree + 1, 2):
        power = product(power, square) if k > 2 else square
        even = ew.add(even, ew.mul(lit(weights[k], a), power))
        if k < degree:
            odd = ew.add(odd, ew.mul(lit(weights[k + 1], a), power))
    return product(a, odd), even


@fused(arrays=1)
def _expm(a: Any, upper: bool, most: int) -> Any:
    (a,) = promote_inexact(a)
    t = type_of(a)
    check_matrices("expm", t)
    if not t.size:
        return a
    degree, largest = _APPROXIMANTS[real_dtype(t.dtype).name]
    size = ew.stop_gradient(norm(a, 1, (-2, -1)))
    halvings = ew.ceil(ew.div(ew.log(ew.div(size, lit(largest, size))), lit(math.log(2), size)))
    halvings = ew.max(halvings, lit(0, halvings))
    scale = _power_of_two(ew.min(halvings, lit(most + 1, halvings)), most)
    known = ew.le(halvings, lit(most, halvings))
    scale = where(known, scale, lit(np.nan, scale))  # makes the result and its derivatives NaN, too
    odd, even = _approximant(ew.mul(a, spread(as_dtype(scale, t.dtype), t.shape)), degree)
    below, above = ew.sub(even, odd), ew.add(even, odd)
    found = solve_triangle(below, above, False) if upper else lu.solve(below, above)
    return _squared(found, halvings, most)


def _power_of_two(halvings: Any, most: int) -> Any:
    """2 ** -halvings, exactly."""
    t = type_of(halvings)
    shape = (*t.shape, most + 2)
    steps = as_dtype(iota(dtype=INT32, shape=shape, dimension=t.ndim), t.dtype)
    powers = broadcast_to(np.ldexp(1.0, -np.arange(most + 2)).astype(t.dtype), shape)
    wanted = broadcast_to(halvings[..., None] if t.ndim else halvings, shape)
    return reduce_sum(where(ew.eq(steps, wanted), powers, lit(0, powers)), axes=(t.ndim,))


def _squared(x: Any, times: Any, most: int) -> Any:
    """Each matrix squared `times` times."""
    shape = type_of(x).shape

    def step(x: Any, k: Any) -> Any:
        left = ew.lt(broadcast_to(k, type_of(times).shape), times)
        some = reduce_or(left, axes=tuple(range(type_of(left).ndim)))
        return cond(
            some, lambda x: where(spread(left, shape), product(x, x), x), lambda x: x, x
        ), None

    counts = as_dtype(iota(dtype=INT32, shape=(most,), dimension=0), type_of(times).dtype)
    return scan(step, x, counts)[0]


def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Exponentials of square matrices, by scaling and squaring of the Padé approximant.

    Source: Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).

    Args:
      A: (…, n, n).
      upper_triangular: whether A is upper triangular.
      max_squarings: if more are needed, the result is NaN.
    """
    return _expm(A, upper_triangular, operator.index(max_squarings))
