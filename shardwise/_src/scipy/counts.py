"""Discrete and multivariate distributions of `scipy.stats`.

As in SciPy, non-integers have probability 0, and parameters out of range give NaN.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.linalg.decompositions import cholesky
from shardwise._src.linalg.linear_systems import diagonal
from shardwise._src.linalg.scipy_linalg import solve_triangular
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import expand_dims
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.special import incomplete, special_functions
from shardwise._src.scipy.distributions import Family, program
from shardwise._src.special.beta_functions import betaln_of
from shardwise._src.special.pointwise import over_nodes
from shardwise._src.special.scipy_special import xlog1py_of, xlogy_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import broadcast_to, common_shape, operand_shape, promote_inexact


def at_k_p(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array: ...
def at_k_p_alone(k: ArrayLike, p: ArrayLike) -> Array: ...
def at_q_p_alone(q: ArrayLike, p: ArrayLike) -> Array: ...
def at_k_n_p(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array: ...
def at_k_n_a_b(
    k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0
) -> Array: ...
def at_k_mu(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array: ...
def at_mu(mu: ArrayLike, loc: ArrayLike = 0) -> Array: ...


def _is_chance(p: Any) -> Any:
    return (p >= 0.0) & (p <= 1.0)


def _log_choices(n: Any, k: Any) -> Any:
    return -ew.log1p(n) - betaln_of(n - k + 1.0, k + 1.0)


_bernoulli = Family("bernoulli", "the Bernoulli distribution, 1 with chance p", _is_chance)
bernoulli_logpmf, bernoulli_pmf = _bernoulli.masses(
    at_k_p,
    lambda k, p: (k == 0.0) | (k == 1.0),
    lambda k, p: xlogy_of(k, p) + xlog1py_of(1.0 - k, -p),
)
bernoulli_cdf = _bernoulli.made(
    at_k_p_alone, "cdf", lambda k, p: where(k < 0.0, 0.0, where(k < 1.0, 1.0 - p, 1.0))
)
bernoulli_ppf = _bernoulli.made(at_q_p_alone, "ppf", lambda q, p: where(q <= 1.0 - p, 0.0, 1.0))

_binom = Family(
    "binom",
    "the binomial distribution of n trials with chance p",
    lambda n, p: (n >= 0.0) & (n == ew.floor(n)) & _is_chance(p),
)
binom_logpmf, binom_pmf = _binom.masses(
    at_k_n_p,
    lambda k, n, p: (k >= 0.0) & (k <= n),
    lambda k, n, p: _log_choices(n, k) + xlogy_of(k, p) + xlog1py_of(n - k, -p),
)

_betabinom = Family(
    "betabinom",
    "the beta-binomial distribution of n trials",
    lambda n, a, b: (n >= 0.0) & (n == ew.floor(n)) & (a > 0.0) & (b > 0.0),
)
betabinom_logpmf, betabinom_pmf = _betabinom.masses(
    at_k_n_a_b,
    lambda k, n, a, b: (k >= 0.0) & (k <= n),
    lambda k, n, a, b: _log_choices(n, k) + betaln_of(k + a, n - k + b) - betaln_of(a, b),
)

_nbinom = Family(
    "nbinom",
    "the negative binomial distribution: failures before n successes",
    lambda n, p: (n > 0.0) & (p > 0.0) & (p <= 1.0),
)
nbinom_logpmf, nbinom_pmf = _nbinom.masses(
    at_k_n_p,
    lambda k, n, p: k >= 0.0,
    lambda k, n, p: n * ew.log(p) + xlog1py_of(k, -p) - ew.log(k + n) - betaln_of(n, k + 1.0),
)

_geom = Family(
    "geom",
    "the geometric distribution: trials up to the first success",
    lambda p: (p > 0.0) & (p <= 1.0),
)
geom_logpmf, geom_pmf = _geom.masses(
    at_k_p, lambda k, p: k >= 1.0, lambda k, p: ew.log(p) + xlog1py_of(k - 1.0, -p)
)

_poisson = Family("poisson", "the Poisson distribution with mean mu", lambda mu: mu >= 0.0)
poisson_logpmf, poisson_pmf = _poisson.masses(
    at_k_mu,
    lambda k, mu: k >= 0.0,
    lambda k, mu: xlogy_of(k, mu) - special_functions.lgamma(k + 1.0) - mu,
)


def _poisson_cdf(k: Any, mu: Any, loc: Any) -> Any:
    y = ew.floor(k - loc)
    value = where(y < 0.0, 0.0, incomplete.igammac(where(y < 0.0, 0.0, y) + 1.0, mu))
    return where((y == y) & (mu >= 0.0), value, math.nan)


def _poisson_entropy(mu: Any, loc: Any) -> Any:
    """The sum up to k = 320 for mu < 100, otherwise the asymptotic series (error below 2e-9)."""
    large = mu >= 100.0
    m = where(large | (mu <= 0.0), 1.0, mu)
    logs = [math.lgamma(k + 1) for k in range(320)]

    def term(k: Any, m: Any) -> Any:
        log = k * ew.log(m) - m - np.asarray(logs, k.dtype)
        return -log * ew.exp(log)

    near = over_nodes((np.arange(320.0), np.ones(320)), term, m)
    r = 1.0 / where(large, mu, 100.0)
    far = 0.5 * (math.log(2 * math.pi) + 1 - ew.log(r)) - r * (
        1 / 12 + r * (1 / 24 + r * (19 / 360))
    )
    value = where(large, far, where(mu == 0.0, 0.0, near))
    return where((mu >= 0.0) & (loc == loc), value, math.nan)


poisson_cdf = program(
    at_k_mu,
    "poisson_cdf",
    "Distribution function of the Poisson distribution with mean mu.",
    _poisson_cdf,
)
poisson_entropy = program(
    at_mu,
    "poisson_entropy",
    "Entropy of the Poisson distribution with mean mu, in nats.",
    _poisson_entropy,
)

# -- multivariate --


@fused(arrays=3)
def multinomial_logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Log probability of the counts x, with total n and probabilities p.

    Args:
      x: integers (…, k), n: integers (…), p: (…, k).
    """
    for name, v in (("x", x), ("n", n)):
        if not is_integer(type_of(v).dtype):
            raise ValueError(f"{name} must be integers; got {type_of(v).str_short(True)}.")
    counts, total, p = promote_inexact(x, n, p)
    logs = xlogy_of(*_equal_shapes(counts, p)) - special_functions.lgamma(counts + 1.0)
    value = special_functions.lgamma(total + 1.0) + logs.sum(-1)
    return where(counts.sum(-1) == total, value, -math.inf)


