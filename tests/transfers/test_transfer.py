"""Resharding: every strategy between two shardings, compared with NumPy."""

import gc
import itertools
import re
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.arrays.array import Array
from shardwise._src.runtime import buffers, host, host_memory
from shardwise._src.transfers import from_host as tiles
from shardwise._src.transfers import regions, transfer
from shardwise._src.transfers import reshard_strategy as ways_of
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.meshes import DEVICES, MESH, PLACES
from tests.helpers.patience import until

SHAPES = {"even": (24, 12), "uneven": (9, 7), "few": (2, 3), "empty": (0, 5), "one": (1, 1)}


def numbers(shape, dtype=np.float32):
    count = int(np.prod(shape))
    return (np.arange(count) % 7).reshape(shape).astype(dtype)


def check(x, target, values):
    """Type, value, and the shard on each device."""
    assert x.sharding is target and x.committed and x.shape == values.shape
    assert x.dtype == values.dtype
    assert np.asarray(x).tobytes() == values.tobytes()
    for shard in x.addressable_shards:
        index = target.devices_indices_map(values.shape)[shard.device]
        assert shard.index == index and shard.data.devices() == {shard.device}
        assert np.asarray(shard.data).tobytes() == np.ascontiguousarray(values[index]).tobytes()
    if target.memory_kind == "device":  # programs can use the buffers
        assert np.asarray(sw.jit(lambda a: a)(x)).tobytes() == values.tobytes()


def ways(x, target):
    """All plans that can transfer `x` there, whichever is chosen."""
    found = ["host", "pieces"]
    if x.sharding.device_set == target.device_set:
        found.append("program")
    elif ways_of.same_tiles(x._sig, target):
        found.append("copy")
    assert transfer.strategy(x, target) in found
    return found


@pytest.fixture
def none_small(monkeypatch):
    """Disables the path that reads small arrays in full."""
    monkeypatch.setattr(tiles, "SMALL", 0)


@pytest.fixture
def all_large(monkeypatch, none_small):
    """Uses the strategy for large arrays for all arrays."""
    monkeypatch.setattr(tiles, "LARGE", 1)


# ------------------------------------------------------------------------------ every pair


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", PLACES)
def test_on_the_host(source, shape, none_small):
    x = everywhere_by_host(source, numbers(SHAPES[shape]))
    assert x._host is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", PLACES)
def test_on_the_host_as_a_whole(source, shape):
    x = everywhere_by_host(source, numbers(SHAPES[shape]))
    assert x._host is None


def everywhere_by_host(source, values):
    x = sw.device_put(values, PLACES[source])
    for target in PLACES.values():
        y = transfer.STRATEGIES["host"](x, target)
        assert y.sharding is target
        parts = y._host_parts(list(range(len(target.devices))))
        indices = target.indices(values.shape)
        for part, index in zip(parts, indices, strict=True):
            np.testing.assert_array_equal(part, values[index])
    return x


@pytest.mark.parametrize("shape", everyday(SHAPES, 23))
@pytest.mark.parametrize("source", PLACES)
def test_in_memory_that_devices_take_over(source, shape, all_large):
    values = numbers(SHAPES[shape])
    x = sw.device_put(values, PLACES[source])
    for target in PLACES.values():
        y = transfer.STRATEGIES["host"](x, target)
        assert np.asarray(y).tobytes() == values.tobytes()
        parts = y._host_parts(list(range(len(target.devices))))
        for part, index in zip(parts, target.indices(values.shape), strict=True):
            np.testing.assert_array_equal(part, values[index])


@pytest.mark.parametrize("source", everyday(PLACES, 1))
def test_device_to_device(source):
    values = numbers(SHAPES["uneven"])
    x = sw.device_put(values, PLACES[source])
    for target in PLACES.values():
        y = transfer.STRATEGIES["pieces"](x, target)
        assert y.sharding is target and np.asarray(y).tobytes() == values.tobytes()
    assert x._host is None


PAIRS = list(itertools.product(PLACES, PLACES))


@pytest.mark.parametrize(("source", "target"), everyday(PAIRS, 3))
def test_every_way_gives_the_same(source, target):
    for shape in ("even", "few", "empty"):
        values = numbers(SHAPES[shape])
        x = sw.device_put(values, PLACES[source])
        for way in ways(x, PLACES[target]):
            check(transfer.STRATEGIES[way](x, PLACES[target]), PLACES[target], values)


