"""Grids of devices, and `pjit` under its older names. jax is the reference for hybrid grids."""

import itertools
import math
from dataclasses import dataclass

import hypothesis.strategies as st
import jax.experimental.mesh_utils as theirs
import numpy as np
import pytest
from hypothesis import given, settings

import shardwise as sw
from shardwise.experimental.mesh_utils import create_device_mesh, create_hybrid_device_mesh
from shardwise.experimental.pjit import pjit
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers.errors import message as error_of


@dataclass(frozen=True)
class Fake:
    """A device with the attributes that grids use."""

    id: int
    process_index: int
    slice_index: int
    platform: str = "gpu"
    device_kind: str = "fake"


def cluster(slices, processes, each, platform="gpu"):
    """Devices in slices of several processes."""
    count = slices * processes * each
    return [Fake(i, i // each, i // (each * processes), platform) for i in range(count)]


def test_device_meshes_are_in_order():
    devices = sw.devices()
    np.testing.assert_array_equal(create_device_mesh((4, 2)), np.array(devices).reshape(4, 2))
    np.testing.assert_array_equal(create_device_mesh([3], devices[:3]), np.array(devices[:3]))
    grid = create_device_mesh((2,), devices[:2], contiguous_submeshes=True)
    assert Mesh(grid, "x").shape == {"x": 2}
    gpus = cluster(1, 1, 4)
    assert create_device_mesh((4,), gpus[::-1]).tolist() == gpus  # by id, in network order


@dataclass(frozen=True)
class Tpu(Fake):
    """A TPU at a place of the network."""

    coords: tuple[int, int, int] = (0, 0, 0)
    core_on_chip: int = 0


def machine(kind, sizes, cores=1, slices=1):
    """The devices of a machine, by core, x, y and z."""
    places = itertools.product(range(slices), *[range(n) for n in sizes[::-1]], range(cores))
    return [
        Tpu(i, i // 4, s, "tpu", kind, (x, y, z), core)
        for i, (s, z, y, x, core) in enumerate(places)
    ]


MACHINES = [
    ("TPU v3", (4, 4, 1), 2), ("TPU v2", (2, 2, 1), 2), ("TPU v4", (4, 4, 4), 1),
    ("TPU v4", (2, 2, 4), 1), ("TPU v4 lite", (2, 2, 1), 1), ("TPU v5 lite", (4, 4, 1), 1),
    ("TPU v5 lite", (2, 4, 1), 1), ("TPU v5 lite", (8, 4, 1), 1), ("TPU v5 lite", (2, 2, 2), 1),
    ("TPU v6 lite", (2, 2, 1), 1), ("TPU v5p", (2, 2, 2), 1), ("TPU v5p", (2, 2, 4), 2),
    ("TPU7x", (2, 2, 2), 2), ("TPU7x", (4, 2, 2), 2),
]  # fmt: skip


@pytest.mark.parametrize("kind, sizes, cores", MACHINES)
def test_meshes_of_tpus_are_those_of_jax(kind, sizes, cores):
    devices = machine(kind, sizes, cores)
    total = len(devices)
    factors = [n for n in range(1, total + 1) if total % n == 0]
    shapes = [(n, total // n) for n in factors] + [(n, 1, total // n) for n in factors]
    shapes += [(2, n // 2, total // n) for n in factors[1::2]] + [(total,)]
    for shape, split, contiguous in itertools.product(shapes, (False, True), (False, True)):
        if math.prod(shape) != total:
            continue
        options = {"allow_split_physical_axes": split, "contiguous_submeshes": contiguous}
        try:
            wanted = theirs.create_device_mesh(shape, devices, **options)
        except (NotImplementedError, ValueError) as error:
            with pytest.raises(type(error)):
                create_device_mesh(shape, devices, **options)
        else:
            np.testing.assert_array_equal(create_device_mesh(shape, devices, **options), wanted)


def test_tpus_in_no_box_stay_in_order():
    devices = machine("TPU v4", (4, 1, 1))[:3] + machine("TPU v4", (1, 2, 1))[1:]
    assert create_device_mesh((2, 2), devices).ravel().tolist() == devices


def test_hybrid_meshes_of_tpus_are_those_of_jax():
    devices = machine("TPU v4", (4, 2, 2), slices=2)
    wanted = theirs.create_hybrid_device_mesh((4, 4), (1, 2), devices)
    np.testing.assert_array_equal(create_hybrid_device_mesh((4, 4), (1, 2), devices), wanted)


@settings(max_examples=100)
@given(st.data())
def test_hybrid_meshes_are_those_of_jax(data):
    by_process, ordered = data.draw(st.booleans()), data.draw(st.booleans())
    inner = data.draw(st.sampled_from([(2, 2), (4, 1), (1, 4), (1, 2, 2)]))
    outer = data.draw(st.permutations([3, 2, 1][: len(inner)]))
    granules = int(np.prod(outer))
    counts = (1, granules, 4) if by_process else (granules, 2, 2)
    devices = cluster(*counts, data.draw(st.sampled_from(["cpu", "gpu"])))
    devices = data.draw(st.permutations(devices))
    options = {"process_is_granule": by_process, "should_sort_granules_by_key": ordered}
    found = create_hybrid_device_mesh(inner, outer, devices, **options)
    assert found.shape == tuple(np.multiply(inner, outer))
    expected = theirs.create_hybrid_device_mesh(inner, outer, devices, **options)
    np.testing.assert_array_equal(found, expected)


def test_a_hybrid_mesh_of_this_process():
    grid = create_hybrid_device_mesh((4, 2), (1, 1), process_is_granule=True)
    np.testing.assert_array_equal(grid, np.array(sw.devices()).reshape(4, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: create_device_mesh((3,)),
         "a mesh of shape (3,) takes 3 devices, but 8 devices were given."),
        (lambda: create_hybrid_device_mesh((2, 2), (2,), cluster(2, 2, 2)),
         "a hybrid mesh has two factors for each axis, but mesh_shape is (2, 2) and "
         "dcn_mesh_shape is (2,). Use factors of 1 for an axis within only one of the two "
         "networks."),
        (lambda: create_hybrid_device_mesh((2, 2), (4, 1), cluster(2, 2, 2)),
         "dcn_mesh_shape (4, 1) takes 4 granules, but the devices form 2, by slice_index: [0, 1]."),
        (lambda: create_hybrid_device_mesh((2, 1), (2, 1), cluster(2, 2, 2)),
         "mesh_shape (2, 1) takes 2 devices of each granule, but the one with slice_index 0 has "
         "4."),
        (lambda: create_hybrid_device_mesh((8,), (1,)),
         f"the device {sw.devices()[0]} has no slice_index, by which granules are distinguished. "
         "With process_is_granule=True they are distinguished by process_index."),
    ],
)  # fmt: skip
def test_errors(make, message):
    assert error_of(ValueError, make) == message


def test_pjit_takes_the_older_names():
    mesh, x = Mesh(sw.devices(), "x"), np.arange(8, dtype="float32")
    rows = NamedSharding(mesh, PartitionSpec("x"))
    with mesh:
        f = pjit(lambda a: 2 * a, in_axis_resources=None, out_axis_resources=PartitionSpec("x"))
        assert f(x).sharding is rows

    @pjit(in_axis_resources=rows, static_argnums=1)
    def power(a, n):
        return a**n

    np.testing.assert_array_equal(power(x, 2), x**2)
    assert power.lower(x, 2).as_text().count("sdy.mesh") == 1
    with pytest.raises(ValueError) as error:
        pjit(lambda a: a, in_shardings=rows, in_axis_resources=rows)
    assert str(error.value) == (
        "pjit got both in_shardings and in_axis_resources, which mean the same; pass only "
        "in_shardings."
    )
