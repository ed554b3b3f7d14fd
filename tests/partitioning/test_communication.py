"""What programs communicate, by the partitioner's own choice of shardings."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from tests.helpers.partitioned import collectives, put

SORTED = np.arange(64, dtype=np.float32)
VALUES = np.linspace(-1, 65, 24).astype(np.float32)


@pytest.mark.parametrize(
    "search",
    [
        lambda a, v: jnp.searchsorted(a, v),
        lambda a, v: jnp.digitize(v, a),
        lambda a, v: jnp.interp(v, a, a),
        sw.vmap(lambda a, v: jnp.searchsorted(a, v), (None, 0)),
    ],
)
def test_a_sorted_vector_is_gathered_once(search):
    a, v = put(SORTED, "x"), put(VALUES, "x")
    assert collectives(search, a, v) <= {"all-gather", "collective-permute"}
    np.testing.assert_array_equal(sw.jit(search)(a, v), search(SORTED, VALUES))


def test_a_large_sorted_vector_stays_sharded():
    a = sw.ShapeDtypeStruct((2**19,), np.float32, sharding=put(SORTED, "x").sharding)
    text = sw.jit(jnp.searchsorted).lower(a, VALUES[:1]).compile().as_text()
    assert "all-gather" not in text


@pytest.mark.parametrize(
    "search, sizes",
    [
        (jnp.searchsorted, ("n", "m")),
        (jnp.searchsorted, ("n", "24")),
        (jnp.searchsorted, ("64", "m")),
        (lambda a, v: jnp.interp(v, a, a), ("64", "m")),
    ],
)
def test_symbolic_sizes(search, sizes):
    scope = sw.export.SymbolicScope()
    shapes = [sw.export.symbolic_shape(size, scope=scope) for size in sizes]
    types = [sw.ShapeDtypeStruct(shape, np.dtype("float32")) for shape in shapes]
    exported = sw.export.export(sw.jit(search))(*types)
    np.testing.assert_array_equal(exported.call(SORTED, VALUES), search(SORTED, VALUES))
