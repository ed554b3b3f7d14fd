"""Random numbers as functions of a key, so that a program draws the same ones in each run.

    key = random.key(0)
    key, new = random.split(key)
    x = random.normal(new, (8, 4))

A key is used once; `split` and `fold_in` derive new ones. Values depend on key, shape and dtype
only, never on the sharding of an array or the number of processes, and are equal to those of
`jax.random`. Samplers are differentiable in their parameters where the result is a smooth
function of them.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.key_arrays import KeyArray as KeyArray
    from shardwise._src.ops.random.random_gamma import random_gamma as random_gamma_p
    from shardwise._src.random.continuous import cauchy as cauchy
    from shardwise._src.random.continuous import double_sided_maxwell as double_sided_maxwell
    from shardwise._src.random.continuous import exponential as exponential
    from shardwise._src.random.continuous import gumbel as gumbel
    from shardwise._src.random.continuous import laplace as laplace
    from shardwise._src.random.continuous import logistic as logistic
    from shardwise._src.random.continuous import lognormal as lognormal
    from shardwise._src.random.continuous import maxwell as maxwell
    from shardwise._src.random.continuous import normal as normal
    from shardwise._src.random.continuous import pareto as pareto
    from shardwise._src.random.continuous import rayleigh as rayleigh
    from shardwise._src.random.continuous import triangular as triangular
    from shardwise._src.random.continuous import truncated_normal as truncated_normal
    from shardwise._src.random.continuous import wald as wald
    from shardwise._src.random.continuous import weibull_min as weibull_min
    from shardwise._src.random.discrete import binomial as binomial
    from shardwise._src.random.discrete import categorical as categorical
    from shardwise._src.random.discrete import choice as choice
    from shardwise._src.random.discrete import geometric as geometric
    from shardwise._src.random.discrete import multinomial as multinomial
    from shardwise._src.random.discrete import permutation as permutation
    from shardwise._src.random.discrete import poisson as poisson
    from shardwise._src.random.draws import bernoulli as bernoulli
    from shardwise._src.random.draws import bits as bits
    from shardwise._src.random.draws import rademacher as rademacher
    from shardwise._src.random.draws import randint as randint
    from shardwise._src.random.draws import uniform as uniform
    from shardwise._src.random.gamma_samplers import ball as ball
    from shardwise._src.random.gamma_samplers import beta as beta
    from shardwise._src.random.gamma_samplers import chisquare as chisquare
    from shardwise._src.random.gamma_samplers import dirichlet as dirichlet
    from shardwise._src.random.gamma_samplers import f as f
    from shardwise._src.random.gamma_samplers import gamma as gamma
    from shardwise._src.random.gamma_samplers import generalized_normal as generalized_normal
    from shardwise._src.random.gamma_samplers import loggamma as loggamma
    from shardwise._src.random.gamma_samplers import t as t
    from shardwise._src.random.generators import Key as Key
    from shardwise._src.random.generators import key_dtype as key_dtype
    from shardwise._src.random.keys import PRNGKey as PRNGKey
    from shardwise._src.random.keys import clone as clone
    from shardwise._src.random.keys import fold_in as fold_in
    from shardwise._src.random.keys import key as key
    from shardwise._src.random.keys import key_data as key_data
    from shardwise._src.random.keys import key_impl as key_impl
    from shardwise._src.random.keys import split as split
    from shardwise._src.random.keys import wrap_key_data as wrap_key_data
    from shardwise._src.random.matrix_samplers import multivariate_normal as multivariate_normal
    from shardwise._src.random.matrix_samplers import orthogonal as orthogonal

lazy_names(__name__)
