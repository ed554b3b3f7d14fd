"""`grouped_matmul`: small floats, maps of group sizes, shards; see also CASES."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.kernels import library
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.kernels.library.library_cases import grouped_matmul, normal, wanted_products


@pytest.mark.sweep
def test_half_precision():
    x, w = [jnp.asarray(x, jnp.bfloat16) for x in (normal(20, 40), normal(2, 40, 8))]
    out = grouped_matmul([7, 9], x, w)
    assert out.dtype == jnp.bfloat16
    wanted = wanted_products([7, 9], x.astype("float32"), w.astype("float32"))
    np.testing.assert_allclose(np.asarray(out, np.float64), wanted, 2e-2, 2e-2)


@pytest.mark.sweep
def test_maps_and_loops_over_sizes_of_groups():
    x, w, sizes = normal(3, 20, 8), normal(2, 8, 8), np.array([[3, 9], [0, 20], [20, 0]])
    wanted = np.stack([wanted_products(s, a, w) for a, s in zip(x, sizes, strict=True)])
    close(sw.jit(sw.vmap(lambda x, s: grouped_matmul(s, x, w)))(x, sizes), wanted, atol=1e-5)

    def run(product):
        def layer(x, s):
            return lax.cond(s[0] > 0, lambda: x + product(x, w, s), lambda: x), None

        return lambda: sw.grad(lambda x: lax.scan(sw.checkpoint(layer), x, sizes)[0].sum())(x[0])

    found = sw.jit(run(lambda x, w, s: grouped_matmul(s, x, w)))()
    close(found, sw.jit(run(lax.ragged_dot))(), rtol=1e-4, atol=1e-4)


def test_sharded_rows_and_columns():
    mesh = sw.make_mesh((4, 2), ("data", "model"))
    x, w, sizes = normal(40, 8), normal(2, 8, 6), np.array([3, 7] * 4)
    specs = P("data"), P(None, None, "model"), P("data")
    f = sw.shard_map(
        library.grouped_matmul, mesh=mesh, in_specs=specs, out_specs=P("data", "model")
    )
    groups = np.tile([0] * 3 + [1] * 7, 4)

    def both(f):
        return sw.jit(sw.value_and_grad(lambda w: (jnp.sin(f(w)).sum(), f(w)), has_aux=True))(w)

    wanted = both(lambda w: jnp.einsum("mk,mkn->mn", x, w[groups]))
    close(both(lambda w: f(x, w, sizes)), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("m", "k", "n", "g"), [(0, 4, 4, 2), (4, 0, 4, 2), (4, 4, 0, 2), (4, 4, 4, 0)]
)
def test_empty_products(m, k, n, g):
    found = library.grouped_matmul(normal(m, k), normal(g, k, n), np.zeros(g, np.int32))
    close(found, np.zeros((m, n), np.float32))
