"""Regularized incomplete gamma and beta functions, and the derivative of the former in a.

P(a, x) = igamma is summed as a power series if x is small, otherwise Q(a, x) = igammac as a
continued fraction; each is 1 minus the other. The loops run until every element has converged. For
large a and x near a, where convergence is slow, there is an expansion (`uniform_asymptotics`).
Sources: NIST Handbook of Mathematical Functions, 8.7.1, 8.9.2 and 8.17.22; the recurrences in the
form of Press et al., Numerical Recipes, 6.2 and 6.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    div,
    eq,
    exp,
    ge,
    gt,
    le,
    log,
    log1p,
    lt,
    max,
    mul,
    ne,
    neg,
    sub,
    where,
)
from shardwise._src.ops.families import (
    BOOL,
    FLOATING,
    binary,
    check_domain,
    common_dtype,
    common_shape,
    elementwise,
    elementwise_dims,
    lit,
    nary_jvp,
    operand,
)
from shardwise._src.ops.loops import iterate
from shardwise._src.ops.special import uniform_asymptotics as uniform
from shardwise._src.ops.special.incomplete_second import log_less_digamma, second_over_power
from shardwise._src.ops.special.special_functions import FLOAT32, digamma, lgamma, no_derivative
from shardwise._src.types.array_type import ArrayType, array_type


def full(value: float, like: Any) -> Any:
    return broadcast_in_dim(lit(value, like), shape=type_of(like).shape, dims=())


def either(first: Any, *others: Any) -> Any:
    for other in others:
        first = bitwise_or(first, other)
    return first


def both(first: Any, *others: Any) -> Any:
    for other in others:
        first = bitwise_and(first, other)
    return first


def still(active: Any, change: Any, value: Any) -> Any:
    """Elements whose last change is not yet negligible."""
    eps = lit(np.finfo(type_of(value).dtype).eps, value)
    return bitwise_and(active, gt(abs(change), mul(eps, abs(value))))


def kept(active: Any, new: Sequence[Any], old: Sequence[Any]) -> list[Any]:
    """The new state of active elements and the old state of the others."""
    return [where(active, n, o) for n, o in zip(new, old, strict=True)]


def widened(lower: Callable) -> Callable:
    """A lowering `lower(e, type, *operands)` on operands of one shape, with at least 32 bits."""

    def rule(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> str:
        out = outs[0]
        args = [operand(e, x, t, out) for x, t in zip(xs, ins, strict=True)]
        if out.dtype.itemsize >= 4:
            return lower(e, array_type(out.shape, out.dtype), *args)
        wide = array_type(out.shape, FLOAT32)
        result = lower(e, wide, *[e.cast(x, out, FLOAT32) for x in args])
        return e.cast(result, wide, out.dtype)

    return rule


# -- incomplete gamma; with `slope` the state also has derivatives in a, prefixed with `d` --


def _uses_series(a: Any, x: Any) -> Any:
    return either(le(x, lit(1, x)), le(x, a))


def _in_domain(a: Any, x: Any) -> Any:
    return both(gt(a, lit(0, a)), gt(x, lit(0, x)), lt(a, lit(np.inf, a)), lt(x, lit(np.inf, x)))


def _summed(a: Any, x: Any) -> Any:
    """Whether the series or the fraction is needed."""
    return both(_in_domain(a, x), bitwise_not(uniform.is_near(a, x)))


def _series_start(a: Any, x: Any, *, slope: bool) -> list[Any]:
    one, zero = full(1, x), full(0, x)
    active = both(_summed(a, x), _uses_series(a, x))
    return [active, x, a, one, one, *([zero, zero] if slope else [])]


def _series_step(active: Any, x: Any, r: Any, term: Any, total: Any, *slopes: Any) -> list[Any]:
    """Multiplies the last term by x / (a + n)."""
    next_r = add(r, lit(1, r))
    ratio = div(x, next_r)
    next_term = mul(term, ratio)
    next_total = add(total, next_term)
    more = still(active, next_term, next_total)
    new, old = [next_r, next_term, next_total], [r, term, total]
    if slopes:
        dterm, dtotal = slopes
        next_dterm = mul(sub(dterm, div(term, next_r)), ratio)
        next_dtotal = add(dtotal, next_dterm)
        more = either(more, still(active, next_dterm, next_dtotal))
        new, old = [*new, next_dterm, next_dtotal], [*old, *slopes]
    return [more, x, *kept(active, new, old)]


def _fraction_start(a: Any, x: Any, *, slope: bool) -> list[Any]:
    one, zero = full(1, x), full(0, x)
    active = bitwise_and(_summed(a, x), bitwise_not(_uses_series(a, x)))
    y = sub(one, a)
    z = add(add(x, y), one)
    least = div(one, x)  # all are divided by x to avoid overflow
    p, q = add(least, one), z
    state = [active, zero, y, z, least, p, one, q, div(p, q)]
    if slope:
        dq = neg(one)
        state += [zero, zero, zero, dq, neg(div(mul(div(p, q), dq), q))]
    return state


def _fraction_step(
    active: Any,
    c: Any,
    y: Any,
    z: Any,
    p2: Any,
    p1: Any,
    q2: Any,
    q1: Any,
    value: Any,
    *slopes: Any,
) -> list[Any]:
    """The next convergent p / q from the last two, all scaled down if they grow large."""
    one = lit(1, c)
    c, y, z = add(c, one), add(y, one), add(z, lit(2, z))
    yc = mul(y, c)
    p, q = sub(mul(p1, z), mul(p2, yc)), sub(mul(q1, z), mul(q2, yc))
    next_value = where(eq(q, lit(0, q)), value, div(p, q))
    more = either(eq(q, lit(0, q)), still(active, sub(next_value, value), next_value))
    new, old = [p1, p, q1, q], [p2, p1, q2, q1]
    values, olds = [next_value], [value]
    if slopes:
        dp2, dp1, dq2, dq1, dvalue = slopes
        dp = add(sub(sub(mul(dp1, z), p1), mul(dp2, yc)), mul(p2, c))
        dq = add(sub(sub(mul(dq1, z), q1), mul(dq2, yc)), mul(q2, c))
        next_dvalue = div(sub(dp, mul(next_value, dq)), q)
        more = either(more, still(active, sub(next_dvalue, dvalue), next_dvalue))
        new, old = [*new, dp1, dp, dq1, dq], [*old, dp2, dp1, dq2, dq1]
        values, olds = [next_value, next_dvalue], [value, dvalue]
    info = np.finfo(type_of(q).dtype)
    large = gt(abs(q), lit(1 / info.eps, q))
    scale = where(large, max(div(one, abs(q)), lit(info.tiny, q)), one)
    state = kept(active, [mul(v, scale) for v in new], old)
    results = kept(active, values, olds)
    more = both(active, more)
    return [more, c, y, z, *state[:4], results[0], *state[4:], *results[1:]]


def _gamma_lower(finish: Callable, slope: bool) -> Callable:
    """Both loops, each for its own elements, and the result from their final states."""

    def lower(e: Any, t: ArrayType, a: str, x: str) -> str:
        ends = []
        ways = ((_series_start, _series_step, (4, 6)), (_fraction_start, _fraction_step, (8, 13)))
        for start, step, places in ways:
            state = e.via(start, (t, t), a, x, slope=slope)
            types = [t.update(dtype=BOOL), *[t] * (len(state) - 1)]
            state = iterate(e, step, types, state)
            ends += [state[i] for i in (places if slope else places[:1])]
        return e.via(finish, [t] * (2 + len(ends)), a, x, *ends)[0]

    return widened(lower)


def _log_power(a: Any, x: Any) -> Any:
    """The logarithm of x^a exp(-x) / Γ(a)."""
    plain = sub(sub(mul(a, log(x)), x), lgamma(a))
    return where(uniform.is_large(a), uniform.log_power(a, x), plain)


def _edges(a: Any, x: Any, inside: Any, at_zero: float, at_infinity: float) -> Any:
    """Values at the ends of the domain, and NaN outside."""
    zero, inf = lit(0, x), lit(np.inf, x)
    out = where(eq(x, zero), lit(at_zero, x), inside)
    out = where(eq(a, inf), lit(at_zero, x), out)
    out = where(eq(x, inf), lit(at_infinity, x), out)
    out = where(both(eq(a, zero), gt(x, zero)), lit(at_infinity, x), out)
    outside = either(
        lt(x, zero),
        lt(a, zero),
        ne(x, x),
        ne(a, a),
        both(eq(a, zero), eq(x, zero)),
        both(eq(a, inf), eq(x, inf)),
    )
    return where(outside, lit(np.nan, x), out)


def _lower_end(a: Any, x: Any, series: Any, fraction: Any) -> Any:
    power = exp(_log_power(a, x))
    upper = sub(lit(1, x), mul(power, fraction))
    summed = where(_uses_series(a, x), div(mul(power, series), a), upper)
    near = uniform.lower_and_upper(a, x)[0]
    return _edges(a, x, where(uniform.is_near(a, x), near, summed), 0, 1)


def _upper_end(a: Any, x: Any, series: Any, fraction: Any) -> Any:
    power = exp(_log_power(a, x))
    lower = sub(lit(1, x), div(mul(power, series), a))
    summed = where(_uses_series(a, x), lower, mul(power, fraction))
    near = uniform.lower_and_upper(a, x)[1]
    return _edges(a, x, where(uniform.is_near(a, x), near, summed), 1, 0)


def _derivative_end(a: Any, x: Any, *ends: Any) -> Any:
    return _edges(a, x, mul(exp(_log_power(a, x)), _derivative_over_power(a, x, *ends)), 0, 0)


def _sample_end(a: Any, x: Any, *ends: Any) -> Any:
    """-(∂P/∂a) / (∂P/∂x), with the common power factor cancelled."""
    inside = neg(mul(x, _derivative_over_power(a, x, *ends)))
    zero = both(eq(x, lit(0, x)), gt(a, lit(0, a)), lt(a, lit(np.inf, a)))
    return where(zero, lit(0, x), where(_in_domain(a, x), inside, lit(np.nan, x)))


def _derivative_over_power(
    a: Any, x: Any, series: Any, dseries: Any, fraction: Any, dfraction: Any
) -> Any:
    large, inverse = uniform.is_large(a), div(lit(1, a), a)
    dpower = log_less_digamma(a, x)  # derivative of the log power in a; next: of power / a
    dover = where(large, sub(dpower, inverse), sub(log(x), digamma(add(a, lit(1, a)))))
    lower = mul(add(mul(series, dover), dseries), inverse)
    upper = neg(add(mul(fraction, dpower), dfraction))
    summed = where(_uses_series(a, x), lower, upper)
    return where(uniform.is_near(a, x), uniform.derivative_over_power(a, x), summed)


def _density(a: Any, x: Any) -> Any:
    """The derivative of igamma in x."""
    plain = sub(sub(mul(sub(a, lit(1, a)), log(x)), x), lgamma(a))
    return exp(where(uniform.is_large(a), sub(uniform.log_power(a, x), log(x)), plain))


def _inside(derivative: Callable, a: Any, x: Any, *more: Any) -> Any:
    """A derivative of a function that is 0 for x = 0, and NaN outside the domain."""
    shape = type_of(a).shape or type_of(x).shape
    a, x = [
        v if type_of(v).shape == shape else broadcast_in_dim(v, shape=shape, dims=())
        for v in (a, x)
    ]
    inside, one = _in_domain(a, x), lit(1, x)
    found = derivative(where(inside, a, one), where(inside, x, one), *more)
    edge = both(eq(x, lit(0, x)), gt(a, lit(0, a)), lt(a, lit(np.inf, a)))
    return where(inside, found, where(edge, lit(0, x), lit(np.nan, x)))


def _second(a: Any, x: Any) -> Any:
    """∂²P/∂a²."""
    return mul(exp(_log_power(a, x)), second_over_power(a, x))


def _mixed(a: Any, x: Any) -> Any:
    """∂²P/∂a∂x: the derivative of the density in a."""
    return mul(_density(a, x), log_less_digamma(a, x))


def _sample_in_a(a: Any, x: Any, slope: Any) -> Any:
    """∂/∂a of -(∂P/∂a) / (∂P/∂x), which is `slope`, for fixed x."""
    return neg(add(mul(x, second_over_power(a, x)), mul(slope, log_less_digamma(a, x))))


def _sample_in_x(a: Any, x: Any, slope: Any) -> Any:
    one = lit(1, x)
    return neg(add(log_less_digamma(a, x), mul(slope, sub(div(sub(a, one), x), one))))


igamma = binary(
    "igamma",
    FLOATING,
    lower=_gamma_lower(_lower_end, False),
    jvp=(
        lambda t, a, x, out: mul(t, igamma_grad_a(a, x)),
        lambda t, a, x, out: mul(t, _density(a, x)),
    ),
)
igammac = binary(
    "igammac",
    FLOATING,
    lower=_gamma_lower(_upper_end, False),
    jvp=(
        lambda t, a, x, out: neg(mul(t, igamma_grad_a(a, x))),
        lambda t, a, x, out: neg(mul(t, _density(a, x))),
    ),
)
igamma_grad_a = binary(
    "igamma_grad_a",
    FLOATING,
    lower=_gamma_lower(_derivative_end, True),
    jvp=(
        lambda t, a, x, out: mul(t, _inside(_second, a, x)),
        lambda t, a, x, out: mul(t, _inside(_mixed, a, x)),
    ),
)
# The derivative in a of a gamma sample: of the x for which igamma(a, x) is fixed.
random_gamma_grad = binary(
    "random_gamma_grad",
    FLOATING,
    lower=_gamma_lower(_sample_end, True),
    jvp=(
        lambda t, a, x, out: mul(t, _inside(_sample_in_a, a, x, out)),
        lambda t, a, x, out: mul(t, _inside(_sample_in_x, a, x, out)),
    ),
)


# -- regularized_incomplete_beta(a, b, x): I_x(a, b), by Lentz's method for the fraction --


def _beta_type(op: Op, a: ArrayType, b: ArrayType, x: ArrayType) -> ArrayType:
    types = (a, b, x)
    check_domain("regularized_incomplete_beta", FLOATING, types)
    dtype = common_dtype("regularized_incomplete_beta", types)
    shape = common_shape("regularized_incomplete_beta", types)
    return array_type(shape, dtype, all(t.weak_type for t in types))


def _beta_swaps(a: Any, b: Any, x: Any) -> Any:
    """Where I_x(a, b) = 1 - I_(1-x)(b, a) converges faster, unless it is the smaller one."""
    small = both(lt(b, lit(0.1, b)), lt(x, lit(0.999, x)))
    past = gt(x, div(add(a, lit(1, a)), add(add(a, b), lit(2, a))))
    return both(past, bitwise_not(small))


def _beta_swapped(a: Any, b: Any, x: Any) -> list[Any]:
    swap = _beta_swaps(a, b, x)
    return [where(swap, b, a), where(swap, a, b), where(swap, sub(lit(1, x), x), x)]


def _beta_inside(a: Any, b: Any, x: Any) -> Any:
    zero = lit(0, x)
    return both(gt(a, zero), gt(b, zero), gt(x, zero), lt(x, lit(1, x)))


def _away_from_zero(x: Any) -> Any:
    tiny = lit(np.finfo(type_of(x).dtype).tiny, x)
    return where(lt(abs(x), tiny), tiny, x)


def _beta_start(a: Any, b: Any, x: Any) -> list[Any]:
    inside = _beta_inside(a, b, x)
    a, b, x = _beta_swapped(a, b, x)
    one = full(1, x)
    d = sub(one, div(mul(add(a, b), x), add(a, one)))
    d = div(one, _away_from_zero(d))
    return [inside, a, b, x, one, one, d, d]


def _beta_step(
    active: Any, a: Any, b: Any, x: Any, m: Any, c: Any, d: Any, value: Any
) -> list[Any]:
    """One even and one odd coefficient of the fraction."""
    one = lit(1, x)
    a2m = add(a, mul(lit(2, m), m))
    even = div(mul(mul(m, sub(b, m)), x), mul(sub(a2m, one), a2m))
    odd = neg(div(mul(mul(add(a, m), add(add(a, b), m)), x), mul(a2m, add(a2m, one))))
    next_c, next_d, next_value, factor = c, d, value, one
    for coefficient in (even, odd):
        next_d = div(one, _away_from_zero(add(one, mul(coefficient, next_d))))
        next_c = _away_from_zero(add(one, div(coefficient, next_c)))
        factor = mul(next_c, next_d)
        next_value = mul(next_value, factor)
    more = still(active, sub(factor, one), one)
    new = kept(active, [next_c, next_d, next_value], [c, d, value])
    return [more, a, b, x, add(m, one), *new]


def _beta_end(a: Any, b: Any, x: Any, fraction: Any) -> Any:
    swap = _beta_swaps(a, b, x)
    one, zero, inf = lit(1, x), lit(0, x), lit(np.inf, x)
    p, q, u = _beta_swapped(a, b, x)
    power = uniform.beta_power(p, q, u, where(swap, x, sub(one, x)))
    direct = div(mul(power, fraction), p)
    out = where(swap, sub(one, direct), direct)
    out = where(_all_at_zero(a, b), one, where(_all_at_zero(b, a), zero, out))
    out = where(eq(x, zero), zero, where(eq(x, one), one, out))
    defined = both(either(gt(a, zero), gt(b, zero)), either(lt(a, inf), lt(b, inf)))
    inside = both(ge(a, zero), ge(b, zero), ge(x, zero), le(x, one), defined)
    return where(inside, out, lit(np.nan, x))


def _all_at_zero(a: Any, b: Any) -> Any:
    """Whether the distribution with parameters a and b is concentrated at 0."""
    return either(eq(a, lit(0, a)), eq(b, lit(np.inf, b)))


@widened
def _beta_lower(e: Any, t: ArrayType, a: str, b: str, x: str) -> str:
    state = e.via(_beta_start, (t, t, t), a, b, x)
    types = [t.update(dtype=BOOL), *[t] * (len(state) - 1)]
    state = iterate(e, _beta_step, types, state)
    return e.via(_beta_end, (t, t, t, t), a, b, x, state[-1])[0]


def _beta_tangent(t: Any, a: Any, b: Any, x: Any, out: Any) -> Any:
    one = lit(1, x)
    y = sub(one, x)
    scale = sub(lgamma(add(a, b)), add(lgamma(a), lgamma(b)))
    powers = add(mul(sub(a, one), log(x)), mul(sub(b, one), log1p(neg(x))))
    inside = div(div(uniform.beta_power(a, b, x, y), x), y)
    return mul(t, where(_beta_inside(a, b, x), inside, exp(add(scale, powers))))


regularized_incomplete_beta = elementwise(
    "regularized_incomplete_beta",
    type_rule=_beta_type,
    dims=elementwise_dims,
    lower=_beta_lower,
    jvp=nary_jvp(
        (
            no_derivative("regularized_incomplete_beta", "a"),
            no_derivative("regularized_incomplete_beta", "b"),
            _beta_tangent,
        )
    ),
)
