"""`shard_alike`: one value is sharded as the other is."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.shard_alike import shard_alike
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import theirs as put_theirs
from tests.helpers.errors import fails
from tests.helpers.meshes import MESH, mesh_of

X = np.arange(64, dtype="f").reshape(8, 8)


def put(x, *spec, mesh=MESH):
    return sw.device_put(x, NamedSharding(mesh, P(*spec)))


def functions(lib, alike):
    """Each returns a value that would otherwise not be sharded."""
    return [
        lambda x: alike(x, lib.numpy.zeros((8, 8)))[1],
        lambda x: alike(lib.numpy.ones((8, 8), "int32"), x * 2)[0],
        lambda x: alike({"a": (x,)}, {"a": (lib.numpy.zeros((8, 8)),)})[1]["a"][0],
        lambda x: lib.vmap(alike, (0, None))(x, lib.numpy.zeros(8))[1],
        lambda x: lib.vmap(alike, (1, 0))(x, lib.numpy.zeros((8, 8)))[1],
    ]


@pytest.mark.parametrize("spec", [("x", "y"), (None, ("x", "y")), ("y",)])
@pytest.mark.parametrize("number", range(5))
def test_values_follow(number, spec):
    theirs = pytest.importorskip("jax.experimental.shard_alike", reason="gone from jax 0.12")
    f, g = functions(sw, shard_alike)[number], functions(jax, theirs.shard_alike)[number]
    got, expected = sw.jit(f)(put(X, *spec)), jax.jit(g)(put_theirs(X, *spec))
    assert np.array_equal(np.asarray(got), np.asarray(expected)) and got.dtype == expected.dtype
    assert len(got.sharding.device_set) == 8 and not got.sharding.is_fully_replicated
    if number < 3:
        assert tuple(got.sharding.spec) == spec == tuple(expected.sharding.spec)


def test_eager_uneven_and_one_device():
    x, y = shard_alike(put(X, "x"), np.zeros((8, 8), "f"))
    assert x.sharding.spec == y.sharding.spec == P("x")
    assert np.array_equal(np.asarray(x), X)
    f = sw.jit(lambda x: shard_alike(x, jnp.zeros(7))[1])
    assert f(put(np.arange(7.0), "x")).sharding.spec == P("x")
    x, y = shard_alike(X, X + 1)
    assert np.array_equal(np.asarray(y), X + 1)


def test_derivatives_are_divided_alike():
    def loss(x):
        a, b = shard_alike(x, jnp.sin(x))
        return (a * b).sum()

    got = sw.jit(sw.grad(loss))(put(X, "x", "y"))
    np.testing.assert_allclose(np.asarray(got), np.sin(X) + X * np.cos(X), rtol=1e-5, atol=1e-4)
    assert got.sharding.spec == P("x", "y")
    one = sw.grad(lambda x: shard_alike(x, 2 * x)[1].sum())(put(X, "x"))
    assert np.array_equal(np.asarray(one), np.full((8, 8), 2.0))
    pair = lambda y: shard_alike(put(X, "x", "y"), y)  # noqa: E731
    moved = sw.jvp(pair, (jnp.zeros((8, 8)),), (jnp.ones((8, 8)),))[1]
    assert np.array_equal(np.asarray(moved[0]), np.zeros((8, 8)))
    assert np.array_equal(np.asarray(moved[1]), np.ones((8, 8)))


def test_in_loops():
    def step(c, _):
        return shard_alike(c, jnp.ones((8, 8)))[0] * 2, None

    got = sw.jit(lambda x: lax.scan(step, x, None, length=3)[0])(put(X, "x", "y"))
    assert np.array_equal(np.asarray(got), 8 * X) and got.sharding.spec == P("x", "y")


def test_explicit_axes_stay():
    mesh = mesh_of(4, 2, types=AxisType.Explicit)
    x, y = shard_alike(put(X, "x", mesh=mesh), put(X, None, "y", mesh=mesh))
    assert (x.aval.str_short(True), y.aval.str_short(True)) == ("f32[8@x,8]", "f32[8,8@y]")


def test_in_shard_map():
    f = lambda x: shard_alike(x, x + 1)[1]  # noqa: E731
    g = sw.shard_map(f, mesh=MESH, in_specs=P("x", "y"), out_specs=P("x", "y"))
    assert np.array_equal(np.asarray(sw.jit(g)(X)), X + 1)
    part = sw.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    fails(
        NotImplementedError,
        "shard_alike: XLA fails inside of a `shardwise.shard_map` that leaves some mesh axes to "
        "the partitioner. Make all axes manual, or call it outside.",
        sw.jit(part),
        X,
    )


def test_mistakes():
    fails(
        ValueError,
        "shard_alike: x and y must have the same pytree structure; the root is a tuple of 1 in x "
        "and a leaf in y.",
        shard_alike,
        (X,),
        X,
    )
    fails(
        ValueError,
        "shard_alike: x[0] is of type f32[8,8] and y[0] of type f32[8]; values that are sharded "
        "alike must have the same shape.",
        shard_alike,
        (X,),
        (X[0],),
    )
    fails(
        TypeError, "shard_alike: y is 'a' of type str, which is not an array.", shard_alike, X, "a"
    )
