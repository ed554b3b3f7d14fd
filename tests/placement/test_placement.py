"""Array placement: `device_put`, resharding, shards, host values, interchange."""

import copy
import gc
import itertools
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.runtime import buffers, host
from shardwise._src.transfers import transfer
from shardwise.sharding import GSPMDSharding, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import holds
from tests.helpers.errors import COPY, donated
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday
from tests.helpers.meshes import BACK, DEVICES, HALF, MESH, OTHER, REVERSED, SHUFFLED

VALUES = np.arange(64, dtype=np.float32).reshape(8, 8)

TARGETS = {
    "one": SingleDeviceSharding(DEVICES[0]),
    "another": SingleDeviceSharding(DEVICES[5]),
    "rows": NamedSharding(MESH, P("x")),
    "columns": NamedSharding(MESH, P(None, "y")),
    "both": NamedSharding(MESH, P("y", "x")),
    "one dimension": NamedSharding(MESH, P(("x", "y"))),
    "minor first": NamedSharding(MESH, P(("y", "x"))),
    "replicated": NamedSharding(MESH, P()),
    "other mesh": NamedSharding(OTHER, P("b", "a")),
    "reversed": NamedSharding(REVERSED, P("x", "y")),
    "reversed, replicated": NamedSharding(REVERSED, P()),
    "shuffled": NamedSharding(SHUFFLED, P(("z", "x"), "y")),
    "half": NamedSharding(HALF, P("x", "y")),
    "back": NamedSharding(BACK, P("y")),
    "back, replicated": NamedSharding(BACK, P()),
}


def check(x, sharding, values=VALUES):
    """Checks the value, the sharding, and each shard on its device."""
    assert x.sharding is sharding and x.committed
    assert [s.device for s in x.addressable_shards] == list(sharding.devices)
    holds(x, values)


# ------------------------------------------------------------------------------- from the host


@pytest.mark.parametrize("name", TARGETS)
def test_a_numpy_array_goes_to_any_sharding(name):
    check(sw.device_put(VALUES, TARGETS[name]), TARGETS[name])


def test_a_device_stands_for_the_sharding_on_it():
    x = sw.device_put(VALUES, DEVICES[3])
    assert x.sharding == SingleDeviceSharding(DEVICES[3]) and x.device == DEVICES[3]
    assert x.devices() == {DEVICES[3]}


def test_scalars_lists_and_trees():
    x = sw.device_put({"a": [1, 2.5], "b": (np.int8(3), None)}, DEVICES[1])
    assert x["b"][1] is None and x["a"][1].weak_type and not x["b"][0].weak_type
    assert [int(x["a"][0]), float(x["a"][1]), int(x["b"][0])] == [1, 2.5, 3]
    assert {d for a in (*x["a"], x["b"][0]) for d in a.devices()} == {DEVICES[1]}


def test_a_tree_of_targets_is_a_prefix():
    tree = {"a": [VALUES, VALUES], "b": VALUES}
    put = sw.device_put(tree, {"a": TARGETS["rows"], "b": DEVICES[2]})
    assert [a.sharding for a in put["a"]] == [TARGETS["rows"]] * 2
    assert put["b"].devices() == {DEVICES[2]}


def test_none_leaves_things_where_they_are():
    x = sw.device_put(VALUES, TARGETS["rows"])
    assert sw.device_put(x) is x
    there = sw.device_put([x, VALUES], [None, DEVICES[1]])
    assert there[0] is x and there[1].devices() == {DEVICES[1]}
    fresh = sw.device_put(VALUES)
    assert not fresh.committed and fresh.devices() == {DEVICES[0]}


def test_a_bare_spec_means_the_mesh_in_scope():
    with MESH:
        assert sw.device_put(VALUES, P("x")).sharding is TARGETS["rows"]


def test_what_was_uncommitted_becomes_committed():
    x = lax.add(VALUES, 1.0)
    y = sw.device_put(x, x.sharding)
    assert not x.committed and y.committed
    np.testing.assert_array_equal(np.asarray(y), VALUES + 1)


def test_later_writes_to_the_source_are_not_seen():
    for target in (DEVICES[0], TARGETS["replicated"], TARGETS["rows"]):
        source = np.zeros((8, 8), np.float32)
        x = sw.device_put(source, target)
        source[:] = 1
        np.testing.assert_array_equal(np.asarray(x), 0)


