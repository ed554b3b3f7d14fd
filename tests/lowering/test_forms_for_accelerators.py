"""Instructions in the forms that are for GPUs and TPUs compute the same: they also run on a CPU, as the
programs of a platform that is not known to be one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.patience import seconds

ROOT = Path(__file__).parents[2]
PROGRAM = """
import numpy as np
import shardwise as sw
import shardwise.numpy as jnp
from jaxlib import xla_client as xc
from shardwise import lax
from shardwise.extend import backend

def make_client():
    return xc.make_cpu_client(asynchronous=True, num_devices=4)

backend.register_platform(backend.Platform(name="bare", make_client=make_client))
draw = np.random.default_rng(0)
cpus, bare = sw.devices("cpu"), sw.devices("bare")
texts = {}  # of programs for the bare platform

def compared(name, f, *args, spec=None):
    found = []
    for devices in (cpus, bare):
        if spec is None:
            placed = [sw.device_put(x, devices[0]) for x in args]
        else:
            mesh = sw.sharding.Mesh(np.array(devices[:4]).reshape(2, 2), ("x", "y"))
            placed = [sw.device_put(x, sw.NamedSharding(mesh, sw.P(*spec))) for x in args]
        program = sw.jit(f).lower(*placed)
        found.append([np.asarray(y) for y in sw.tree.leaves(program.compile()(*placed))])
    for a, b in zip(*found, strict=True):
        near = 1e-5 * np.nanmax(np.abs(b.astype(np.complex64)), initial=0)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=near, err_msg=name)
    texts[name] = program.as_text()
    return found[1]

def floats(*shape):
    return draw.standard_normal(shape).astype(np.float32)

# -- alternating elements --
for n in (1, 2, 7):
    compared("product", lambda x: lax.associative_scan(jnp.multiply, x), floats(n, 3))
    compared("along 1", lambda x: lax.associative_scan(jnp.maximum, x, axis=1), floats(2, n))
alternating = lambda x, y: jnp.stack([x, y], -1).reshape(*x.shape[:-1], -1)
for dtype in (np.int8, bool, np.complex64):
    x, y = [draw.integers(0, 2, (3, 4)).astype(dtype) for _ in range(2)]
    (z,) = compared("alternating", alternating, x, y)
    assert np.array_equal(z[:, ::2], x) and np.array_equal(z[:, 1::2], y)
(z,) = compared("signs", alternating, np.array([-0.0, np.nan], np.float32), -floats(2) * 0)
assert np.signbit(z[0]) and np.isnan(z[2])
compared("other", lambda x, y: jnp.stack([x, y], -1).reshape(4, 6), floats(3, 4), floats(3, 4))
compared("first", lambda x, y: jnp.stack([x, y], 0).reshape(-1), floats(3, 4), floats(3, 4))
assert "stablehlo.pad" in texts["alternating"]

# -- products with exchanged operands --
def losses(rule):
    loss = lambda *args: jnp.sum(jnp.square(jnp.einsum(rule, *args)))
    return lambda *args: (jnp.einsum(rule, *args), sw.grad(loss, argnums=(0, 1))(*args))

for rule, one, other in (
    ("bqhd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 4, 5)),
    ("bhqk,bkhd->bqhd", (2, 4, 3, 6), (2, 6, 4, 5)),
    ("ijb,bjk->bik", (3, 5, 2), (2, 5, 6)),
    ("bijc,bci->bj", (2, 3, 4, 5), (2, 5, 3)),
):
    compared(rule + " split", losses(rule), floats(*[2 * n for n in one]),
             floats(*[2 * n for n in other]), spec=("x", "y"))

# -- windows, repeated operands, reductions over devices --
def pooled(x):
    y = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 2), (1, 2, 1), "SAME")
    return jnp.sum(jnp.square(y))

compared("pool", sw.grad(pooled), floats(4, 8, 6))
compared("pool split", sw.grad(pooled), floats(4, 8, 6), spec=("x", "y"))
compared("pool along", sw.grad(pooled), floats(4, 8, 6), spec=(None, ("x", "y")))
compared("twice", lambda x: jnp.concatenate([x, x, x + 1])[1:], floats(8))
compared("extremes", lambda x: (jnp.max(x, 0), jnp.min(x), x.at[0].max(x[1])), floats(8, 4),
         spec=("x", "y"))
bits = draw.integers(0, 99, (8, 4)).astype(np.int32)
compared("bits", lambda x: lax.reduce(x, np.int32(0), lax.bitwise_xor, (0,)), bits, spec=("x",))
compared("own", lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b, (0,)),
         floats(8, 4), spec=("x",))
print("all right")
"""


def test_values():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "SHARDWISE_NUM_CPU_DEVICES": "4"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds(60),
    )
    assert ended.stdout == "all right\n", ended.stderr[-3000:]
