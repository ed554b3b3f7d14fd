"""On a machine with an NVIDIA GPU and the plugin: the same programs, on the device."""

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.runtime import cuda
from shardwise.experimental import serialize_executable

pytestmark = pytest.mark.skipif(not cuda.available(), reason="needs an NVIDIA GPU and the plugin")


@pytest.fixture
def gpu():
    return sw.devices("cuda")[0]


def test_jit_on_the_device_equals_numpy(gpu):
    x = np.linspace(0, 1, 1024, dtype=np.float32).reshape(32, 32)
    y = sw.jit(lambda a: a @ a + a)(sw.device_put(x, gpu))
    assert y.devices() == {gpu}
    np.testing.assert_allclose(np.asarray(y), x @ x + x, rtol=2e-3)


def test_gradient_on_the_device_equals_the_cpu(gpu):
    def loss(w, x):
        return ((x @ w) ** 2).sum()

    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=(16, 16)).astype(np.float32) for _ in range(2))
    here = sw.jit(sw.grad(loss))(sw.device_put(w, gpu), sw.device_put(x, gpu))
    cpu = sw.devices("cpu")[0]
    there = sw.jit(sw.grad(loss))(sw.device_put(w, cpu), sw.device_put(x, cpu))
    np.testing.assert_allclose(np.asarray(here), np.asarray(there), rtol=2e-2, atol=1e-2)


def test_transfer_between_gpu_and_cpu(gpu):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    there = sw.device_put(x, gpu)
    back = sw.device_put(there, sw.devices("cpu")[0])
    np.testing.assert_array_equal(np.asarray(there), x)
    np.testing.assert_array_equal(np.asarray(back), x)


def test_a_program_stored_for_this_gpu_runs(gpu):
    """Compiled from the GPU's description, as on a machine without it."""
    sw.targets.add("this-gpu", sw.targets.description(gpu))
    (described,) = sw.targets.devices("this-gpu")
    assert described.device_kind == gpu.device_kind
    there = sw.sharding.SingleDeviceSharding(described)
    x = np.linspace(0, 1, 1024, dtype=np.float32).reshape(32, 32)
    made = sw.jit(lambda a: a @ a + a).lower(sw.ShapeDtypeStruct(x.shape, x.dtype, sharding=there))
    loaded = serialize_executable.deserialize_and_load(
        *serialize_executable.serialize(made.compile())
    )
    np.testing.assert_allclose(loaded(sw.device_put(x, gpu)), x @ x + x, rtol=2e-3)
