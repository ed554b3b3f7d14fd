"""Samplers based on matrix factorizations: multivariate normal vectors, orthogonal matrices."""

from __future__ import annotations

import operator
from typing import Any

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import cholesky, eigh, qr, svd
from shardwise._src.numpy.products.einsum import einsum
from shardwise._src.numpy.rearrange import diagonal
from shardwise._src.numpy.unary import sign
from shardwise._src.ops.elementwise import sqrt
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.random.continuous import normal_sample
from shardwise._src.random.named_shapes import optionally_keyed
from shardwise._src.random.sampler import sampler
from shardwise._src.random.sampler_arguments import float_dtype, inexact_dtype, sizes, typed_key
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.symbolic import broadcast_shapes
from shardwise._src.values.convert import cast, promote_inexact


def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Normal vectors with mean `(..., n)` and covariance `(..., n, n)`.

    shape:  shape of the result without its last dimension; by default the broadcast batch shape
            of `mean` and `cov`.
    method: how to factor the covariance: "cholesky", or "eigh" or "svd" if it is singular.
    """
    if out_sharding is not None:
        return placed(multivariate_normal, out_sharding, key, mean, cov, shape, dtype, method)
    key, shape = optionally_keyed("multivariate_normal", key, shape)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError(
            f"multivariate_normal: method must be 'cholesky', 'eigh' or 'svd'; got {method!r}."
        )
    chosen = None if dtype is None else float_dtype("multivariate_normal", dtype)
    return _multivariate_normal(key, mean, cov, shape, chosen, method)


@fused(arrays=3)
def _multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: tuple | None, dtype: Any, method: str
) -> Any:
    mean, cov = promote_inexact(mean, cov)
    t, square = type_of(mean), type_of(cov)
    n = t.shape[-1] if t.shape else None
    if n is None or square.shape[-2:] != (n, n):
        raise ValueError(
            "multivariate_normal takes a mean (..., n) and a covariance (..., n, n); got "
            f"{t.str_short(True)} and {square.str_short(True)}."
        )
    dtype = float_dtype("multivariate_normal", t.dtype if dtype is None else dtype)
    lead = t.shape[:-1], square.shape[:-2]
    try:
        full = broadcast_shapes(*lead) if shape is None else broadcast_shapes(shape, *lead)
    except ValueError:
        full = None
    if full is None or shape not in (None, full):
        raise ValueError(
            f"multivariate_normal: {t.str_short(True)} and {square.str_short(True)} do not "
            f"broadcast to vectors in an array of shape {shape}."
        )
    drawn = normal_sample(typed_key("multivariate_normal", key), (*full, n), dtype)
    return cast(mean + einsum("...ij,...j->...i", _factor(cov, method), drawn), dtype)


def _factor(cov: Any, method: str) -> Any:
    if method == "cholesky":
        return cholesky(cov)
    if method == "eigh":
        values, vectors = eigh(cov)
    else:
        vectors, values, _ = svd(cov)
    return vectors * sqrt(values)[..., None, :]


def orthogonal(
    key: ArrayLike,
    n: int,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    m: int | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Uniformly distributed orthogonal matrices, of shape (*shape, n, m); unitary if complex.

    m: the number of columns, `n` by default. The rows or columns, whichever are shorter, are
      orthonormal.

    Source: Mezzadri, "How to generate random matrices from the classical compact groups", 2007.
    """
    rows, columns = sizes("orthogonal", (operator.index(n), n if m is None else operator.index(m)))
    return orthogonal_sample.draw(out_sharding, key, shape, dtype, rows=rows, columns=columns)


@sampler(inexact_dtype)
def orthogonal_sample(key: Any, shape: tuple, dtype: Any, rows: int, columns: int) -> Any:
    long, short = max(rows, columns), min(rows, columns)
    q, r = qr(normal_sample(key, (*shape, long, short), dtype))
    found = q * sign(diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    return found.mT if rows < columns else found
