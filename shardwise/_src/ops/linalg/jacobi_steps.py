"""Eigenvalues of Hermitian matrices by Jacobi rotations, as a program.

A step rotates n / 2 disjoint pairs of rows and columns at once: row i of the upper half and row i
of the lower half. All rows but the first then move on by one place, so that all pairs meet in
n - 1 steps. Source: Brent, Luk, "The solution of singular-value and symmetric eigenvalue problems
on multiprocessor arrays" (1985).

XLA has the same iteration as one call, but only with the accuracy of 32-bit numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    diagonal,
    eye,
    hermitian_part,
    on_diagonal,
    real,
    rows_of,
    spread,
)
from shardwise._src.ops.linalg.triangular import (
    INT32,
    conjugate,
    rows_and_columns,
    triangle,
    turned,
)
from shardwise._src.ops.logical import where
from shardwise._src.ops.loops import iterate
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.ops.shape import concatenate, pad, slice_in_dim
from shardwise._src.ops.sort import sort, take_along
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import finfo, real_dtype

SWEEPS = 30  # about ten are needed


def eigh_by_rotations(e: Any, t: ArrayType, x: str, lower: bool) -> list[str]:
    """[eigenvectors, eigenvalues], ascending, of matrices of which one triangle is read.

    x: finite matrices, scaled to about 1.
    """
    n = t.shape[-1]
    even = n + n % 2
    number = real_dtype(t.dtype)
    full = array_type((*t.shape[:-2], even, even), t.dtype)
    size, flag = [array_type(t.shape[:-2], d) for d in (number, np.dtype(bool))]
    state = e.via(_start, (t,), x, lower=lower)
    types = (flag, full, full, size)
    _, a, v, _ = iterate(e, _step, types, state, most=SWEEPS * even)
    return e.via(_sorted, (full, full), a, v, size=n)


def _start(x: Any, lower: bool) -> list[Any]:
    """Matrices of even size; an added row has an eigenvalue above all others."""
    t = type_of(x)
    x = hermitian_part(ew.add(triangle(x, lower), triangle(x, lower, strict=True)))
    n = t.shape[-1]
    if n % 2:
        bound = reduce_max(reduce_sum(ew.abs(x), axes=(t.ndim - 1,)), axes=(t.ndim - 2,))
        above = where(ew.eq(bound, lit(0, bound)), lit(1, bound), ew.add(bound, bound))
        config = (*[(0, 0, 0)] * (t.ndim - 2), (0, 1, 0), (0, 1, 0))
        x = pad(x, lit(0, x), padding_config=config)
        row, column = rows_and_columns(type_of(x).shape)
        corner = ew.bitwise_and(ew.eq(row, lit(n, row)), ew.eq(column, lit(n, column)))
        x = where(corner, spread(as_dtype(above, t.dtype), type_of(x).shape), x)
    length = _length(x)
    least = ew.mul(lit(float(finfo(t.dtype).eps) / 2, length), length)
    return [_is_active(x, least), x, eye(type_of(x).shape, t.dtype), least]


def _length(x: Any) -> Any:
    size, n = ew.abs(x), type_of(x).ndim
    return ew.sqrt(reduce_sum(ew.mul(size, size), axes=(n - 2, n - 1)))


def _is_active(a: Any, least: Any) -> Any:
    off = where(on_diagonal(type_of(a).shape), lit(0, a), a)
    return ew.gt(_length(off), least)


def _rotation(a: Any) -> tuple[Any, Any, Any]:
    """Cosines and sines, and the phases of the elements that vanish, for each pair."""
    half, n = type_of(a).shape[-1] // 2, type_of(a).ndim
    upper, lower = [slice_in_dim(a, *part, axis=n - 2) for part in ((0, half), (half, 2 * half))]
    one = real(diagonal(slice_in_dim(upper, 0, half, n - 1)))
    other = real(diagonal(slice_in_dim(lower, half, 2 * half, n - 1)))
    between = diagonal(slice_in_dim(upper, half, 2 * half, n - 1))
    size = ew.abs(between)
    none = ew.eq(size, lit(0, size))
    safe = where(none, lit(1, size), size)
    phase = ew.div(between, as_dtype(safe, type_of(between).dtype))
    ratio = ew.div(ew.sub(other, one), ew.mul(lit(2, safe), safe))
    large = ew.abs(ratio)
    tangent = ew.div(
        lit(1, large), ew.add(large, ew.sqrt(ew.add(lit(1, large), ew.mul(large, large))))
    )
    tangent = where(ew.lt(ratio, lit(0, ratio)), ew.neg(tangent), tangent)
    tangent = where(none, lit(0, tangent), tangent)
    cosine = ew.div(lit(1, size), ew.sqrt(ew.add(lit(1, size), ew.mul(tangent, tangent))))
    return cosine, ew.mul(tangent, cosine), where(none, lit(1, phase), phase)


def _rotated(x: Any, cosine: Any, sine: Any, phase: Any) -> Any:
    """Matrices with pairs of columns rotated, one from each half."""
    t = type_of(x)
    m, half, axis = t.shape[-2], t.shape[-1] // 2, t.ndim - 1
    one, other = slice_in_dim(x, 0, half, axis), slice_in_dim(x, half, 2 * half, axis)
    c, s, turn = [rows_of(as_dtype(y, t.dtype), m) for y in (cosine, sine, phase)]
    other = ew.mul(other, turn)
    first, second = (
        ew.sub(ew.mul(c, one), ew.mul(s, other)),
        ew.add(ew.mul(s, one), ew.mul(c, other)),
    )
    return concatenate(first, second, dimension=axis)


def _moved_on(x: Any, axis: int) -> Any:
    """All places but the first move on: through the upper half, and back through the lower one."""
    n = type_of(x).shape[axis]
    half = n // 2
    if half < 2:
        return x
    bounds = ((0, 1), (half, half + 1), (1, half - 1), (half + 1, n), (half - 1, half))
    parts = [slice_in_dim(x, *part, axis=axis) for part in bounds if part[0] < part[1]]
    return concatenate(*parts, dimension=axis)


def _step(active: Any, a: Any, v: Any, least: Any) -> list[Any]:
    t = type_of(a)
    half = t.shape[-1] // 2
    cosine, sine, phase = _rotation(a)
    back = conjugate(phase)
    a = _rotated(a, cosine, sine, back)
    a = turned(_rotated(turned(a), cosine, sine, phase))
    row, column = rows_and_columns(t.shape)
    pair = ew.eq(ew.abs(ew.sub(row, column)), lit(half, row))
    a = where(pair, lit(0, a), a)
    v = _rotated(v, cosine, sine, back)
    a = _moved_on(_moved_on(a, t.ndim - 2), t.ndim - 1)
    return [_is_active(a, least), a, _moved_on(v, t.ndim - 1), least]


def _sorted(a: Any, v: Any, size: int) -> list[Any]:
    t = type_of(a)
    w = real(diagonal(a))
    axis = t.ndim - 2
    places = iota(dtype=INT32, shape=type_of(w).shape, dimension=axis)
    w, places = sort(w, places, dimension=axis)
    v = take_along(v, rows_of(places, t.shape[-1]), axis + 1)
    w, places = [slice_in_dim(y, 0, size, axis) for y in (w, places)]
    v = slice_in_dim(slice_in_dim(v, 0, size, axis), 0, size, axis + 1)
    return [v, w]
