"""The ops under JAX's names, `lax.sin_p`, by which interpreters know equations."""

import jax
import pytest
from jax.extend.core import Primitive

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from tests.helpers.sampling import sampled

SPACES = {"lax": (lax, jax.lax), "linalg": (lax.linalg, jax.lax.linalg)}
NAMES = [
    (space, name) for space, (own, _) in SPACES.items() for name in dir(own) if name.endswith("_p")
]


@pytest.mark.parametrize(("space", "name"), sampled(NAMES, 1 / 4))
def test_each_is_an_op_that_jax_has_too(space: str, name: str):
    own, theirs = SPACES[space]
    op = getattr(own, name)
    assert isinstance(op, Op)
    assert isinstance(getattr(theirs, name), Primitive)


def test_there_are_most_of_them():
    assert len(NAMES) > 140


@pytest.mark.parametrize(
    ("name", "function"),
    {
        "sin_p": jnp.sin,
        "add_p": lambda x: x + x,
        "dot_general_p": lambda x: x @ x,
        "reduce_sum_p": lambda x: lax.reduce_sum(x, (0,)),
        "sort_p": jnp.sort,
        "cumsum_p": lax.cumsum,
        "broadcast_in_dim_p": lambda x: lax.broadcast(x, (2,)),
        "select_n_p": lambda x: lax.select(x > 0, x, -x),
    }.items(),
)
def test_equations_have_them(name: str, function):
    eqns = sw.make_jaxpr(function)(jnp.ones(3)).eqns
    assert getattr(lax, name) in [e.op for e in eqns]


def test_an_interpreter_by_these_names():
    inverse = {lax.exp_p: jnp.log, lax.tanh_p: jnp.arctanh, lax.neg_p: jnp.negative}

    def inverted(program: Program, y):
        for eqn in reversed(program.eqns):
            y = inverse[eqn.op](y)
        return y

    program = sw.make_jaxpr(lambda x: -jnp.exp(jnp.tanh(x)))(0.5)
    assert float(inverted(program, -jnp.exp(jnp.tanh(0.5)))) == pytest.approx(0.5, rel=1e-6)
