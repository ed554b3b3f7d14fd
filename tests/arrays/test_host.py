"""Values on the host: fetching, conversions to Python, strings, pickles and copies."""

import copy
import operator
import pickle

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.arrays.array import Array
from shardwise._src.runtime import buffers, host
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails, message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, DTYPES, PLACES, ROWS, placed

EVERYWHERE = [(p, r) for p in PLACES for r in ROWS]


# ------------------------------------------------------------------------------------- fetching


@pytest.mark.parametrize("place, rows", EVERYWHERE)
def test_the_value_is_right_read_once_and_read_only(place, rows):
    values, x = placed(place, rows)
    found = np.asarray(x)
    np.testing.assert_array_equal(found, values)
    again, view = np.asarray(x), len(x.devices()) == 1  # a new view is as fast as a cached one
    assert (np.shares_memory if view else operator.is_)(again, found) or not x.size
    assert not found.flags.writeable and not again.flags.writeable
    assert np.array(x).flags.writeable and np.array(x) is not found
    assert np.asarray(x, np.float64).dtype == np.float64
    assert x.tolist() == values.tolist() and x.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", everyday(DTYPES, 5), ids=str)
def test_every_dtype_comes_back(dtype):
    for place in ("one", "partly replicated", "sharded"):
        for rows in ("even", "uneven", "none"):
            values, x = placed(place, rows, dtype)
            assert np.asarray(x).dtype == dtype and x.tobytes() == values.tobytes()


def test_a_value_on_one_cpu_is_not_copied():
    for dtype in (np.float32, ml_dtypes.bfloat16, np.bool_, ml_dtypes.float8_e5m2):
        for device in (DEVICES[0], DEVICES[5]):
            x = sw.device_put(np.ones((8, 2), dtype), device)
            assert np.asarray(x).ctypes.data == x.unsafe_buffer_pointer()


@pytest.mark.parametrize("place", ["replicated", "partly replicated", "sharded", "reversed"])
def test_all_copies_start_before_the_first_is_waited_for_each_once(place, monkeypatch):
    values, x = placed(place, "even")
    done = []
    fetch = buffers.fetch_one
    monkeypatch.setattr(Array, "_is_on_cpu", lambda self: False)
    monkeypatch.setattr(x._sig, "readable", None)
    monkeypatch.setattr(buffers, "start_fetch", lambda raw: done.append("start"))
    monkeypatch.setattr(buffers, "fetch_one", lambda *a: done.append("wait") or fetch(*a))
    distinct = {str(i) for i in x.sharding.devices_indices_map(x.shape).values()}
    x.copy_to_host_async()
    assert done == ["start"] * len(distinct)
    done.clear()
    np.testing.assert_array_equal(x, values)
    assert done == ["start"] * len(distinct) + ["wait"] * len(distinct)
    np.asarray(x), x.copy_to_host_async()
    assert len(done) == 2 * len(distinct)  # the host value is available


def test_on_cpu_each_distinct_index_is_read_once(monkeypatch):
    reads = []
    real = host._exported
    monkeypatch.setattr(host, "_exported", lambda *a: reads.append(a) or real(*a))
    for place, count in (("replicated", 1), ("partly replicated", 4), ("sharded", 8)):
        reads.clear()
        np.asarray(placed(place, "even")[1])
        assert len(reads) == count


def test_what_this_process_cannot_read(monkeypatch):
    _, x = placed("sharded", "even")
    monkeypatch.setattr(type(x.sharding), "is_held_here", lambda self, shape: False)
    for use in (np.asarray, np.array, lambda v: v.tolist(), lambda v: v.item(0)):
        assert message(RuntimeError, use, x) == (
            "array of type f32[8,2] spans devices of other processes, so this process cannot read "
            "its value. Options: `shardwise.experimental.multihost_utils.process_allgather(x, "
            "tiled=True)` gives all of it to each process, `shardwise.device_put(x, sharding)` "
            "with a replicated sharding over the same devices makes it readable, and "
            "`x.addressable_shards` are the shards of this process. The first two must be called "
            "in all of these processes."
        )
    fails(
        TypeError,
        "cannot pickle an array of type f32[8,2] that spans devices of other processes: a pickle "
        "contains the full value, and this process has only a part. Pickle the data of its "
        "`addressable_shards` in each process, or collect it first with "
        "`shardwise.experimental.multihost_utils.process_allgather(x, tiled=True)`.",
        pickle.dumps,
        x,
    )
    for text in (repr(x), str(x), f"{x}"):
        assert text.startswith("Array(shape=(8, 2), dtype=float32) sharded as NamedSharding(")


