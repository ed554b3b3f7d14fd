"""On a machine with NVIDIA GPUs: moving arrays between GPUs, and between GPUs and the host."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.runtime import buffers, cuda, host
from shardwise._src.transfers import transfer
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not cuda.available(), reason="needs an NVIDIA GPU and the plugin")


def places(devices):
    """Shardings over one, some, and all devices, in both orders."""
    devices = np.array(devices)
    found = [SingleDeviceSharding(devices[0]), SingleDeviceSharding(devices[-1])]
    for some in (devices, devices[::-1], devices[: len(devices) // 2], devices[1:]):
        if len(some):
            mesh = Mesh(some, ("x",))
            found += [NamedSharding(mesh, s) for s in (P("x"), P(None, "x"), P())]
    return found


@pytest.fixture
def gpus():
    return sw.devices("cuda")


@pytest.mark.parametrize("shape", [(16, 8), (9, 7), (1, 1), (0, 3)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_between_gpus(gpus, shape, dtype):
    values = (np.arange(np.prod(shape)) % 7).reshape(shape).astype(dtype)
    for source, target in itertools.product(places(gpus), repeat=2):
        y = sw.device_put(sw.device_put(values, source), target)
        assert y.sharding is target and np.asarray(y).tobytes() == values.tobytes()


def test_pieces_give_what_the_choice_gives(gpus):
    values = np.arange(63, dtype=np.float32).reshape(9, 7)
    for source, target in itertools.product(places(gpus), repeat=2):
        y = transfer.STRATEGIES["pieces"](sw.device_put(values, source), target)
        np.testing.assert_array_equal(np.asarray(y), values)


def test_the_host_is_not_visited(gpus, monkeypatch):
    source, *targets = places(gpus)
    x = sw.device_put(np.ones((8, 8), np.float32), source)
    with monkeypatch.context() as patch:
        for module, name in ((buffers, "fetch_one"), (host, "shard_view"), (buffers, "put")):
            patch.delattr(module, name)
        moved = [sw.device_put(x, target) for target in targets]
    for y in moved:
        np.testing.assert_array_equal(np.asarray(y), 1)


def test_between_gpus_and_the_host(gpus):
    values = np.arange(63, dtype=np.float32).reshape(9, 7)
    for there, here in itertools.product(places(gpus), places(sw.devices("cpu"))):
        y = sw.device_put(sw.device_put(values, here), there)
        z = sw.device_put(y, here)
        np.testing.assert_array_equal(np.asarray(y), values)
        np.testing.assert_array_equal(np.asarray(z), values)
        assert y.sharding is there and z.sharding is here


def test_large_arrays_come_and_go(gpus):
    values = np.random.default_rng(0).random((1024, 1024), np.float32)
    for place in places(gpus):
        x = sw.device_put(values, place)
        np.testing.assert_array_equal(np.asarray(x + 1), values + 1)


def test_host_memory_of_a_gpu(gpus):
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    for place in places(gpus):
        x = sw.device_put(sw.device_put(values, place), place.with_memory_kind("pinned_host"))
        assert x.sharding.memory_kind == "pinned_host"
        np.testing.assert_array_equal(np.asarray(sw.device_put(x, place)), values)
