"""Samplers based on gamma samples: gamma, beta, Dirichlet, chi-square, t, F, and balls."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.base.config import threefry_partitionable
from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum
from shardwise._src.ops.elementwise import abs, add, div, exp, max, mul, pow, sqrt, sub
from shardwise._src.ops.families import lit
from shardwise._src.ops.random.bits import split_keys
from shardwise._src.ops.random.random_gamma import random_gamma
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.random.approximate import approximate_loggamma, check_method
from shardwise._src.random.continuous import exponential_sample, normal_sample, plain, shaped
from shardwise._src.random.draws import keys_of, rademacher_sample
from shardwise._src.random.sampler_arguments import common_sizes, parameter, sizes, typed_key
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.dtypes import finfo
from shardwise._src.values.convert import broadcast_to, cast


def gamma(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: OutSharding = None,
) -> Array:
    """Gamma samples with shape parameter `a` and scale 1. Differentiable with respect to `a`.

    method: "exact", by rejection; or "approximate", without loops, from a series for quantiles with
        an error of about 0.05 %. The samples differ, and so do their derivatives.
    """
    if out_sharding is not None:
        return placed(gamma, out_sharding, key, a, shape, dtype, method=method)
    key, shape, dtype = shaped("gamma", key, shape, dtype)
    return _gamma(key, a, shape, dtype, False, check_method("gamma", method))


def loggamma(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    method: str = "exact", out_sharding: OutSharding = None,
) -> Array:
    """Logarithms of gamma samples, accurate even if these underflow; as for `gamma`."""
    if out_sharding is not None:
        return placed(loggamma, out_sharding, key, a, shape, dtype, method=method)
    key, shape, dtype = shaped("loggamma", key, shape, dtype)
    return _gamma(key, a, shape, dtype, True, check_method("loggamma", method))


@fused(arrays=2)
def _gamma(
    key: Any, a: Any, shape: tuple | None, dtype: Any, log_space: bool, exact: bool
) -> Any:
    name = "loggamma" if log_space else "gamma"
    shape = common_sizes(name, shape, a)
    return gamma_sample(typed_key(name, key), a, shape, dtype, log_space, exact)


def gamma_sample(
    key: Any, a: Any, shape: tuple, dtype: Any, log_space: bool, exact: bool = True
) -> Any:
    if not exact:
        wide = np.dtype(np.float32) if finfo(dtype).bits < 32 else dtype
        a = broadcast_to(parameter("gamma", a, wide, shape), shape)
        logs = approximate_loggamma(key, a, shape)
        return cast(logs if log_space else exp(logs), dtype)
    a = broadcast_to(parameter("gamma", a, dtype, shape), shape)
    form = {} if threefry_partitionable.value else {"partitionable": False}
    return random_gamma(split_keys(key, shape), a, log_space=log_space, **form)


def beta(
    key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, method: str = "exact", out_sharding: OutSharding = None,
) -> Array:
    """Beta samples, in [0, 1]. method: as for `gamma`."""
    if out_sharding is not None:
        return placed(beta, out_sharding, key, a, b, shape, dtype, method=method)
    key, shape, dtype = shaped("beta", key, shape, dtype)
    return _beta(key, a, b, shape, dtype, check_method("beta", method))


@fused(arrays=3)
def _beta(key: Any, a: Any, b: Any, shape: tuple | None, dtype: Any, exact: bool) -> Any:
    shape = common_sizes("beta", shape, a, b)
    keys = keys_of(typed_key("beta", key), 2)
    x, y = [
        gamma_sample(k, p, shape, dtype, True, exact) for k, p in zip(keys, (a, b), strict=True)
    ]
    top = max(x, y)
    x, y = exp(sub(x, top)), exp(sub(y, top))
    return div(x, add(x, y))


def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None,
) -> Array:
    """Dirichlet vectors: nonnegative, with sum 1.

    alpha: concentrations `(..., n)`. shape: the result's, without its last dimension.
    """
    if out_sharding is not None:
        return placed(dirichlet, out_sharding, key, alpha, shape, dtype)
    key, shape, dtype = shaped("dirichlet", key, shape, dtype)
    return _dirichlet(key, alpha, shape, dtype)


@fused(arrays=2)
def _dirichlet(key: Any, alpha: Any, shape: tuple | None, dtype: Any) -> Any:
    t = type_of(alpha)
    if not t.shape:
        raise ValueError(
            f"dirichlet: alpha must have at least one dimension; got {t.str_short(True)}."
        )
    given = None if shape is None else (*shape, t.shape[-1])
    full = common_sizes("dirichlet", given, alpha)
    logs = gamma_sample(typed_key("dirichlet", key), alpha, full, dtype, True)
    last = (len(full) - 1,)
    kept = tuple(range(last[0]))
    top = broadcast_in_dim(reduce_max(logs, axes=last), shape=full, dims=kept)
    parts = exp(sub(logs, top))
    return div(parts, broadcast_in_dim(reduce_sum(parts, axes=last), shape=full, dims=kept))


def chisquare(
    key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
    *, method: str = "exact", out_sharding: OutSharding = None,
) -> Array:
    """Chi-square samples with `df` degrees of freedom. method: as for `gamma`."""
    if out_sharding is not None:
        return placed(chisquare, out_sharding, key, df, shape, dtype, method=method)
    key, shape, dtype = shaped("chisquare", key, shape, dtype)
    return _chisquare(key, df, shape, dtype, check_method("chisquare", method))


@fused(arrays=2)
def _chisquare(key: Any, df: Any, shape: tuple | None, dtype: Any, exact: bool) -> Any:
    shape = common_sizes("chisquare", shape, df)
    return chisquare_sample(typed_key("chisquare", key), df, shape, dtype, exact)


def chisquare_sample(key: Any, df: Any, shape: tuple, dtype: Any, exact: bool = True) -> Any:
    df = parameter("chisquare", df, dtype, shape)
    logs = gamma_sample(key, div(df, lit(2, df)), shape, dtype, True, exact)
    return mul(exp(logs), lit(2, logs))


def t(
    key: ArrayLike, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
    *, out_sharding: OutSharding = None,
) -> Array:
    """Student's t samples with `df` degrees of freedom."""
    if out_sharding is not None:
        return placed(t, out_sharding, key, df, shape, dtype)
    key, shape, dtype = shaped("t", key, shape, dtype)
    return _t(key, df, shape, dtype)


