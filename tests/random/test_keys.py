"""Typed keys as arrays: supported operations, and rejected ones with their messages."""

import copy
import pickle

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import infer
from shardwise._src.core.op import Elements, every_op
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.ops import basis, logical, shape
from shardwise._src.ops.barrier import optimization_barrier
from shardwise._src.ops.elementwise import copy as copy_op
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.ops.indexing import gather_scatter
from shardwise._src.ops.random.bits import random_unwrap, random_wrap
from shardwise._src.placement.device_put import device_put
from shardwise._src.runtime.backend import devices
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import KeyDType, issubdtype, prng_key
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.errors import message

KEYS = random.split(random.key(0), (3, 4))
DATA = np.asarray(random.key_data(KEYS))


def same(keys, data):
    assert issubdtype(keys.dtype, prng_key)
    assert keys.shape == np.shape(data)[:-1]
    np.testing.assert_array_equal(np.asarray(random.key_data(keys)), data)


# -- facts --


def test_facts():
    key = random.key(0)
    assert (key.shape, key.ndim, key.size, str(key.dtype)) == ((), 0, 1, "key<fry>")
    assert (KEYS.itemsize, KEYS.nbytes, len(KEYS)) == (8, 96, 3)
    assert random.key_impl(key) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    assert random.key_dtype() is random.key_dtype("threefry2x32") is key.dtype
    assert random.clone(key) is key


def test_text():
    assert repr(random.key(0)) == "Array((), dtype=key<fry>) overlaying:\n[0 0]"
    assert repr(random.split(random.key(0))) == (
        "Array((2,), dtype=key<fry>) overlaying:\n"
        "[[1797259609 2579123966]\n [ 928981903 3453687069]]"
    )
    text = str(jit(lambda k: random.split(k, 3)).trace(random.key(0)).program)
    assert text == (
        "{ lambda ; a:key<fry>[]. let\n    b:key<fry>[3] = random_split[shape=(3,)] a\n  in (b,) }"
    )


def test_wrapping_and_unwrapping():
    same(random.wrap_key_data(DATA), DATA)
    same(random.wrap_key_data(DATA, impl="threefry2x32"), DATA)
    same(random.wrap_key_data(DATA, dtype=KEYS.dtype), DATA)
    np.testing.assert_array_equal(np.asarray(random.key_data(DATA)), DATA)


def test_pickle_and_copy():
    for other in [pickle.loads(pickle.dumps(KEYS)), copy.copy(KEYS), copy.deepcopy(KEYS)]:
        same(other, DATA)


# -- moving elements --


def test_structural_ops():
    same(basis.transpose(KEYS, perm=(1, 0)), DATA.transpose(1, 0, 2))
    same(basis.reshape(KEYS, shape=(2, 6)), DATA.reshape(2, 6, 2))
    same(basis.broadcast_in_dim(KEYS, shape=(5, 3, 4), dims=(1, 2)), np.stack([DATA] * 5))
    same(shape.rev(KEYS, dimensions=(1,)), DATA[:, ::-1])
    same(shape.concatenate(KEYS, KEYS, dimension=1), np.concatenate([DATA, DATA], 1))
    same(shape.split(KEYS, sizes=(1, 3), axis=1)[1], DATA[:, 1:])
    same(copy_op(KEYS), DATA)
    same(stop_gradient(KEYS), DATA)
    same(optimization_barrier(KEYS, KEYS)[1], DATA)
    part = gather_scatter.dynamic_slice(KEYS, np.int32(1), np.int32(2), slice_sizes=(2, 1))
    same(part, DATA[1:, 2:3])
    update = shape.slice_in_dim(KEYS, 2, 3, 0)
    wanted = np.concatenate([DATA[:1], DATA[2:], DATA[2:]])
    same(gather_scatter.dynamic_update_slice(KEYS, update, np.int32(1), np.int32(0)), wanted)


def test_choice_between_keys():
    flags = np.array([[True], [False], [True]]) & np.ones((3, 4), bool)
    turned = shape.rev(KEYS, dimensions=(0,))
    wanted = np.where(flags[..., None], DATA[::-1], DATA)
    same(logical.select_n(flags, KEYS, turned), wanted)
    same(logical.select_n(np.True_, KEYS, turned), DATA[::-1])


def test_indexing():
    same(KEYS[1], DATA[1])
    same(KEYS[1, 2], DATA[1, 2])
    same(KEYS[:, 1:3], DATA[:, 1:3])
    same(KEYS[::-1], DATA[::-1])
    same(KEYS[None], DATA[None])
    same(KEYS[np.array([2, 0])], DATA[[2, 0]])
    same(KEYS[np.array([True, False, True])], DATA[[0, 2]])
    same(KEYS.at[0].set(KEYS[2]), np.concatenate([DATA[2:], DATA[1:]]))
    same(KEYS.T, DATA.transpose(1, 0, 2))
    same(KEYS.reshape(-1), DATA.reshape(-1, 2))
    first, _ = random.split(random.key(1))
    assert first.shape == ()
    assert [k.shape for k in KEYS] == [(4,)] * 3


