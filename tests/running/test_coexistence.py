"""Alongside jax, without jax, and with many programs in flight: each in a separate process."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.flags import xla_flags

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jax", "jax_plugins"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
"""
EVERYTHING = """
import pickle, sys
import numpy as np, ml_dtypes
import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
values = np.arange(32, dtype=np.float32).reshape(8, 4)
DTYPES = (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, bool)

def use():
    for spec in (P("x"), P("x", "y"), P(), P(None, "y")):
        for dtype in DTYPES:
            here = (values % 7).astype(dtype)
            x = sw.device_put(here, NamedSharding(mesh, spec))
            assert np.asarray(x).tobytes() == here.tobytes()
            assert np.asarray(x.addressable_shards[1].data).shape == x.sharding.shard_shape((8, 4))
            assert np.asarray(sw.device_put(x, sw.devices()[3])).tobytes() == here.tobytes()
            assert pickle.loads(pickle.dumps(x)).dtype == dtype
    one = sw.device_put(values, sw.devices()[2])
    assert one.unsafe_buffer_pointer() and np.from_dlpack(one).shape == (8, 4)
    x = sw.device_put(values, NamedSharding(mesh, P("x")))
    y = sw.jit(lambda a: (a @ a.T).sum(0))(x)
    np.testing.assert_allclose(np.asarray(y), (values @ values.T).sum(0))
    g = sw.grad(lambda a: (a ** 2).sum())(x)
    np.testing.assert_allclose(np.asarray(g), 2 * values)
    assert repr(y) and str(x) and float(y[0]) == (values @ values.T).sum(0)[0]
    x.copy_to_host_async(); x.block_until_ready(); x.delete()

"""


def run(code, seconds=100):
    env = os.environ | {
        "XLA_FLAGS": xla_flags(8),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_nothing_imports_jax():
    assert run(EVERYTHING + "use(); print('jax' in sys.modules)") == "False\n"


def test_where_jax_cannot_be_imported():
    assert run(BLOCKED + EVERYTHING + "use(); print('done')") == "done\n"


BOTH = """
import jax

jax_mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
jax_rows = jax.sharding.NamedSharding(jax_mesh, jax.sharding.PartitionSpec("x"))

def use_jax():
    x = jax.device_put(values, jax_rows)
    y = jax.jit(lambda a: a @ a.T)(x)
    np.testing.assert_allclose(np.asarray(y), values @ values.T)
    part = y.addressable_shards[3].data
    np.testing.assert_array_equal(np.asarray(part), (values @ values.T)[2:4])
    assert y.addressable_shards[0].data.aval.shape == (2, 8)
    np.testing.assert_allclose(np.asarray(jax.grad(lambda a: (a**2).sum())(x)), 2 * values)
    assert str(jax.device_put(values.astype(ml_dtypes.bfloat16)).dtype) == "bfloat16"
    return y

def exchange():
    theirs, ours = use_jax(), sw.device_put(values, NamedSharding(mesh, P("x")))
    np.testing.assert_allclose(np.asarray(sw.jit(jnp.sin)(theirs)), np.sin(values @ values.T),
                               atol=1e-5)
    np.testing.assert_allclose(np.asarray(jnp.asarray(theirs) + theirs), 2 * values @ values.T)
    np.testing.assert_allclose(np.asarray(sw.device_put(theirs, NamedSharding(mesh, P("x")))),
                               values @ values.T)
    np.testing.assert_allclose(np.asarray(sw.jit(lambda: jnp.ones(8) + theirs)()),
                               1 + values @ values.T)
    np.testing.assert_allclose(np.asarray(jax.numpy.asarray(ours)), values)
    assert not isinstance(theirs, sw.Array) and not isinstance(ours, jax.Array)
"""


@pytest.mark.parametrize("order", everyday(["jax first", "jax second", "jax after use"], 1))
def test_both_in_one_process(order):
    parts = {
        "jax first": "import jax\n" + EVERYTHING + BOTH,
        "jax second": EVERYTHING + BOTH,
        "jax after use": EVERYTHING + "use()\n" + BOTH,
    }
    code = parts[order] + "use(); use_jax(); exchange(); use(); use_jax(); print('done')"
    assert run(code) == "done\n"


def test_many_collective_programs_in_flight():
    code = EVERYTHING + textwrap.dedent("""
        total = sw.jit(lambda a: a - a.sum() / 1e6)
        x = sw.device_put(values, NamedSharding(mesh, P("x", "y")))
        assert total.lower(x).compile().executable.module.has_collectives
        for _ in range(200):
            x = total(x)
        y = sw.device_put(values, NamedSharding(mesh, P("x")))
        for _ in range(100):
            y = sw.device_put(y, NamedSharding(mesh, P()))
            y = sw.device_put(y, NamedSharding(mesh, P("y")))
        print(np.isfinite(np.asarray(x)).all(), np.asarray(y).sum() == values.sum())
    """)
    assert run(code) == "True True\n"
