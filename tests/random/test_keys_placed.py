"""Typed keys under every kind of sharding. A key is stored as two integers on one device."""

import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import (
    GSPMDSharding,
    Mesh,
    NamedSharding,
    PmapSharding,
    PositionalSharding,
    Tiling,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

DEVICES = sw.devices()[:8]
MESH = Mesh(np.array(DEVICES).reshape(2, 4), ("x", "y"))
BACK = Mesh(np.array(DEVICES[::-1]).reshape(4, 2), ("a", "b"))
MIXED = Tiling((4,), (8,), (0,), True, assignment=(3, 1, 0, 2, 7, 6, 5, 4))

PLACES = {
    "named": NamedSharding(MESH, P("y")),
    "reversed": NamedSharding(BACK, P("b")),
    "listed": GSPMDSharding(DEVICES, MIXED),
    "positional": PositionalSharding(DEVICES).reshape(4, 2).replicate(1, keepdims=False),
    "pmap": PmapSharding.default((8,)),
}


def keys_of(count: int):
    keys = sw.random.split(sw.random.key(3), count)
    return keys, np.asarray(sw.random.key_data(keys))


def check(x, bits) -> None:
    np.testing.assert_array_equal(sw.random.key_data(x), bits)
    assert x.sharding.shard_shape(x.shape) == max(s.data.shape for s in x.addressable_shards)
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(sw.random.key_data(shard.data), bits[shard.index])


@pytest.mark.parametrize("count", [8, 5])
@pytest.mark.parametrize("target", everyday(PLACES, 2))
@pytest.mark.parametrize("source", PLACES)
def test_keys_go_from_every_place_to_every_other(source, target, count):
    (keys, bits), there = keys_of(count), PLACES[target]
    x = sw.device_put(keys, PLACES[source])
    check(x, bits)
    moved = sw.device_put(x, there)
    assert moved.sharding is there
    check(moved, bits)


@pytest.mark.parametrize("count", [8, 5])
@pytest.mark.parametrize("place", everyday(PLACES, 2))
def test_programs_take_and_give_keys(place, count):
    (keys, bits), there = keys_of(count), PLACES[place]
    x = sw.device_put(keys, NamedSharding(MESH, P("x")))
    check(sw.jit(lambda k: k[::-1], in_shardings=there)(keys), bits[::-1])
    check(sw.jit(lambda k: k[::-1], out_shardings=there)(x), bits[::-1])
    check(sw.jit(lambda k: sw.lax.with_sharding_constraint(k, there)[::-1])(x), bits[::-1])
    draw = sw.jit(sw.vmap(sw.random.uniform))
    np.testing.assert_array_equal(draw(sw.device_put(keys, there)), draw(keys))


def test_no_device_holds_half_a_key():
    _, bits = keys_of(8)
    split = sw.device_put(bits, NamedSharding(MESH, P("y", "x")))
    for wrap in (sw.random.wrap_key_data, sw.jit(sw.random.wrap_key_data)):
        x = wrap(split)
        assert x.sharding.spec == P("y")
        check(x, bits)


def test_the_rank_is_that_of_the_keys():
    keys, _ = keys_of(8)
    assert message(ValueError, sw.device_put, keys.reshape(4, 2), PLACES["listed"]) == (
        "device_put: x: GSPMDSharding(8 devices, tiles=(4,), replicas=2) is for arrays of 1 "
        "dimension, but the array has 2 dimensions."
    )