# -------------------------------------------------------------------------------- Python scalars

SCALARS = [
    True,
    7,
    -3,
    2.5,
    1 - 2j,
    np.int8(5),
    np.uint16(9),
    np.float16(0.5),
    ml_dtypes.bfloat16(1.5),
    ml_dtypes.int4(-3),
    ml_dtypes.uint2(2),
    np.float32(np.inf),
]
ASKED = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "hex": hex,
    "oct": oct,
    "__hex__": lambda v: v.__hex__(),
    "__oct__": lambda v: v.__oct__(),
    "format": format,
    "%d": lambda v: f"{v:d}",
    "%.2f": lambda v: f"{v:.2f}",
    "str": str,
    "item": lambda v: v.item(),
    "tolist": lambda v: v.tolist(),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars_convert_as_jax_converts_them(value, asked):
    """The same result, or an error if jax raises one."""

    def outcome(x):
        try:
            found = ASKED[asked](x)
        except (TypeError, ValueError, OverflowError) as error:
            return type(error)
        return type(found).__name__ if hasattr(found, "dtype") else (type(found), repr(found))

    mine, theirs = outcome(snp.asarray(value)), outcome(jnp.asarray(value))
    if asked in ("index", "hex", "oct", "__hex__", "__oct__") and "int" in str(type(value)):
        theirs = outcome(jnp.asarray(int(value)))  # jax has no sub-byte integers here
    assert mine == theirs


@pytest.mark.parametrize("place", PLACES)
def test_scalars_convert_wherever_they_are(place):
    x = (
        sw.device_put(np.float32(2.5), PLACES[place])
        if "shard" not in place and (place not in ("partly replicated", "reversed"))
        else placed(place, "even")[1].sum() / 10 * 0 + 2.5
    )
    assert float(x) == 2.5 and int(x) == 2 and complex(x) == 2.5 and bool(x)
    assert x.item() == 2.5 and x.tolist() == 2.5 and f"{x:.3f}" == "2.500"


def test_only_integers_without_dimensions_are_indices():
    for x, shown in ((snp.ones(1, int), "i32[1]"), (snp.asarray(1.0), "~f32[]")):
        for use in (operator.index, hex, oct):
            assert message(TypeError, use, x) == (
                "only a 0-d integer array can be used as an index; got " + shown + "."
            )


def test_buffers_by_way_of_numpy():
    values, x = placed("sharded", "uneven")
    view = memoryview(np.asarray(x))
    assert view.readonly and view.shape == (9, 2) and bytes(view) == values.tobytes()


# ------------------------------------------------------------------------------------- strings


@pytest.mark.parametrize("rows", everyday(ROWS, 3))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_text_is_that_of_jax_wherever_the_array_is(dtype, rows):
    values, x = placed("one", rows, dtype)
    theirs = jnp.asarray(values)
    assert repr(x) == repr(theirs) and str(x) == str(theirs) and f"{x}" == f"{theirs}"
    for place in ("another", "partly replicated", "sharded"):
        y = placed(place, rows, dtype)[1]
        assert repr(y) == repr(theirs) and str(y) == str(theirs)


def test_text_of_weak_and_empty_and_gone_arrays():
    assert repr(snp.asarray(2)) == "Array(2, dtype=int32, weak_type=True)"
    assert repr(placed("sharded", "none")[1]) == "Array([], shape=(0, 2), dtype=float32)"
    x = placed("one", "even")[1]
    x.delete()
    assert repr(x) == str(x) == f"{x}" == "Array(deleted, shape=(8, 2), dtype=float32)"


# --------------------------------------------------------------------------- pickles and copies

