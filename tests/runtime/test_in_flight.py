"""Programs over several devices whose results are not awaited do not block each other.

Each runs in a separate process: XLA terminates a process that is stuck.
"""

import textwrap

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.flags import xla_flags
from tests.helpers.processes import python

PREAMBLE = """
import numpy as np
import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import NamedSharding, PartitionSpec as P

mesh = sw.make_mesh((4, 2), ("x", "y"))
x = sw.device_put(np.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("x", "y")))
alone = [sw.jit(lambda x, k=k: jnp.sin(x) * k) for k in range(4)]
"""
PROGRAMS = {
    # XLA counts all launches: a launch with collectives and many without it behind it are too many.
    "collectives_and_others": """
        for _ in range(150):
            rows = [x[i] for i in range(8)]
            for k in range(48):
                y = alone[k % 4](x)
    """,
    # Each launch deletes the results of the one before it.
    "donated": """
        step = sw.jit(lambda x: x - x.sum() * 0.1, donate_argnums=0)
        for _ in range(600):
            x = step(x)
    """,
    # Large results are not kept alive for this.
    "large_results": """
        big = sw.device_put(np.ones((512, 512), np.float32), NamedSharding(mesh, P("x", "y")))
        turned = sw.jit(lambda x: x[::-1])
        for _ in range(60):
            z = turned(big)
            for k in range(8):
                y = alone[k % 4](big)
        del y, z
        assert len(sw.live_arrays()) < 8
    """,
}


@pytest.mark.parametrize("name", everyday(PROGRAMS, 2))
def test_launches_that_nobody_waits_for(name):
    source = PREAMBLE + textwrap.dedent(PROGRAMS[name])
    done = python(source, XLA_FLAGS=xla_flags(8))
    assert done.returncode == 0, done.stderr
