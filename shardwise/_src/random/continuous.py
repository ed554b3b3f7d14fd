"""Samplers of continuous distributions, from uniform and normal samples.

Values are those of `jax.random` for the same key, shape and dtype, to one unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from shardwise._src.base.named import named
from shardwise._src.ops.basis import reduce_sum, reshape
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    clamp,
    clz,
    complex,
    div,
    eq,
    exp,
    ge,
    le,
    log,
    log1p,
    lt,
    mul,
    neg,
    nextafter,
    pow,
    shift_left,
    shift_right_logical,
    sign,
    sqrt,
    stop_gradient,
    sub,
    tan,
    where,
)
from shardwise._src.ops.families import lit
from shardwise._src.ops.random.bits import draw_bits
from shardwise._src.ops.random.rejection import normal_floats
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.special.special_functions import erf, erf_inv
from shardwise._src.random.draws import keys_of, rademacher_sample, uniform_sample, unit_sample
from shardwise._src.random.sampler import Sampler, sampler
from shardwise._src.random.sampler_arguments import common_sizes, inexact_dtype, parameter
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, ShapeLike
from shardwise._src.types.dtypes import finfo, is_complex, real_dtype

P = ParamSpec("P")
FLOAT32, UINT32 = np.dtype(np.float32), np.dtype(np.uint32)


# -- normal --


def normal(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Standard normal samples; complex ones have unit variance, half of it in each part."""
    return normal_sample.draw(out_sharding, key, shape, dtype)


def _alike(like: Callable[P, Array], samples: Sampler, doc: str) -> Callable[P, Array]:
    """The function of other samples, with the signature of `like`."""

    def fun(
        key: ArrayLike,
        shape: ShapeLike = (),
        dtype: DTypeLike | None = None,
        *,
        out_sharding: OutSharding = None,
    ) -> Array:
        return samples.draw(out_sharding, key, shape, dtype)

    made: Any = named(fun, samples.name, doc)
    return made


@sampler(inexact_dtype)
def normal_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    if not is_complex(dtype):
        return normal_floats(unit_sample(key, shape, dtype))
    parts = [normal_sample(k, shape, real_dtype(dtype)) for k in keys_of(key, 2)]
    both = complex(*parts)
    return div(both, lit(np.sqrt(2), both))