def test_later_writes_to_memory_that_devices_could_take_over_are_not_seen():
    """XLA's CPU devices can alias memory that begins at a multiple of 64 bytes."""
    for target in (DEVICES[0], TARGETS["replicated"], TARGETS["rows"]):
        memory = np.zeros(8 * 64 + 16, np.float32)
        start = -memory.ctypes.data % 64 // 4
        source = memory[start : start + 8 * 64].reshape(8, 64)
        assert source.ctypes.data % 64 == 0
        x = sw.device_put(source, target)
        source[:] = 1
        np.testing.assert_array_equal(np.asarray(x), 0)


@pytest.mark.parametrize("order", ["F", "strided", "reversed"])
def test_any_memory_layout_comes_in(order):
    source = {
        "F": np.asfortranarray(VALUES),
        "strided": np.repeat(VALUES, 2, 1)[:, ::2],
        "reversed": VALUES[::-1].copy()[::-1],
    }[order]
    check(sw.device_put(source, TARGETS["both"]), TARGETS["both"])


def test_wide_types_are_narrowed():
    assert sw.device_put(np.arange(3)).dtype == np.int32
    assert sw.device_put(np.ones(3)).dtype == np.float32
    assert sw.device_put(np.ones(3, complex), TARGETS["replicated"]).dtype == np.complex64


# ---------------------------------------------------------------------------------- resharding


@pytest.mark.parametrize("name", TARGETS)
def test_from_every_sharding_to_every_other(name):
    source = sw.device_put(VALUES, TARGETS[name])
    for target in TARGETS.values():
        check(sw.device_put(source, target), target)
    check(source, TARGETS[name])


def test_no_visit_to_the_host_over_the_same_devices(monkeypatch):
    """If host memory is not device memory."""
    fetches = []
    monkeypatch.setattr(sw.Array, "_is_on_cpu", lambda self: False)
    whole = {n: t for n, t in TARGETS.items() if t.device_set == frozenset(DEVICES)}
    assert len(whole) == 10
    arrays = {n: sw.device_put(VALUES, t) for n, t in whole.items()}
    pairs = everyday(itertools.product(whole, whole), 40)
    with monkeypatch.context() as patch:
        for module, function in ((buffers, "fetch_one"), (host, "shard_view"), (buffers, "put")):
            patch.setattr(module, function, lambda *a, f=function, **k: fetches.append(f))
        moved = [sw.device_put(arrays[a], whole[b]) for a, b in pairs]
    assert fetches == []
    monkeypatch.undo()
    for x, (_, target) in zip(moved, pairs, strict=True):
        assert x.sharding is whole[target]
        np.testing.assert_array_equal(np.asarray(x), VALUES)


def test_equal_layouts_share_the_buffers():
    x = sw.device_put(VALUES, NamedSharding(MESH, P("x")))
    y = sw.device_put(x, NamedSharding(MESH, P("x", None)))
    z = sw.device_put(x, NamedSharding(REVERSED, P()))
    pointers = [[s.data.unsafe_buffer_pointer() for s in a.addressable_shards] for a in (x, y)]
    assert pointers[0] == pointers[1]
    w = sw.device_put(z, NamedSharding(MESH, P()))
    replicas = {s.device: s.data.unsafe_buffer_pointer() for s in z.addressable_shards}
    assert replicas == {s.device: s.data.unsafe_buffer_pointer() for s in w.addressable_shards}


def test_may_alias_false_copies():
    x = sw.device_put(VALUES, DEVICES[0])
    assert sw.device_put(x, DEVICES[0]) is x
    y = sw.device_put(x, DEVICES[0], may_alias=False)
    assert y.unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    x.delete()
    np.testing.assert_array_equal(np.asarray(y), VALUES)


@pytest.mark.parametrize("target", ["one", "columns", "half", "reversed"])
def test_a_donated_source_is_gone(target):
    x = sw.device_put(VALUES, TARGETS["rows"])
    y = sw.device_put(x, TARGETS[target], donate=True)
    assert x.is_deleted()
    check(y, TARGETS[target])
    with pytest.raises(RuntimeError) as caught:
        np.asarray(x)
    told = "array of type f32[8,8] was donated to device_put. "
    assert str(caught.value) == told + donated("device_put")


