"""Maps over devices of machines that are not attached, and values that cannot be put there."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
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
    f = total(mesh_on("h100:8", (8,), ("x",)).flat_devices)
    assert message(RuntimeError, f, X) == (
        "an array cannot be put on the devices of 'h100:8': they are only described, so that "
        "programs for them can be compiled. Pass `ShapeDtypeStruct`s with shardings over them to "
        "`jit(f).lower` or `explain(f)`."
    )