DTYPES = ["bfloat16", "int4", "bool", "float8_e4m3fn", "complex64", "uint16"]


@pytest.mark.parametrize("name", everyday(DTYPES, 1))
def test_every_dtype(name, all_large):
    values = numbers((9, 6), np.dtype(getattr(ml_dtypes, name, name)))
    for source, target in [("both", "three"), ("three", "other"), ("one", "rows"), ("all", "one")]:
        x = sw.device_put(values, PLACES[source])
        for way in ways(x, PLACES[target]):
            check(transfer.STRATEGIES[way](x, PLACES[target]), PLACES[target], values)


def test_scalars_go_anywhere(all_large):
    value = np.float32(3)
    whole = ("one", "another", "replicated", "back, replicated", "whole")
    for source, target in itertools.product(whole, whole):
        x = sw.device_put(value, PLACES[source])
        for way in ways(x, PLACES[target]):
            check(transfer.STRATEGIES[way](x, PLACES[target]), PLACES[target], np.asarray(value))


def test_keys_go_anywhere(all_large):
    keys = sw.random.split(sw.random.key(3), 9)
    expected = np.asarray(sw.random.key_data(keys))
    for source, target in itertools.product(["rows", "three", "one", "back"], repeat=2):
        x = sw.device_put(keys, PLACES[source])
        for way in ways(x, PLACES[target]):
            y = transfer.STRATEGIES[way](x, PLACES[target])
            assert y.dtype == keys.dtype and y.sharding is PLACES[target]
            np.testing.assert_array_equal(np.asarray(sw.random.key_data(y)), expected)


@pytest.mark.parametrize("kind", everyday(["pinned_host", "unpinned_host"], 1))
def test_kinds_of_memory(kind, all_large):
    values = numbers((9, 6))
    for source, target in [("both", "three"), ("rows", "columns"), ("one", "half")]:
        there = PLACES[target].with_memory_kind(kind)
        x = sw.device_put(values, PLACES[source])
        for way in ("host", "pieces"):
            y = transfer.STRATEGIES[way](x, there)
            check(y, there, values)
            check(transfer.STRATEGIES[way](y, PLACES[source]), PLACES[source], values)


def test_addends_are_added_up_on_the_way():
    mesh = Mesh(DEVICES[:2], ("i",), axis_types=AxisType.Explicit)
    place = NamedSharding(mesh, P(None, unreduced={"i"}))
    for target in (NamedSharding(mesh, P()), NamedSharding(mesh, P("i")), *PLACES.values()):
        parts = [sw.device_put(np.float32([k, 2 * k]), DEVICES[i]) for i, k in enumerate((1, 10))]
        x = sw.make_array_from_single_device_arrays((2,), place, parts)
        if len(getattr(target, "spec", ())) < 2:
            check(sw.device_put(x, target), target, np.float32([11, 22]))
    back = sw.device_put(sw.device_put(np.float32([3, 4]), DEVICES[5]), place)
    assert [np.asarray(s.data).tolist() for s in back.addressable_shards] == [[3, 4], [0, 0]]


# ------------------------------------------------------------------------------ the choice


def test_what_is_chosen():
    small, large = numbers((8, 8)), np.ones((512, 512), np.float32)
    expected = {
        ("rows", "columns"): "host",
        ("rows", "reversed"): "host",
        ("half", "back"): "host",
        ("replicated", "whole"): "program",  # which has no work
        ("one", "another"): "copy",
        ("rows", "one"): "host",
    }
    for (source, target), way in expected.items():
        for values in (small, large):
            x = sw.block_until_ready(sw.device_put(values, PLACES[source]))
            assert transfer.strategy(x, PLACES[target]) == way, (source, target)
    bits = sw.device_put(small.astype(ml_dtypes.int4), PLACES["rows"])
    assert transfer.strategy(bits, PLACES["columns"]) == "program"


