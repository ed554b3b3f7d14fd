"""Shardings: index arithmetic, equivalence, identity, errors. jax is the reference."""

import copy
import math
import pickle
from types import SimpleNamespace

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import UNCONSTRAINED, P
from shardwise._src.types.sharding import (
    GSPMDSharding,
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    spec_from_tiles,
)
from shardwise._src.types.tiling import Tiling
from tests.helpers.errors import message as error_of
from tests.helpers.threads import at_once

THEIRS = jax.sharding
GRIDS = [  # tile assignment dimensions, and whether the last one counts replicas
    ((8,), False),
    ((2, 4), False),
    ((8, 1), False),
    ((2, 2, 2), True),
    ((4, 2), True),
    ((1, 8), True),
]
MESH_SHAPES = [(8,), (4, 2), (2, 4), (2, 2, 2), (1, 8), (4, 1, 2), (2, 1), (3, 2), (1,), (6,), (7,)]


class FakeDevice:
    """A device of process `process`, seen from process 0."""

    def __init__(self, id, process=0):
        self.id, self.process_index = id, process
        self.client = SimpleNamespace(process_index=0)

    def __repr__(self):
        return f"Fake({self.id})"

    def __reduce__(self):
        return fake, (self.id,)


FAKES = [FakeDevice(i) for i in range(8192)]


def fake(id):
    return FAKES[id]


def mesh_of(*sizes, names="xyz", **options):
    count = math.prod(sizes)
    return Mesh(np.array(FAKES[:count]).reshape(sizes), tuple(names[: len(sizes)]), **options)


# ---------------------------------------------------------------------- strategies


@st.composite
def meshes(draw):
    """(our mesh, jax's) over the same devices, in any order."""
    sizes = draw(st.sampled_from(MESH_SHAPES))
    order = draw(st.permutations(range(8)))[: math.prod(sizes)]
    devices = np.array(jax.devices(), object)[list(order)].reshape(sizes)
    names = tuple("xyz"[: len(sizes)])
    return Mesh(devices, names), THEIRS.Mesh(devices, names)


@st.composite
def specs(draw, names, max_dims=3):
    """The entries of a spec that uses each name at most once."""
    left = list(draw(st.permutations(names)))
    entries = []
    for _ in range(draw(st.integers(0, max_dims))):
        taken = draw(st.integers(0, min(2, len(left))))
        axes, left = tuple(left[:taken]), left[taken:]
        entries.append(axes if taken > 1 else axes[0] if taken else None)
    return tuple(entries)


@st.composite
def placements(draw):
    """(our sharding, jax's sharding, a shape that both can shard)."""
    ours, theirs = draw(meshes())
    spec = draw(specs(ours.axis_names))
    sharding = NamedSharding(ours, P(*spec))
    ndim = len(spec) + draw(st.integers(0, 1))
    tiles = sharding.tiling(ndim).dims
    shape = tuple(draw(st.integers(0, 3)) * count for count in tiles)
    return sharding, THEIRS.NamedSharding(theirs, THEIRS.PartitionSpec(*spec)), shape


# ------------------------------------------------------------------- index arithmetic


@settings(max_examples=300)
@given(placements())
def test_indices_are_those_of_jax(placement):
    ours, theirs, shape = placement
    assert ours.shard_shape(shape) == theirs.shard_shape(shape)
    assert dict(ours.devices_indices_map(shape)) == dict(theirs.devices_indices_map(shape))
    assert ours.indices(shape) == tuple(theirs.devices_indices_map(shape).values())
    assert ours.addressable_devices_indices_map(shape) == ours.devices_indices_map(shape)
    assert ours.is_fully_replicated == theirs.is_fully_replicated
    assert ours.is_fully_addressable == theirs.is_fully_addressable
    assert (ours.device_set, ours.num_devices) == (theirs.device_set, theirs.num_devices)
    assert ours.memory_kind == theirs.memory_kind
    assert ours.addressable_devices == theirs.addressable_devices


