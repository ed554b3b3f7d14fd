"""Equality and closeness of arrays, as a whole or element-wise."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray, full
from shardwise._src.numpy.statistics.reductions import all as all_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_complex, is_inexact, real_dtype
from shardwise._src.values.convert import (
    BroadcastError,
    broadcast,
    cast,
    common_shape,
    promote,
    promote_inexact,
)


@fused(arrays=4)
def _isclose(a: Any, b: Any, rtol: Any, atol: Any, equal_nan: bool) -> Any:
    x, y = promote_inexact(a, b)
    parts = real_dtype(type_of(x).dtype)
    x, y, rtol, atol = broadcast(x, y, cast(rtol, parts), cast(atol, parts))
    size = ew.add(atol, ew.mul(rtol, ew.abs(y)))
    close = ew.le(ew.abs(ew.sub(x, y)), size)
    finite = ew.bitwise_and(_finite(x), _finite(y))
    out = ew.where(finite, close, ew.eq(x, y))
    if equal_nan:
        out = ew.bitwise_or(out, ew.bitwise_and(ew.ne(x, x), ew.ne(y, y)))
    return out


def _finite(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        return ew.bitwise_and(ew.is_finite(ew.real(x)), ew.is_finite(ew.imag(x)))
    return ew.is_finite(x)


@eager_jit(arrays=2)
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> Array:
    """Whether |a - b| is at most atol + rtol · |b|, element-wise."""
    return _isclose(a, b, rtol, atol, bool(equal_nan))


@eager_jit(arrays=2)
def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> Array:
    """Whether all elements are close; see `isclose`."""
    return all_of(isclose(a, b, rtol, atol, equal_nan))


@fused(arrays=2)
def _array_equal(a: Any, b: Any, equal_nan: bool) -> Any:
    x, y = broadcast(*promote(a, b))
    same = ew.eq(x, y)
    if equal_nan and is_inexact(type_of(x).dtype):
        same = ew.bitwise_or(same, ew.bitwise_and(ew.ne(x, x), ew.ne(y, y)))
    return all_of(same)


@eager_jit(arrays=2)
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether two arrays or sequences have the same shape and equal elements."""
    x, y = asarray(a1), asarray(a2)
    if type_of(x).shape != type_of(y).shape:
        return full((), False)
    return _array_equal(x, y, bool(equal_nan))


@eager_jit(arrays=2)
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether two arrays or sequences broadcast together and then have equal elements."""
    x, y = asarray(a1), asarray(a2)
    try:
        common_shape([type_of(x).shape, type_of(y).shape])
    except BroadcastError:
        return full((), False)
    return _array_equal(x, y, False)
