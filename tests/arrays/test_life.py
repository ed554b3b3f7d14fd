"""Deletion, donation, shared memory, readiness, and the list of live arrays."""

import copy
import gc
import pickle

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.runtime import processes
from shardwise.sharding import NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import COPY, donated, message
from tests.helpers.everyday import everyday
from tests.helpers.placed import DEVICES, PLACES, placed

# Every use that needs the data of an array. Uses that only need its type still work.
USES = {
    "asarray": np.asarray,
    "array": np.array,
    "add": lambda x: x + 1,
    "sum": snp.sum,
    "radd": lambda x: np.ones((8, 2), np.float32) + x,
    "compare": lambda x: x == 1,
    "index": lambda x: x[0],
    "slice": lambda x: x[1:3],
    "rows": lambda x: x[np.array([1])],
    "mask": lambda x: x[np.ones((8, 2), bool)],
    "set": lambda x: x.at[0].set(1),
    "T": lambda x: x.T,
    "iterate": list,
    "contains": lambda x: 1.0 in x.reshape(-1),
    "reshape": lambda x: x.reshape(-1),
    "astype": lambda x: x.astype(int),
    "item": lambda x: x.item(0),
    "tolist": lambda x: x.tolist(),
    "tobytes": lambda x: x.tobytes(),
    "x.copy": lambda x: x.copy(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "jit": sw.jit(lambda a: a),
    "jit, many": sw.jit(lambda a, b: [a, b, a + b]).__call__,
    "grad": sw.grad(lambda a: a.sum()),
    "closed over": lambda x: sw.jit(lambda a: a + x)(1.0),
    "vmap": sw.vmap(lambda a: a + 1),
    "device_put": lambda x: sw.device_put(x, DEVICES[4]),
    "device_get": sw.device_get,
    "reshard": lambda x: sw.device_put(x, elsewhere(x, "sharded", "replicated")),
    "gather": lambda x: sw.device_put(x, elsewhere(x, "replicated", "one")),
    "to_device": lambda x: x.to_device(DEVICES[3]),
    "block": lambda x: x.block_until_ready(),
    "block tree": lambda x: sw.block_until_ready([x]),
    "is_ready": lambda x: x.is_ready(),
    "async": lambda x: x.copy_to_host_async(),
    "shards": lambda x: x.addressable_shards,
    "global_shards": lambda x: x.global_shards,
    "shard": lambda x: x.addressable_data(0),
    "bytes": lambda x: x.on_device_size_in_bytes(),
}
ON_ONE = {
    "dlpack": lambda x: x.__dlpack__(),
    "numpy dlpack": np.from_dlpack,
    "address": lambda x: x.unsafe_buffer_pointer(),
}


BY = "through another array that shared its memory"


def elsewhere(x, place, other):
    """A sharding other than that of the array."""
    return PLACES[other if x.sharding is PLACES[place] else place]


def used(use, x):
    return use(x, x) if use is USES["jit, many"] else use(x)


def check_gone(x, why, remedy):
    assert x.is_deleted()
    uses = USES | (ON_ONE if len(x.devices()) == 1 else {})
    for name, use in uses.items():
        with pytest.raises(RuntimeError) as caught:
            used(use, x)
        shown = str(caught.value)
        assert shown.endswith(f"array of type f32[8,2] {why}. {remedy}"), (name, shown)
    assert x.shape == (8, 2) and x.dtype == np.float32 and len(x) == 8 and x.ndim == 2
    assert x.sharding is not None and x.devices() and x.nbytes == 64
    assert "deleted" in repr(x) and "deleted" in str(x)
    x.delete()


class _Gate:
    """Waits as in a program of several processes."""

    @staticmethod
    def wait(raw):
        raw.block_until_ready()


@pytest.mark.parametrize("gate", [None, _Gate])
def test_waits_for_arrays_of_which_one_is_deleted(gate, monkeypatch):
    x, y = snp.ones(3), snp.ones(4)
    y.delete()
    monkeypatch.setattr(processes._State, "gate", gate)
    assert message(RuntimeError, sw.block_until_ready, {"a": x, "b": [1.0, y]}) == (
        f"array of type f32[4] has been deleted: `delete()` was called on it. {COPY}"
    )


@pytest.mark.parametrize("place", everyday(PLACES, 1))
def test_every_use_of_a_deleted_array_says_so(place):
    _, x = placed(place, "even")
    for use in USES.values():
        used(use, x)  # also fills the caches, whose hits must detect deletion too
    x.delete()
    check_gone(x, "has been deleted: `delete()` was called on it", COPY)


@pytest.mark.parametrize("place", PLACES)
def test_every_use_of_a_donated_array_names_the_call(place):
    _, x = placed(place, "even")

    def step(a):
        return a + 1

    sw.jit(step, donate_argnums=0)(x)
    check_gone(x, "was donated to step", donated("step"))


@pytest.mark.parametrize("place", PLACES)
def test_what_shares_memory_with_a_donated_array_names_the_call(place):
    values, x = placed(place, "even")
    x = x + 0
    y = sw.device_put(x, equivalent(x))
    assert y is not x

    def step(a):
        return a + 1

    z = sw.jit(step, donate_argnums=0)(y)
    np.testing.assert_array_equal(z, values + 1)
    check_gone(x, f"was donated to step, {BY}", donated("step"))
    check_gone(y, "was donated to step", donated("step"))


def equivalent(x):
    """Another sharding that puts the same data on each device, or the same sharding."""
    if isinstance(x.sharding, SingleDeviceSharding):
        return (
            x.sharding
            if not x.committed
            else NamedSharding(sw.sharding.Mesh(np.array([x.device]), "one"), P())
        )
    spec = x.sharding.spec
    other = P(*spec, None) if len(spec) < 2 else P(*spec[:1])
    found = NamedSharding(x.sharding.mesh, other)
    return found if found is not x.sharding else NamedSharding(x.sharding.mesh, P(*other, None))


DONATIONS = {
    "donated, then used": ((0,), "a"),
    "used, then donated": ((1,), "b"),
    "donated twice": ((0, 1), "b"),
}


@pytest.mark.parametrize("how", everyday(DONATIONS, 5))
@pytest.mark.parametrize("place", PLACES)
def test_donated_memory_may_not_come_in_twice(place, how):
    donated, name = DONATIONS[how]

    def step(a, b):
        return a + b, a - b

    f = sw.jit(step, donate_argnums=donated)
    _, x = placed(place, "even")
    x = x + 0
    y = sw.device_put(x, equivalent(x))
    for other, same in ((y, "in the same memory"), (x, "the same array")):
        assert message(RuntimeError, f, x, other) == (
            f"step: a and b are {same}, but {name} is donated: its memory will be reused. Pass a "
            "copy as one of them, or do not donate it."
        )
        assert not x.is_deleted() and not y.is_deleted()
    f(x, y.copy())
    assert y.is_deleted() == x.is_deleted() == (0 in donated)


@pytest.mark.parametrize("place", PLACES)
def test_arrays_that_were_donated_in_one_call_do_not_look_like_one(place):
    def train(state, x):
        return [v + x for v in state]

    f = sw.jit(train, donate_argnums=0)
    state = [placed(place, "even")[1] + i for i in range(2)]
    f(state, 1.0)
    for again in (state, state[:1] * 2):
        gone = f"array of type {state[0].aval.str_short(True)} was donated to train. "
        assert message(RuntimeError, f, again, 1.0) == gone + donated("train")


def test_a_constant_may_not_be_donated():
    x = snp.arange(4096.0)
    f = sw.jit(lambda a: a + x, donate_argnums=0)
    assert message(RuntimeError, f, x) == (
        "<lambda>: an array that it closes over and a are in the same memory, but a is donated: "
        "its memory will be reused. Pass a copy as one of them, or do not donate it."
    )
    np.testing.assert_array_equal(f(snp.zeros(4096)), x)


def test_shards_and_imported_memory_are_donated_without_harm():
    values, x = placed("sharded", "even")
    part = x.addressable_data(3)
    sw.jit(lambda a: a * 2, donate_argnums=0)(part)
    np.testing.assert_array_equal(x, values)
    host = np.arange(64 + 16, dtype=np.float32)
    host = host[(-host.ctypes.data % 64) // 4 :][:64]
    kept = host.copy()
    y = snp.from_dlpack(host)
    assert y.unsafe_buffer_pointer() == host.ctypes.data
    sw.jit(lambda a: a * 2, donate_argnums=0)(y).block_until_ready()
    np.testing.assert_array_equal(host, kept)


LOOKS = {
    "asarray": lambda x: np.asarray(x).sum(),
    "text": repr,
    "shards": lambda x: [s.data for s in x.addressable_shards] and None,
    "shards, kept": lambda x: [s.data for s in x.addressable_shards],
    "shards, read": lambda x: [np.asarray(s.data).sum() for s in x.addressable_shards],
    "shards, read and kept": lambda x: [(s, str(s.data))[0] for s in x.addressable_shards],
    "by an alias": lambda x: np.asarray(sw.device_put(x, equivalent(x))).sum(),
    "by a kept alias": lambda x: read(sw.device_put(x, equivalent(x))),
}


def read(x):
    np.asarray(x)
    return x


def addresses(x):
    if len(x.devices()) == 1:
        return [x.unsafe_buffer_pointer()]  # without creating shards, which share its memory
    return [s.data.unsafe_buffer_pointer() for s in x.addressable_shards]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("place", ["one", "replicated", "sharded"])
def test_memory_that_was_looked_at_is_used_again(place, look):
    """Views that the library caches when an array is read do not force XLA to copy it."""
    values, x = placed(place, "even")
    x = x + 0
    kept = LOOKS[look](x)
    before = addresses(x)

    def step(a):
        return a * 2

    y = sw.jit(step, donate_argnums=0)(x)
    assert x.is_deleted() and addresses(y) == before
    np.testing.assert_array_equal(y, values * 2)
    if look == "shards, kept":
        for part in kept:
            shown = f"array of type {part.aval.str_short(True)} was donated to step, {BY}. "
            assert message(RuntimeError, np.asarray, part) == shown + donated("step")


@pytest.mark.parametrize("place", ["one", "partly replicated", "sharded"])
def test_what_users_read_stays_as_it_was(place):
    values, x = placed(place, "even")
    x = x + 0
    host, parts = np.asarray(x), [np.asarray(s.data) for s in x.addressable_shards]
    pairs = [(part, values[s.index]) for part, s in zip(parts, x.addressable_shards, strict=True)]
    y = sw.jit(lambda a: a * 2, donate_argnums=0)(x)
    np.testing.assert_array_equal(y, values * 2)
    np.testing.assert_array_equal(host, values)
    for part, expected in pairs:
        np.testing.assert_array_equal(part, expected)


def test_shards_end_with_a_donation_unless_it_fails():
    _, x = placed("sharded", "even")
    _, dead = placed("sharded", "even")
    part = x.addressable_data(2)
    dead.delete()
    f = sw.jit(lambda a, b: (a + 1, b + 1), donate_argnums=(0, 1))
    with pytest.raises(RuntimeError):
        f(x, dead)
    assert not x.is_deleted() and not part.is_deleted()
    assert x.addressable_data(2).unsafe_buffer_pointer() == part.unsafe_buffer_pointer()
    sw.jit(lambda a: a + 1, donate_argnums=0)(x)
    assert part.is_deleted()


def test_shards_of_arrays_that_share_some():
    sharding = NamedSharding(sw.sharding.Mesh(np.array(DEVICES[:2]), "x"), P("x"))
    ones = np.ones(1, np.float32)
    a, b, c = [sw.device_put(v * ones, DEVICES[d]) for v, d in ((1, 0), (2, 1), (3, 1))]
    x, y = [sw.make_array_from_single_device_arrays((2,), sharding, [a, v]) for v in (b, c)]
    for whole, expected in ((x, [1, 2]), (y, [1, 3]), (x, [1, 2])):
        assert [s.data.item() for s in whole.addressable_shards] == expected


def test_device_put_with_donation_names_itself():
    _, x = placed("one", "even")
    sw.device_put(x, DEVICES[1], donate=True)
    check_gone(x, "was donated to device_put", donated("device_put"))


def test_readiness():
    for place in PLACES:
        _, x = placed(place, "uneven")
        x.copy_to_host_async()
        assert x.block_until_ready() is x and x.is_ready() and not x.is_deleted()


def test_live_arrays():
    def mine():
        gc.collect()
        return {id(x) for x in sw.live_arrays()}

    before = mine()
    x, y = snp.arange(3.0), placed("sharded", "uneven")[1]
    z = sw.random.key(0)
    assert mine() - before >= {id(x), id(y), id(z)}
    y.delete()
    assert mine() - before == {id(x), id(z)}
    _ = x + 12345.0, x[2], x[1:]  # scalars that are cached as operands are not listed
    del x, z
    assert mine() - before == {id(v) for v in _}
    assert all(v.platform() == "cpu" for v in sw.live_arrays("cpu"))


def test_parts_and_the_whole_that_was_made_of_them():
    """Deleting a shard deletes the full array, but not the other shards."""
    sharding = PLACES["sharded"]
    host = np.arange(16, dtype=np.float32).reshape(8, 2)

    def make():
        parts = [sw.device_put(host[i : i + 1], d) for i, d in enumerate(DEVICES)]
        return parts, sw.make_array_from_single_device_arrays((8, 2), sharding, parts)

    parts, whole = make()

    def step(a):
        return a + 1

    f = sw.jit(step, donate_argnums=0)
    f(parts[2])
    check_gone(whole, f"was donated to step, {BY}", donated("step"))
    assert [p.is_deleted() for p in parts] == [i == 2 for i in range(8)]
    np.testing.assert_array_equal(parts[3] + 1, host[3:4] + 1)
    parts[3].delete()
    parts, whole = make()
    f(whole)
    assert all(p.is_deleted() for p in parts)
    with pytest.raises(RuntimeError) as caught:
        parts[0] + 1
    shown = f"array of type f32[1,2] was donated to step, {BY}. "
    assert str(caught.value) == shown + donated("step")


def test_devices_list_no_buffers():
    assert message(RuntimeError, DEVICES[0].live_buffers) == (
        "Device.live_buffers() was removed: an array may be on many devices. Use "
        "shardwise.live_arrays(), and `x.addressable_shards` for the shard on a device."
    )
    with pytest.warns(DeprecationWarning, match="live_buffers"):
        assert jax.devices()[0].live_buffers() == []  # a device of another library
