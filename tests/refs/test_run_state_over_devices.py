"""`run_state` of per-device code: refs are sharded, and their final values are concatenated."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise._src.refs.run_state import run_state
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()), ("x",))
X = np.arange(8, dtype=np.float32)


def part(ref):
    ref[...] = ref[...] * 2 + lax.psum(ref[...].sum(), "x")


step = run_state(sw.shard_map(part, mesh=MESH, in_specs=P("x"), out_specs=None))


@pytest.mark.parametrize("run", [step, sw.jit(step)], ids=["eager", "jit"])
def test_values_and_derivatives(run):
    np.testing.assert_array_equal(run(X), 2 * X + X.sum())
    np.testing.assert_array_equal(sw.grad(lambda x: (run(x) * X).sum())(X), 2 * X + X.sum())