@pytest.mark.sweep
def test_on_accelerators_no_host_is_visited(monkeypatch):
    monkeypatch.setattr(Array, "_is_on_cpu", lambda self: False)
    x = sw.device_put(np.ones((512, 512), np.float32), PLACES["both"])
    for name, way in {"rows": "program", "half": "pieces", "one": "pieces"}.items():
        assert transfer.strategy(x, PLACES[name]) == way
    for module, function in ((buffers, "fetch_one"), (host, "shard_view"), (buffers, "put")):
        monkeypatch.delattr(module, function)
    moved = [sw.device_put(x, t) for t in PLACES.values()]
    monkeypatch.undo()
    for y in moved:
        np.testing.assert_array_equal(np.asarray(y), 1)


def test_what_is_being_computed_is_not_waited_for(monkeypatch):
    x = sw.device_put(np.ones((512, 512), np.float32), PLACES["rows"])
    monkeypatch.setattr(Array, "is_ready", lambda self: False)
    assert transfer.strategy(x, PLACES["columns"]) == "program"


# --------------------------------------------------------------------- each element copied once


def test_devices_get_only_what_they_lack():
    for source, target in itertools.product(PLACES.values(), PLACES.values()):
        held = dict(zip(source.devices, source.indices((9, 7)), strict=True))
        lacking = 0
        for device, index in zip(target.devices, target.indices((9, 7)), strict=True):
            wanted = np.zeros((9, 7), bool)
            wanted[index] = True
            if device in held:
                wanted[held[device]] = False
            lacking += wanted.sum()
        assert regions.moved(source, target, (9, 7)) == lacking


def test_copies_between_devices_are_what_is_lacking(monkeypatch):
    sent = []
    real = buffers.copy_each
    monkeypatch.setattr(
        buffers,
        "copy_each",
        lambda raws, *to: sent.extend(r.aval.shape for r in raws) or real(raws, *to),
    )
    for source, target in [("one", "rows"), ("both", "half"), ("three", "columns")]:
        sent.clear()
        x = sw.device_put(numbers((9, 7)), PLACES[source])
        transfer.STRATEGIES["pieces"](x, PLACES[target])
        count = sum(int(np.prod(shape)) for shape in sent)
        assert count >= regions.moved(PLACES[source], PLACES[target], (9, 7))
        assert count <= 9 * 7 * len(PLACES[target].devices)


