"""Steps of QR-based dynamically weighted Halley iterations for polar factors.

    u = polar_unitary(x)                 # x = u h, uᴴ u = 1, h Hermitian

Source: Nakatsukasa, Bai, Gygi, "Optimizing Halley's iteration for computing the matrix polar
decomposition" (2010). Weights are chosen for singular values down to the machine epsilon, relative
to a bound on the largest: they are the same for all matrices, so the number of steps is fixed.
"""

from __future__ import annotations

import math
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.factor import cholesky
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, eye, spread
from shardwise._src.ops.linalg.qr import qr
from shardwise._src.ops.linalg.triangular import adjoint, product, triangular_solve
from shardwise._src.ops.logical import where
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.types.dtypes import finfo, real_dtype

MOST_BY_CHOLESKY = 100.0  # limit of the weight c: above it, I + c xᴴ x loses too much precision


def weights(least: float) -> list[tuple[float, float, float]]:
    """a, b, c of all steps until singular values of at least `least` are 1."""
    found = []
    while len(found) < 2 or abs(1 - least) > 1e-15:
        square = least * least
        d = (4 * max(1 - square, 0.0) / square**2) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + math.sqrt(8 - 4 * d + 8 * (2 - square) / (square * root)) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        found.append((a, b, c))
        least = min(least * (a + b * square) / (1 + c * square), 1.0)
    return found


def step_by_qr(x: Any, a: float, b: float, c: float) -> Any:
    t = type_of(x)
    (m, n), rows = t.shape[-2:], t.ndim - 2
    one = eye((*t.shape[:-2], n, n), t.dtype)
    stacked = concatenate(ew.mul(lit(math.sqrt(c), x), x), one, dimension=rows)
    q, _ = qr(stacked, full_matrices=False, pivoting=False)
    upper, lower = slice_in_dim(q, 0, m, rows), slice_in_dim(q, m, m + n, rows)
    turned = product(upper, adjoint(lower))
    return ew.add(ew.mul(lit(b / c, x), x), ew.mul(lit((a - b / c) / math.sqrt(c), x), turned))


def step_by_cholesky(x: Any, a: Any, b: Any, c: Any) -> Any:
    """a, b, c: the weights, as values."""
    t = type_of(x)
    a, b, c = [spread(as_dtype(w, t.dtype), ()) for w in (a, b, c)]
    square = product(adjoint(x), x)
    n = type_of(square).shape
    factor = cholesky(ew.add(eye(n, t.dtype), ew.mul(spread(c, n), square)))
    turned = x
    for form in "CN":
        turned = triangular_solve(
            factor, turned, left_side=False, lower=True, form=form, unit_diagonal=False
        )
    ratio = ew.div(b, c)
    return ew.add(
        ew.mul(spread(ratio, t.shape), x), ew.mul(spread(ew.sub(a, ratio), t.shape), turned)
    )


def bound(x: Any) -> Any:
    """An upper bound on the largest singular value; 1 for zeros."""
    size, n = ew.abs(x), type_of(x).ndim
    sums = [reduce_max(reduce_sum(size, axes=(axis,)), axes=(n - 2,)) for axis in (n - 2, n - 1)]
    found = ew.mul(*map(ew.sqrt, sums))
    return where(ew.eq(found, lit(0, found)), lit(1, found), found)


def over(x: Any, scale: Any) -> Any:
    """Matrices, each over its own number."""
    t = type_of(x)
    return ew.div(x, spread(as_dtype(scale, t.dtype), t.shape))


def polar_unitary(x: Any) -> Any:
    """The unitary factor of matrices with at least as many rows as columns.

    x: with singular values of at most 1. Those below the machine epsilon may not become 1.
    """
    t = type_of(x)
    number = real_dtype(t.dtype).type
    for a, b, c in weights(float(finfo(t.dtype).eps)):
        if c > MOST_BY_CHOLESKY:
            x = step_by_qr(x, a, b, c)
        else:
            x = step_by_cholesky(x, number(a), number(b), number(c))
    return x
