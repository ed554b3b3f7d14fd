"""User-defined shardings, end to end, and XLA's own representation of shardings."""

import dataclasses
import pickle

import numpy as np
import pytest
from jaxlib import xla_client as xc

import shardwise as sw
from shardwise._src.types.tiling import Tiling
from shardwise.sharding import GSPMDSharding, Mesh, NamedSharding, PartitionSpec, Sharding

WHOLE = slice(None)
X = np.arange(99, dtype="float32")


class Columns(Sharding):
    """The last dimension over the devices; defined by its tiling."""

    is_fully_replicated = False
    devices = property(lambda self: tuple(sw.devices()[::-1]))

    def tiling(self, ndim):
        return Tiling((1,) * (ndim - 1) + (8,), (8,), (0,), False)


@dataclasses.dataclass(frozen=True)
class Pairs(Sharding):
    """The first dimension over pairs of devices; defined by what each device holds."""

    device_set = property(lambda self: frozenset(sw.devices()))

    def devices_indices_map(self, shape):
        n, step = shape[0], -(-shape[0] // 4)
        rest = (WHOLE,) * (len(shape) - 1)
        cuts = [slice(min(i * step, n), min((i + 1) * step, n)) for i in range(4)]
        return {d: (cuts[d.id % 4], *rest) for d in sw.devices()}


@pytest.mark.parametrize("sharding", [Columns(), Pairs()], ids=["tiling", "indices"])
@pytest.mark.parametrize("shape", [(8, 8), (9, 11)], ids=["even", "uneven"])
def test_arrays_take_part_in_everything(sharding, shape):
    host = X[: np.prod(shape)].reshape(shape)
    x = sw.device_put(host, sharding)
    assert x.sharding is sharding
    assert not x.is_fully_replicated
    for shard in x.addressable_shards:
        assert shard.index == sharding.devices_indices_map(shape)[shard.device]
        np.testing.assert_array_equal(shard.data, host[shard.index])
    np.testing.assert_array_equal(sw.jit(lambda a: 2 * a)(x), 2 * host)
    np.testing.assert_array_equal(x + x, 2 * host)
    kept = sw.jit(lambda a: 2 * a, in_shardings=sharding, out_shardings=sharding)
    for argument in (host, x):
        assert kept(argument).sharding is sharding
        np.testing.assert_array_equal(kept(argument), 2 * host)
    constrained = sw.jit(lambda a: sw.with_sharding_constraint(a, sharding) + 1)
    np.testing.assert_array_equal(constrained(host), host + 1)
    np.testing.assert_array_equal(sw.grad(lambda a: (a**2).sum())(x), 2 * host)


@pytest.mark.parametrize("sharding", [Columns(), Pairs()], ids=["tiling", "indices"])
def test_arrays_move_between_shardings(sharding):
    host = X[:72].reshape(9, 8)
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("a", "b"))
    named = NamedSharding(mesh, PartitionSpec("b"))
    reversed_ = NamedSharding(Mesh(sw.devices()[::-1], "x"), PartitionSpec(None, "x"))
    x = sw.device_put(host, named)
    for target in (sharding, reversed_, sharding, Columns(), Pairs(), sw.devices()[3], sharding):
        x = sw.device_put(x, target)
        assert x.sharding == target or x.sharding.device_set == {target}
        np.testing.assert_array_equal(x, host)


def test_what_follows_from_indices():
    pairs = Pairs()
    assert pairs.devices == tuple(sw.devices())
    assert pairs.tiling(2) == Tiling((4, 1), (8,), (0,), True, (0, 4, 1, 5, 2, 6, 3, 7))
    assert pairs.shard_shape((9, 3)) == (3, 3)
    assert pairs.replica_ids((4,)) == (0, 0, 0, 0, 1, 1, 1, 1)
    assert not pairs.is_fully_replicated
    assert pairs.with_memory_kind(None) is pairs
    assert pickle.loads(pickle.dumps(pairs)) == pairs


def defined_by(**namespace):
    """An instance of a subclass with these attributes."""
    return type("Own", (Sharding,), namespace)()


def by_map(index_map, devices=4):
    held = property(lambda self: set(sw.devices()[:devices]))
    return defined_by(device_set=held, devices_indices_map=lambda self, shape: index_map(shape))


def of_four(*cuts):
    return by_map(lambda shape: dict(zip(sw.devices(), [(cut,) for cut in cuts], strict=False)))


def test_replication_follows_from_indices():
    whole = by_map(lambda shape: dict.fromkeys(sw.devices()[:4], (WHOLE,) * len(shape)))
    assert whole.is_fully_replicated
    last = by_map(lambda shape: {
        d: (WHOLE,) * (len(shape) - 1) + (slice(d.id, d.id + 1),) for d in sw.devices()[:4]
    })  # fmt: skip
    assert not last.is_fully_replicated


LACKS = (
    "A custom sharding defines `devices`, `tiling(ndim)` and `is_fully_replicated`, or else "
    "`device_set` and `devices_indices_map(shape)`; see Sharding."
)
NOT = "Own.devices_indices_map((4,)) is not the map of a tiling:"
NO_MAP = property(lambda self: set(sw.devices()))