@pytest.mark.sweep
def test_between_accelerators_the_host_is_not_visited_either(monkeypatch):
    """The transfer strategies of other platforms, on CPU devices that do not report as CPU."""
    sources = [sw.device_put(VALUES, t) for t in TARGETS.values()]
    monkeypatch.setattr(sw.Array, "_is_on_cpu", lambda self: False)
    moved = [(sw.device_put(x, t), t) for x in sources[:6] for t in TARGETS.values()]
    monkeypatch.undo()
    for x, target in moved:
        check(x, target)


def test_memory_kinds():
    there = NamedSharding(MESH, P("x"), memory_kind="pinned_host")
    x = sw.device_put(sw.device_put(VALUES, TARGETS["rows"]), there)
    assert x.sharding.memory_kind == "pinned_host"
    check(x, there)
    check(sw.device_put(x, TARGETS["both"]), TARGETS["both"])
    check(sw.device_put(VALUES, there), there)


OF_HOST_MEMORY = {  # whether results stay in host memory
    "+": (lambda x: x + x, False),
    "sin": (jnp.sin, False),
    "sum": (jnp.sum, False),
    "x[:2]": (lambda x: x[:2], False),
    "x[i]": (lambda x: x[np.array([0, 2])], False),
    "jit": (sw.jit(lambda x: x), False),
    "x.T": (lambda x: x.T, False),
    "beside": (lambda x: x + sw.device_put(x, TARGETS["rows"]), False),
    "copy": (lambda x: x.copy(), True),
    "astype": (lambda x: x.astype(jnp.int32), True),
    "zeros_like": (jnp.zeros_like, True),
    "out_shardings": (lambda x: sw.jit(lambda x: x + 1, out_shardings=x.sharding)(x), True),
}


@pytest.mark.parametrize("name", everyday(OF_HOST_MEMORY, 4))
def test_results_of_arrays_in_host_memory(name):
    f, stays = OF_HOST_MEMORY[name]
    whole = np.asarray(f(jnp.asarray(VALUES)))
    for place in (NamedSharding(MESH, P("x")), SingleDeviceSharding(DEVICES[0])):
        if name == "beside" and not isinstance(place, NamedSharding):
            continue
        x = sw.device_put(VALUES, place.with_memory_kind("pinned_host"))
        y = f(x)
        assert y.sharding.memory_kind == ("pinned_host" if stays else "device")
        assert y.devices() == x.devices()
        np.testing.assert_allclose(y, whole, rtol=1e-6)


def test_in_a_traced_function_it_is_a_constraint():
    x = sw.device_put(VALUES, TARGETS["rows"])
    y = sw.jit(lambda a: sw.device_put(lax.add(a, 1.0), TARGETS["columns"]))(x)
    assert y.sharding == TARGETS["columns"]
    np.testing.assert_array_equal(np.asarray(y), VALUES + 1)


def test_aligned_gives_every_device_the_same():
    target = TARGETS["shuffled"]
    order = tuple(DEVICES)
    found = transfer.aligned(target, order, 2)
    assert found.devices == order
    assert found.devices_indices_map((8, 8)) == target.devices_indices_map((8, 8))


# -------------------------------------------------------------------------------------- shards


def test_shards_say_device_index_and_replica():
    x = sw.device_put(VALUES, TARGETS["rows"])
    shards = x.addressable_shards
    assert [s.device.id for s in shards] == list(range(8))
    assert [s.replica_id for s in shards] == [0, 1] * 4
    assert [s.index[0] for s in shards[::2]] == [slice(2 * i, 2 * i + 2) for i in range(4)]
    assert repr(shards[1]) == (
        f"Shard(device={DEVICES[1]!r}, index=(slice(0, 2, None), slice(None, None, None)), "
        f"replica_id=1, data={shards[1].data!r})"
    )
    assert [s.device for s in x.global_shards] == [s.device for s in shards]
    np.testing.assert_array_equal(np.asarray(x.addressable_data(3)), VALUES[2:4])