AGAIN = {
    **{f"pickle {n}": lambda x, n=n: pickle.loads(pickle.dumps(x, n)) for n in range(6)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy in a tree": lambda x: copy.deepcopy({"x": [x]})["x"][0],
}


@pytest.mark.parametrize("again", AGAIN)
@pytest.mark.parametrize("place, rows", EVERYWHERE)
def test_value_and_type_survive_and_the_sharding_in_copies(place, rows, again):
    values, x = placed(place, rows)
    twin = AGAIN[again](x)
    np.testing.assert_array_equal(np.asarray(twin), values)
    assert twin.dtype == x.dtype and twin.weak_type == x.weak_type and twin.shape == x.shape
    if again.startswith("pickle"):
        assert twin.devices() == {DEVICES[0]} and not twin.committed
    else:
        assert (twin.sharding, twin.committed) == (x.sharding, x.committed)
        shards = zip(twin.addressable_shards, x.addressable_shards, strict=True)
        assert all(a.device == b.device and a.data.shape == b.data.shape for a, b in shards)
    x.delete()
    np.testing.assert_array_equal(np.asarray(twin + 0), values)


@pytest.mark.parametrize("again", AGAIN)
def test_every_dtype_survives(again):
    for dtype in DTYPES:
        for place in ("one", "sharded"):
            values, x = placed(place, "uneven", dtype)
            twin = AGAIN[again](x)
            assert twin.dtype == dtype and twin.tobytes() == values.tobytes()


@pytest.mark.parametrize("again", AGAIN)
def test_weak_values_and_keys_survive(again):
    for weak in (snp.asarray(2), snp.asarray(2.5), snp.asarray(1j)):
        assert AGAIN[again](weak).aval is weak.aval
    keys = sw.random.split(sw.random.key(1), 9)
    for place in PLACES.values():
        x = sw.device_put(keys, place)
        twin = AGAIN[again](x)
        assert twin.dtype == keys.dtype
        assert twin.devices() == ({DEVICES[0]} if again.startswith("pickle") else x.devices())
        np.testing.assert_array_equal(sw.random.key_data(twin), sw.random.key_data(keys))
    assert repr(AGAIN[again](keys[0])) == repr(jax.random.split(jax.random.key(1), 9)[0])


def test_the_default_device_is_that_of_the_reader():
    x = placed("sharded", "uneven")[1]
    blob = pickle.dumps(x)
    with sw.default_device(DEVICES[3]):
        assert pickle.loads(blob).devices() == {DEVICES[3]}
        assert copy.copy(x).sharding == copy.deepcopy(x).sharding == x.sharding


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy])
def test_copies_are_where_the_array_is(again):
    free = snp.arange(3)
    assert not again(free).committed and again(free).sharding == free.sharding
    mesh = sw.make_mesh((8,), ("x",))
    x = sw.device_put(np.arange(13, dtype=np.float32), NamedSharding(mesh, P("x")))
    twin = again(x)
    assert twin.aval is x.aval and twin.sharding == x.sharding and twin.committed
    assert twin.on_device_size_in_bytes() == x.on_device_size_in_bytes() == 16 * 4
    pairs = zip(twin.addressable_shards, x.addressable_shards, strict=True)
    assert all(
        a.data.size == 0 or a.data.unsafe_buffer_pointer() != b.data.unsafe_buffer_pointer()
        for a, b in pairs
    )
    x.delete()
    np.testing.assert_array_equal(twin, np.arange(13))
    assert message(RuntimeError, again, x) == (
        "array of type f32[13@x] has been deleted: `delete()` was called on it. To use it longer, "
        "make a copy beforehand: `x.copy()`."
    )


def test_pickles_can_leave_the_bytes_out():
    x = snp.arange(1000)
    buffers = []
    blob = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(blob) < 1000 and len(buffers) == 1
    np.testing.assert_array_equal(pickle.loads(blob, buffers=buffers), x)


def test_traced_values_can_be_copied_but_not_pickled():
    found = sw.jit(lambda x: copy.deepcopy([x, copy.copy(x)])[0] + 1)(snp.ones(2))
    np.testing.assert_array_equal(found, [2, 2])
