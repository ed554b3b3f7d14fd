"""Loops of launches and of reads do not grow: what the runtime leaves of each is freed by the next."""

import gc
import sys

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec


def on_one_device():
    return jnp.ones(8)


def on_all_devices():
    mesh = Mesh(sw.devices(), ("x",))
    return sw.device_put(np.ones(16, np.float32), NamedSharding(mesh, PartitionSpec("x")))


def one_result(x):
    return -x + 1


def pytree(x):
    return PAIR(x)[0]


def donated(x):
    return IN_PLACE(x)


def waited_for(x):
    return x.block_until_ready()


def read(x):
    np.asarray(x), x.tolist(), x.is_ready(), x.is_deleted(), x.copy_to_host_async()
    return x


PAIR = sw.jit(lambda x: (x + 1, x))
IN_PLACE = sw.jit(lambda x: x + 1, donate_argnums=0)


@pytest.mark.parametrize("step", [one_result, pytree, donated, waited_for, read])
@pytest.mark.parametrize("make", [on_one_device, on_all_devices])
def test_without_garbage_collection(make, step):
    def loop(x, count):
        for _ in range(count):
            x = step(x)
        x.block_until_ready()
        return x

    x = loop(make(), 300)
    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        x = loop(x, 1000)
        assert sys.getallocatedblocks() - before < 300  # one or more for each launch, if kept
    finally:
        gc.enable()
