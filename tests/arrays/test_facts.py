"""Facts about an array: types, shardings, shards (even and uneven), typed keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, DTYPES, MESH, PLACES, ROWS, placed, values

EVERYWHERE = [(p, r) for p in PLACES for r in ROWS]


def test_tracers_are_arrays():
    seen = []

    def f(x):
        seen.append(isinstance(x, sw.Array))
        return x * 2

    x = snp.ones(3)
    sw.jit(f)(x), sw.grad(lambda v: f(v).sum())(x), sw.vmap(f)(x)
    assert seen == [True] * 3
    assert isinstance(x, sw.Array) and not isinstance(np.ones(3), sw.Array)
    assert not isinstance(1.0, sw.Array) and not isinstance(jnp.ones(3), sw.Array)


def test_arrays_are_not_made_by_their_class():
    assert message(TypeError, sw.Array, [1.0]) == (
        "Array cannot be constructed directly; use shardwise.numpy.array, device_put or "
        "make_array_from_callback."
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_types_and_sizes(dtype):
    for place, rows in (("one", "even"), ("sharded", "uneven"), ("replicated", "none")):
        host, x = placed(place, rows, dtype)
        assert x.shape == host.shape and x.dtype == dtype and x.ndim == 2
        assert x.size == host.size and x.itemsize == host.itemsize and x.nbytes == host.nbytes
        assert not x.weak_type and x.committed and x.aval.shape == host.shape
    scalar = sw.device_put(values(1, dtype)[0, 0], DEVICES[1])
    assert scalar.shape == () and scalar.size == 1 and scalar.nbytes == dtype.itemsize


@pytest.mark.parametrize("place, rows", EVERYWHERE)
def test_places(place, rows):
    _, x = placed(place, rows)
    assert x.sharding is PLACES[place] and x.devices() == set(PLACES[place].devices)
    one = len(PLACES[place].devices) == 1
    assert x.device == (PLACES[place].devices[0] if one else PLACES[place])
    assert x.is_fully_addressable
    assert x.is_fully_replicated == (one or place == "replicated")
    assert x.platform() == "cpu"
    assert x.format.sharding is x.sharding and x.format.layout.major_to_minor == (0, 1)


def test_weak_and_uncommitted_values():
    x = snp.asarray(2.0)
    assert x.weak_type and not x.committed
    assert not snp.float32(2).weak_type
    assert x.nbytes == 4 and x.device == DEVICES[0]


@pytest.mark.parametrize("place, rows", EVERYWHERE)
def test_shards_partition_the_array(place, rows):
    host, x = placed(place, rows)
    shards = x.addressable_shards
    assert [s.device for s in shards] == list(PLACES[place].devices)
    seen: dict[str, list[int]] = {}
    for i, shard in enumerate(shards):
        assert shard.data.devices() == {shard.device}
        assert shard.index == x.sharding.devices_indices_map(x.shape)[shard.device]
        np.testing.assert_array_equal(np.asarray(shard.data), host[shard.index])
        assert shard.data.shape == host[shard.index].shape
        assert shard.data is shard.data
        np.testing.assert_array_equal(x.addressable_data(i), host[shard.index])
        seen.setdefault(str(shard.index), []).append(shard.replica_id)
    assert all(ids == list(range(len(ids))) for ids in seen.values())
    firsts = [s for s in shards if s.replica_id == 0]
    assert sum(s.data.size for s in firsts) == host.size
    assert [s.device for s in x.global_shards] == [s.device for s in shards]


def test_the_shape_of_all_shards_but_the_last():
    for rows, wanted in (("even", (1, 2)), ("uneven", (2, 2)), ("few", (1, 2))):
        _, x = placed("sharded", rows)
        assert x.sharding.shard_shape(x.shape) == wanted == x.addressable_data(0).shape
    _, x = placed("sharded", "uneven")
    assert [s.data.shape[0] for s in x.addressable_shards] == [2, 2, 2, 2, 1, 0, 0, 0]


def test_a_shard_prints_all_about_it():
    _, x = placed("partly replicated", "even")
    assert repr(x.addressable_shards[3]) == (
        "Shard(device=CpuDevice(id=3), index=(slice(2, 4, None), slice(None, None, None)), "
        "replica_id=1, data=Array([[2., 3.],\n       [1., 2.]], dtype=float32))"
    )


def test_what_other_processes_hold_is_listed_without_data(monkeypatch):
    _, x = placed("sharded", "even")
    here = property(lambda self: (0, 2))
    monkeypatch.setattr(type(x.sharding), "addressable_positions", here)
    away = [s for s in x.global_shards if s.device not in (DEVICES[0], DEVICES[2])]
    assert len(x.global_shards) == 8 and [s.data for s in away] == [None] * 6
    assert [s.device for s in x.addressable_shards] == [DEVICES[0], DEVICES[2]]
    assert repr(x.global_shards[1]).endswith("replica_id=0, data=None)")


@pytest.mark.parametrize("place", everyday(PLACES, 2))
@pytest.mark.parametrize("count", [8, 9])
def test_typed_keys_are_placed_like_numbers(place, count):
    keys = sw.random.split(sw.random.key(3), count)
    bits = np.asarray(sw.random.key_data(keys))
    x = sw.device_put(keys, PLACES[place])
    assert x.shape == (count,) and x.sharding is PLACES[place] and str(x.dtype) == "key<fry>"
    np.testing.assert_array_equal(np.asarray(sw.random.key_data(x)), bits)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(sw.random.key_data(shard.data), bits[shard.index])
    theirs = jax.random.split(jax.random.key(3), count)
    assert repr(x) == repr(theirs)
    assert x.block_until_ready() is x and x.on_device_size_in_bytes() >= bits.nbytes
    for what, use in (("a NumPy array", np.asarray), ("a list", lambda k: k.tolist())):
        assert message(TypeError, use, x) == (
            f"an array of keys, {x.aval.str_short(True)}, cannot become {what}: keys are not "
            "numbers. Use shardwise.random.key_data(x) for the underlying integers."
        )


def test_gradients_of_integers_are_host_zeros():
    ints = snp.arange(3)
    found = sw.grad(lambda i: (i * 1.0).sum(), allow_int=True)(ints)
    assert type(found) is np.ndarray and found.dtype == sw.float0 and found.shape == (3,)


def test_bytes_on_all_devices():
    _, x = placed("partly replicated", "even")
    assert x.on_device_size_in_bytes() == 2 * x.nbytes
    _, x = placed("sharded", "uneven")
    assert x.nbytes == 72 and x.on_device_size_in_bytes() == 8 * 2 * 2 * 4  # padding included
    _, x = placed("replicated", "even")
    assert x.on_device_size_in_bytes() == 8 * x.nbytes


def test_addresses():
    for dtype in DTYPES:
        assert snp.ones(64, dtype).unsafe_buffer_pointer() % 64 == 0
    x = snp.ones(64)
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    assert message(
        BufferError, sw.device_put(x, NamedSharding(MESH, P("x"))).unsafe_buffer_pointer
    ) == (
        "array of type f32[64] is sharded over 8 devices, so it has no single address. Take one of "
        "its `addressable_shards`, or gather it with `device_put`."
    )


GONE = [
    ("flat", ". Use `x.ravel()`."),
    ("fill", ". Use `x = shardwise.numpy.full_like(x, value)`."),
]


@pytest.mark.parametrize("name, hint", GONE)
def test_attributes_that_are_not_there(name, hint):
    x = snp.ones(2)
    with pytest.raises(AttributeError) as caught:
        getattr(x, name)
    assert str(caught.value) == f"'Array' object has no attribute {name!r}{hint}"
    assert caught.value.name == name and caught.value.obj is x
    kinds = []
    sw.jit(lambda v: kinds.append(hasattr(v, name)))(x)
    assert kinds == [False] and getattr(x, name, None) is None


def test_nothing_is_assigned():
    x = snp.ones(2)
    for name in ("shape", "dtype", "sharding", "T", "anything"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    x += 1  # a new array
    np.testing.assert_array_equal(x, [2, 2])
