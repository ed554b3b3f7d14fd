"""Associated Legendre functions of all degrees and orders up to a maximum.

    lpmn_values(2, 2, z, True)[1, 2]      # P₂¹(z), normalized as in spherical harmonics

SciPy 1.15 and older have them for a scalar z, as `lpmn`. Source: NIST Handbook of Mathematical
Functions, 14.10.3 and 14.7.15, with (-1)^m.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.autodiff.grad import jvp
from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import zeros
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import swapaxes
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import full
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.convert import as_integer


def lpmn_values(m: int, n: int, z: ArrayLike, is_normalized: bool) -> Array:
    """Associated Legendre functions of the first kind: (n + 1, n + 1, len(z)), by order and degree.

    Args:
      m, n: the largest order and degree, which must be equal.
      z: float32 or float64 numbers in [-1, 1], as a vector.
      is_normalized: whether they are normalized, so that spherical harmonics are orthonormal.

    Raises:
      NotImplementedError: if m and n differ.
      ValueError: if z is not a vector, or n is negative.
      TypeError: if z has another dtype.
    """
    return _values(z, _degree("lpmn_values", m, n, z), bool(is_normalized))


def lpmn(m: int, n: int, z: ArrayLike) -> tuple[Array, Array]:
    """Unnormalized `lpmn_values`, and their derivatives with respect to z."""
    degree = _degree("lpmn", m, n, z)
    one = full(1, type_of(z).shape, type_of(z).dtype)
    return jvp(lambda z: _values(z, degree, False), (z,), (one,))


def _degree(name: str, m: Any, n: Any, z: Any) -> int:
    order, degree, t = as_integer(m, f"{name}: m"), as_integer(n, f"{name}: n"), type_of(z)
    if order != degree:
        raise NotImplementedError(
            f"{name}: m and n must be equal; got {order} and {degree}. Pass the larger for both, "
            "and slice the result."
        )
    if degree < 0:
        raise ValueError(f"{name}: n must be at least 0; got {degree}.")
    if t.dtype.name not in ("float32", "float64"):
        raise TypeError(f"{name}: z must be float32 or float64; got {t.str_short(True)}.")
    if t.ndim != 1:
        raise ValueError(f"{name}: z must be a vector; got {t.str_short(True)}.")
    return degree


@fused(arrays=1)
def _values(z: Any, degree: int, normalized: bool) -> Any:
    t = type_of(z)
    first, up, back = (x.astype(t.dtype) for x in _factors(degree, normalized))
    square = ew.sub(full(1, t.shape, t.dtype), ew.mul(z, z))
    sine, powers = ew.sqrt(square), [full(1, t.shape, t.dtype)]
    for order in range(1, degree + 1):  # integer powers if possible: differentiable at 1
        even = ew.integer_pow(square, y=order // 2)
        powers.append(ew.mul(even, sine) if order % 2 else even)
    diagonal = first[:, None] * stack(powers)

    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        before, now = carry  # of the two preceding degrees, by order
        number, up, back = row
        new = up[:, None] * z * now - back[:, None] * before
        orders = np.arange(degree + 1, dtype=np.int32)[:, None]
        new = where(orders == number, diagonal, where(orders < number, new, 0))
        return (now, new), new

    none = zeros((degree + 1, *t.shape), t.dtype)
    rows = np.arange(degree + 1, dtype=np.int32), up, back
    return swapaxes(scan(step, (none, none), rows)[1], 0, 1)


def _factors(degree: int, normalized: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The factors of (1 - z²)^(m/2) in P_m^m; and by degree l and order m, `up` and `back`:

    P_l^m = up z P_{l-1}^m - back P_{l-2}^m.
    """
    orders = np.arange(degree + 1.0)
    if normalized:
        first = np.append(math.sqrt(0.25 / math.pi), -np.sqrt(1 + 0.5 / orders[1:]))
    else:
        first = np.append(1.0, 1 - 2 * orders[1:])
    m, n = np.meshgrid(orders, orders)
    below = m < n
    gap = np.where(below, n - m, 1)
    up, back = (2 * n - 1) / gap, (n + m - 1) / gap
    if normalized:
        sizes = np.where(below, n * n - m * m, 1)
        up = np.sqrt(np.maximum(4 * n * n - 1, 0) / sizes)
        back = up * np.sqrt(
            np.where(n - 1 > m, (n - 1) ** 2 - m * m, 0) / np.where(n > 1, 4 * (n - 1) ** 2 - 1, 1)
        )
    return np.cumprod(first), np.where(below, up, 0), np.where(n - 1 > m, back, 0)
