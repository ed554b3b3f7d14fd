"""Random programs over uneven shards match one device, forward and backward.

The padding is NaN, so that results that depend on it are visibly wrong.
"""

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import NamedSharding, P, lax, random
from shardwise._src.base.errors import ShardingTypeError
from shardwise.sharding import AxisType
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of
from tests.helpers.searched import searched

MESHES = [(1, 3), (5, 1), (7, 1), (8, 1), (2, 2), (2, 3), (4, 2), (2, 4)]
SPECS = [P("a"), P("b"), P(None, "a"), P("a", "b"), P("b", "a"), P(("a", "b")), P(None, ("b", "a"))]


def step_scan(x, w):
    total, rows = lax.scan(lambda c, row: (c * 0.5 + row, jnp.tanh(c) + row), x[0], x)
    return rows + total


# Each takes the program's 2-D array, and a vector of weights, the array's first row.
STEPS = {
    "sin": lambda x, w: jnp.sin(x),
    "scaled": lambda x, w: x * 0.5 + 1.0,
    "weights": lambda x, w: x * jnp.resize(w, x.shape[1]),
    "transpose": lambda x, w: x.T,
    "gram": lambda x, w: jnp.tanh(x @ x.T),
    "softmax": lambda x, w: sw.nn.softmax(x, axis=0),
    "mean": lambda x, w: x - x.mean(axis=1, keepdims=True),
    "maximum": lambda x, w: x - jnp.round(x.max(axis=0)),  # whose gradient is discontinuous
    "variance": lambda x, w: x / jnp.sqrt(x.var() + 1.0),
    "sort": lambda x, w: jnp.sort(x, axis=0),
    "cumsum": lambda x, w: jnp.cumsum(x, axis=0) * 0.1,
    "reverse": lambda x, w: x[::-1],
    "rest": lambda x, w: x[1:] if x.shape[0] > 2 else x,
    "every second": lambda x, w: x[::2] if x.shape[0] > 3 else x,
    "rows": lambda x, w: x[np.array([1, 0, -1, 0, 1])] if x.shape[0] > 1 else x,
    "twice": lambda x, w: jnp.concatenate([x, jnp.sin(x)]) if x.shape[0] < 12 else x,
    "pad": lambda x, w: jnp.pad(x, ((1, 2), (0, 1))) if x.shape[0] < 12 else x,
    "roll": lambda x, w: jnp.roll(x, 2, axis=0),
    "flat": lambda x, w: x.reshape(-1, 1) if x.size < 60 else x,
    "wide": lambda x, w: x.reshape(1, -1) if x.size < 60 else x,
    "where": lambda x, w: jnp.where(x > 0, x, 0.1 * x),
    "update": lambda x, w: x.at[0].add(1.0).at[:, -1].multiply(2.0),
    "scatter": lambda x, w: x.at[np.array([0, 0, x.shape[0] - 1])].add(x[:3].sum(0)),
    "noise": lambda x, w: x + random.normal(random.key(3), x.shape),
    "scan": step_scan,
    "vmap": lambda x, w: sw.vmap(lambda row: row / (1.0 + (row * row).sum()))(x),
    "jit": lambda x, w: sw.jit(lambda y: jnp.cos(y) * 2.0)(x),
    "grad": lambda x, w: sw.grad(lambda y: jnp.sum(jnp.tanh(y) ** 2))(x),
    "outer": lambda x, w: jnp.tanh(x[:, :1] * x[0][None, :]),
    "stack": lambda x, w: jnp.stack([x, x + 1.0]).sum(0),
}

programs = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)
sizes = st.integers(1, 11)


def run(names, x, w):
    for name in names:
        x = STEPS[name](x, w)
    return x


def loss(names, x, w):
    y = run(names, x, w)
    return jnp.sum(jnp.sin(y) * jnp.linspace(0.5, 1.5, y.size).reshape(y.shape))


def close(came, wanted, what):
    np.testing.assert_allclose(came, wanted, rtol=2e-3, atol=2e-4, err_msg=str(what))


def arguments(rows, columns):
    rng = np.random.default_rng(rows * 100 + columns)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    return x, rng.normal(size=(columns,)).astype(np.float32)


def both(names):
    """A program with its gradients, jitted."""
    gradients = sw.grad(lambda x, w: loss(names, x, w), argnums=(0, 1))
    return sw.jit(lambda x, w: (run(names, x, w), gradients(x, w)))


def compare(names, came, wanted):
    close(came[0], wanted[0], f"result of {names}")
    for g, wanted_gradient in zip(came[1], wanted[1], strict=True):
        close(g, wanted_gradient, f"gradient of {names}")
        for shard in g.addressable_shards:
            close(shard.data, np.asarray(g)[shard.index], shard)


W_SPECS = st.sampled_from([P(), P("a"), P("b")])


ANYTHING = (programs, sizes, sizes, st.sampled_from(MESHES), st.sampled_from(SPECS), W_SPECS)
GROUPS = pytest.mark.parametrize("group", everyday(range(6), 1))


@GROUPS
def test_auto(group):
    searched(group, 8, check_auto, *ANYTHING)


@pytest.mark.sweep
@GROUPS
def test_explicit(group):
    searched(group, 8, check_explicit, *ANYTHING)


def check_auto(names, rows, columns, mesh_sizes, spec, w_spec):
    mesh = mesh_of(*mesh_sizes, names="ab")
    f, (x, w) = both(names), arguments(rows, columns)
    placed = sw.device_put((x, w), (NamedSharding(mesh, spec), NamedSharding(mesh, w_spec)))
    compare(names, f(*placed), f(x, w))


def check_explicit(names, rows, columns, mesh_sizes, spec, w_spec):
    """The same in explicit mode, or an error that states what the types leave open."""
    mesh = mesh_of(*mesh_sizes, names="ab", types=AxisType.Explicit)
    f, (x, w) = both(names), arguments(rows, columns)
    placed = sw.device_put((x, w), (NamedSharding(mesh, spec), NamedSharding(mesh, w_spec)))
    try:
        forward = run(names, *placed)
    except ShardingTypeError as refused:
        assert "reshard" in str(refused) or "out_sharding" in str(refused)
        assume(False)
    came = f(*placed)
    compare(names, came, f(x, w))
    close(forward, came[0], f"op by op: {names}")
    assert forward.aval == came[0].aval
    assert [g.aval for g in came[1]] == [a.aval for a in placed]