@settings(max_examples=100)
@given(placements())
def test_replica_ids_count_the_holders_of_an_index(placement):
    ours, _, shape = placement
    seen = {}
    for index, replica in zip(ours.indices(shape), ours.replica_ids(shape), strict=True):
        key = tuple((s.start, s.stop) for s in index)
        assert replica == seen.get(key, 0)
        seen[key] = replica + 1


@settings(max_examples=300)
@given(meshes(), meshes(), st.data())
def test_equivalence_is_that_of_jax(a, b, data):
    if data.draw(st.booleans()):
        b = a  # the same devices: otherwise hardly any pair is equivalent
    elif data.draw(st.booleans()):
        sizes = data.draw(st.sampled_from([s for s in MESH_SHAPES if math.prod(s) == a[0].size]))
        devices, names = a[0].devices.reshape(sizes), tuple("xyz"[: len(sizes)])
        b = Mesh(devices, names), THEIRS.Mesh(devices, names)
    spec, other = data.draw(specs(a[0].axis_names)), data.draw(specs(b[0].axis_names))
    ours = NamedSharding(a[0], P(*spec)), NamedSharding(b[0], P(*other))
    theirs = (
        THEIRS.NamedSharding(a[1], THEIRS.PartitionSpec(*spec)),
        THEIRS.NamedSharding(b[1], THEIRS.PartitionSpec(*other)),
    )
    expected = theirs[0].is_equivalent_to(theirs[1], 3)
    assert ours[0].is_equivalent_to(ours[1], 3) == expected
    assert ours[1].is_equivalent_to(ours[0], 3) == expected


def test_equivalence_between_kinds():
    mesh, one = mesh_of(4, 2), mesh_of(1)
    rows = NamedSharding(mesh, P("x"))
    assert rows.is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)
    assert rows.is_equivalent_to(GSPMDSharding(FAKES[:8], rows.tiling(2)), 2)
    assert not rows.is_equivalent_to(GSPMDSharding(FAKES[7::-1], rows.tiling(2)), 2)
    assert not rows.is_equivalent_to(SingleDeviceSharding(FAKES[0]), 2)
    assert not rows.is_equivalent_to("rows", 2)
    assert SingleDeviceSharding(FAKES[0]).is_equivalent_to(NamedSharding(one, P("x")), 1)
    assert GSPMDSharding.get_replicated(FAKES[:8]).is_equivalent_to(NamedSharding(mesh, P()), 3)
    # The order of replicas in the tile assignment makes no difference.
    swapped = Tiling((4, 1), (4, 2), (0, 1), True, (1, 0, 2, 3, 4, 5, 7, 6))
    assert rows.is_equivalent_to(GSPMDSharding(FAKES[:8], swapped), 2)
    explicit = mesh_of(4, 2, axis_types=AxisType.Explicit)
    partial = NamedSharding(explicit, P(unreduced={"x"}))
    assert not partial.is_equivalent_to(NamedSharding(explicit, P()), 1)
    assert not partial.is_fully_replicated
    assert rows.is_equivalent_to(NamedSharding(explicit, P("x")), 1)


def test_uneven_sizes_follow_the_ceil_rule():
    mesh = Mesh(FAKES[:8], "uneven")
    for size in range(20):
        sharding = NamedSharding(mesh, P("uneven"))
        step = sharding.shard_shape((size,))[0]
        assert step == math.ceil(size / 8)
        slices = [index[0] for index in sharding.indices((size,))]
        sizes = [s.stop - s.start for s in slices]
        assert np.concatenate([np.arange(20)[s] for s in slices]).tolist() == list(range(size))
        full = [n for n in sizes if n][:-1]
        assert full == [step] * len(full)
        assert sizes == sorted(sizes, reverse=True)
        ids = sharding.replica_ids((size,))
        empty = max(sizes.count(0), 1)
        assert ids == (0,) * (8 - empty) + tuple(range(empty))
    assert NamedSharding(mesh, P(None, "uneven")).indices((3, 9))[5] == (
        slice(None), slice(9, 9),
    )  # fmt: skip


