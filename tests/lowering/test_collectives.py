"""Programs over several devices send no more data than necessary."""

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]), ("x",))
ROWS = NamedSharding(MESH, P("x"))


def sent(f, *args):
    """The collectives of a compiled program, by name."""
    hlo = sw.jit(f).lower(*args).compile().as_text()
    names = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
    found = {name: hlo.count(f" {name}(") + hlo.count(f" {name}-start(") for name in names}
    return {name: n for name, n in found.items() if n}


def test_the_gradient_of_picked_elements_gathers_nothing():
    def loss(x, targets):
        picked = jnp.take_along_axis(jnp.tanh(x), targets[..., None], axis=-1)
        return -jnp.mean(picked)

    x = sw.device_put(np.ones((16, 4, 32), np.float32), ROWS)
    targets = sw.device_put(np.ones((16, 4), np.int32), ROWS)
    assert sent(sw.grad(loss), x, targets) == {}
    assert sent(loss, x, targets) == {"all-reduce": 1}


def test_maxima_send_one_number_each():
    x = sw.device_put(np.ones((16, 4), np.float32), ROWS)
    assert sent(lambda x: jnp.max(x, 0), x) == {"all-reduce": 1}
    assert sent(lambda x: jnp.max(x, 1), x) == {}