@fused(arrays=2)
def _t(key: Any, df: Any, shape: tuple | None, dtype: Any) -> Any:
    shape = common_sizes("t", shape, df)
    df = parameter("t", df, dtype, shape)
    half = div(df, lit(2, df))
    key_n, key_g = keys_of(typed_key("t", key), 2)
    g = gamma_sample(key_g, half, shape, dtype, False)
    return mul(normal_sample(key_n, shape, dtype), sqrt(div(half, g)))


def f(
    key: ArrayLike, dfnum: ArrayLike, dfden: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: OutSharding = None,
) -> Array:
    """F samples: the ratio of two chi-square ones, each over its degrees of freedom."""
    if out_sharding is not None:
        return placed(f, out_sharding, key, dfnum, dfden, shape, dtype)
    key, shape, dtype = shaped("f", key, shape, dtype)
    return _f(key, dfnum, dfden, shape, dtype)


@fused(arrays=3)
def _f(key: Any, dfnum: Any, dfden: Any, shape: tuple | None, dtype: Any) -> Any:
    shape = common_sizes("f", shape, dfnum, dfden)
    dfnum, dfden = [parameter("f", x, dtype, shape) for x in (dfnum, dfden)]
    key_den, key_num = keys_of(typed_key("f", key), 2)
    num = div(chisquare_sample(key_num, dfnum, shape, dtype), dfnum)
    return div(num, div(chisquare_sample(key_den, dfden, shape, dtype), dfden))


def generalized_normal(
    key: ArrayLike, p: float, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: OutSharding = None,
) -> Array:
    """Samples with density proportional to exp(-|x|**p)."""
    if out_sharding is not None:
        return placed(generalized_normal, out_sharding, key, p, shape, dtype)
    key, shape, dtype = plain("generalized_normal", key, shape, dtype)
    return _generalized_normal(key, p, shape, dtype)


@fused(arrays=2)
def _generalized_normal(key: Any, p: Any, shape: tuple, dtype: Any) -> Any:
    return power_sample(typed_key("generalized_normal", key), p, shape, dtype)


def power_sample(key: Any, p: Any, shape: tuple, dtype: Any) -> Any:
    common_sizes("generalized_normal", shape, p)
    p = parameter("generalized_normal", p, dtype, shape)
    inverse = div(lit(1, p), p)
    key_size, key_sign = keys_of(key, 2)
    size = pow(gamma_sample(key_size, inverse, shape, dtype, False), inverse)
    return mul(rademacher_sample(key_sign, shape, dtype), size)


def ball(
    key: ArrayLike, d: int, p: float = 2, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: OutSharding = None,
) -> Array:
    """Points in the unit ball of the p-norm in `d` dimensions: an array of shape (*shape, d)."""
    if out_sharding is not None:
        return placed(ball, out_sharding, key, d, p, shape, dtype)
    key, shape, dtype = plain("ball", key, shape, dtype)
    (d,) = sizes("ball", d)
    return _ball(key, p, d, shape, dtype)


@fused(arrays=2)
def _ball(key: Any, p: Any, d: int, shape: tuple, dtype: Any) -> Any:
    """Source: Barthe, Guédon, Mendelson and Naor, arXiv:math/0503650."""
    key_g, key_e = keys_of(typed_key("ball", key), 2)
    p = parameter("ball", p, dtype, shape)
    full = (*shape, d)
    g = power_sample(key_g, p, full, dtype)
    norm = add(reduce_sum(pow(abs(g), p), axes=(len(shape),)),
               exponential_sample(key_e, shape, dtype))
    norm = pow(norm, div(lit(1, p), p))
    return div(g, broadcast_in_dim(norm, shape=full, dims=tuple(range(len(shape)))))