def test_indices_of_unconstrained_dimensions_are_whole():
    sharding = NamedSharding(mesh_of(4, 2), P(UNCONSTRAINED, "x"))
    assert sharding.shard_shape((3, 8)) == (3, 2)
    assert sharding.indices((3, 8))[2] == (slice(None), slice(2, 4))


def test_devices_of_other_processes():
    devices = [FakeDevice(i, process=i // 2) for i in range(4)]
    sharding = NamedSharding(Mesh(devices, "x"), P("x"))
    assert not sharding.is_fully_addressable
    assert sharding.addressable_positions == (0, 1)
    assert sharding.addressable_devices == set(devices[:2])
    assert dict(sharding.addressable_devices_indices_map((8,))) == {
        devices[0]: (slice(0, 2),), devices[1]: (slice(2, 4),),
    }  # fmt: skip
    assert len(sharding.devices_indices_map((8,))) == 4


def test_thousands_of_devices_share_indices():
    mesh = mesh_of(64, 16, 8)
    sharding = NamedSharding(mesh, P("x", "z"))
    shape = [640, 80]
    indices = sharding.indices(shape)
    assert len(indices) == 8192
    assert len(set(map(id, indices))) == 64 * 8
    assert len({id(s) for index in indices for s in index}) == 64 + 8
    index_map = sharding.devices_indices_map(shape)
    assert index_map is sharding.devices_indices_map(tuple(shape))
    assert list(index_map) == list(mesh.flat_devices)
    assert index_map[mesh.devices[5, 3, 2]] == (slice(50, 60), slice(20, 30))
    ids = np.reshape(sharding.replica_ids(shape), (64, 16, 8))
    np.testing.assert_array_equal(ids, np.broadcast_to(np.arange(16)[:, None], (64, 16, 8)))
    with pytest.raises(TypeError):
        index_map[FAKES[0]] = ()


# ---------------------------------------------------------------------------- tilings


@settings(max_examples=200)
@given(meshes(), st.data())
def test_tilings_are_those_of_jax(mesh, data):
    spec = data.draw(specs(mesh[0].axis_names))
    tiling = NamedSharding(mesh[0], P(*spec)).tiling(3)
    theirs = THEIRS.NamedSharding(mesh[1], THEIRS.PartitionSpec(*spec))._to_xla_hlo_sharding(3)
    if theirs.is_replicated():
        assert tiling.num_tiles == 1
        return
    grid = tiling.tile_assignment()
    assert list(grid.shape) == list(theirs.tile_assignment_dimensions())
    assert grid.ravel().tolist() == list(theirs.tile_assignment_devices())
    assert tiling.replicated == theirs.replicate_on_last_tile_dim()


@settings(max_examples=300)
@given(meshes(), st.data())
def test_specs_come_back_from_tiles(mesh, data):
    mesh = mesh[0].abstract_mesh if data.draw(st.booleans()) else mesh[0]
    spec = data.draw(specs(mesh.axis_names))
    tiling = NamedSharding(mesh, P(*spec)).tiling(3)
    grid = tiling.tile_assignment()
    found = spec_from_tiles(mesh, grid.shape, grid.ravel().tolist(), tiling.replicated)
    assert found is not None
    expected = [tuple(a for a in axes if mesh.shape[a] > 1) for axes in P(*spec).dims(3)]
    assert list(found.dims(3)) == expected
    assert len(found) == 0 or found[-1] is not None


@settings(max_examples=300)
@given(st.permutations(range(8)), st.sampled_from(GRIDS))
def test_a_spec_from_tiles_gives_these_tiles(order, grid):
    """For any assignment: no spec, or one whose tiles are on the same devices."""
    dims, replicate_last = grid
    mesh = mesh_of(2, 2, 2)
    spec = spec_from_tiles(mesh, dims, order, replicate_last)
    ndim = len(dims) - replicate_last
    candidates = _all_specs(mesh.axis_names, ndim)
    wanted = GSPMDSharding(FAKES[:8], Tiling(dims[:ndim], (8,), (0,), replicate_last, tuple(order)))
    fits = [NamedSharding(mesh, s).is_equivalent_to(wanted, ndim) for s in candidates]
    assert (spec is not None) == any(fits)
    assert spec is None or NamedSharding(mesh, spec).is_equivalent_to(wanted, ndim)


def _all_specs(names, ndim):
    """All ways to assign each name to one of `ndim` dimensions, in any order, or to none."""
    found = [((),) * ndim]
    for _ in names:
        found += [
            spec[:d] + ((*spec[d], name),) + spec[d + 1 :]
            for spec in found
            for d in range(ndim)
            for name in names
            if not any(name in entry for entry in spec)
        ]
    return {P(*spec) for spec in found}


def test_tiles_that_no_spec_gives():
    mesh = mesh_of(4, 2)
    assert spec_from_tiles(mesh, (2, 4), range(8), True) is None  # half of axis x
    assert spec_from_tiles(mesh, (8,), [1, 0, 2, 3, 4, 5, 6, 7], False) is None
    assert spec_from_tiles(mesh, (4,), range(4), False) is None
    assert spec_from_tiles(mesh, (1,), [3], False) is None  # on one of eight devices
    assert spec_from_tiles(mesh, (), (), False) is P()
    assert spec_from_tiles(mesh, (1, 1, 8), range(8), True) is P()
    assert spec_from_tiles(mesh, (1, 8), [0, 2, 4, 6, 1, 3, 5, 7], False) is P(None, ("y", "x"))
    # Replicas of a tile may be listed in any order.
    assert spec_from_tiles(mesh, (4, 2), [1, 0, 2, 3, 5, 4, 6, 7], True) is P("x")


# ------------------------------------------------------------------------------ identity


def test_equal_shardings_are_one_object():
    mesh = mesh_of(4, 2)
    rows = NamedSharding(mesh, P("x"))
    assert NamedSharding(mesh_of(4, 2), P(("x",))) is rows
    assert NamedSharding(mesh=mesh, spec=P("x"), memory_kind=None) is rows
    assert NamedSharding(mesh, P("x", None)) is not rows
    assert NamedSharding(mesh, P("x"), "pinned_host") is not rows
    assert NamedSharding(mesh.abstract_mesh, P("x")) is not rows
    assert rows.with_spec(P("y")) is NamedSharding(mesh, P("y")) is rows.with_spec(("y",))
    assert rows.update(spec=P(), memory_kind="host") is NamedSharding(mesh, P(), "host")
    assert rows.with_memory_kind("host").memory_kind == "host"
    assert SingleDeviceSharding(FAKES[0]) is SingleDeviceSharding(FAKES[0])
    tiles = GSPMDSharding(FAKES[:8], rows.tiling(2))
    assert GSPMDSharding(list(mesh.flat_devices), rows.tiling(2)) is tiles
    for sharding in (rows, tiles, SingleDeviceSharding(FAKES[0])):
        assert type(sharding).__hash__ is object.__hash__


def test_the_default_memory_kind_needs_no_name():
    device = jax.devices()[0]
    mesh, default = Mesh([device], "x"), device.default_memory().kind
    for make in (
        lambda *kind: NamedSharding(mesh, P("x"), *kind),
        lambda *kind: SingleDeviceSharding(device, *kind),
        lambda *kind: GSPMDSharding([device], Tiling((1,), (1,), (0,), False), *kind),
    ):
        assert make(default) is make()
        assert make().memory_kind == default
        assert make("unpinned_host").memory_kind == "unpinned_host"
        with pytest.raises(ValueError) as error:
            make("floppy")
        kinds = [m.kind for m in device.addressable_memories()]
        listed = ", ".join(map(repr, kinds[:-1])) + f" and {kinds[-1]!r}"
        assert str(error.value) == (
            f"the device {device} has no memory of kind 'floppy'; it has {listed}."
        )


@pytest.mark.parametrize(
    "sharding",
    [
        NamedSharding(mesh_of(4, 2), P("x")),
        NamedSharding(mesh_of(4, 2), P("x"), "pinned_host"),
        NamedSharding(AbstractMesh((4,), "x"), P("x", unreduced=set())),
        SingleDeviceSharding(FAKES[3], "pinned_host"),
        GSPMDSharding(FAKES[:4], Tiling((2, 1), (2, 2), (1, 0), True)),
    ],
)
def test_copies_and_pickles_are_the_same_object(sharding):
    assert pickle.loads(pickle.dumps(sharding)) is sharding
    assert copy.copy(sharding) is sharding
    assert copy.deepcopy([sharding])[0] is sharding


def test_prints():
    mesh = mesh_of(4, 2)
    rows = NamedSharding(mesh, P("x", None))
    assert repr(rows) == "NamedSharding(mesh=Mesh('x': 4, 'y': 2), spec=P('x', None))"
    assert repr(rows.with_memory_kind("pinned_host")) == (
        "NamedSharding(mesh=Mesh('x': 4, 'y': 2), spec=P('x', None), memory_kind='pinned_host')"
    )
    assert repr(SingleDeviceSharding(FAKES[1])) == "SingleDeviceSharding(device=Fake(1))"
    assert repr(GSPMDSharding(FAKES[:8], rows.tiling(2))) == (
        "GSPMDSharding(8 devices, tiles=(4, 1), replicas=2)"
    )


def test_threads_get_the_same_object():
    mesh = Mesh(FAKES[:8], "threads")

    def make():
        out: list[Sharding] = []
        for i in range(50):
            out.append(NamedSharding(mesh, P(*[None] * i, "threads")))
            out.append(GSPMDSharding(FAKES[: i + 1], Tiling((i + 1,), (i + 1,), (0,), False)))
            out.append(SingleDeviceSharding(FAKES[i]))
            assert len(out[-3].indices((8,) * (i + 1))) == 8
        return out

    made = at_once(make)
    assert [len(out) for out in made] == [150] * 4
    assert all(len(set(map(id, same))) == 1 for same in zip(*made, strict=True))


# ------------------------------------------------------------------------ without devices


def test_abstract_mesh_knows_shapes_but_no_devices():
    sharding = NamedSharding(AbstractMesh((4, 2), ("x", "y"), AxisType.Auto), P("x"))
    assert sharding.shard_shape((8, 2)) == (2, 2)
    assert sharding.num_devices == 8
    assert not sharding.is_fully_replicated
    assert sharding.memory_kind is None
    assert sharding.tiling(2) == NamedSharding(mesh_of(4, 2), P("x")).tiling(2)
    other = NamedSharding(AbstractMesh((4, 2), ("a", "b")), P("a", None))
    assert sharding.is_equivalent_to(other, 2)
    assert not sharding.is_equivalent_to(NamedSharding(mesh_of(4, 2), P("x")), 2)
    for fails in (
        lambda: sharding.devices,
        lambda: sharding.device_set,
        lambda: sharding.is_fully_addressable,
        lambda: sharding.devices_indices_map((8, 2)),
    ):
        with pytest.raises(ValueError, match=r"AbstractMesh\('x': 4, 'y': 2\) has no devices"):
            fails()


# --------------------------------------------------------------------------- own shardings


class Diagonal(Sharding):
    """A user-defined sharding: rows over the devices in reverse order."""

    def __init__(self, devices):
        self.all = tuple(devices)

    devices = property(lambda self: self.all)
    is_fully_replicated = False

    def tiling(self, ndim):
        count = len(self.all)
        order = tuple(reversed(range(count)))
        return Tiling((count,) + (1,) * (ndim - 1), (count,), (0,), False, order)


def test_a_sharding_of_ones_own():
    sharding = Diagonal(FAKES[:4])
    assert sharding.shard_shape((8, 3)) == (2, 3)
    assert sharding.devices_indices_map((8, 3))[FAKES[0]] == (slice(6, 8), slice(None))
    assert sharding.replica_ids((8, 3)) == (0, 0, 0, 0)
    assert (sharding.num_devices, sharding.device_set) == (4, set(FAKES[:4]))
    assert sharding.is_fully_addressable
    backwards = NamedSharding(Mesh(FAKES[3::-1], "x"), P("x"))
    assert not sharding.is_equivalent_to(backwards, 2)
    assert dict(sharding.devices_indices_map((8,))) == dict(backwards.devices_indices_map((8,)))
    again = pickle.loads(pickle.dumps(sharding))
    assert again.indices((8, 3)) == sharding.indices((8, 3))
    assert error_of(ValueError, lambda: sharding.check_divisible((6,))) == (
        f"cannot shard an array of shape (6,) by {sharding!r}: dimension 0 of size 6 is not "
        "divisible by 4, the number of tiles along it. "
        "Pad the dimension to 8, or shard it another way."
    )


# ------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda m: NamedSharding(m, P("z")), ValueError,
         "P('z') names the axis 'z', which Mesh('x': 4, 'y': 2) does not have; "
         "its axes are 'x' and 'y'."),
        (lambda m: NamedSharding(m, P(unreduced={"z"})), ValueError,
         "P(unreduced={'z'}) names the axis 'z', which Mesh('x': 4, 'y': 2) does not have; "
         "its axes are 'x' and 'y'."),
        (lambda m: NamedSharding(m, P("x", "x")), ValueError,
         "P('x', 'x') over Mesh('x': 4, 'y': 2) uses the axis 'x' more than once; "
         "a mesh axis can shard only one dimension, and only once."),
        (lambda m: NamedSharding(m, P(unreduced={"x"})), ValueError,
         "unreduced= in P(unreduced={'x'}) needs axes of type Explicit, but 'x' of "
         "Mesh('x': 4, 'y': 2) is Auto. Make the mesh with axis_types=AxisType.Explicit."),
        (lambda m: NamedSharding(m, ("x",)), TypeError,
         "the second argument of NamedSharding must be a PartitionSpec, "
         "got ('x',) of type tuple. Write P(*('x',))."),
        (lambda m: NamedSharding(m, ["x"]), TypeError,
         "the second argument of NamedSharding must be a PartitionSpec, "
         "got ['x'] of type list. Write P(*['x'])."),
        (lambda m: NamedSharding(None, P("x")), TypeError,
         "the first argument of NamedSharding must be a Mesh or an AbstractMesh, "
         "got None of type NoneType."),
        (lambda m: NamedSharding(m, P("x", None)).shard_shape((4,)), ValueError,
         "P('x', None) over Mesh('x': 4, 'y': 2) has 2 entries, but the array has only "
         "1 dimension. Remove entries from the end of the spec."),
        (lambda m: NamedSharding(m, P("x")).check_divisible((10, 2)), ValueError,
         "cannot shard an array of shape (10, 2) by P('x') over Mesh('x': 4, 'y': 2): "
         "dimension 0 of size 10 is not divisible by 4, the number of shards along mesh axis "
         "'x' (size 4). Pad the dimension to 12, choose mesh axes that divide it, "
         "or leave it unsharded with None in the spec."),
        (lambda m: NamedSharding(m, P(None, ("y", "x"))).check_divisible((8, 9)), ValueError,
         "cannot shard an array of shape (8, 9) by P(None, ('y', 'x')) over "
         "Mesh('x': 4, 'y': 2): dimension 1 of size 9 is not divisible by 8, the number of "
         "shards along mesh axes 'y' (size 2) × 'x' (size 4). Pad the dimension to 16, choose "
         "mesh axes that divide it, or leave it unsharded with None in the spec."),
        (lambda m: GSPMDSharding(FAKES[:4], Tiling((8,), (8,), (0,), False)), ValueError,
         "GSPMDSharding got 4 devices, but a tiling of mesh sizes (8,) into (8,) tiles with "
         "1 replicas of each. Tiles × replicas and the product of the mesh sizes must both be "
         "the device count."),
        (lambda m: GSPMDSharding(FAKES[:2], Tiling((2,), (2,), (0,), False, (1, 1))), ValueError,
         "GSPMDSharding got a tiling that does not use each of the positions 0..1 once: "
         "Tiling(dims=(2,), mesh_sizes=(2,), order=(0,), replicated=False, assignment=(1, 1))."),
        (lambda m: GSPMDSharding(FAKES[:2], Tiling((2,), (2,), (0,), False)).shard_shape((2, 2)),
         ValueError,
         "GSPMDSharding(2 devices, tiles=(2,)) is for arrays of 1 dimension, "
         "but the array has 2 dimensions."),
        (lambda m: setattr(NamedSharding(m, P()), "spec", P("x")), AttributeError,
         "cannot assign to 'spec': a NamedSharding is immutable; "
         "make a new one with NamedSharding(...) or sharding.update(...)."),
    ],
)  # fmt: skip
def test_errors(make, kind, message):
    assert error_of(kind, lambda: make(mesh_of(4, 2))) == message


