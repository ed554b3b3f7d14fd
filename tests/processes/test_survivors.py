"""Processes that continue after others were lost."""

import signal

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.processes import run_processes

TRAINING = """
import os, signal, sys
import numpy as np
import shardwise as sw, shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec as P

victim, across = int(sys.argv[1]), sys.argv[2] == "across"
rank = sw.process_index()
devices = np.array(sw.devices()).reshape(3, 2)
mesh = Mesh(devices, ("data", "model"))
if across:  # parts of parameters in several processes: 1 x 3, twice
    mesh = Mesh(devices.T, ("data", "model"))
rng = np.random.default_rng(0)
rows, wanted = rng.normal(size=(12, 6)).astype("f4"), rng.normal(size=(12, 4)).astype("f4")
start = {"w": rng.normal(size=(6, 4)).astype("f4"), "b": np.zeros(4, "f4")}
SPECS = {"w": P(None, "model"), "b": P()}

@sw.jit
def step(state, x, y):
    def loss(p):
        return ((x @ p["w"] + p["b"] - y) ** 2).mean()
    value, grad = sw.value_and_grad(loss)(state)
    return sw.tree.map(lambda p, g: p - 0.1 * g, state, grad), value

def placed(mesh):
    where = NamedSharding(mesh, P("data"))
    return sw.device_put(rows, where), sw.device_put(wanted, where)

def reference(steps):
    w, b = start["w"].astype("f8"), start["b"].astype("f8")
    for _ in range(steps):
        e = 2 * (rows @ w + b - wanted) / wanted.size
        w, b = w - 0.1 * rows.T @ e, b - 0.1 * e.sum(0)
    return w, b

a = devices  # parts of z are in other processes than those that need them in the end
other = Mesh([[a[0, 0], a[2, 0]], [a[1, 0], a[1, 1]]], ("data", "model"))
z = sw.device_put(np.arange(12.0, dtype="f4").reshape(4, 3), NamedSharding(other, P("model")))
z = sw.jit(lambda z: z + 0)(z)  # over the connections that break
z.block_until_ready()
states = {0: {k: sw.device_put(v, NamedSharding(mesh, SPECS[k])) for k, v in start.items()}}
x, y = placed(mesh)
n = 0
try:
    while n < 20:
        if n == 7 and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        state, value = step(states[n], x, y)
        float(value)
        n += 1
        states[n] = state
except sw.errors.ProcessFailureError as error:
    assert error.processes == (victim,), error
    left = sw.distributed.survivors()
    assert left.lost == (victim,) and len(left.devices) == 4, left
    n = left.least(n)
    assert n == 7, n
    if across:
        assert left.mesh(mesh).devices.shape == (2, 2)
    else:
        mesh = left.mesh(mesh)
        assert mesh.devices.shape == (2, 2) and mesh.axis_names == ("data", "model")
        assert {d.process_index for d in mesh.devices.flat} == {0, 1, 2} - {victim}
        state = left.arrays(states[n], mesh)
        x, y = placed(mesh)
        while n < 20:
            state, value = step(state, x, y)
            n += 1
        w, b = reference(20)
        full = sw.jit(lambda state: state, out_shardings=NamedSharding(mesh, P()))(state)
        np.testing.assert_allclose(np.asarray(full["w"]), w, rtol=2e-4, atol=1e-5)
        np.testing.assert_allclose(np.asarray(full["b"]), b, rtol=2e-4, atol=1e-5)
    if across:
        try:
            left.arrays(states[n], left.mesh(mesh))
        except sw.errors.ProcessFailureError as error:
            print(str(error).partition("Examples")[0].strip())
        both = left.arrays({"b": states[0]["b"]}, left.mesh(mesh))["b"]
        np.testing.assert_array_equal(np.asarray(both), start["b"])
        small = left.mesh(other)
        assert small.devices.shape == (1, 2), small
        moved = left.arrays([z, 3], small)
        assert moved[1] == 3 and moved[0].sharding.spec == P("model")
        again = sw.jit(lambda z: z * 1, out_shardings=NamedSharding(small, P()))(moved[0])
        np.testing.assert_array_equal(np.asarray(again), np.arange(12.0).reshape(4, 3))
    try:
        float(step(states[0], *placed(Mesh(devices, ("data", "model"))))[1])
    except sw.errors.ProcessFailureError as error:
        assert error.processes == (victim,)
    assert "failure" in sw.distributed.flight_record()
    print("done")
"""


@pytest.mark.parametrize("victim", everyday([0, 1, 2], 1, "victims"))
def test_training_goes_on_with_those_who_are_left(victim):
    results = run_processes(
        TRAINING, 3, devices=2, args=[str(victim), "rows"], expect=None, timeout=60
    )
    told = "\n".join(r.err for r in results)
    expected = [-signal.SIGKILL if r == victim else 0 for r in range(3)]
    assert [r.status for r in results] == expected, told
    assert [r.out for r in results if r.rank != victim] == ["done\n"] * 2, told


@pytest.mark.sweep
def test_what_is_not_whole_is_named():
    results = run_processes(TRAINING, 3, devices=2, args=["1", "across"], expect=None, timeout=60)
    told = "\n".join(r.err for r in results)
    assert [r.out for r in results if r.rank != 1] == [
        "Survivors.arrays: incomplete without processes [1]: ['b'] (f32[4] lacks [2:4]); ['w'] "
        "(f32[6,4] lacks [:, 2:4]). Restore these from a checkpoint, or keep them replicated over "
        "processes.\ndone\n"
    ] * 2, told
