"""Reading arrays that span processes: values, shards, strings, and rejected reads."""

import copy
import gc
import pickle

import ml_dtypes
import numpy as np
from checking import (
    COUNT,
    DEVICES,
    HERE,
    PER,
    check,
    check_jax,
    equal,
    finish,
    numbers,
    over,
    raises,
    same,
)

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import random

SPLIT = over("x", order=[2, 0, 3, 1])
WHOLE = over(order=[2, 0, 3, 1])
X = numbers(8, 4)
ALONE = COUNT == 1


def read_replicated(dtype):
    value = (X % 5).astype(dtype)
    x = sw.device_put(value, WHOLE)
    assert x.is_fully_replicated and x.is_fully_addressable == ALONE
    equal(np.asarray(x), value)
    assert np.asarray(x) is np.asarray(x) and not np.asarray(x).flags.writeable
    assert x.tolist() == value.tolist() and x.tobytes() == value.tobytes()
    assert repr(x) == repr(jnp.asarray(value)) and str(x) == str(jnp.asarray(value))
    assert x[0, 1].item() == value[0, 1].item()


@check
def replicated():
    for dtype in (np.float32, np.bool_, np.int8, np.complex64, ml_dtypes.bfloat16):
        read_replicated(dtype)
    s = sw.device_put(2.5, WHOLE)
    assert float(s) == 2.5 and int(s) == 2 and bool(s) and complex(s) == 2.5
    assert f"{s:.2f}" == "2.50" and s.item() == 2.5 and s.tolist() == 2.5
    assert range(5)[sw.device_put(3, WHOLE)] == 3
    equal(np.asarray(sw.device_get({"a": sw.device_put(X, WHOLE)})["a"]), X)
    key = sw.device_put(random.key(3), WHOLE)
    equal(np.asarray(random.key_data(key)), np.asarray(random.key_data(random.key(3))))
    assert repr(key) == repr(random.key(3))


@check
def facts():
    x = sw.device_put(X, SPLIT)
    assert x.is_fully_addressable == ALONE and not x.is_fully_replicated
    assert x.shape == (8, 4) and x.size == 32 and x.nbytes == 128 and len(x) == 8
    assert x.devices() == set(DEVICES) and x.device == SPLIT and x.committed
    assert x.on_device_size_in_bytes() == 128
    assert len(x.addressable_shards) == PER and len(x.global_shards) == 4
    whole = sw.device_put(X, WHOLE)
    assert [s.replica_id for s in whole.global_shards] == [0, 1, 2, 3]
    for shard, at in zip(x.global_shards, range(0, 8, 2), strict=True):
        mine = shard.device.process_index == HERE
        assert shard.index == (slice(at, at + 2), slice(None))
        assert (shard.data is not None) == mine and shard.replica_id == 0
        if mine:
            equal(np.asarray(shard.data), X[shard.index])
            assert shard.data.devices() == {shard.device} and shard.data.is_fully_addressable
    for i, shard in enumerate(x.addressable_shards):
        equal(np.asarray(x.addressable_data(i)), np.asarray(shard.data))
    assert repr(x.global_shards[0]).startswith("Shard(device=CpuDevice(id=")


@check
def uneven_parts():
    for n in (1, 5, 6, 7):
        value = numbers(n, 3)
        x = sw.device_put(value, SPLIT)
        step = -(-n // 4)
        for shard in x.addressable_shards:
            start = SPLIT.devices.index(shard.device) * step
            held = value[start : start + step]
            assert shard.data.shape == held.shape
            equal(np.asarray(shard.data), held)
        same(x, value)


@check
def odd_dtypes():
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.bool_):
        value = (X % 5).astype(dtype)
        same(sw.device_put(value, SPLIT), value)


@check
def text_without_the_others():
    """Only one process prints: if the others had to answer, the next program would differ."""
    x = sw.device_put(X, SPLIT)
    later = x * 2
    empty = sw.device_put(np.zeros((0, 3), np.float32), SPLIT)  # put by all: values are compared
    numbers = sw.device_put(np.arange(3), SPLIT)
    if COUNT - 1 == HERE:
        mine = [s for s in x.global_shards if s.data is not None]
        if ALONE:
            assert repr(x) == repr(jnp.asarray(X))
        else:
            lines = repr(x).split("\n")
            assert lines[0] == (
                f"Array(shape=(8, 4), dtype=float32) sharded as {SPLIT}, addressable shards:"
            ), lines[0]
            at = mine[0].index[0]
            start = f"  [{at.start}:{at.stop}, 0:4] on {mine[0].device}: [["
            assert repr(x).split("\n")[1].startswith(start), repr(x)
            assert str(x) == repr(x) == f"{x}"
            assert repr(later).startswith("Array(shape=(8, 4), dtype=float32) sharded as ")
        repr(x.global_shards), repr(sw.live_arrays()), x._repr_html_()
        x.is_ready(), x.copy_to_host_async(), x.block_until_ready(), len(x), x.devices()
        repr(empty), repr(numbers)
    same(x + 1, X + 1)
    same(later, X * 2)


