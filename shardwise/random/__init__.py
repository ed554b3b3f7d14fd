"""Random numbers: functions of a key, so that a program draws the same ones each time it runs.

    key = random.key(0)
    key, new = random.split(key)
    x = random.normal(new, (8, 4))

A key is used once; `split` and `fold_in` make new ones of it. Values depend on key, shape and dtype
only, never on how an array is sharded or on how many processes there are, and are those of
`jax.random`. Samplers are differentiable in their parameters where the result depends on them
smoothly.
"""

from shardwise.random.continuous import cauchy as cauchy
from shardwise.random.continuous import double_sided_maxwell as double_sided_maxwell
from shardwise.random.continuous import exponential as exponential
from shardwise.random.continuous import gumbel as gumbel
from shardwise.random.continuous import laplace as laplace
from shardwise.random.continuous import logistic as logistic
from shardwise.random.continuous import lognormal as lognormal
from shardwise.random.continuous import maxwell as maxwell
from shardwise.random.continuous import normal as normal
from shardwise.random.continuous import pareto as pareto
from shardwise.random.continuous import rayleigh as rayleigh
from shardwise.random.continuous import triangular as triangular
from shardwise.random.continuous import truncated_normal as truncated_normal
from shardwise.random.continuous import wald as wald
from shardwise.random.continuous import weibull_min as weibull_min
from shardwise.random.discrete import binomial as binomial
from shardwise.random.discrete import categorical as categorical
from shardwise.random.discrete import choice as choice
from shardwise.random.discrete import geometric as geometric
from shardwise.random.discrete import multinomial as multinomial
from shardwise.random.discrete import permutation as permutation
from shardwise.random.discrete import poisson as poisson
from shardwise.random.draws import bernoulli as bernoulli
from shardwise.random.draws import bits as bits
from shardwise.random.draws import rademacher as rademacher
from shardwise.random.draws import randint as randint
from shardwise.random.draws import uniform as uniform
from shardwise.random.gammas import ball as ball
from shardwise.random.gammas import beta as beta
from shardwise.random.gammas import chisquare as chisquare
from shardwise.random.gammas import dirichlet as dirichlet
from shardwise.random.gammas import f as f
from shardwise.random.gammas import gamma as gamma
from shardwise.random.gammas import generalized_normal as generalized_normal
from shardwise.random.gammas import loggamma as loggamma
from shardwise.random.gammas import t as t
from shardwise.random.keys import PRNGKey as PRNGKey
from shardwise.random.keys import clone as clone
from shardwise.random.keys import fold_in as fold_in
from shardwise.random.keys import key as key
from shardwise.random.keys import key_data as key_data
from shardwise.random.keys import key_dtype as key_dtype
from shardwise.random.keys import key_impl as key_impl
from shardwise.random.keys import split as split
from shardwise.random.keys import wrap_key_data as wrap_key_data