def test_replica_ids_of_a_replicated_array():
    x = sw.device_put(VALUES, TARGETS["replicated"])
    assert [s.replica_id for s in x.addressable_shards] == list(range(8))
    assert x.is_fully_replicated and x.is_fully_addressable
    assert not sw.device_put(VALUES, TARGETS["rows"]).is_fully_replicated
    assert sw.device_put(VALUES, DEVICES[0]).is_fully_replicated


def test_shards_share_the_memory_of_the_whole():
    x = sw.device_put(VALUES, TARGETS["both"])
    one, again = x.addressable_shards[2].data, x.addressable_shards[2].data
    assert one.unsafe_buffer_pointer() == again.unsafe_buffer_pointer()
    shard = x.addressable_shards[0]
    assert shard.data is shard.data
    assert shard.data.sharding == SingleDeviceSharding(DEVICES[0]) and shard.data.committed


def test_shards_outlive_the_whole():
    x = sw.device_put(VALUES, TARGETS["rows"])
    part = x.addressable_shards[2].data
    x.delete()
    del x
    gc.collect()
    np.testing.assert_array_equal(np.asarray(lax.add(part, 1.0)), VALUES[2:4] + 1)


def test_a_shard_can_be_donated_without_harm_to_the_whole():
    x = sw.device_put(VALUES, TARGETS["rows"])
    doubled = sw.jit(lambda a: lax.add(a, a), donate_argnums=0)(x.addressable_shards[0].data)
    np.testing.assert_array_equal(np.asarray(doubled), VALUES[:2] * 2)
    np.testing.assert_array_equal(np.asarray(x), VALUES)


# ---------------------------------------------------------------------------------- host values


def test_each_distinct_index_is_copied_once(monkeypatch):
    views = []
    real = host.shard_view
    monkeypatch.setattr(host, "shard_view", lambda *a: views.append(a[2]) or real(*a))
    np.asarray(sw.device_put(VALUES, TARGETS["rows"]))
    assert views == [0, 2, 4, 6]
    exports = []
    export = host._exported
    monkeypatch.setattr(host, "_exported", lambda *a: exports.append(a) or export(*a))
    np.asarray(sw.device_put(VALUES, TARGETS["replicated"]))
    assert len(exports) == 1


def test_the_host_value_is_copied_once_and_read_only():
    for target in ("one", "rows", "replicated"):
        x = sw.device_put(VALUES, TARGETS[target])
        value = np.asarray(x)
        again = np.asarray(x)
        assert np.shares_memory(again, value) and not value.flags.writeable
        assert again is value or target == "one"
        with pytest.raises(ValueError, match="read-only"):
            value[0, 0] = 1


def test_array_protocol_dtype_and_copy():
    x = sw.device_put(VALUES, TARGETS["rows"])
    assert np.asarray(x, np.int64).dtype == np.int64
    assert np.array(x, copy=True).flags.writeable
    assert np.array(x, copy=False) is np.asarray(x)
    assert error_of(ValueError, np.array, x, np.float64, copy=False) == (
        "an array of type f32[8,8] cannot become a NumPy array of dtype float64 without a "
        "copy, as copy=False requires."
    )


NAMES = [
    "bool",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "int8",
    "uint16",
    "int32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e8m0fnu",
    "float4_e2m1fn",
]


@pytest.mark.parametrize("name", everyday(NAMES, 5))
def test_every_dtype_is_fetched_right(name):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    values = np.array([1, 0, 1, 1, 0, 1, 0, 1]).astype(dtype).reshape(4, 2)
    for target in (DEVICES[1], TARGETS["rows"], TARGETS["replicated"], TARGETS["reversed"]):
        x = sw.device_put(values, target)
        assert np.asarray(x).dtype == dtype and np.asarray(x).tobytes() == values.tobytes()
        shard = x.addressable_shards[-1]
        assert np.asarray(shard.data).tobytes() == values[shard.index].tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (8, 0), (1,), (8, 1, 1)])
def test_every_shape_is_fetched_right(shape):
    values = np.ones(shape, np.float32)
    spec = P("x") if shape[:1] == (8,) else P()
    for target in (DEVICES[1], NamedSharding(MESH, spec)):
        for dtype in (np.float32, ml_dtypes.bfloat16):
            x = sw.device_put(values.astype(dtype), target)
            assert np.asarray(x).shape == shape
            np.testing.assert_array_equal(np.asarray(x).astype(np.float32), values)


