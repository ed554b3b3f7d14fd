"""jaxlib's tracebacks of launches: off, unless jax or a memory profile reads them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardwise as sw

ROOT = Path(__file__).resolve().parents[2]


def run(code, **variables):
    """What a program prints in a separate process, with the CPU as the only platform."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


GROWTH = """
import gc, sys
import shardwise as sw, shardwise.numpy as jnp

f, x = sw.jit(lambda x: x + 1), jnp.ones(8)

def loop(count):
    global x
    for _ in range(count):
        x = -f(x) + 1
    x.block_until_ready()

loop(500)
gc.collect()
gc.disable()
before = sys.getallocatedblocks()
loop(2000)
print(sys.getallocatedblocks() - before)
"""


def test_launches_leave_nothing_in_memory_until_the_next_garbage_collection():
    assert int(run(GROWTH)) < 200  # with tracebacks, one block for each of 6000 launches


JAX_AFTERWARDS = """
import sys
import shardwise as sw
from jaxlib import _jax

sw.device_count()
finders = len(sys.meta_path)
off = _jax.tracebacks_enabled()
import jax
print(off, _jax.tracebacks_enabled(), finders - len(sys.meta_path))
print("<string>" in jax.jit(lambda x: x + 1).lower(1.0).as_text(debug_info=True))
"""


def test_jax_finds_its_tracebacks():
    assert run(JAX_AFTERWARDS).split() == ["False", "True", "1", "True"]


PROFILE = """
import gzip
import shardwise as sw, shardwise.numpy as jnp
from shardwise import profiler

def made_by_this_function():
    return jnp.ones((8, 1024)) + 1

held = made_by_this_function()
content = profiler.device_memory_profile()
content = gzip.decompress(content) if content.startswith(b"\\x1f\\x8b") else content
print(b"buffer" in content, b"made_by_this_function" in content)
"""


@pytest.mark.parametrize("flag", [False, True])
def test_memory_profiles_show_where_arrays_were_made(flag):
    out = run(PROFILE, SHARDWISE_ARRAY_TRACEBACKS=str(flag))
    assert out.split() == ["True", str(flag)]


def test_the_flag_cannot_change_once_devices_are_started():
    count = sw.device_count()
    with pytest.raises(RuntimeError) as error:
        sw.config.update("array_tracebacks", True)
    assert str(error.value) == (
        f"array_tracebacks cannot be set to True any more: the devices ({count} of cpu) have "
        "already been started. Set it before the first use of an array or device, or with the "
        "environment variable SHARDWISE_ARRAY_TRACEBACKS."
    )