def test_equality():
    turned = shape.rev(KEYS, dimensions=(0,))
    equal = (DATA[::-1] == DATA).all(-1)
    np.testing.assert_array_equal(np.asarray(turned == KEYS), equal)
    np.testing.assert_array_equal(np.asarray(turned != KEYS), ~equal)
    assert bool(random.key(3) == random.key(3)) and bool(random.key(3) != random.key(4))


def test_structural_ops_under_transforms():
    same(jit(lambda k: k[1:].T)(KEYS), DATA[1:].transpose(1, 0, 2))
    same(vmap(lambda k: k[::-1], in_axes=1)(KEYS), DATA.transpose(1, 0, 2)[:, ::-1])


def test_scan():
    def step(key, other):
        key, new = random.split(key)
        return key, (new, other)

    last, (made, passed) = scan(step, random.key(0), KEYS)
    key, wanted = random.key(0), []
    for _ in range(3):
        key, new = random.split(key)
        wanted.append(np.asarray(random.key_data(new)))
    same(last, random.key_data(key))
    same(made, np.stack(wanted))
    same(passed, DATA)


def test_elements_of_several_dimensions():
    dtype = KeyDType("for_tests", (2, 3))
    data = np.arange(24, dtype=np.uint32).reshape(4, 2, 3)
    keys = random_wrap(data, dtype=dtype)
    back = random_unwrap(basis.reshape(shape.rev(keys, dimensions=(0,)), shape=(2, 2)))
    np.testing.assert_array_equal(np.asarray(back), data[::-1].reshape(2, 2, 2, 3))
    np.testing.assert_array_equal(np.asarray(keys == shape.rev(keys, dimensions=(0,))), False)


