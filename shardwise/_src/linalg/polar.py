"""Polar factors by QR-based dynamically weighted Halley iterations.

    u, h, steps, done = qdwh(x)          # x = u h, uᴴ u = 1, h Hermitian

The steps, and their source, are in `ops.linalg.halley`.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shardwise._src.control.while_api import while_loop
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.halley import (
    MOST_BY_CHOLESKY,
    bound,
    over,
    step_by_cholesky,
    step_by_qr,
    weights,
)
from shardwise._src.ops.linalg.lapack_kernels import hermitian_part, spread
from shardwise._src.ops.linalg.triangular import adjoint, check_matrices, product, rows_and_columns
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_and
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import finfo, real_dtype


def _length(x: Any) -> Any:
    size, n = ew.abs(x), type_of(x).ndim
    return ew.sqrt(reduce_sum(ew.mul(size, size), axes=(n - 2, n - 1)))


def unitary(x: Any, eps: float | None, most: int) -> tuple[Any, Any, Any]:
    """The unitary factor of matrices with at least as many rows as columns; steps; converged."""
    t = type_of(x)
    if 0 in t.shape:
        return x, np.int32(0), np.bool_(True)
    own = float(finfo(t.dtype).eps)
    near = (4 * (own if eps is None else eps)) ** (1 / 3)
    steps = weights(own)
    first = [w for w in steps if w[2] > MOST_BY_CHOLESKY][:most]
    x = over(x, bound(x))
    for w in first:
        x = step_by_qr(x, *w)
    table = [*steps[len(first) :], (3.0, 1.0, 3.0)]
    columns = [np.asarray(w, real_dtype(t.dtype).name) for w in zip(*table, strict=True)]

    def left(state: Any) -> Any:
        _, k, done = state
        return ew.bitwise_and(ew.lt(k, np.int32(most)), ew.bitwise_not(done))

    def step(state: Any) -> Any:
        x, k, _ = state
        place = ew.min(ew.sub(k, np.int32(len(first))), np.int32(len(table) - 1))
        places = np.arange(len(table), dtype=np.int32)
        at = ew.eq(places, spread(place, places.shape))
        y = step_by_cholesky(x, *[reduce_sum(where(at, w, lit(0, w)), axes=(0,)) for w in columns])
        moved, size = _length(ew.sub(y, x)), _length(y)
        still = ew.le(moved, ew.mul(lit(near, size), size))
        enough = ew.ge(ew.add(k, np.int32(1)), np.int32(len(steps)))
        done = ew.bitwise_and(reduce_and(still, axes=tuple(range(t.ndim - 2))), enough)
        return y, ew.add(k, np.int32(1)), done

    return while_loop(left, step, (x, np.int32(len(first)), np.bool_(False)))


@fused(arrays=1)
def _qdwh(x: Any, eps: float | None, most: int, part: tuple[int, int] | None) -> Any:
    t = type_of(x)
    check_matrices("qdwh", t, square=False)
    if t.shape[-2] < t.shape[-1]:
        raise ValueError(
            f"qdwh takes matrices with at least as many rows as columns; got {t.str_short(True)}. "
            "Pass the adjoint."
        )
    if part is not None:
        row, column = rows_and_columns(t.shape)
        inside = ew.bitwise_and(ew.lt(row, np.int32(part[0])), ew.lt(column, np.int32(part[1])))
        x = where(inside, x, lit(0, x))
    u, steps, done = unitary(x, eps, most)
    return [u, hermitian_part(product(adjoint(u), x)), steps, done]


def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The polar factors x = u h; without reverse-mode derivatives (`scipy.linalg.polar` has them).

    Args:
      x: (…, m, n), m ≥ n, of full rank.
      is_hermitian: has no effect.
      max_iterations: the maximum number of steps; 10 by default. Six are enough.
      eps: iteration stops when a step changes x by at most (4 eps)^(1/3) of its norm.
      dynamic_shape: (rows, columns) of x that are used; the others are treated as zeros.

    Returns:
      (u, h, number of steps, whether they converged by `eps`).
    """
    most = 10 if max_iterations is None else operator.index(max_iterations)
    part = None
    if dynamic_shape is not None:
        rows, columns = map(operator.index, dynamic_shape)
        part = rows, columns
    u, h, steps, done = _qdwh(x, None if eps is None else float(eps), most, part)
    return u, h, steps, done
