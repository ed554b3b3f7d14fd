"""Reductions with a user function, against jax.lax.reduce and NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.running.eager import EAGER
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday

X = np.random.default_rng(5).normal(size=(4, 5)).astype(np.float32)
ZERO = np.float32(0)


def grown(library):
    """(1 + a)(1 + b) - 1, which has the identity 0."""
    return lambda a, b: library.add(library.add(a, b), library.mul(a, b))


def largest(a, b):
    first = lax.gt(a[0], b[0])
    return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])


@pytest.mark.parametrize("axes", everyday([(0,), (1,), (1, 0), ()], 1))
def test_values_and_gradients_are_those_of_jax(axes):
    def ours(x):
        return lax.reduce(x, ZERO, grown(lax), axes)

    def theirs(x):
        return jax.lax.reduce(x, ZERO, grown(jax.lax), axes)

    np.testing.assert_allclose(np.asarray(ours(swnp.asarray(X))), theirs(X), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(sw.jit(ours)(X)), theirs(X), rtol=1e-5)
    if axes:  # without axes jax has no derivative
        came = sw.grad(lambda x: swnp.sum(ours(x) ** 2))(swnp.asarray(X))
        wanted = jax.grad(lambda x: jnp.sum(theirs(x) ** 2))(jnp.asarray(X))
        np.testing.assert_allclose(np.asarray(came), wanted, rtol=1e-4, atol=1e-5)


def test_several_operands_at_once():
    places = np.ascontiguousarray(np.broadcast_to(np.arange(5, dtype=np.int32), (4, 5)))
    start = (np.float32(-np.inf), np.int32(0))
    values, found = lax.reduce((swnp.asarray(X), swnp.asarray(places)), start, largest, (1,))
    np.testing.assert_array_equal(np.asarray(values), X.max(1))
    np.testing.assert_array_equal(np.asarray(found), X.argmax(1))


@pytest.mark.parametrize("start_batched", [False, True])
def test_vmap_is_a_loop(start_batched):
    starts = X[0] if start_batched else ZERO
    came = sw.vmap(
        lambda v, s: lax.reduce(v, s, grown(lax), (0,)), (1, 0 if start_batched else None)
    )(swnp.asarray(X), starts)
    wanted = (1 + starts) * np.prod(1 + X, 0) - 1
    np.testing.assert_allclose(np.asarray(came), wanted, rtol=1e-5)


@pytest.mark.parametrize(
    "function, start, name",
    [
        (lax.add, 0.0, "reduce_sum"),
        (lambda a, b: b * a, 1.0, "reduce_prod"),
        (lax.max, -np.inf, "reduce_max"),
        (lax.max, 0.0, "reduce_max"),
        (lax.add, 1.0, "reduce_sum"),
    ],
)
def test_a_single_op_becomes_its_reduction(function, start, name):
    program = sw.make_jaxpr(lambda x: lax.reduce(x, np.float32(start), function, (0,)))(X)
    assert [e.op.name for e in program.eqns if "reduce" in e.op.name] == [name]


@pytest.mark.parametrize("function", [lax.add, lax.mul, lax.max, lambda a, b: b + a])
def test_what_a_single_op_starts_from_counts_once_over_devices(function):
    mesh = sw.sharding.Mesh(np.array(sw.devices()[:4]), ("x",))
    placed = sw.device_put(X, sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec("x")))
    start = np.float32(2)
    wanted = functools.reduce(lambda a, b: np.asarray(function(a, b)), [*X], start)
    known = sw.jit(lambda x: lax.reduce(x, np.float32(2), function, (0,)))(placed)
    traced = sw.jit(lambda x, s: lax.reduce(x, s, function, (0,)))(placed, start)
    np.testing.assert_allclose(known, wanted, rtol=1e-6)
    np.testing.assert_allclose(traced, wanted, rtol=1e-6)


def test_equal_functions_share_a_program():
    x = swnp.asarray(X)
    lax.reduce(x, ZERO, grown(lax), (0,))
    before = len(EAGER.cache)
    lax.reduce(x, ZERO, grown(lax), (0,))
    assert len(EAGER.cache) == before


def test_messages():
    x = swnp.asarray(X)

    def telling(a, b):
        return lax.cond(a > b, lambda: sw.debug.print("{}", a), lambda: None) or a + b

    cases = [
        (
            lambda: lax.reduce(x, (ZERO,), lax.add, (0,)),
            ValueError,
            "reduce: operands and init_values must have the same pytree structure; got PyTreeDef(*) "
            "and PyTreeDef((*,)).",
        ),
        (
            lambda: lax.reduce(x, np.int32(0), grown(lax), (0,)),
            TypeError,
            "reduce: an init value must have the operand's dtype float32; got i32[].",
        ),
        (
            lambda: lax.reduce(x, ZERO, lax.gt, (0,)),
            TypeError,
            "[reduce] the function must return f32[]; got bool[].",
        ),
        (
            lambda: lax.reduce(x, ZERO, telling, (0,)),
            TypeError,
            "reduce: the function must not call the host, here with debug_callback: it runs in an "
            "unspecified order, and any number of times. Use `scan`, or call the host with the "
            "result.",
        ),
    ]
    for call, error, message in cases:
        assert error_of(error, call) == message


def test_arrays_that_the_function_holds():
    """They are hidden arguments of the module, which the emitted function cannot access."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    one, table = swnp.float32(1), swnp.arange(4.0)

    def step(a, b):
        return lax.max(a, b * one) + 0 * table.sum()

    found = sw.jit(lambda x: lax.reduce(x, np.float32(-9), step, (0,)))(x)
    np.testing.assert_array_equal(np.asarray(found), x[1])
    np.testing.assert_array_equal(np.asarray(lax.reduce(x, np.float32(-9), step, (0,))), found)
    both = sw.vmap(lambda x, s: lax.reduce(x, s, step, (0,)))(x, np.float32([0, 20]))
    np.testing.assert_array_equal(np.asarray(both), [2, 20])
