"""Arrays from any sharding to any other: same devices, others, or devices of other processes."""

import ml_dtypes
import numpy as np
from checking import COUNT, DEVICES, HERE, P, check, equal, finish, numbers, raises, same, some

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random
from shardwise.sharding import Mesh, NamedSharding, reshard


def on(devices, *spec, shape=None, names=("x", "y"), kind=None):
    grid = np.array([DEVICES[i] for i in devices]).reshape(shape or (len(devices),))
    return NamedSharding(Mesh(grid, names[: grid.ndim]), P(*spec), memory_kind=kind)


PLACES = [
    on([0, 1, 2, 3]),
    on([0, 1, 2, 3], "x"),
    on([3, 1, 0, 2], "x"),
    on([0, 2, 1, 3], None, "x"),
    on([0, 1, 2, 3], "x", "y", shape=(2, 2)),
    on([2, 0, 3, 1], "y", "x", shape=(2, 2)),
    on([2, 0, 3, 1], "y", shape=(2, 2)),
    on([3, 0, 1, 2], ("y", "x"), shape=(2, 2)),
]
FEWER = [
    on([0, 1], "x"),
    on([2, 3], "x"),
    on([2, 3]),
    on([3, 0], None, "x"),
    on([1], "x"),
    on([3]),
    on([0, 1, 3], "x"),
    on([2, 1, 0]),
    on([1, 2], "x"),
]


def moves(source, target, x):
    there = sw.device_put(x, source)
    moved = sw.device_put(there, target)
    assert moved.sharding == target and moved.committed
    same(moved, x)
    same(there, x)


@check
def the_same_devices():
    for shape in some([(5, 7), (8, 4)]):
        x = numbers(*shape)
        for source in some(PLACES):
            for target in some(PLACES[1:]):
                moves(source, target, x)


@check
def to_fewer_and_back():
    x = numbers(6, 5)
    for few in FEWER:
        for all_ in some(PLACES[:5]):
            moves(all_, few, x)
            if not (COUNT > 1 and len({d.process_index for d in few.devices}) == 1):
                moves(few, all_, x)


@check
def from_fewer_to_fewer():
    x = numbers(5, 6)
    for few in some(FEWER):
        for other in FEWER:
            theirs, ours = [{d.process_index for d in s.devices} for s in (few, other)]
            if len(theirs) > 1 or not theirs < ours:
                moves(few, other, x)


@check
def values_arrive_bit_by_bit():
    odd, i = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40], np.float32), np.complex64(1j)
    values = [
        odd,
        odd.astype(np.float16),
        odd.astype(ml_dtypes.bfloat16),
        np.arange(6).astype(np.int8),
        np.array([True, False] * 3),
        odd.astype(np.complex64) + i,
        np.arange(6).astype(ml_dtypes.int4),
        np.array([2**31, 1, 2**32 - 1, 0, 5, 6], np.uint32),
    ]
    for value in values:
        for source, target in (
            (on([0, 1], "x"), on([2, 3], "x")),
            (on([3]), on([0])),
            (on([0, 1, 2, 3], "x"), on([2])),
            (on([0, 1], "x"), on([3, 2])),
        ):
            moved = sw.device_put(sw.device_put(value, source), target)
            for shard in moved.addressable_shards:
                got, wanted = np.asarray(shard.data), value[shard.index]
                assert got.tobytes() == wanted.tobytes(), (value.dtype, got, wanted)


@check
def keys_and_scalars():
    key = random.key(11)
    moved = sw.device_put(sw.device_put(key, on([0])), on([3]))
    for shard in moved.addressable_shards:
        equal(np.asarray(random.key_data(shard.data)), np.asarray(random.key_data(key)))
    keys = random.split(key, 6)
    moved = sw.device_put(sw.device_put(keys, on([0, 1], "x")), on([2, 3], "x"))
    for shard in moved.addressable_shards:
        wanted = np.asarray(random.key_data(keys))[shard.index]
        equal(np.asarray(random.key_data(shard.data)), wanted)
    moves(on([1]), on([2]), np.float32(3))
    moves(on([1, 0]), on([2, 3]), np.float32(3))
    moves(on([1, 0], "x"), on([2, 3], "x"), np.zeros((0, 3), np.float32))


@check
def large():
    x = numbers(700, 1001)
    for source, target in (
        (PLACES[1], PLACES[5]),
        (on([0, 1], "x"), on([2, 3], "x")),
        (PLACES[4], on([3])),
    ):
        moves(source, target, x)


@check
def handles():
    """An array without a device in this process has a shape and a sharding, but no value."""
    x = sw.device_put(numbers(6, 2), DEVICES[0])
    far = sw.device_put(x, DEVICES[3])
    for y, owner in ((x, DEVICES[0].process_index), (far, DEVICES[3].process_index)):
        assert y.shape == (6, 2) and y.dtype == np.float32 and y.committed
        assert y.on_device_size_in_bytes() == 48 and not y.is_deleted()
        assert y.block_until_ready() is y and y.is_ready() and len(y.global_shards) == 1
        assert y.is_fully_addressable == (owner == HERE) == bool(y.addressable_shards)
        if owner == HERE:
            equal(np.asarray(y), numbers(6, 2))
            continue
        place = f"SingleDeviceSharding(device={y.device!r})"
        text = f"Array(shape=(6, 2), dtype=float32) sharded as {place}, no addressable shards"
        assert repr(y) == text
        with raises(
            RuntimeError,
            f"array of type f32[6,2] is on devices of process {owner}, and "
            "this process cannot read its value. Put it on devices of this process, with "
            "`shardwise.device_put(x, sharding)` in all of these processes and in this "
            "one.",
        ):
            np.asarray(y)
        sizes = sw.jit(lambda a: (a + 1, a.sum()), donate_argnums=0)(y + y)
        assert [z.sharding for z in sizes] == [y.sharding] * 2 and not sizes[0].addressable_shards
        assert [z.shape for z in sizes] == [(6, 2), ()] and sizes[0].is_fully_addressable is False
        y.delete()
        assert y.is_deleted()


