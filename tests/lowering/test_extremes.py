"""Maxima between devices keep NaN where collectives lose it, on hardware that is not XLA's CPU."""

import functools

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise._src.lowering import total_order_floats
from shardwise._src.lowering.xla_workarounds import WithWorkarounds
from shardwise._src.runtime.platforms import Platform
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.bare import devices_of

X = np.arange(32, dtype=np.float32).reshape(4, 8) - 16
X[1, 2], X[2, 5], X[3, 0] = np.nan, -np.inf, np.inf
PLACES = [P(), P("x"), P(None, "x"), P("y", "x"), P(("x", "y"))]


@functools.cache
def mesh():
    """Of a platform whose collectives drop NaN, as NCCL does; XLA's CPU backend runs its programs."""
    platform = Platform(name="dropping", linalg=("xla",), loses_nan_in_extremes=True)
    return Mesh(np.array(devices_of(platform)).reshape(2, 2), ("x", "y"))


def scattered(x):
    return jnp.full(3, -9.0).at[jnp.arange(8) % 3].max(x[1]).at[jnp.arange(4) % 3].min(x[:, 2])


def in_loop(x):
    return lax.fori_loop(0, 3, lambda i, y: jnp.maximum(y, jnp.max(x * i, axis=0)), x[0])


def in_manual(x):
    f = lambda x: lax.pmax(jnp.max(x, 1), "x")  # noqa: E731
    return sw.shard_map(
        f, mesh=mesh(), in_specs=P("x"), out_specs=P(), axis_names={"x"}, check_vma=False
    )(x)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "f",
    [
        jnp.max,
        lambda x: (jnp.min(x, 0), jnp.max(x.astype(jnp.bfloat16), 1).astype("f")),
        lambda x: nn.softmax(x, 0) + nn.softmax(x, 1),
        lambda x: sw.grad(lambda x: jnp.max(x, 1).sum())(x[:, :2]),
        scattered,
        in_loop,
        in_manual,
    ],
)
def test_values_are_those_of_one_device(f, place):
    wanted = sw.tree.leaves(sw.jit(f)(X)) if f is not in_manual else [np.float32([7, np.nan])]
    x = sw.device_put(X, NamedSharding(mesh(), place))
    found = sw.tree.leaves(sw.jit(f)(x))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=1e-6, atol=1e-7
        )


def test_reductions_within_a_device_are_of_floats():
    for place, count in zip(PLACES, (0, 1, 0, 1, 1), strict=True):
        x = sw.device_put(X, NamedSharding(mesh(), place))
        text = sw.jit(lambda x: jnp.max(x, 0)).lower(x).as_text()
        assert text.count("applies stablehlo.maximum") == 1
        assert ("-> tensor<8xi32>" in text) == bool(count)


def test_without_the_workaround_nan_is_lost(monkeypatch):
    """So that the other tests test something."""
    monkeypatch.setattr(total_order_floats, "sharded_operands", lambda *args: set())
    monkeypatch.setattr(WithWorkarounds, "_kept_within", lambda self, x, t, dims: x)
    x = sw.device_put(X[:, 2], NamedSharding(mesh(), P("x")))
    assert not np.isnan(sw.jit(lambda x: jnp.max(x) + 0)(x))
