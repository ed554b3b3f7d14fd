"""`AbstractDevice` and `ManualAxisType`."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

import shardwise as sw
from shardwise.core import ShapedArray
from shardwise.sharding import (
    AbstractDevice,
    AbstractMesh,
    ManualAxisType,
    SingleDeviceSharding,
    make_single_device_sharding,
    use_abstract_mesh,
)
from tests.helpers.meshes import mesh_of

TPU = AbstractDevice(device_kind="TPU v6 lite", num_cores=1, platform="tpu")


def test_meshes_for_a_kind_of_device():
    mesh = AbstractMesh((2, 4), ("x", "y"), abstract_device=TPU)
    plain = AbstractMesh((2, 4), ("x", "y"))
    assert mesh is AbstractMesh((2, 4), ("x", "y"), abstract_device=copy.copy(TPU)) is not plain
    assert (mesh.abstract_device, plain.abstract_device) == (TPU, None)
    assert mesh.update(abstract_device=None) is plain
    assert mesh.update(axis_names=("a", "b")).abstract_device == TPU
    assert mesh.update_axis_types({}) is mesh and pickle.loads(pickle.dumps(mesh)) is mesh
    assert str(mesh).endswith(
        "AbstractDevice(device_kind='TPU v6 lite', num_cores=1, platform='tpu'))"
    )
    assert mesh_of(2, 4).abstract_mesh.abstract_device is None
    with pytest.raises(
        TypeError,
        match=re.escape("AbstractMesh: abstract_device must be an AbstractDevice; got 'tpu'."),
    ):
        AbstractMesh((2,), ("x",), abstract_device="tpu")  # pyright: ignore[reportArgumentType]


def test_programs_are_lowered_for_the_kind_in_scope():
    f = sw.jit(lambda x: x + 1)
    cpu = AbstractDevice("cpu", None, "cpu")
    with use_abstract_mesh(AbstractMesh((2,), ("x",), abstract_device=cpu)):
        assert "stablehlo.add" in f.trace(1.0).lower().as_text()
    with use_abstract_mesh(AbstractMesh((2,), ("x",), abstract_device=TPU)):
        traced = f.trace(1.0)
        with pytest.raises(RuntimeError, match="is lowered for an AbstractMesh, without devices"):
            traced.lower().compile()
        assert "stablehlo.add" in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_manual_axes():
    t = ManualAxisType(varying=frozenset("ab"), unreduced=frozenset("c"))
    assert t.vur == {"a", "b", "c"} and not t.empty and ManualAxisType().empty
    assert t.update(varying=frozenset()) == ManualAxisType(unreduced=frozenset("c"))
    assert t.to_ct_mat() == ManualAxisType(varying=frozenset("ab"), reduced=frozenset("c"))
    manual = mesh_of(2, 4).abstract_mesh.update_axis_types(
        dict.fromkeys("xy", sw.sharding.AxisType.Manual)
    )
    assert ManualAxisType(varying=frozenset("x")).invarying(manual) == {"y"}
    with pytest.raises(
        ValueError,
        match=re.escape(
            "ManualAxisType: varying and reduced must have no axis in common; got ['a'] in both."
        ),
    ):
        ManualAxisType(varying=frozenset("a"), reduced=frozenset("a"))


def test_types_say_their_manual_axes():
    found = []
    sw.jit(
        sw.shard_map(
            lambda x: found.append(sw.typeof(x)) or x,
            mesh=mesh_of(2, 4),
            in_specs=sw.P("x"),
            out_specs=sw.P("x"),
        )
    )(np.ones(4, np.float32))
    assert found[0].manual_axis_type == found[0].mat == ManualAxisType(varying=frozenset("x"))
    again = ShapedArray((2,), np.float32, manual_axis_type=found[0].mat)
    assert again is ShapedArray((2,), np.float32, vma={"x"}) is found[0]
    full = ManualAxisType(unreduced=frozenset("x"), reduced=frozenset("y"))
    other = ShapedArray((2,), np.float32, manual_axis_type=full)
    assert other.mat == full and str(other) == "float32[2]{U:x, R:y}"


def test_shardings_of_one_device():
    device = sw.devices()[1]
    assert make_single_device_sharding(device) is SingleDeviceSharding(device)
    pinned = make_single_device_sharding(device, memory_kind="pinned_host")
    assert pinned.memory_kind == "pinned_host"
