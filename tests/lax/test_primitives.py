"""The ops under JAX's names, `lax.sin_p`, by which interpreters identify equations."""

import jax
import numpy as np
import pytest
from jax.extend.core import Primitive

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.op import Op
from shardwise.extend.core import Primitive as OurPrimitive
from tests.helpers.everyday import everyday

SPACES = {"lax": (lax, jax.lax), "linalg": (lax.linalg, jax.lax.linalg)}
SINCE_0_12 = ("one_minus_square_p",)
NAMES = [
    (space, name) for space, (own, _) in SPACES.items() for name in dir(own) if name.endswith("_p")
]


@pytest.mark.parametrize(("space", "name"), everyday(NAMES, 60))
def test_each_is_an_op_that_jax_has_too(space: str, name: str):
    own, theirs = SPACES[space]
    op = getattr(own, name)
    assert isinstance(op, Op | OurPrimitive)
    if name in SINCE_0_12 and jax.__version_info__ < (0, 12):
        return
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

    def inverted(closed, *outs):
        env = dict(zip(closed.jaxpr.outvars, outs, strict=True))
        for eqn in reversed(closed.eqns):
            (x,), (y,) = eqn.invars, eqn.outvars
            env[x] = inverse[eqn.primitive](env[y])
        return [env[v] for v in closed.jaxpr.invars]

    closed = sw.make_jaxpr(lambda x: -jnp.exp(jnp.tanh(x)))(0.5)
    (found,) = inverted(closed, -jnp.exp(jnp.tanh(0.5)))
    assert float(found) == pytest.approx(0.5, rel=1e-6)


def evaluated(jaxpr, consts, *args):
    """In the style of interpreters for JAX."""
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

    def read(atom):
        return atom.val if isinstance(atom, sw.core.Literal) else env[atom]

    for eqn in jaxpr.eqns:
        params = eqn.primitive.get_bind_params(eqn.params)
        out = eqn.primitive.bind(*map(read, eqn.invars), **params)
        outs = out if eqn.primitive.multiple_results else [out]
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def of_many(x):
    y = lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + i, x) @ np.arange(3, dtype=np.float32)
    return sw.jit(lambda v: lax.cond(y > 0, jnp.sort, jnp.cos, v))(x), lax.top_k(x, 2)


def test_an_interpreter_written_for_jax_evaluates():
    x = jnp.array([0.3, 0.1, 0.2])
    closed = sw.make_jaxpr(of_many)(x)
    assert closed.consts
    assert {e.primitive.name for e in closed.eqns} >= {"scan", "jit", "dot_general", "top_k"}
    wanted = sw.tree.leaves(of_many(x))
    for evaluate in (evaluated, sw.core.eval_jaxpr):
        found = evaluate(closed.jaxpr, closed.consts, x)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    (doubled,) = sw.core.eval_jaxpr(
        sw.make_jaxpr(lambda v: v @ np.arange(3, dtype="f4"))(x), [np.arange(3, dtype="f4") * 2], x
    )
    assert float(doubled) == pytest.approx(1.0)