@pytest.mark.parametrize(
    ("use", "kind", "message"),
    [
        (lambda: sw.device_put(X, defined_by()), NotImplementedError,
         f"Own must define the property `devices`. {LACKS}"),
        (lambda: sw.device_put(X, defined_by(device_set=NO_MAP)), NotImplementedError,
         f"Own must define the property `devices`. {LACKS}"),
        (lambda: defined_by(devices=tuple(sw.devices())).tiling(1), NotImplementedError,
         f"Own must define `tiling(ndim)`. {LACKS}"),
        (lambda: defined_by(devices=(), tiling=None).is_fully_replicated, NotImplementedError,
         f"Own must define the property `is_fully_replicated`. {LACKS}"),
        (lambda: of_four(slice(0, 1), slice(0, 1), slice(1, 4), slice(1, 4)).tiling(1), ValueError,
         f"{NOT} (slice(0, 1, None),) is not a tile of a grid of (2,) equal tiles."),
        (lambda: of_four(slice(0, 2), *[slice(2, 4)] * 3).tiling(1), ValueError,
         f"{NOT} the tiles of the grid (2,) are held by between 1 and 3 devices, not all by the "
         "same number."),
        (lambda: of_four(0, 1, 2, 3).tiling(1), ValueError,
         f"{NOT} (0,) is not a tuple of 1 slices with step 1."),
        (lambda: by_map(lambda shape: {sw.devices()[5]: (WHOLE,)}).tiling(1), ValueError,
         f"{NOT} its devices differ from those of `device_set`."),
        (lambda: by_map(lambda shape: {
            d: (slice(d.id * shape[0] // 4, (d.id + 1) * shape[0] // 4),) for d in sw.devices()[:4]
        }).indices((6,)), ValueError,
         f"Own.devices_indices_map((6,)) gives {sw.devices()[0]} the index "
         "(slice(0, 1, None),), but its map for other shapes implies (slice(0, 2, None),): of n "
         "elements in k tiles each has ceil(n/k), the last ones fewer or none."),
        (lambda: Columns().with_memory_kind("pinned_host"), NotImplementedError,
         "Columns must define `with_memory_kind(kind)` to be moved from memory of kind "
         f"{Columns().memory_kind!r} to 'pinned_host'."),
        (lambda: defined_by(__eq__=lambda self, other: True), TypeError,
         "Own defines __eq__ but not __hash__. Shardings are cache keys: define both, or "
         "neither."),
    ],
)  # fmt: skip
def test_errors(use, kind, message):
    with pytest.raises(kind) as error:
        use()
    assert str(error.value) == message


# ---------------------------------------------------------------------------- XLA's records


def op_sharding(kind="OTHER", **fields):
    proto = xc.OpSharding()
    proto.type = getattr(xc.OpSharding.Type, kind)
    for name, value in fields.items():
        setattr(proto, name, value)
    return proto


def test_shardings_from_the_records_of_xla():
    devices = sw.devices()
    swapped = op_sharding(
        tile_assignment_dimensions=[4, 1, 2], tile_assignment_devices=[1, 0, 3, 2, 5, 4, 7, 6],
        last_tile_dims=[xc.OpSharding.Type.REPLICATED],
    )  # fmt: skip
    tiling = Tiling((4, 1), (8,), (0,), True, (1, 0, 3, 2, 5, 4, 7, 6))
    found = GSPMDSharding(devices, swapped)
    assert found is GSPMDSharding(devices, tiling)
    assert GSPMDSharding(devices, xc.HloSharding.from_proto(swapped)).is_equivalent_to(found, 2)
    transposed = xc.HloSharding.iota_tile([2, 4], [4, 2], [1, 0], [])
    columns = GSPMDSharding(devices, transposed)
    assert columns.tiling(2) == Tiling((2, 4), (4, 2), (1, 0), False)
    assert columns.devices_indices_map((2, 4))[devices[1]] == (slice(1, 2), slice(0, 1))
    whole = GSPMDSharding.get_replicated(devices)
    assert GSPMDSharding(devices, xc.HloSharding.replicate()) is whole
    assert GSPMDSharding(devices, op_sharding("REPLICATED")) is whole
    x = sw.device_put(X[:8].reshape(2, 4), columns)
    moved = sw.jit(lambda a: a + 1, out_shardings=found)(x)
    np.testing.assert_array_equal(moved, np.asarray(x) + 1)


@pytest.mark.parametrize(
    ("op", "kind", "message"),
    [
        (lambda: op_sharding("MAXIMAL"), ValueError,
         "GSPMDSharding got an OpSharding of type MAXIMAL; it must be REPLICATED, or OTHER with "
         "no subgroups but replicated ones: each device holds one tile of the array."),
        (lambda: op_sharding(
            tile_assignment_dimensions=[4, 2], tile_assignment_devices=list(range(8)),
            last_tile_dims=[xc.OpSharding.Type.MANUAL],
         ), ValueError,
         "GSPMDSharding got an OpSharding of type OTHER with subgroups MANUAL; it must be "
         "REPLICATED, or OTHER with no subgroups but replicated ones: each device holds one tile "
         "of the array."),
        (lambda: "tiles", TypeError,
         "the second argument of GSPMDSharding must be a Tiling, an OpSharding or an HloSharding, "
         "got 'tiles' of type str."),
    ],
)  # fmt: skip
def test_records_that_are_no_sharding_of_an_array(op, kind, message):
    with pytest.raises(kind) as error:
        GSPMDSharding(sw.devices(), op())
    assert str(error.value) == message


# --------------------------------------------------------------------------------- devices


def test_devices_pickle_and_so_do_meshes():
    mesh = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    held = [sw.devices()[3], mesh, NamedSharding(mesh, PartitionSpec("y"))]
    again = pickle.loads(pickle.dumps(held))
    assert all(a is b for a, b in zip(again, held, strict=True))
    missing = pickle.dumps(sw.devices()[3]).replace(b"K\x03", b"K\x63")  # device 99
    with pytest.raises(ValueError) as error:
        pickle.loads(missing)
    assert str(error.value) == (
        "a pickle refers to device 99 of platform 'cpu', but there are only 8 in this process. "
        "Read it with as many devices as it was written with."
    )