def test_device_get_fetches_trees():
    tree = {"a": sw.device_put(VALUES, TARGETS["rows"]), "b": [1, "text", None]}
    got = sw.device_get(tree)
    assert type(got["a"]) is np.ndarray and got["b"] == [1, "text", None]
    assert sw.grad(lambda a: a * sw.device_get(a))(3.0) == 6  # traced values pass through unchanged


def test_copy_to_host_async_and_readiness():
    x = sw.device_put(VALUES, TARGETS["rows"])
    x.copy_to_host_async()
    assert x.block_until_ready() is x and x.is_ready()
    assert sw.block_until_ready({"a": x, "b": 3})["b"] == 3
    assert x.on_device_size_in_bytes() == 2 * VALUES.nbytes


# ----------------------------------------------------------------------------------- callbacks


def test_make_array_from_callback_asks_once_for_each_index():
    asked = []

    def part(index):
        asked.append(index)
        return VALUES[index]

    for name in ("rows", "replicated", "both", "shuffled"):
        asked.clear()
        x = sw.make_array_from_callback((8, 8), TARGETS[name], part)
        check(x, TARGETS[name])
        distinct = set(map(str, TARGETS[name].devices_indices_map((8, 8)).values()))
        assert len(asked) == len(distinct)


def test_make_array_from_callback_takes_what_is_array_like():
    x = sw.make_array_from_callback((8,), NamedSharding(MESH, P("x")), lambda i: [1, 2], np.int8)
    assert x.dtype == np.int8 and np.asarray(x).tolist() == [1, 2] * 4
    source = sw.device_put(VALUES, DEVICES[2])
    y = sw.make_array_from_callback((8, 8), TARGETS["rows"], lambda i: np.asarray(source)[i])
    check(y, TARGETS["rows"])


def test_make_array_from_callback_refuses_wrong_shapes():
    with pytest.raises(ValueError) as caught:
        sw.make_array_from_callback((8,), NamedSharding(MESH, P("x")), lambda i: np.zeros(3))
    assert str(caught.value) == (
        "make_array_from_callback: the callback returned shape (3,) for index (slice(0, 2, "
        "None),); expected (2,)."
    )


# --------------------------------------------------------------------------- deletion, lifetime


@pytest.mark.parametrize("target", ["one", "rows"])
def test_a_deleted_array_says_so(target):
    x = sw.device_put(VALUES, TARGETS[target])
    assert not x.is_deleted()
    np.asarray(x)
    x.delete()
    x.delete()
    assert x.is_deleted() and x.shape == (8, 8)
    message = "array of type f32[8,8] has been deleted: `delete()` was called on it. " + COPY
    uses = (
        lambda: np.asarray(x),
        lambda: lax.add(x, 1.0),
        lambda: sw.jit(lambda a: a)(x),
        lambda: x.addressable_shards,
        lambda: sw.device_put(x, DEVICES[4]),
        lambda: x.block_until_ready(),
    )
    for use in uses:
        assert error_of(RuntimeError, use).endswith(message)


def test_arrays_that_share_memory_go_together():
    x = lax.add(VALUES, 1.0)
    y = sw.device_put(x, x.sharding)
    x.delete()
    assert y.is_deleted()
    assert error_of(RuntimeError, np.asarray, y) == (
        "array of type f32[8,8] has been deleted, through another array that shared its memory. "
        + COPY
    )


def test_memory_is_free_when_the_last_reference_goes():
    x = sw.device_put(VALUES, TARGETS["rows"])
    y = lax.add(x, 1.0)
    np.asarray(y)
    seen = [weakref.ref(each) for each in (x, x._live(), y)]
    gc.collect()
    assert all(ref() is not None for ref in seen)
    del x, y
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3


# ---------------------------------------------------------------------------------- interchange