@check
def refused():
    if ALONE:
        return
    x = sw.device_put(X, SPLIT)
    text = (
        "array of type f32[8,4] spans devices of other processes, so this process cannot read its "
        "value. Options: `shardwise.experimental.multihost_utils.process_allgather(x, "
        "tiled=True)` gives all of it to each process, `shardwise.device_put(x, sharding)` with a "
        "replicated sharding over the same devices makes it readable, and `x.addressable_shards` "
        "are the shards of this process. The first two must be called in all of these processes."
    )
    for read in (
        np.asarray,
        lambda v: v.tolist(),
        lambda v: v.tobytes(),
        lambda v: v.item(0),
        sw.device_get,
        lambda v: np.asarray(v, np.float64),
        lambda v: v.__array__(),
    ):
        with raises(RuntimeError, text):
            read(x)
    one = sw.device_put(X[0, 1:2], SPLIT)  # on the first device of the mesh
    if SPLIT.devices[0].process_index == HERE:
        assert bool(one) and one.item() == X[0, 1]
    else:
        with raises(RuntimeError, text.replace("f32[8,4]", "f32[1]")):
            bool(one)
    with raises(
        TypeError,
        "cannot pickle an array of type f32[8,4] that spans devices of other "
        "processes: a pickle contains the full value, and this process has only a part. "
        "Pickle the data of its `addressable_shards` in each process, or collect it first "
        "with `shardwise."
        "experimental.multihost_utils.process_allgather(x, tiled=True)`.",
    ):
        pickle.dumps({"x": x})
    for change in (copy.copy, copy.deepcopy):
        made = change(x)
        same(made, X)
        assert made.sharding == x.sharding
    try:
        hash(x)
    except TypeError as error:
        assert "unhashable" in str(error), error
    else:
        raise AssertionError("hashed")
    whole = sw.device_put(X, WHOLE)
    equal(np.asarray(pickle.loads(pickle.dumps(whole))), X)
    assert len(pickle.loads(pickle.dumps(whole)).devices()) == 1
    for y in (x, whole):
        with raises(
            BufferError,
            "array of type f32[8,4] is sharded over 4 devices, so it has no "
            "DLPack device. Take one of its `addressable_shards`, or gather it with "
            "`device_put`.",
        ):
            y.__dlpack__()
    part = x.addressable_data(0)
    equal(np.from_dlpack(part), np.asarray(part))


@check
def iteration():
    x = sw.device_put(X, SPLIT)
    for row, value in zip(x, X, strict=True):
        same(row, value)
        equal(np.asarray(sw.device_put(row, WHOLE)), value)
    for row, value in zip(sw.device_put(X, WHOLE), X, strict=True):
        equal(np.asarray(row), value)
    assert len(list(sw.device_put(X[:, 0], SPLIT))) == 8


@check
def life():
    x, y = sw.device_put(X, SPLIT), sw.device_put(X, SPLIT)
    before = len(sw.live_arrays())
    if HERE == 0:  # in one process only
        y.delete()
        assert y.is_deleted() and len(sw.live_arrays()) == before - 1
        with raises(
            RuntimeError,
            "array of type f32[8,4] has been deleted: `delete()` was called "
            "on it. To use it longer, make a copy beforehand: `x.copy()`.",
        ):
            np.asarray(y.addressable_shards[0].data)
        assert repr(y).startswith("Array(deleted, shape=(8, 4), dtype=float32), sharded as ")
    same(x + x, X + X)
    give = sw.jit(lambda v: v + 1, donate_argnums=0)
    z = give(x)
    same(z, X + 1)
    assert x.is_deleted() and not z.is_deleted()
    with raises(
        RuntimeError,
        "array of type f32[8,4] was donated to <lambda>. Use what <lambda> "
        "returned; to keep the array as well, pass a copy of it, `x.copy()`, or leave it "
        "out of `donate_argnums` and `donate_argnames`.",
    ):
        x + 1
    w = sw.device_put(z, WHOLE, donate=True)
    assert z.is_deleted()
    equal(np.asarray(w), X + 1)
    parts = [s.data for s in sw.device_put(X, SPLIT).addressable_shards]
    made = sw.make_array_from_single_device_arrays((8, 4), SPLIT, parts)
    del parts
    same(made * 3, X * 3)
    same(made.copy(), X)
    gc.collect()


check_jax()


@check
def narrow_dtypes():  # jaxlib makes shards of these by way of jax
    for dtype in (ml_dtypes.int4, ml_dtypes.uint4):
        value = (X % 5).astype(dtype)
        same(sw.device_put(value, SPLIT), value)
        read_replicated(dtype)


finish()