def test_sharded_keys():
    mesh = Mesh(np.array(devices()[:8]), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    keys = random.split(random.key(0), 16)
    data = np.asarray(random.key_data(keys))
    placed = device_put(keys, sharding)
    assert placed.sharding == sharding
    same(placed, data)
    same(placed.addressable_shards[3].data, data[6:8])
    draw = jit(vmap(lambda k: random.bits(k, (3,))))
    out = draw(placed)
    assert out.sharding.spec == P("x")
    np.testing.assert_array_equal(np.asarray(out), np.asarray(draw(keys)))
    turned = jit(lambda k: k[::-1], out_shardings=sharding)(placed)
    same(turned, data[::-1])


# -- rejected operations --

NOT_NUMBERS = (
    "keys are not numbers: they can be moved and compared for equality, but not computed with; "
    "got {}. `shardwise.random.key_data` gives the integers of a key."
)


def test_keys_are_not_computed_with():
    key = random.key(0)
    two = "key<fry>[] and key<fry>[]"
    assert message(TypeError, lambda: key + key) == "add: " + NOT_NUMBERS.format(two)
    assert message(TypeError, lambda: key < key) == "less: " + NOT_NUMBERS.format(two)
    assert message(TypeError, lambda: -key) == "negative: " + NOT_NUMBERS.format("key<fry>[]")
    wanted = "[reduce_sum] " + NOT_NUMBERS.format("key<fry>[3,4]")
    assert message(TypeError, lambda: basis.reduce_sum(KEYS, axes=(0,))) == wanted
    wanted = "astype: " + NOT_NUMBERS.format("key<fry>[]")
    assert message(TypeError, lambda: key.astype("float32")) == wanted


def test_no_elementwise_op_takes_keys():
    """Every elementwise op, except those that move or compare elements."""
    takes = Elements.MOVED, Elements.EQUAL, Elements.UNEQUAL
    ops = every_op()
    moves = {n for n, op in ops.items() if op.pointwise and op.elements in takes}
    assert moves == {
        "select_n",
        "eq",
        "ne",
        "copy",
        "stop_gradient",
        "pcast",
        "axes",
        "todense",
        "xla_metadata_value",
    }
    keys = array_type((3,), KEYS.dtype)
    for op in ops.values():
        if not op.pointwise or op.name in moves:
            continue
        for count in (1, 2, 3, 4):
            with pytest.raises(TypeError):
                infer(op, (keys,) * count, {})


def test_keys_do_not_become_host_values():
    cannot = (
        "an array of keys, key<fry>[], cannot become {}: keys are not numbers. Use "
        "shardwise.random.key_data(x) for the underlying integers."
    )
    key = random.key(0)
    assert message(TypeError, lambda: np.asarray(key)) == cannot.format("a NumPy array")
    assert message(TypeError, lambda: np.add(key, 1)) == cannot.format("a NumPy array")
    assert message(TypeError, key.item) == cannot.format("a Python scalar")
    assert message(TypeError, key.tolist) == cannot.format("a list")
    for kind in (int, float, bool):
        assert message(TypeError, lambda kind=kind: kind(key)) == (
            f"only a 0-d array of numbers can be converted to {kind.__name__}; got key<fry>[]."
        )


EXPECTED = (
    "uniform takes a key as its first argument, made by `shardwise.random.key` (key<fry>[]) or "
    "`shardwise.random.PRNGKey` (u32[2]); got {}."
)


def test_wrong_keys():
    def draw(key):
        return lambda: random.uniform(key)

    assert message(TypeError, draw(3)) == EXPECTED.format("3 of type int")
    assert message(TypeError, draw(None)) == EXPECTED.format("None of type NoneType")
    assert message(TypeError, draw([0, 1])) == EXPECTED.format("[0, 1] of type list")
    wanted = EXPECTED.format("an array of type f32[2]")
    assert message(TypeError, draw(np.zeros(2, np.float32))) == wanted
    wanted = EXPECTED.format("an array of type u32[3]")
    assert message(TypeError, draw(np.zeros(3, np.uint32))) == wanted
    assert message(ValueError, draw(KEYS)) == (
        "uniform takes a single key; got keys in an array of type key<fry>[3,4]. Use vmap over the "
        "keys."
    )
    assert message(ValueError, draw(DATA)) == (
        "uniform takes a single key; got keys in an array of type u32[3,4,2]. Use vmap over the "
        "keys."
    )


def test_wrong_seeds():
    assert message(TypeError, lambda: random.key(1.5)) == "key: a seed must be an integer; got 1.5."
    assert message(TypeError, lambda: random.key(np.float32(1))) == (
        "key: a seed must be an integer; got f32[]."
    )
    assert message(TypeError, lambda: random.PRNGKey(np.arange(3))) == (
        "PRNGKey takes one integer as its seed; got an array of type i32[3]. Use vmap to make "
        "several keys."
    )
    assert message(TypeError, lambda: random.key(random.key(0))) == (
        "key makes a key from an integer; got a key, key<fry>[]."
    )
    assert message(OverflowError, lambda: random.key(1 << 63)) == (
        "key: a seed must fit into a signed 64-bit integer; got 9223372036854775808."
    )
    assert message(ValueError, lambda: random.key(0, impl="mt19937")) == (
        "unknown PRNG implementation 'mt19937'. The known ones are: 'threefry2x32', "
        "'threefry4x32', 'philox2x32', 'philox4x32', 'rbg', 'unsafe_rbg', 'pallas_tpu'."
    )
    assert message(TypeError, lambda: random.key(0, impl=7)) == (
        "a PRNG implementation must be a name, a key dtype, or a result of `define_prng_impl`; got "
        "7 of type int."
    )
    assert message(ValueError, lambda: random.key(0, impl="threefry2x32", dtype=KEYS.dtype)) == (
        "key: pass `impl` or `dtype`, not both."
    )


def test_wrong_data():
    key = random.key(0)
    assert message(OverflowError, lambda: random.fold_in(key, -1)) == (
        "fold_in: data must fit into an unsigned 32-bit integer; got -1."
    )
    assert message(TypeError, lambda: random.fold_in(key, np.arange(3))) == (
        "fold_in takes one integer; got i32[3]. Use vmap to fold in several."
    )
    assert message(TypeError, lambda: random.fold_in(key, "a")) == (
        "fold_in: data must be an integer; got 'a'."
    )
    assert message(TypeError, lambda: random.wrap_key_data(np.zeros(3, np.uint32))) == (
        "wrap_key_data: the data of threefry2x32 keys must be uint32 of shape (..., 2); got u32[3]."
    )
    assert message(ValueError, lambda: random.split(key, -1)) == (
        "split: sizes must not be negative; got shape (-1,)."
    )
    assert message(TypeError, lambda: random.split(key, 1.5)) == (
        "split: shape must be integers; got 1.5."
    )


FILLED = {
    "zeros": lambda m, key, keys: m.zeros(3, key.dtype),
    "ones": lambda m, key, keys: m.ones((2, 3), key.dtype),
    "full": lambda m, key, keys: m.full(3, 100, key.dtype),
    "of a key": lambda m, key, keys: m.full((2, 3), key),
    "of keys": lambda m, key, keys: m.full((2, 2), keys, key.dtype),
    "zeros_like": lambda m, key, keys: m.zeros_like(keys),
    "full_like": lambda m, key, keys: m.full_like(keys, key),
}


@pytest.mark.parametrize("name", FILLED)
def test_arrays_filled_with_keys(name):
    fill = FILLED[name]
    key, theirs = sw.random.key(3), jax.random.key(3)
    found = sw.random.key_data(fill(sw.numpy, key, sw.random.split(key)))
    wanted = jax.random.key_data(fill(jax.numpy, theirs, jax.random.split(theirs)))
    np.testing.assert_array_equal(found, wanted)