@pytest.mark.parametrize("target", ["one", "another", "rows", "reversed", "half"])
def test_pickles_keep_value_and_type_and_copies_the_sharding_too(target):
    x = sw.device_put(VALUES, TARGETS[target])
    back = pickle.loads(pickle.dumps(x))
    assert not back.committed and back.devices() == {DEVICES[0]}
    for twin in (copy.copy(x), copy.deepcopy({"x": x})["x"]):
        assert twin.committed and twin.sharding == x.sharding
    for twin in (back, copy.copy(x), copy.deepcopy({"x": x})["x"]):
        assert twin.aval is x.aval
        np.testing.assert_array_equal(np.asarray(twin), VALUES)


def test_weak_types_and_narrow_dtypes_survive_pickling():
    for x in (
        sw.device_put(2.5),
        sw.device_put(np.ones(3, ml_dtypes.bfloat16)),
        sw.device_put(np.ones(3, ml_dtypes.int4)),
    ):
        back = pickle.loads(pickle.dumps(x))
        assert back.aval is x.aval
        np.testing.assert_array_equal(np.asarray(back), np.asarray(x))


def test_numpy_imports_dlpack_without_a_copy():
    x = sw.device_put(VALUES, DEVICES[0])
    assert x.__dlpack_device__() == (1, 0)
    view = np.from_dlpack(x)
    np.testing.assert_array_equal(view, VALUES)
    assert view.__array_interface__["data"][0] == x.unsafe_buffer_pointer()
    copied = np.from_dlpack(x, copy=True)
    assert copied.__array_interface__["data"][0] != x.unsafe_buffer_pointer()
    x.delete()
    np.testing.assert_array_equal(view, VALUES)


def test_dlpack_of_many_devices_is_refused():
    x = sw.device_put(VALUES, TARGETS["rows"])
    assert error_of(BufferError, np.from_dlpack, x) == (
        "array of type f32[8,8] is sharded over 8 devices, so it has no DLPack device. Take one of "
        "its `addressable_shards`, or gather it with `device_put`."
    )


def test_dlpack_of_bits_and_foreign_devices_is_refused():
    x = sw.device_put(np.ones(3, ml_dtypes.int4))
    assert error_of(BufferError, np.from_dlpack, x) == (
        "DLPack does not support elements of int4, of less than a byte. Convert the array with "
        "`astype` first."
    )
    assert error_of(BufferError, lambda: sw.device_put(VALUES).__dlpack__(dl_device=(2, 0))) == (
        "array of type f32[8,8] is on the DLPack device (1, 0), not on (2, 0). Use `device_put` "
        "first, or `numpy.asarray` for the host."
    )


def test_the_escape_hatch_for_layouts_without_a_spec():
    tiling = GSPMDSharding.get_replicated(tuple(DEVICES))
    check(sw.device_put(VALUES, tiling), tiling)
    odd = transfer.aligned(TARGETS["shuffled"], tuple(DEVICES), 2)
    x = sw.device_put(VALUES, odd)
    check(x, odd)
    y = sw.jit(lambda a: lax.add(a, 1.0))(x)
    np.testing.assert_array_equal(np.asarray(y), VALUES + 1)


@pytest.mark.parametrize("source", TARGETS)
def test_arrays_without_elements_are_moved(source):
    empty = sw.device_put(np.zeros((0, 8), np.float32), TARGETS[source])
    for target in TARGETS.values():
        moved = sw.device_put(empty, target)
        assert moved.sharding == target and np.asarray(moved).shape == (0, 8)


def test_shards_for_other_devices_are_cut_out_of_those_that_are_there():
    x = sw.device_put(VALUES, TARGETS["both"])
    for name in ("half", "back", "back, replicated", "another"):
        moved = sw.device_put(x, TARGETS[name])
        np.testing.assert_array_equal(np.asarray(moved), VALUES)
    assert x._host is None  # the full value was never on the host


def test_older_names_and_arguments():
    assert sw.host_id() == sw.process_index() == 0
    assert sw.host_count() == sw.process_count() == 1
    assert sw.host_ids() == sw.process_indices() == [0]
    assert sw.local_devices(host_id=0) == sw.local_devices()
    assert sw.local_devices(host_id=1) == []


def test_copy_to_host_async_gives_the_tree():
    tree = {"a": jnp.arange(3), "b": "text"}
    assert sw.copy_to_host_async(tree) is tree
    assert tree["a"].tolist() == [0, 1, 2]
