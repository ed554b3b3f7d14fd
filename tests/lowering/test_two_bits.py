"""XLA error `two-bits`: padding and concatenation of 2-bit integers, which crashed the process."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

VALUES = {"int2": [0, 1, -2, 1, 1, 0, -1, 0], "uint2": [0, 1, 2, 3, 1, 0, 3, 0]}
PLACES = {
    "one device": None,
    "even": NamedSharding(Mesh(np.array(sw.devices()), "d"), P("d")),
    "uneven": NamedSharding(Mesh(np.array(sw.devices()[:3]), "d"), P("d")),
}


@pytest.mark.parametrize("place", everyday(PLACES, 1))
@pytest.mark.parametrize("dtype", VALUES)
def test_two_bits_are_moved(dtype, place):
    values = np.array(VALUES[dtype], np.int8)
    x = jnp.array(values, dtype)
    if PLACES[place] is not None:
        x = sw.device_put(x, PLACES[place])

    def check(found, expected):
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found).astype(np.int8), expected)

    check(jnp.concatenate([x, x]), np.concatenate([values, values]))
    check(jnp.pad(x, (1, 2)), np.pad(values, (1, 2)))
    spread = [(1, -1, 2)]
    check(sw.lax.pad(x, jnp.array(1, dtype), spread), sw.lax.pad(values, np.int8(1), spread))
    check(sw.jit(lambda x: jnp.concatenate([jnp.pad(x, 1), x]))(x),
          np.concatenate([np.pad(values, 1), values]))  # fmt: skip
    check(jnp.roll(x, 3), np.roll(values, 3))
