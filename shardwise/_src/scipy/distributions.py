"""Continuous distributions of `scipy.stats`, each as formulas of the standardized variable.

    norm_logpdf = NORM.made(at_x, "logpdf", lambda y: -0.5 * y * y - …)

makes a function with the signature of `at_x`: it casts and broadcasts its arguments, standardizes
by location and scale (and applies them to quantiles), is NaN if an argument is NaN or the scale is
not positive, and runs eagerly as one program.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.named import named
from shardwise._src.core.fused import fused
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import incomplete, special_functions
from shardwise._src.special import error_functions
from shardwise._src.special.beta_functions import betaln_of
from shardwise._src.special.pointwise import signed_pi, wide
from shardwise._src.special.scipy_special import logit_of, xlog1py_of, xlogy_of
from shardwise._src.types.annotations import Array, ArrayLike, P
from shardwise._src.values.binary import arctan2

_LOG_TAU, _INF = math.log(2 * math.pi), math.inf
_WHAT = {
    "pdf": "Density",
    "logpdf": "Logarithm of the density",
    "cdf": "Distribution function",
    "logcdf": "Logarithm of the distribution function",
    "sf": "1 - cdf, exact where it is small",
    "logsf": "Logarithm of 1 - cdf",
    "ppf": "Quantile, the inverse of cdf,",
    "isf": "Inverse of sf",
    "pmf": "Probability",
    "logpmf": "Logarithm of the probability",
    "entropy": "Entropy",
}


# -- signatures: only the parameters are used --


def at_x(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_q(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_p(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_x_a(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_x_b(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_q_b(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_x_df(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array: ...
def at_x_a_b(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array: ...
def at_x_beta(x: ArrayLike, beta: ArrayLike) -> Array: ...
def at_x_kappa(x: ArrayLike, kappa: ArrayLike) -> Array: ...
def at_x_c(x: ArrayLike, c: ArrayLike) -> Array: ...


# -- constructors of functions --


def program(like: Callable[P, Array], name: str, doc: str, formula: Callable) -> Callable[P, Array]:
    """A function with the signature of `like`: one program for an elementwise formula."""
    signature = inspect.signature(like)
    defaults = [p.default for p in signature.parameters.values()]
    count, least = len(defaults), defaults.count(inspect.Parameter.empty)

    def body(*args: Any) -> Any:
        return wide(formula, *args, name=name)

    body.__name__ = name
    run = fused(body)

    @functools.wraps(like)
    def call(*args: Any, **named: Any) -> Any:
        if named or not least <= len(args) <= count:
            bound = signature.bind(*args, **named)
            bound.apply_defaults()
            args = bound.args
        return run(*args, *defaults[len(args) :])

    return named(call, name, doc)


@dataclass(frozen=True)
class Family:
    """A distribution. valid: whether its shape parameters are valid."""

    name: str
    title: str
    valid: Callable | None = None

    def _good(self, x: Any, shapes: Sequence[Any], others: Sequence[Any]) -> Any:
        """Whether no argument is NaN, and the shape parameters are valid."""
        good = x == x
        for v in (*shapes, *others):
            good = good & (v == v)
        return good if self.valid is None else good & self.valid(*shapes)

    def made(self, like: Callable[P, Array], kind: str, f: Callable) -> Callable[P, Array]:
        """kind: one of `_WHAT`. f: of the standardized variable (or probability) and the shapes."""
        located = "scale" in inspect.signature(like).parameters
        quantile = kind in ("ppf", "isf")

        def formula(x: Any, *rest: Any) -> Any:
            shapes, (loc, scale) = (rest[:-2], rest[-2:]) if located else (rest, (0.0, 1.0))
            good = self._good(x, shapes, rest[len(shapes) :])
            if quantile:
                good = good & (x >= 0.0) & (x <= 1.0)
                out = f(where(good, x, 0.5), *shapes)
                out = loc + out * scale if located else out
            else:
                out = f((x - loc) / scale if located else x, *shapes)
            if located:
                good = good & (scale > 0.0)
                out = {"logpdf": lambda: out - ew.log(scale), "pdf": lambda: out / scale}.get(
                    kind, lambda: out
                )()
            return where(good, out, math.nan)

        return program(like, f"{self.name}_{kind}", f"{_WHAT[kind]} of {self.title}.", formula)

    def with_exp(
        self, like: Callable[P, Array], kind: str, f: Callable
    ) -> tuple[Callable[P, Array], Callable[P, Array]]:
        """The function of a kind that is a logarithm, and its exponential: logpdf and pdf."""
        return self.made(like, kind, f), self.made(like, kind.removeprefix("log"), exp_of(f))

    def tails(
        self, like: Callable[P, Array], cdf: Callable, sf: Callable
    ) -> tuple[Callable[P, Array], ...]:
        """cdf, sf, logcdf and logsf."""
        formulas = {"cdf": cdf, "sf": sf, "logcdf": log_of(cdf, sf), "logsf": log_of(sf, cdf)}
        return tuple([self.made(like, kind, f) for kind, f in formulas.items()])

    def masses(
        self, like: Callable[P, Array], support: Callable, f: Callable
    ) -> tuple[Callable[P, Array], Callable[P, Array]]:
        """logpmf and pmf over the integers, from the formula of logpmf and its support."""

        def formula(k: Any, *rest: Any) -> Any:
            *shapes, loc = rest
            y = k - loc
            good = self._good(y, shapes, ())
            there = good & support(y, *shapes) & (y == ew.floor(y))
            return where(good, within(there, f(where(there, y, 1.0), *shapes)), math.nan)

        of = f"of k in {self.title}."
        return (
            program(like, f"{self.name}_logpmf", f"Logarithm of the probability {of}", formula),
            program(like, f"{self.name}_pmf", f"Probability {of}", exp_of(formula)),
        )


def log1mexp(x: Any) -> Any:
    """log(1 - exp(-x)), for x > 0 (Mächler 2012, "Accurately computing log(1 - exp(-|a|))")."""
    return where(x < math.log(2), ew.log(-ew.expm1(-x)), ew.log1p(-ew.exp(-x)))


def within(inside: Any, value: Any) -> Any:
    return where(inside, value, -_INF)


def exp_of(f: Callable) -> Callable:
    return lambda *args: ew.exp(f(*args))


def log_of(f: Callable, rest: Callable) -> Callable:
    """log f, computed from 1 - f = rest if f is near 1."""

    def log(*args: Any) -> Any:
        value = f(*args)
        near = value > 0.5
        return where(near, ew.log1p(-where(near, rest(*args), 0.0)), ew.log(value))

    return log


def negative(f: Callable) -> Callable:
    """f(-y), for a symmetric distribution."""
    return lambda y, *shapes: f(-y, *shapes)


def _above(y: Any) -> Any:
    return where(y < 0.0, 0.0, y)


def _clipped(y: Any) -> Any:
    return where(y > 1.0, 1.0, _above(y))


# -- with location and scale only --

_norm = Family("norm", "the normal distribution")
norm_logpdf = _norm.made(at_x, "logpdf", lambda y: -0.5 * y * y - 0.5 * _LOG_TAU)
norm_pdf = _norm.made(at_x, "pdf", error_functions.normal_density)
norm_cdf = _norm.made(at_x, "cdf", error_functions.ndtr_of)
norm_sf = _norm.made(at_x, "sf", negative(error_functions.ndtr_of))
norm_logcdf = _norm.made(at_x, "logcdf", error_functions.log_ndtr_of)
norm_logsf = _norm.made(at_x, "logsf", negative(error_functions.log_ndtr_of))
norm_ppf = _norm.made(at_q, "ppf", error_functions.ndtri_of)
norm_isf = _norm.made(at_q, "isf", lambda q: -error_functions.ndtri_of(q))


def _cauchy_upper(y: Any) -> Any:
    return arctan2(1.0, y) / math.pi


def _cauchy_logsf(y: Any) -> Any:
    return where(y > 0.0, ew.log(_cauchy_upper(y)), ew.log1p(-_cauchy_upper(-y)))


def _cauchy_isf(q: Any) -> Any:
    """cot πq, by the tangent of the distance from ½ if that is small."""
    near = (q > 0.25) & (q < 0.75)
    turned = signed_pi(ew.tan, where(near, q - 0.5, q))
    return where(near, -turned, where(q == 1.0, -_INF, 1.0 / where(near, 1.0, turned)))


_cauchy = Family("cauchy", "the Cauchy distribution")
cauchy_logpdf = _cauchy.made(at_x, "logpdf", lambda y: -math.log(math.pi) - ew.log1p(y * y))
cauchy_pdf = _cauchy.made(at_x, "pdf", lambda y: 1 / math.pi / (1.0 + y * y))
cauchy_cdf = _cauchy.made(at_x, "cdf", negative(_cauchy_upper))
cauchy_sf = _cauchy.made(at_x, "sf", _cauchy_upper)
cauchy_logcdf = _cauchy.made(at_x, "logcdf", negative(_cauchy_logsf))
cauchy_logsf = _cauchy.made(at_x, "logsf", _cauchy_logsf)
cauchy_ppf = _cauchy.made(at_q, "ppf", lambda q: -_cauchy_isf(q))
cauchy_isf = _cauchy.made(at_q, "isf", _cauchy_isf)

_expon = Family("expon", "the exponential distribution")
expon_logpdf = _expon.made(at_x, "logpdf", lambda y: within(y >= 0.0, -y))
expon_pdf = _expon.made(at_x, "pdf", lambda y: where(y >= 0.0, ew.exp(-_above(y)), 0.0))
expon_cdf = _expon.made(at_x, "cdf", lambda y: -ew.expm1(-_above(y)))
expon_sf = _expon.made(at_x, "sf", lambda y: ew.exp(-_above(y)))
expon_logcdf = _expon.made(at_x, "logcdf", lambda y: log1mexp(_above(y)))
expon_logsf = _expon.made(at_x, "logsf", lambda y: -_above(y))
expon_ppf = _expon.made(at_q, "ppf", lambda q: -ew.log1p(-q))

_gumbel_r = Family("gumbel_r", "the right Gumbel distribution, of maxima")
gumbel_r_logpdf = _gumbel_r.made(at_x, "logpdf", lambda y: -y - ew.exp(-y))
gumbel_r_pdf = _gumbel_r.made(at_x, "pdf", lambda y: ew.exp(-y - ew.exp(-y)))
gumbel_r_cdf = _gumbel_r.made(at_x, "cdf", lambda y: ew.exp(-ew.exp(-y)))
gumbel_r_sf = _gumbel_r.made(at_x, "sf", lambda y: -ew.expm1(-ew.exp(-y)))
gumbel_r_logcdf = _gumbel_r.made(at_x, "logcdf", lambda y: -ew.exp(-y))
gumbel_r_logsf = _gumbel_r.made(at_x, "logsf", lambda y: log1mexp(ew.exp(-y)))
gumbel_r_ppf = _gumbel_r.made(at_p, "ppf", lambda p: -ew.log(-ew.log(p)))

_gumbel_l = Family("gumbel_l", "the left Gumbel distribution, of minima")
gumbel_l_logpdf = _gumbel_l.made(at_x, "logpdf", lambda y: y - ew.exp(y))
gumbel_l_pdf = _gumbel_l.made(at_x, "pdf", lambda y: ew.exp(y - ew.exp(y)))
gumbel_l_cdf = _gumbel_l.made(at_x, "cdf", lambda y: -ew.expm1(-ew.exp(y)))
gumbel_l_sf = _gumbel_l.made(at_x, "sf", lambda y: ew.exp(-ew.exp(y)))
gumbel_l_logcdf = _gumbel_l.made(at_x, "logcdf", lambda y: log1mexp(ew.exp(y)))
gumbel_l_logsf = _gumbel_l.made(at_x, "logsf", lambda y: -ew.exp(y))
gumbel_l_ppf = _gumbel_l.made(at_p, "ppf", lambda p: ew.log(-ew.log1p(-p)))


def _laplace_cdf(y: Any) -> Any:
    tail = 0.5 * ew.exp(-ew.abs(y))
    return where(y < 0.0, tail, 1.0 - tail)


_laplace = Family("laplace", "the Laplace distribution")
laplace_logpdf = _laplace.made(at_x, "logpdf", lambda y: -ew.abs(y) - math.log(2))
laplace_pdf = _laplace.made(at_x, "pdf", lambda y: 0.5 * ew.exp(-ew.abs(y)))
laplace_cdf = _laplace.made(at_x, "cdf", _laplace_cdf)


def _logistic_logpdf(y: Any) -> Any:
    far = ew.abs(y)
    return -far - 2.0 * ew.log1p(ew.exp(-far))


_logistic = Family("logistic", "the logistic distribution")
logistic_logpdf, logistic_pdf = _logistic.with_exp(at_x, "logpdf", _logistic_logpdf)
logistic_cdf = _logistic.made(at_x, "cdf", ew.logistic)
logistic_sf = _logistic.made(at_x, "sf", negative(ew.logistic))
logistic_ppf = _logistic.made(at_x, "ppf", logit_of)
logistic_isf = _logistic.made(at_x, "isf", lambda q: -logit_of(q))

_uniform = Family("uniform", "the uniform distribution from loc to loc + scale")
_unit: Callable = lambda y: (y >= 0.0) & (y <= 1.0)  # noqa: E731 (one of many formulas)
uniform_logpdf = _uniform.made(at_x, "logpdf", lambda y: where(_unit(y), 0.0, -_INF))
uniform_pdf = _uniform.made(at_x, "pdf", lambda y: where(_unit(y), 1.0, 0.0))
uniform_cdf = _uniform.made(at_x, "cdf", lambda y: _clipped(y))
uniform_ppf = _uniform.made(at_q, "ppf", lambda q: q)

# -- with shape parameters --


def _gamma_logpdf(y: Any, a: Any) -> Any:
    inner = where(y >= 0.0, y, 1.0)
    return within(y >= 0.0, xlogy_of(a - 1.0, inner) - inner - special_functions.lgamma(a))


def _gamma_cdf(y: Any, a: Any) -> Any:
    return incomplete.igamma(a, _above(y))


def _gamma_sf(y: Any, a: Any) -> Any:
    return incomplete.igammac(a, _above(y))


_gamma = Family("gamma", "the gamma distribution with shape a", lambda a: a > 0.0)
gamma_logpdf, gamma_pdf = _gamma.with_exp(at_x_a, "logpdf", _gamma_logpdf)
gamma_cdf, gamma_sf, gamma_logcdf, gamma_logsf = _gamma.tails(at_x_a, _gamma_cdf, _gamma_sf)


def _halved(f: Callable) -> Callable:
    """A chi-square variable is twice a gamma variable with a = df / 2."""
    return lambda y, df: f(0.5 * y, 0.5 * df)


def _chi2_logpdf(y: Any, df: Any) -> Any:
    return _gamma_logpdf(0.5 * y, 0.5 * df) - math.log(2)


_chi2 = Family("chi2", "the chi-square distribution with df degrees of freedom", lambda d: d > 0.0)
chi2_logpdf, chi2_pdf = _chi2.with_exp(at_x_df, "logpdf", _chi2_logpdf)
chi2_cdf, chi2_sf, chi2_logcdf, chi2_logsf = _chi2.tails(
    at_x_df, _halved(_gamma_cdf), _halved(_gamma_sf)
)


def _beta_logpdf(y: Any, a: Any, b: Any) -> Any:
    inner = where(_unit(y), y, 0.5)
    return within(
        _unit(y), xlogy_of(a - 1.0, inner) + xlog1py_of(b - 1.0, -inner) - betaln_of(a, b)
    )


def _beta_cdf(y: Any, a: Any, b: Any) -> Any:
    return incomplete.regularized_incomplete_beta(a, b, _clipped(y))


def _beta_sf(y: Any, a: Any, b: Any) -> Any:
    return _beta_cdf(1.0 - y, b, a)


_beta = Family("beta", "the beta distribution", lambda a, b: (a > 0.0) & (b > 0.0))
beta_logpdf, beta_pdf = _beta.with_exp(at_x_a_b, "logpdf", _beta_logpdf)
beta_cdf, beta_sf, beta_logcdf, beta_logsf = _beta.tails(at_x_a_b, _beta_cdf, _beta_sf)


def _t_logpdf(y: Any, df: Any) -> Any:
    n = where(df < _INF, df, 1.0)
    power = 0.5 * (n + 1.0) * ew.log1p(y * y / n)
    value = -0.5 * ew.log(n) - betaln_of(n * 0 + 0.5, 0.5 * n) - power
    return where(df < _INF, value, -0.5 * y * y - 0.5 * _LOG_TAU)


_t = Family("t", "Student's distribution with df degrees of freedom", lambda df: df > 0.0)
t_logpdf, t_pdf = _t.with_exp(at_x_df, "logpdf", _t_logpdf)


def _logarithm(y: Any) -> Any:
    """log y, and 0 below 1."""
    return ew.log(where(y < 1.0, 1.0, y))


def _pareto_logpdf(y: Any, b: Any) -> Any:
    return within(y >= 1.0, ew.log(b) - (b + 1.0) * _logarithm(y))


def _pareto_logcdf(y: Any, b: Any) -> Any:
    inside = ~(y < 1.0)
    return within(inside, log1mexp(b * ew.log(where(inside, y, 2.0))))


_pareto = Family("pareto", "the Pareto distribution with shape b", lambda b: b > 0.0)
pareto_logpdf, pareto_pdf = _pareto.with_exp(at_x_b, "logpdf", _pareto_logpdf)
pareto_cdf = _pareto.made(at_x_b, "cdf", lambda y, b: -ew.expm1(-b * _logarithm(y)))
pareto_sf = _pareto.made(at_x_b, "sf", lambda y, b: ew.exp(-b * _logarithm(y)))
pareto_logcdf = _pareto.made(at_x_b, "logcdf", _pareto_logcdf)
pareto_logsf = _pareto.made(at_x_b, "logsf", lambda y, b: -b * _logarithm(y))
pareto_ppf = _pareto.made(at_q_b, "ppf", lambda q, b: ew.exp(-ew.log1p(-q) / b))


def _gennorm_logpdf(x: Any, beta: Any) -> Any:
    return ew.log(0.5 * beta) - special_functions.lgamma(1.0 / beta) - ew.abs(x) ** beta


def _gennorm_cdf(x: Any, beta: Any) -> Any:
    tail = 0.5 * incomplete.igammac(1.0 / beta, ew.abs(x) ** beta)
    return where(x < 0.0, tail, 1.0 - tail)


_gennorm = Family("gennorm", "the generalized normal distribution", lambda beta: beta > 0.0)
gennorm_logpdf, gennorm_pdf = _gennorm.with_exp(at_x_beta, "logpdf", _gennorm_logpdf)
gennorm_cdf = _gennorm.made(at_x_beta, "cdf", _gennorm_cdf)


def _vonmises_logpdf(x: Any, kappa: Any) -> Any:
    half = ew.sin(0.5 * x)
    return -2.0 * kappa * half * half - _LOG_TAU - ew.log(special_functions.bessel_i0e(kappa))


_vonmises = Family("vonmises", "von Mises' distribution on the circle", lambda kappa: kappa >= 0.0)
vonmises_logpdf, vonmises_pdf = _vonmises.with_exp(at_x_kappa, "logpdf", _vonmises_logpdf)


def _wrapcauchy_logpdf(x: Any, c: Any) -> Any:
    half = ew.sin(0.5 * x)
    below = (1.0 - c) * (1.0 - c) + 4.0 * c * half * half
    return within((x >= 0.0) & (x <= 2 * math.pi), ew.log((1.0 - c * c) / below) - _LOG_TAU)


_wrapcauchy = Family(
    "wrapcauchy",
    "the Cauchy distribution wrapped around the circle",
    lambda c: (c > 0.0) & (c < 1.0),
)
wrapcauchy_logpdf, wrapcauchy_pdf = _wrapcauchy.with_exp(at_x_c, "logpdf", _wrapcauchy_logpdf)


# -- the normal distribution truncated to [a, b] --


def _mass(a: Any, b: Any) -> Any:
    """log(Φ(b) - Φ(a)), in the left tail if both are on one side."""
    right = a > 0.0
    low, high = where(right, -b, a), where(right, -a, b)
    upper, lower = error_functions.log_ndtr_of(high), error_functions.log_ndtr_of(low)
    tail = upper + log1mexp(where(low == -_INF, _INF, upper - lower))
    middle = ew.log1p(-error_functions.ndtr_of(low) - error_functions.ndtr_of(-high))
    return where(high > 0.0, middle, tail)


def _truncnorm_logpdf(y: Any, a: Any, b: Any) -> Any:
    return within((y >= a) & (y <= b), -0.5 * y * y - 0.5 * _LOG_TAU - _mass(a, b))


def _truncnorm_logcdf(y: Any, a: Any, b: Any) -> Any:
    """Near 0, computed from the mass above y."""
    inner = where(
        (y > a) & (y < b),
        y,
        0.5 * (where(a > -_INF, a, b - 1.0) + where(b < _INF, b, where(a > -_INF, a, 0.0) + 1.0)),
    )
    whole = _mass(a, b)
    below, above = _mass(a, inner) - whole, _mass(inner, b) - whole
    value = where(below > -0.1, ew.log1p(-ew.exp(above)), below)
    return where(y <= a, -_INF, where(y >= b, 0.0, value))


def _truncnorm_logsf(y: Any, a: Any, b: Any) -> Any:
    return _truncnorm_logcdf(-y, -b, -a)


_truncnorm = Family(
    "truncnorm",
    "the normal distribution between loc + a scale and loc + b scale",
    lambda a, b: a < b,
)
truncnorm_logpdf, truncnorm_pdf = _truncnorm.with_exp(at_x_a_b, "logpdf", _truncnorm_logpdf)
truncnorm_logcdf, truncnorm_cdf = _truncnorm.with_exp(at_x_a_b, "logcdf", _truncnorm_logcdf)
truncnorm_logsf, truncnorm_sf = _truncnorm.with_exp(at_x_a_b, "logsf", _truncnorm_logsf)
