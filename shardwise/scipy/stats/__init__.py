"""Distributions and statistics under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.kde import gaussian_kde as gaussian_kde
    from shardwise._src.scipy.samples import mode as mode
    from shardwise._src.scipy.samples import rankdata as rankdata
    from shardwise._src.scipy.samples import sem as sem
    from shardwise.scipy.stats import bernoulli as bernoulli
    from shardwise.scipy.stats import beta as beta
    from shardwise.scipy.stats import betabinom as betabinom
    from shardwise.scipy.stats import binom as binom
    from shardwise.scipy.stats import cauchy as cauchy
    from shardwise.scipy.stats import chi2 as chi2
    from shardwise.scipy.stats import dirichlet as dirichlet
    from shardwise.scipy.stats import expon as expon
    from shardwise.scipy.stats import gamma as gamma
    from shardwise.scipy.stats import gennorm as gennorm
    from shardwise.scipy.stats import geom as geom
    from shardwise.scipy.stats import gumbel_l as gumbel_l
    from shardwise.scipy.stats import gumbel_r as gumbel_r
    from shardwise.scipy.stats import laplace as laplace
    from shardwise.scipy.stats import logistic as logistic
    from shardwise.scipy.stats import multinomial as multinomial
    from shardwise.scipy.stats import multivariate_normal as multivariate_normal
    from shardwise.scipy.stats import nbinom as nbinom
    from shardwise.scipy.stats import norm as norm
    from shardwise.scipy.stats import pareto as pareto
    from shardwise.scipy.stats import poisson as poisson
    from shardwise.scipy.stats import t as t
    from shardwise.scipy.stats import truncnorm as truncnorm
    from shardwise.scipy.stats import uniform as uniform
    from shardwise.scipy.stats import vonmises as vonmises
    from shardwise.scipy.stats import wrapcauchy as wrapcauchy

lazy_names(__name__)
