"""Grouped convolutions on accelerators, split along the batch: compiled, and their values on CPU."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime.platforms import CPU
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.bare import devices_of
from tests.helpers.targets import mesh_on, needs_cuda, needs_tpu, on

MACHINES = [pytest.param("h100:8", marks=needs_cuda), pytest.param("tpu-v5e:8", marks=needs_tpu)]


def conv(x: Any, w: Any, stride: int, groups: int) -> Any:
    window = {"feature_group_count": groups, "padding": [(2, 1), (1, 2)]}
    return sw.lax.conv_general_dilated(x, w, (stride, stride), **window)


def with_gradients(stride: int, groups: int) -> Any:
    def f(x: Any, w: Any) -> Any:
        loss = lambda x, w: (conv(x, w, stride, groups) ** 2).sum()  # noqa: E731
        return conv(x, w, stride, groups), *sw.grad(loss, argnums=(0, 1))(x, w)

    return f


@pytest.mark.parametrize("machine", MACHINES)
def test_they_compile(machine):
    """libtpu crashed on the products of strided slices that they were on every platform."""
    mesh = mesh_on(machine, (8,), ("x",))
    x, w = np.ones((8, 16, 16, 16), np.float32), np.ones((16, 4, 3, 3), np.float32)
    made = sw.jit(with_gradients(2, 4)).lower(on(mesh, x, "x"), on(mesh, w)).compile()
    assert made.memory_analysis().argument_size_in_bytes > 0


@pytest.mark.parametrize(("stride", "groups"), [(1, 2), (2, 4)])
def test_values(stride, groups):
    """The form of accelerators, partitioned and run by XLA's CPU backend."""
    devices = devices_of(dataclasses.replace(CPU, name="accelerator", is_xla_cpu=False), 8)
    mesh = Mesh(np.array(devices).reshape(4, 2), ("x", "y"))
    draw = np.random.default_rng(0).normal
    x = draw(size=(8, 8, 9, 9)).astype(np.float32)
    w = draw(size=(8, 8 // groups, 3, 3)).astype(np.float32)
    f = with_gradients(stride, groups)
    wanted = f(jnp.asarray(x), jnp.asarray(w))
    xs = (P("x"), P("x", "y"), P(("x", "y")), P(None, "x", "y"))
    for a, b in itertools.product(xs, (P(), P("y"))):
        given = [sw.device_put(v, NamedSharding(mesh, s)) for v, s in ((x, a), (w, b))]
        for found, expected in zip(sw.jit(f)(*given), wanted, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
