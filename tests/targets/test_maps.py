"""Maps over devices of machines that are not attached, and values that cannot be put there."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.targets import CUDA, MACHINES, mesh_on, needs_cuda

X = np.ones((8, 3), np.float32)


def total(devices) -> Any:
    return sw.pmap(lambda x: x + lax.psum(x, "i"), axis_name="i", devices=devices)


@pytest.mark.parametrize("machine", MACHINES)
def test_pmap_of_types(machine):
    f = total(sw.targets.devices({CUDA: "h100:8"}.get(machine, "tpu-v5e:2x4")))
    lowered = f.lower(sw.ShapeDtypeStruct(X.shape, X.dtype))
    assert lowered.as_text() == f.lower(X).as_text()
    assert "all-reduce" in lowered.compile().as_text()


def test_pmap_of_types_on_devices_that_are_here():
    f = total(sw.devices("cpu"))
    compiled = f.lower(sw.ShapeDtypeStruct(X.shape, X.dtype)).compile()
    np.testing.assert_array_equal(compiled(f(X) * 0 + 1), f(X))
    assert message(TypeError, f, sw.ShapeDtypeStruct(X.shape, X.dtype)) == (
        "pmap of <lambda>: x: ShapeDtypeStruct(shape=(8, 3), dtype=float32) has no data; types "
        "are for `lower`, as in `pmap(f).lower(ShapeDtypeStruct(shape, dtype))`."
    )


@needs_cuda
def test_values_cannot_be_put_there():
    mesh = mesh_on("h100:8", (8,), ("x",))
    over, one = NamedSharding(mesh, P("x")), SingleDeviceSharding(mesh.flat_devices[0])
    rows = (
        (sw.device_put, X, over),
        (sw.device_put, X, one),
        (sw.device_put, jnp.asarray(X), over),
        (sw.make_array_from_callback, X.shape, over, lambda index: X[index]),
        (total(mesh.flat_devices), X),
    )
    for f, *args in rows:
        assert message(RuntimeError, f, *args) == (
            "a value of type f32[8,3] needs the devices of 'h100:8', but they are only described "
            "here: programs for them can be compiled, and not run. Run it on the machine itself, "
            "or on `shardwise.devices()`."
        )