@settings(max_examples=200)
@given(meshes(), st.data())
def test_any_size_is_cut_and_padded(mesh, data):
    ours, theirs = mesh
    spec = data.draw(specs(ours.axis_names))
    shape = tuple(data.draw(st.integers(0, 9)) for _ in range(len(spec) + 1))
    sharding = NamedSharding(ours, P(*spec))
    tiles = sharding.tiling(len(shape)).dims
    step = sharding.shard_shape(shape)
    assert step == tuple(math.ceil(n / k) for n, k in zip(shape, tiles, strict=True))
    padded = sharding.padded_shape(shape)
    assert padded == tuple(n * k for n, k in zip(step, tiles, strict=True))
    _check_parts(sharding, shape, step)
    even = sharding.is_even(shape)
    assert even == (padded is shape) == (padded == shape)
    reference = THEIRS.NamedSharding(theirs, THEIRS.PartitionSpec(*spec))
    if even:
        sharding.check_divisible(shape)
        assert reference.shard_shape(shape) == step
        return
    with pytest.raises(ValueError, match="is not divisible by"):
        sharding.check_divisible(shape)
    with pytest.raises(ValueError):
        reference.shard_shape(shape)


def _check_parts(sharding, shape, step):
    """Each shard is the shard of the padded array, clipped; together they cover the array once."""
    whole = np.arange(math.prod(shape)).reshape(shape)
    even = sharding.indices(sharding.padded_shape(shape))
    holders = np.zeros(shape, int)
    replicas, seen = sharding.replica_ids(shape), set()
    for index, full, replica in zip(sharding.indices(shape), even, replicas, strict=True):
        assert all(part <= most for part, most in zip(whole[index].shape, step, strict=True))
        np.testing.assert_array_equal(whole[index], whole[full])
        holders[index] += replica == 0
        key = (*((s.start, s.stop) for s in index), replica)
        assert key not in seen
        seen.add(key)
    np.testing.assert_array_equal(holders, 1)


def test_shapes_are_given_back_where_nothing_is_padded():
    rows = NamedSharding(mesh_of(4, 2), P("x"))
    for _ in range(2):
        shape = tuple([8, 3])
        assert rows.padded_shape(shape) is shape
    assert rows.padded_shape([7, 3]) == (8, 3)
    assert (rows.is_even((8, 3)), rows.is_even((7, 3)), rows.is_even((0, 1))) == (True, False, True)
    assert NamedSharding(mesh_of(4, 2), P()).padded_shape(()) == ()


def test_compatible_shapes():
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    NamedSharding(mesh, P("x")).check_compatible_aval((3, 2))
    for spec, shape in ((P("x"), ()), (P(None, None, "x"), (4, 2))):
        with pytest.raises(ValueError, match="but the array has only"):
            NamedSharding(mesh, spec).check_compatible_aval(shape)
