"""Random bits, splits and folds equal jax's bit for bit, over shapes, widths and settings."""

import itertools

import jax
import numpy as np
import pytest

from shardwise import random
from shardwise._src.base.config import enable_x64, threefry_partitionable
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops.random.bits import THREEFRY, random_bits, random_split
from shardwise._src.runtime.backend import devices
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

SHAPES = [(), (0,), (1,), (3,), (101,), (4, 5), (0, 3), (2, 3, 7)]
FORMS = pytest.mark.parametrize("partitionable", [True, False])


def same(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(got, wanted)


@pytest.fixture(params=[random.PRNGKey, random.key], ids=["raw", "typed"])
def make(request):
    return request.param


@pytest.mark.parametrize(
    ("partitionable", "width"), everyday(itertools.product([True, False], [8, 16, 32]), 1)
)
def test_bits(partitionable, width):
    with threefry_partitionable(partitionable), jax.threefry_partitionable(partitionable):
        for shape in SHAPES:
            wanted = jax.random.bits(jax.random.key(17), shape, f"uint{width}")
            same(random.bits(random.key(17), shape, f"uint{width}"), wanted)


@FORMS
def test_bits_of_64(partitionable):
    with (
        threefry_partitionable(partitionable),
        jax.threefry_partitionable(partitionable),
        enable_x64(True),
        jax.enable_x64(True),
    ):
        for shape in [(), (0,), (5,), (3, 2)]:
            same(random.bits(random.key(2), shape), jax.random.bits(jax.random.key(2), shape))


@FORMS
def test_split_and_fold_in(partitionable, make):
    theirs = jax.random.PRNGKey(5)
    with threefry_partitionable(partitionable), jax.threefry_partitionable(partitionable):
        key = make(5)
        same(random.key_data(random.split(key)), jax.random.split(theirs))
        for num in [1, 3, 0, (2, 3)]:
            same(random.key_data(random.split(key, num)), jax.random.split(theirs, num))
        for data in [0, 1, 2**32 - 1, np.int8(5), np.uint32(7)]:
            same(random.key_data(random.fold_in(key, data)), jax.random.fold_in(theirs, data))


SEEDS = [
    0,
    1,
    -1,
    2**31,
    2**32 - 1,
    2**32,
    2**40 + 1,
    -(2**40) - 3,
    2**63 - 1,
    -(2**63),
    True,
    np.int8(-3),
    np.int16(-9),
    np.int64(2**40 + 1),
    np.uint32(2**32 - 1),
    np.uint64(2**63 + 5),
]


@pytest.mark.parametrize("x64", [False, True])
def test_seeds(x64, make):
    with enable_x64(x64), jax.enable_x64(x64):
        for seed in SEEDS:
            same(random.key_data(make(seed)), jax.random.PRNGKey(seed))


def test_the_kind_of_key_does_not_matter():
    raw, typed = random.PRNGKey(9), random.key(9)
    same(random.bits(raw, (6,)), random.bits(typed, (6,)))
    assert random.split(raw).aval.str_short(True) == "u32[2,2]"
    assert random.split(typed).aval.str_short(True) == "key<fry>[2]"


@FORMS
def test_under_jit_and_vmap(partitionable):
    theirs = jax.random.split(jax.random.PRNGKey(0), 6)
    with threefry_partitionable(partitionable), jax.threefry_partitionable(partitionable):
        keys = random.wrap_key_data(np.asarray(theirs))

        def draw(key):
            return random.bits(random.split(key)[1], (5,), "uint16")

        wanted = [jax.random.bits(jax.random.split(k)[1], (5,), "uint16") for k in theirs]
        same(jit(vmap(draw))(keys), np.stack(wanted))
        nested = vmap(vmap(draw, in_axes=0, out_axes=1), in_axes=1)(keys.reshape(2, 3))
        same(nested, np.stack(wanted).reshape(2, 3, 5).transpose(1, 2, 0))
        folded = vmap(random.fold_in, in_axes=(None, 0))(random.key(1), np.arange(3))
        same(
            random.key_data(folded),
            [jax.random.fold_in(jax.random.PRNGKey(1), i) for i in range(3)],
        )


COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")


def test_sharded_bits_need_no_communication():
    mesh = Mesh(np.array(devices()[:8]).reshape(4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, P("x", "y"))
    draw = jit(lambda key: random.bits(key, (8, 6, 4)), out_shardings=sharding)
    got = draw(random.key(3))
    assert got.sharding == sharding
    same(got, jax.random.bits(jax.random.key(3), (8, 6, 4)))
    text = draw.lower(random.key(3)).compile().as_text()
    assert not any(name in text for name in COLLECTIVES)
    assert "u32[2,3,4]" in text and "u32[8,6,4]" not in text


def test_the_index_of_an_element_has_64_bits():
    """From the program's text: computing four thousand million elements takes too long."""
    big = jit(lambda key: random_bits(key, shape=(1 << 17, 1 << 16), bit_width=8))
    text = big.lower(random.key(0)).as_text()
    assert "stablehlo.iota dim = 0 : tensor<131072x65536xui64>" in text
    small = jit(lambda key: random_bits(key, shape=(3, 5), bit_width=8))
    assert "ui64" not in small.lower(random.key(0)).as_text()


def test_the_older_form_has_its_limit():
    with threefry_partitionable(False), pytest.raises(NotImplementedError) as error:
        jit(lambda key: random.bits(key, (1 << 16, 1 << 16))).lower(random.key(0))
    assert str(error.value) == (
        "random bits of shape (65536, 65536) and 32 bits need 2**32 counters or more. Set "
        "threefry_partitionable to True."
    )


def test_ops_say_what_they_take():
    assert (
        message(TypeError, random_bits, np.zeros(2, np.uint32), shape=(), bit_width=32)
        == "[random_bits] takes an array of keys; got u32[2]."
    )
    assert (
        message(TypeError, random_bits, random.key(0), shape=(), bit_width=7)
        == "[random_bits] bit_width must be 8, 16, 32 or 64; got 7."
    )
    assert (
        message(ValueError, random_split, random.key(0), shape=(-1,))
        == "[random_split] sizes must not be negative; got shape (-1,)."
    )
    assert THREEFRY.name == "key<fry>"