def _equal_shapes(*xs: Any) -> list[Any]:
    shape = operand_shape([type_of(x).shape for x in xs])
    return [broadcast_to(x, shape) for x in xs]


@fused(arrays=3)
def multinomial_pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Probability of the counts x; see `logpmf`."""
    return ew.exp(multinomial_logpmf(x, n, p))


@fused(arrays=2)
def dirichlet_logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Log density of the Dirichlet distribution; -inf if x is not on the simplex.

    Args:
      x: (k, …), with sum 1 over the first dimension; or (k - 1, …), without the last element.
      alpha: (k,).
    """
    y, a = promote_inexact(x, alpha)
    shape, (k, *rest) = type_of(y).shape, type_of(a).shape or (0, 0)
    if rest or not shape or shape[0] not in (k, k - 1):
        raise ValueError(
            f"x must be of shape (k, …) or (k - 1, …) and alpha of "
            f"shape (k,); got {type_of(x).str_short(True)} and "
            f"{type_of(alpha).str_short(True)}."
        )
    if shape[0] != k:
        y = concatenate([y, 1.0 - y.sum(0, keepdims=True)])
    a = broadcast_to(expand_dims(a, tuple(range(1, len(shape)))), type_of(y).shape)
    scale = special_functions.lgamma(a).sum(0) - special_functions.lgamma(a.sum(0))
    on_simplex = (y >= 0.0).all(0) & (ew.abs(y.sum(0) - 1.0) < 1e-6)
    return where(on_simplex, xlogy_of(a - 1.0, y).sum(0) - scale, -math.inf)


@fused(arrays=2)
def dirichlet_pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Density of the Dirichlet distribution; see `logpdf`."""
    return ew.exp(dirichlet_logpdf(x, alpha))


def multivariate_normal_logpdf(
    x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None
) -> Array:
    """Log density of the multivariate normal distribution, by the Cholesky factor of cov.

    Args:
      x, mean: (…, n), or scalars if n is 1.
      cov: (…, n, n), positive definite, or a scalar: the variance of each element.
      allow_singular: must be None.
    """
    if allow_singular is not None:
        raise NotImplementedError(
            "multivariate_normal.logpdf: allow_singular must be None: covariances must be "
            f"positive definite; got {allow_singular!r}."
        )
    return _normal_logpdf(x, mean, cov)


@fused(arrays=3)
def _normal_logpdf(x: Any, mean: Any, cov: Any) -> Any:
    x, mean, cov = promote_inexact(x, mean, cov)
    tau = math.log(2 * math.pi)
    if not type_of(mean).ndim:
        return -0.5 * (x - mean) * (x - mean) / cov - 0.5 * (tau + ew.log(cov))
    y, n = x - mean, type_of(mean).shape[-1]
    if not type_of(cov).ndim:
        return -0.5 * (y * y).sum(-1) / cov - 0.5 * n * (tau + ew.log(cov))
    if type_of(cov).shape[-2:] != (n, n):
        raise ValueError(
            f"cov must be of shape (…, {n}, {n}), for a mean of "
            f"size {n}; got {type_of(cov).str_short(True)}."
        )
    factor = cholesky(cov)
    batch = common_shape([type_of(y).shape[:-1], type_of(cov).shape[:-2]])
    columns = expand_dims(broadcast_to(y, (*batch, n)), -1)
    white = solve_triangular(broadcast_to(factor, (*batch, n, n)), columns, lower=True)
    return -0.5 * (white * white).sum((-1, -2)) - 0.5 * n * tau - ew.log(diagonal(factor)).sum(-1)


@fused(arrays=3)
def multivariate_normal_pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Density of the multivariate normal distribution; see `logpdf`."""
    return ew.exp(_normal_logpdf(x, mean, cov))