@check
def programs_elsewhere():
    """All processes may call a program; those without its devices get arrays without shards."""
    x = sw.device_put(numbers(6, 2), on([0], "x"))
    pair = sw.device_put(numbers(6, 2), on([2, 3], "x"))
    for y in (x, pair):
        outs = sw.jit(lambda a: (a * 2, a.T, a.sum(), -a, a.astype("int8")))(y)
        assert {o.sharding.mesh for o in outs} == {y.sharding.mesh}
        assert outs[0].sharding.is_equivalent_to(y.sharding, 2) and outs[2].is_fully_replicated
        assert all(o.sharding.has_addressable_devices == bool(o.addressable_shards) for o in outs)
        for shard in (-outs[0]).addressable_shards:
            equal(np.asarray(shard.data), -2 * numbers(6, 2)[shard.index])


@check
def mistakes():
    """A committed array of one process is a value in that process, and has no value in others."""
    if COUNT == 1:
        return
    x = sw.device_put(numbers(4), DEVICES[0])
    if HERE == 0:
        same(sw.device_put(x, on([0, 3], "x")), numbers(4))
        return
    with raises(
        RuntimeError,
        "array of type f32[4] is on devices of process 0 alone, which treats "
        f"it as a value that each of the processes [0, {COUNT - 1}] has. This process has "
        "none: use `broadcast_one_to_all` there and here, or create it on devices of all "
        "of them.",
    ):
        sw.device_put(x, on([0, 3], "x"))


@check
def uncommitted_values_are_everywhere():
    for target in (on([0]), on([3]), on([2, 3], "x"), *PLACES[:3]):
        moved = sw.device_put(jnp.arange(8), target)
        same(moved, np.arange(8, dtype=np.int32))


@check
def with_options():
    x = numbers(8, 4)
    there = sw.device_put(x, PLACES[2])
    copied = sw.device_put(there, PLACES[2], may_alias=False)
    same(copied, x)
    gone = sw.device_put(x, PLACES[1])
    same(sw.device_put(gone, PLACES[4], donate=True), x)
    assert gone.is_deleted() and not there.is_deleted()
    tree = sw.device_put({"a": there, "b": copied}, {"a": PLACES[4], "b": on([3])})
    same(tree["a"], x), same(tree["b"], x)
    for kind in ("pinned_host", "unpinned_host"):
        held = sw.device_put(there, PLACES[2].with_memory_kind(kind))
        assert held.sharding.memory_kind == kind
        same(held, x)
        same(sw.device_put(held, PLACES[4]), x)


@check
def explicit_meshes():
    mesh = sw.make_mesh((2, 2), ("x", "y"), devices=[DEVICES[i] for i in (2, 0, 3, 1)])
    x = numbers(8, 4)
    there = sw.device_put(x, NamedSharding(mesh, P("x", "y")))
    assert str(sw.typeof(there)) == "float32[8@x,4@y]"
    for spec in (P("y", "x"), P(None, "x"), P(), P(("x", "y"))):
        same(reshard(there, NamedSharding(mesh, spec)), x)
        same(sw.jit(lambda v, spec=spec: reshard(v, spec))(there), x)


@check
def tables():
    """A table of a tree of arrays needs no other process, and is the same in each process."""
    tree = {
        "here and there": sw.device_put(numbers(8, 3), PLACES[1]),
        "first": sw.device_put(numbers(5), DEVICES[0]),
        "last": sw.device_put(numbers(5, 2), DEVICES[3]),
    }
    found = sw.explain.tree(tree)
    assert (found.bytes, found.bytes_per_device) == (4 * (24 + 5 + 10), 4 * (6 + 10)), str(found)
    first, _, last = str(found).splitlines()[2:5]
    assert first.split()[3:5] == ["CPU", f"{DEVICES[0].id}"], first
    assert last.split()[4:6] == ["CPU", f"{DEVICES[3].id}"], last
    print("table", found.bytes_per_device)


@check
def plans():
    """A plan is the same in all processes, and computing it needs no other process."""
    for source, target in (
        (on([0, 1], "x"), on([2, 3], "x")),
        (on([0, 1, 2, 3], "x"), on([2])),
        (PLACES[1], PLACES[3]),
        (on([0]), on([3])),
        (on([0]), on([1, 2, 3])),
    ):
        there = sw.device_put(numbers(6, 5), source)
        found = sw.plan(there, target)
        held = there.sharding.devices_indices_map((6, 5))
        lacking = 0
        for device, index in target.devices_indices_map((6, 5)).items():
            wanted = np.zeros((6, 5), bool)
            wanted[index] = True
            if device in held:
                wanted[held[device]] = False
            lacking += int(wanted.sum())
        assert found.bytes_moved == 4 * lacking, str(found)
        new = np.prod(target.tile_shape((6, 5))) * 4
        assert found.peak_bytes >= new, str(found)
        exchanged = [s for s in found.steps if s.kind == "exchange between processes"]
        assert all(s.bytes_sent > 0 for s in exchanged), str(found)
        theirs, ours = [{d.process_index for d in s.devices} for s in (source, target)]
        if COUNT == 1 or theirs.isdisjoint(ours):
            assert bool(exchanged) == (COUNT > 1), str(found)
        print("plan", found.bytes_moved)


finish()