def test_regions_put_arrays_together():
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(rng.integers(0, 9, rng.integers(0, 4)))
        counts = tuple(rng.integers(1, 5, len(shape)))
        bounds = tuple(tuple(sorted(rng.integers(0, n + 1, 2).tolist())) for n in shape)
        values = rng.random(shape)
        steps = [-(-n // k) for n, k in zip(shape, counts, strict=True)]
        found = regions.region(bounds, shape, counts)
        out = np.full(found.shape, np.nan)
        for piece in found.pieces:
            tile = np.unravel_index(piece.tile, counts) if counts else ()
            starts = [i * s for i, s in zip(tile, steps, strict=True)]
            box = tuple(slice(a, a + s) for a, s in zip(starts, steps, strict=True))
            assert np.isnan(out[piece.at]).all()
            out[piece.at] = values[box][piece.inside]
        np.testing.assert_array_equal(out, values[tuple(slice(*b) for b in bounds)])
        assert np.prod(found.grid) == len(found.pieces)


# ------------------------------------------------------------------------- memory of large arrays


BIG = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)  # 4 MiB


def addresses(x):
    parts = x._host_parts(list(range(len(x.sharding.devices))))
    return [p.__array_interface__["data"][0] for p in parts]


@pytest.mark.parametrize("way", ["put", "reshard"])
def test_an_array_cut_into_rows_is_read_without_a_copy(way):
    rows = NamedSharding(MESH, P(("x", "y")))
    x = sw.device_put(BIG, rows)
    if way == "reshard":
        x = sw.device_put(sw.device_put(BIG, PLACES["columns"]), rows)
    value = np.asarray(x)
    np.testing.assert_array_equal(value, BIG)
    assert value.__array_interface__["data"][0] == addresses(x)[0]
    assert not value.flags.writeable
    with pytest.raises(ValueError, match="cannot set WRITEABLE flag"):
        value.flags.writeable = True


def test_a_value_outlives_its_array():
    x = sw.device_put(BIG, PLACES["all"])
    value = np.asarray(x)
    x.delete()
    del x
    gc.collect()
    others = [sw.device_put(BIG * 0, PLACES["all"]) for _ in range(4)]
    np.testing.assert_array_equal(value, np.asarray(sw.device_put(BIG, DEVICES[0])))
    assert len(others) == 4


def test_rows_that_do_not_divide_are_read_without_a_copy():
    values = BIG[:1021]
    x = sw.device_put(values, PLACES["all"])
    assert np.asarray(x).__array_interface__["data"][0] == addresses(x)[0]
    np.testing.assert_array_equal(np.asarray(x), values)


def test_replicas_share_memory_and_survive_donation():
    x = sw.device_put(BIG, PLACES["replicated"])
    assert len(set(addresses(x))) == 1
    y = sw.device_put(BIG, PLACES["replicated"])
    double = sw.jit(lambda a: a + a, donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(double(x)), 2 * BIG)
    np.testing.assert_array_equal(np.asarray(y), BIG)
    assert x.is_deleted()


@pytest.mark.parametrize("name", ["rows", "columns", "replicated", "three", "all"])
def test_donated_and_written_over(name):
    """A program may reuse the memory of its argument, and no other array observes its writes."""
    x = sw.device_put(BIG, PLACES[name])
    value, twin = np.asarray(x), sw.device_put(x, PLACES["other"])
    step = sw.jit(lambda a: a + 1, donate_argnums=0)
    for _ in range(3):
        x = step(x)
    np.testing.assert_array_equal(np.asarray(x), BIG + 3)
    np.testing.assert_array_equal(value, BIG)
    np.testing.assert_array_equal(np.asarray(twin), BIG)


def test_later_writes_are_not_seen_and_types_are_narrowed():
    source = np.arange(1 << 20)
    for name in ("replicated", "rows", "three"):
        x = sw.device_put(source, PLACES[name])
        source[:] = -1
        assert x.dtype == np.int32
        np.testing.assert_array_equal(np.asarray(x), np.arange(1 << 20))
        source[:] = np.arange(1 << 20)


@pytest.fixture
def pool(monkeypatch):
    """The allocator of large arrays, with no spare memory."""
    host_memory.release()
    monkeypatch.setattr(host_memory, "POOL", host_memory.Pool())
    return host_memory.POOL


def test_memory_of_a_dropped_array_is_used_again(pool):
    x = sw.device_put(BIG, PLACES["all"])
    first = addresses(x)[0]
    del x
    host_memory.release()
    (block,) = pool.spare
    start = block.__array_interface__["data"][0]
    assert start <= first and first + BIG.nbytes <= start + block.nbytes
    y = sw.device_put(BIG, PLACES["all"])
    assert addresses(y)[0] == first and not pool.spare
    z = sw.device_put(BIG + 1, PLACES["all"])
    assert addresses(z)[0] != first
    np.testing.assert_array_equal(np.asarray(y), BIG)
    assert (pool.allocated, pool.reused) == (2, 1)


READS = {
    "nothing": lambda x: None,
    "all of it": np.asarray,
    "views of its shards": addresses,
    "a shard": lambda x: np.asarray(x.addressable_shards[0].data),
    "a shard of a shard": lambda x: np.asarray(x.addressable_data(0).addressable_data(0)),
}


@pytest.mark.parametrize("read", READS)
def test_one_block_is_enough_for_arrays_that_follow_each_other(read, pool):
    """A host copy of an array does not retain its memory after it is dropped, until a later one."""
    for _ in range(5):
        x = sw.device_put(BIG, PLACES["all"])
        READS[read](x)
        del x
        host_memory.release()
        assert len(pool.spare) == 1
    assert (pool.allocated, pool.reused) == (1, 4)


def test_a_program_keeps_the_memory_that_it_reads_until_it_has_ended(pool):
    for _ in range(5):
        x = sw.device_put(BIG, PLACES["all"])
        x[0, 0]
        del x
        until(lambda: host_memory.release() or pool.spare)
    assert (pool.allocated, pool.reused) == (1, 4)


def test_spare_memory_is_bounded(monkeypatch, pool):
    monkeypatch.setattr(host_memory, "_SPARE", 3 * BIG.nbytes)
    arrays = [sw.device_put(BIG, PLACES["all"]) for _ in range(6)]
    del arrays
    host_memory.release()
    assert 0 < pool.nbytes() <= 3 * BIG.nbytes
    pool.spare.clear()
    np.asarray(sw.device_put(numbers((8, 8)), PLACES["columns"]))  # not worth caching
    host_memory.release()
    assert not pool.spare


def test_arrays_larger_than_all_spare_memory_go_back_to_the_system(monkeypatch, pool):
    monkeypatch.setattr(host_memory, "_SPARE", BIG.nbytes // 2)
    for _ in range(3):
        x = sw.device_put(BIG, PLACES["all"])
        del x
    host_memory.release()
    assert (pool.allocated, pool.reused, pool.nbytes()) == (3, 0, 0)


def test_memory_that_a_program_reads_is_not_used_again():
    @sw.jit
    def slow(a):
        b = a
        for _ in range(20):
            b = sw.numpy.sin(b)
        return b * 0 + a

    for i in range(8):
        x = sw.device_put(BIG + i, PLACES["all"])
        y = slow(x)
        del x
        sw.device_put(BIG * 0, PLACES["all"])
        np.testing.assert_array_equal(np.asarray(y), BIG + i)


def test_a_value_in_use_is_not_written_over():
    host_memory.POOL.spare.clear()
    x = sw.device_put(BIG, PLACES["columns"])
    value = np.asarray(x)  # assembled on the host
    part = value[3:5]
    del x, value
    gc.collect()
    for _ in range(3):
        sw.device_put(BIG * 0, PLACES["columns"])
    np.testing.assert_array_equal(part, BIG[3:5])


def test_moving_copies_once_and_keeps_nothing(monkeypatch):
    """NumPy's allocations: the target, once, and nothing permanent."""
    host_memory.POOL.spare.clear()
    x = sw.block_until_ready(sw.device_put(BIG, PLACES["rows"]))
    tracemalloc.start()
    y = sw.device_put(x, PLACES["columns"])
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.05 * BIG.nbytes and held < 1.05 * BIG.nbytes
    assert x._host is None and y._host is None


def test_putting_copies_once(monkeypatch):
    for name in ("one", "rows", "replicated", "both"):
        host_memory.POOL.spare.clear()
        gc.collect()
        tracemalloc.start()
        x = sw.device_put(BIG, PLACES[name])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.05 * BIG.nbytes, name
        np.testing.assert_array_equal(np.asarray(x), BIG)


# ----------------------------------------------------------------------------- copies on the host


def test_copies_are_shared_among_threads(monkeypatch):
    monkeypatch.setattr(host_memory, "_cores", lambda: 3)
    source = np.arange(9 << 20, dtype=np.int32).reshape(1, 9, 1 << 20)
    to = np.zeros((1, 9, 1 << 20), np.float64)
    small = np.zeros(3)
    host_memory.copy_all([(to, source), (small, np.ones(3))])
    np.testing.assert_array_equal(to, source)
    np.testing.assert_array_equal(small, 1)


def test_a_copy_that_fails_raises(monkeypatch):
    monkeypatch.setattr(host_memory, "_cores", lambda: 2)
    to = np.zeros((4, 4 << 20), np.float32)
    with pytest.raises(ValueError, match="could not convert string"):
        host_memory.copy_all([(to, np.full(to.shape, "x"))])


def test_fetching_starts_all_copies_before_it_waits(monkeypatch):
    steps = []
    x = sw.device_put(BIG, PLACES["rows"])
    monkeypatch.setattr(Array, "_is_on_cpu", lambda self: False)
    real = buffers.fetch_one
    monkeypatch.setattr(buffers, "start_fetch", lambda raw: steps.append("start"))
    monkeypatch.setattr(buffers, "fetch_one", lambda *a: steps.append("wait") or real(*a))
    np.testing.assert_array_equal(np.asarray(x), BIG)
    assert steps == ["start"] * 4 + ["wait"] * 4


def test_trivial_tangents_are_no_arrays():
    said = (
        "a value of type float0[{}], such as the tangent of an integer, has no data and cannot "
        "be put on a device. Leave it out."
    )
    for shape, text in ((), ""), ((4,), "4"):
        zeros = np.zeros(shape, sw.float0)
        with pytest.raises(TypeError, match=f"^add: {re.escape(said.format(text))}$"):
            sw.numpy.add(1.0, zeros)