def lognormal(
    key: ArrayLike,
    sigma: ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """exp(sigma * x) for standard normal x."""
    return lognormal_sample.draw(out_sharding, key, sigma, shape, dtype)


@sampler(inexact_dtype, common_sizes, cast=True)
def lognormal_sample(key: Any, sigma: Any, shape: tuple, dtype: Any) -> Any:
    return exp(mul(normal_sample(key, shape, dtype), sigma))


def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Standard normal samples, truncated to the open interval (lower, upper)."""
    return truncated_normal_sample.draw(out_sharding, key, lower, upper, shape, dtype)


@sampler(sizes=common_sizes, cast=True)
def truncated_normal_sample(key: Any, lower: Any, upper: Any, shape: tuple, dtype: Any) -> Any:
    root = np.array(np.sqrt(2), dtype)[()]
    a, b = [erf(div(x, lit(root, x))) for x in (lower, upper)]
    u = uniform_sample(key, a, b, shape, dtype)
    out = mul(lit(root, u), erf_inv(u))
    inf = lit(np.inf, u)  # rounding must not leave the interval or reach its ends
    low = nextafter(stop_gradient(lower), inf)
    return clamp(low, out, nextafter(stop_gradient(upper), neg(inf)))


@sampler()
def maxwell_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    x = normal_sample(key, (*shape, 3), dtype)
    return sqrt(reduce_sum(mul(x, x), axes=(len(shape),)))


maxwell = _alike(
    normal, maxwell_sample, "The length of a standard normal vector in three dimensions."
)


def double_sided_maxwell(
    key: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """loc + scale * s * m, where m is a sample of `maxwell` and s is 1 or -1.

    The result's shape is `shape` followed by the broadcast shape of the parameters, or twice the
    latter if `shape` is ().
    """
    return double_sided_maxwell_sample.draw(out_sharding, key, loc, scale, shape, dtype)


@sampler()
def double_sided_maxwell_sample(key: Any, loc: Any, scale: Any, shape: tuple, dtype: Any) -> Any:
    name = "double_sided_maxwell"
    params = common_sizes(name, None, loc, scale)
    shape = (shape or params) + params
    key_size, key_sign = keys_of(key, 2)
    loc, scale = [parameter(name, x, dtype, shape) for x in (loc, scale)]
    signed = mul(rademacher_sample(key_sign, shape, dtype), maxwell_sample(key_size, shape, dtype))
    return add(mul(signed, scale), loc)


def wald(
    key: ArrayLike,
    mean: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Wald (inverse Gaussian) samples with the given mean and shape parameter 1."""
    return wald_sample.draw(out_sharding, key, mean, shape, dtype)


@sampler(sizes=common_sizes, cast=True)
def wald_sample(key: Any, mean: Any, shape: tuple, dtype: Any) -> Any:
    """Source: Michael, Schucany and Haas, 1976: the smaller or the larger root, at random."""
    key_v, key_z = keys_of(key, 2)
    v, z = normal_sample(key_v, shape, dtype), unit_sample(key_z, shape, dtype)
    y, square = mul(v, v), mul(mean, mean)
    root = sqrt(add(mul(mul(lit(4, v), mean), y), mul(square, mul(y, y))))
    half = lit(2, v)
    x = sub(add(mean, div(mul(square, y), half)), mul(div(mean, half), root))
    return where(le(z, div(mean, add(mean, x))), x, div(square, x))


# -- by the inverse CDF --


@sampler()
def exponential_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    return neg(log1p(neg(unit_sample(key, shape, dtype))))  # the logarithm of (0, 1]


exponential = _alike(normal, exponential_sample, "Exponential samples with mean 1.")


def pareto(
    key: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Pareto samples of at least 1, with tail exponent `b`."""
    return pareto_sample.draw(out_sharding, key, b, shape, dtype)


@sampler(sizes=common_sizes, cast=True)
def pareto_sample(key: Any, b: Any, shape: tuple, dtype: Any) -> Any:
    x = exponential_sample(key, shape, dtype)
    return exp(div(x, b))


def weibull_min(
    key: ArrayLike,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Weibull samples of at least 0."""
    return weibull_min_sample.draw(out_sharding, key, scale, concentration, shape, dtype)


@sampler()
def weibull_min_sample(key: Any, scale: Any, concentration: Any, shape: tuple, dtype: Any) -> Any:
    name = "weibull_min"
    full = common_sizes(name, None, np.broadcast_to(np.False_, shape), scale, concentration)
    x = exponential_sample(key, shape, dtype)
    x = parameter(name, x, dtype, full)
    scale, concentration = [parameter(name, p, dtype, full) for p in (scale, concentration)]
    return mul(pow(x, div(lit(1, x), concentration)), scale)


def rayleigh(
    key: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """The length of a normal vector in two dimensions, with standard deviation `scale` in each."""
    return rayleigh_sample.draw(out_sharding, key, scale, shape, dtype)


@sampler(sizes=common_sizes, cast=True)
def rayleigh_sample(key: Any, scale: Any, shape: tuple, dtype: Any) -> Any:
    log_u = log(unit_sample(key, shape, dtype))
    length = sqrt(mul(log_u, lit(-2, log_u)))
    return mul(scale, length)


def gumbel(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    mode: str | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Gumbel samples: -log(x) for exponential x.

    mode: the number of bits: "low" (the default), "high" or "highest". In float32 the largest
          sample is 16 with "low", and 32 otherwise.
    """
    mode = gumbel_mode("gumbel", mode)
    return gumbel_sample.draw(out_sharding, key, shape, dtype, mode=mode)


def gumbel_mode(name: str, mode: str | None) -> str:
    if mode not in (None, "low", "high", "highest"):
        raise ValueError(f"{name}: mode must be 'low', 'high' or 'highest'; got {mode!r}.")
    return mode or "low"


@sampler()
def gumbel_sample(key: Any, shape: tuple, dtype: Any, mode: str) -> Any:
    info = finfo(dtype)
    if mode == "low":
        tiny, one = [np.array(x, dtype)[()] for x in (info.tiny, 1)]
        return neg(log(neg(log(uniform_sample(key, tiny, one, shape, dtype)))))
    if mode == "highest" and dtype == FLOAT32:
        return _finest_gumbel(key, shape)
    high, low = _halves(unit_sample(key, (2, *shape), dtype), shape)
    fine = add(add(high, mul(lit(2.0**-info.nmant, low), low)), lit(info.tiny, low))
    x = where(ge(high, lit(0.5, high)), high, fine)  # larger values could round up to 1
    return neg(log(neg(log1p(neg(x)))))


def _halves(x: Any, shape: tuple) -> list[Any]:
    return [reshape(slice_in_dim(x, i, i + 1, 0), shape=shape) for i in range(2)]


def _finest_gumbel(key: Any, shape: tuple) -> Any:
    """From 64 bits, as a float close to 0 or as the distance to 1."""
    high, low = _halves(draw_bits(key, (2, *shape), 32), shape)
    below = lt(high, lit(1 << 31, high))
    ones = lit(0xFFFFFFFF, low)
    carry = convert_element_type(eq(bitwise_not(low), ones), dtype=UINT32)
    far_high = add(bitwise_not(high), carry)
    far_low = add(bitwise_not(low), lit(1, low))
    x = _float_of_bits(where(below, high, far_high), where(below, low, far_low))
    return where(below, neg(log(neg(log1p(neg(x))))), neg(log(neg(log(x)))))


def _float_of_bits(high: Any, low: Any) -> Any:
    """The number high / 2**32 + low / 2**64 as float32, with all bits of its precision."""
    zeros_high, zeros_low = clz(high), clz(low)
    word = lit(32, high)
    empty = eq(zeros_high, word)
    rest = where(empty, shift_left(low, zeros_low), shift_right_logical(low, sub(word, zeros_high)))
    digits = bitwise_or(shift_left(high, zeros_high), rest)
    mantissa = bitwise_and(shift_right_logical(digits, lit(8, high)), lit(0x7FFFFF, high))
    leading = where(empty, add(word, zeros_low), zeros_high)
    exponent = shift_left(sub(lit(126, high), leading), lit(23, high))
    exponent = bitwise_and(exponent, lit((1 << 30) - (1 << 22), high))
    return bitcast_convert_type(bitwise_or(exponent, mantissa), dtype=FLOAT32)


@sampler()
def laplace_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    low = np.array(-1.0 + float(finfo(dtype).epsneg), dtype)[()]
    u = uniform_sample(key, low, np.array(1, dtype)[()], shape, dtype)
    return mul(sign(u), log1p(neg(abs(u))))


laplace = _alike(normal, laplace_sample, "Laplace samples: exponential ones of either sign.")


@sampler()
def logistic_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    tiny, one = [np.array(x, dtype)[()] for x in (finfo(dtype).tiny, 1)]
    u = uniform_sample(key, tiny, one, shape, dtype)
    return sub(log(u), log1p(neg(u)))


logistic = _alike(normal, logistic_sample, "Logistic samples: log(u) - log(1 - u) for uniform u.")


@sampler()
def cauchy_sample(key: Any, shape: tuple, dtype: Any) -> Any:
    eps, one = [np.array(x, dtype)[()] for x in (finfo(dtype).eps, 1)]
    u = uniform_sample(key, eps, one, shape, dtype)
    return tan(mul(lit(np.pi, u), sub(u, lit(0.5, u))))


cauchy = _alike(normal, cauchy_sample, "Cauchy samples: the ratio of two normal ones.")


def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: OutSharding = None,
) -> Array:
    """Samples in [left, right] whose density rises linearly to `mode`, then falls."""
    return triangular_sample.draw(out_sharding, key, left, mode, right, shape, dtype)


@sampler(sizes=common_sizes, cast=True)
def triangular_sample(key: Any, left: Any, mode: Any, right: Any, shape: tuple, dtype: Any) -> Any:
    u = unit_sample(key, shape, dtype)
    width, rise, fall = sub(right, left), sub(mode, left), sub(right, mode)
    below = add(left, sqrt(mul(mul(u, width), rise)))
    above = sub(right, sqrt(mul(mul(sub(lit(1, u), u), width), fall)))
    return where(lt(u, div(rise, width)), below, above)
