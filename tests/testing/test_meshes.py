"""Simulated meshes, and sharding assertions."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from shardwise.testing import assert_same_sharding, simulated_mesh

X = np.arange(16, dtype=np.float32).reshape(8, 2)


def test_simulated_mesh():
    mesh = simulated_mesh((4, 2), ("x", "y"))
    assert dict(mesh.shape) == {"x": 4, "y": 2}
    assert mesh is simulated_mesh([4, 2], ["x", "y"])
    assert {d.platform for d in mesh.devices.flat} == {"cpu"}


def test_too_few_devices():
    with pytest.raises(RuntimeError) as caught:
        simulated_mesh((64, 64), ("x", "y"))
    count = len(sw.devices("cpu"))
    assert str(caught.value) == (
        f"a mesh of shape (64, 64) needs 4096 CPU devices, but there are {count}. Start the "
        "program with XLA_FLAGS=--xla_force_host_platform_device_count=4096, or call "
        "config.update('num_cpu_devices', 4096) before anything else."
    )


def test_same_sharding():
    mesh = simulated_mesh((2, 2), ("x", "y"))
    x = sw.device_put(X, NamedSharding(mesh, P("x", None)))
    assert_same_sharding(x, NamedSharding(mesh, P("x")))
    assert_same_sharding(NamedSharding(mesh, P("x")), x)
    assert_same_sharding(x, sw.device_put(X, NamedSharding(mesh, P("x"))))


def test_other_sharding():
    mesh = simulated_mesh((2, 2), ("x", "y"))
    x = sw.device_put(X, NamedSharding(mesh, P("x", None)))
    other = NamedSharding(mesh, P("y"))
    with pytest.raises(AssertionError) as caught:
        assert_same_sharding(x, other)
    assert str(caught.value) == (
        f"an array of type f32[8,2] is placed differently:\n  {x.sharding}\n  {other}"
    )
    with pytest.raises(AssertionError) as caught:
        assert_same_sharding(x, sw.device_put(X[:4], x.sharding))
    assert str(caught.value) == "shapes differ: (8, 2) and (4, 2)."
    with pytest.raises(TypeError, match=r"^expected an array among the arguments; got "):
        assert_same_sharding(other, other)
