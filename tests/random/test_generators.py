"""Generators other than threefry2x32: bit-exact streams, vmap and shardings; definitions."""

import itertools
import pickle

import jax
import jax.extend.random
import numpy as np
import pytest

import shardwise as sw
from shardwise import random
from shardwise._src.ops.random import hashes
from shardwise.extend import random as extend
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

SHARED = ["rbg", "unsafe_rbg"]  # with every jax release that the tests run with
COUNTERS = ["threefry4x32", "philox2x32", "philox4x32"]


def data(keys, lib=random):
    return np.asarray(lib.key_data(keys))


# -- hashes: known answers of Random123 (kat_vectors), whose words are counters, then keys --

PI = [
    0x243F6A88,
    0x85A308D3,
    0x13198A2E,
    0x03707344,
    0xA4093822,
    0x299F31D0,
    0x082EFA98,
    0xEC4E6C89,
]
ANSWERS = {
    "threefry2x32": (2, "6b200159 99ba4efe", "1cb996fc bb002be7", "c4923a9c 483df7a0"),
    "threefry4x32": (
        4,
        "9c6ca96a e17eae66 fc10ecd4 5256a7d8",
        "2a881696 57012287 f6c7446e a16a6732",
        "59cd1dbb b8879579 86b5d00c ac8b6d84",
    ),
    "philox2x32": (2, "ff1dae59 6cd10df2", "2c3f628b ab4fd7ad", "dd7ce038 f62a4c12"),
    "philox4x32": (
        4,
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_known_answers(name):
    counters, *answers = ANSWERS[name]
    op = getattr(hashes, name)
    keys = {"threefry2x32": 2, "threefry4x32": 4, "philox2x32": 1, "philox4x32": 2}[name]
    for words, answer in zip(([0] * 8, [0xFFFFFFFF] * 8, PI), answers, strict=True):
        xs = np.array(words, np.uint32)
        found = op(*xs[counters : counters + keys], *xs[:counters])
        assert [f"{int(x):08x}" for x in found] == answer.split()


def test_wrong_words():
    assert message(TypeError, lambda: hashes.philox2x32(np.uint32(1), np.uint32(2))) == (
        "[philox2x32] takes three uint32 operands; got u32[] and u32[]."
    )


# -- streams. Those of counters are jax 0.12's, for the seed 2**40 + 42 and x64 --

STREAMS = {
    "threefry4x32": (
        [2174137671, 3891451577, 4183534710, 1328945212],
        [
            3226205006,
            426663404,
            856954887,
            1401743151,
            887023638,
            2353902648,
            1680016039,
            1999934047,
        ],
        [1377818965, 1208608460, 2054780999, 1155814144],
        [3116194186, 345326354, 2693754811, 4146538306],
        [17536985377932491459, 12274356128112051919],
        [138, 18, 187],
    ),
    "philox2x32": (
        [1812269945],
        [91599420, 2108851873],
        [1648672620],
        [2110370628, 2851583928, 945519527, 2143785610],
        [393416515258155384, 9057449830204649753],
        [68, 184, 167],
    ),
    "philox4x32": (
        [541324533, 3803038970],
        [2700577604, 3840915109, 2226172475, 1259571508],
        [1474699066, 846998923],
        [3753373293, 820688982, 825939627, 2060212251],
        [11598892493330953893, 17168237582130360112],
        [109, 86, 171],
    ),
}


@pytest.mark.parametrize("impl", everyday(STREAMS, 1))
def test_streams_of_counters(impl):
    with sw.enable_x64(True):
        key = random.key(2**40 + 42, impl=impl)
        got = (
            data(key),
            data(random.split(key, (1, 2))),
            data(random.fold_in(key, 9)),
            random.bits(key, (2, 2), "uint32"),
            random.bits(key, (2,), "uint64"),
            random.bits(key, (3,), "uint8"),
        )
    for found, wanted in zip(got, STREAMS[impl], strict=True):
        assert np.asarray(found).ravel().tolist() == wanted


@pytest.mark.parametrize(
    ("impl", "partitionable"), everyday(itertools.product(SHARED, [True, False]), 1)
)
def test_streams_of_rbg(impl, partitionable):
    with sw.threefry_partitionable(partitionable), jax.threefry_partitionable(partitionable):
        ours, theirs = random.key(-7, impl=impl), jax.random.key(-7, impl=impl)
        assert str(ours.dtype) == str(theirs.dtype)
        for num in (2, 0, (2, 3)):
            wanted = data(jax.random.split(theirs, num), jax.random)
            np.testing.assert_array_equal(data(random.split(ours, num)), wanted)
        wanted = data(jax.random.fold_in(theirs, 5), jax.random)
        np.testing.assert_array_equal(data(random.fold_in(ours, 5)), wanted)
        for shape, width in itertools.product([(), (0, 2), (5, 3)], ["uint8", "uint16", "uint32"]):
            wanted = jax.random.bits(theirs, shape, width)
            np.testing.assert_array_equal(random.bits(ours, shape, width), wanted)


def mapped(lib, impl):
    """The values drawn under vmap: for rbg, the first key determines them."""
    r = random if lib is sw else jax.random
    key = r.key(3, impl=impl)
    keys, numbers = r.split(key, 4), np.arange(4, dtype=np.uint32)
    return [
        lib.vmap(lambda k: r.uniform(k, (3,)))(keys),
        lib.vmap(lambda k: r.key_data(r.split(k, 3)))(keys),
        *[
            r.key_data(
                lib.vmap(r.fold_in, axes)(
                    keys if axes[0] == 0 else key, numbers if axes[1] == 0 else np.uint32(5)
                )
            )
            for axes in [(0, 0), (0, None), (None, 0)]
        ],
        r.key_data(lib.vmap(lib.vmap(r.fold_in, (None, 0)), (0, None))(keys, numbers[:3])),
        lib.vmap(lib.vmap(lambda k: r.bits(k, (2,), "uint32")))(r.split(key, (2, 3))),
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("impl", everyday(SHARED, 1))
def test_rbg_under_vmap(impl):
    for got, wanted in zip(mapped(sw, impl), mapped(jax, impl), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.sweep
def test_gamma_draws_by_each_key():
    a = np.array([[0.3, 1, 2], [4, 5, 0.1]], np.float32)
    got = sw.jit(random.gamma)(random.key(1, impl="rbg"), a)
    np.testing.assert_allclose(got, jax.random.gamma(jax.random.key(1, impl="rbg"), a), rtol=1e-5)


@pytest.mark.parametrize("impl", everyday(SHARED + COUNTERS, 2))
def test_bits_do_not_depend_on_the_sharding(impl):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
    key = random.key(4, impl=impl)
    cases = itertools.product([(8, 16), (7, 5)], [P("x"), P("y", "x"), P(None, ("x", "y"))])
    for shape, spec in everyday(cases, 2, impl):
        draw = sw.jit(lambda k, s=shape: random.bits(k, s), out_shardings=NamedSharding(mesh, spec))
        np.testing.assert_array_equal(draw(key), random.bits(key, shape))
    keys = random.split(key, 8)
    one = sw.vmap(lambda k: random.uniform(k, (3,)))
    there = sw.device_put(keys, NamedSharding(mesh, P("y")))
    np.testing.assert_array_equal(sw.jit(one)(there), one(keys))


# -- which generator --


def test_default_generator():
    with sw.default_prng_impl("rbg"):
        key, raw = random.key(3), random.PRNGKey(3)
        assert str(key.dtype) == "key<rbg>" and raw.shape == (4,)
        assert random.key_impl(raw) == "rbg" and random.key_dtype() is key.dtype
        np.testing.assert_array_equal(random.uniform(raw, (3,)), random.uniform(key, (3,)))
        assert message(TypeError, lambda: random.normal(np.zeros(2, np.uint32))) == (
            "normal takes a key as its first argument, made by `shardwise.random.key` (key<rbg>[]) "
            "or `shardwise.random.PRNGKey` (u32[4]); got an array of type u32[2]."
        )
    assert random.PRNGKey(3).shape == (2,)
    assert random.key(3, impl=random.key_dtype("philox4x32")).dtype.name == "key<phx4>"
    assert message(ValueError, lambda: sw.config.update("default_prng_impl", "mt")) == (
        "default_prng_impl must be one of 'threefry2x32', 'threefry4x32', 'philox2x32', "
        "'philox4x32', 'rbg', 'unsafe_rbg'; got 'mt'"
    )


def test_flags_about_raw_keys():
    raw = random.PRNGKey(0)
    said = (
        "normal got a raw key, an array of integers. Make keys with `shardwise.random.key`, or set "
        'the flag "legacy_prng_key" to "allow".'
    )
    with sw.legacy_prng_key("error"):
        assert message(ValueError, lambda: random.normal(raw)) == said
        random.normal(random.key(0))
    with sw.legacy_prng_key("warn"), pytest.warns(UserWarning, match="normal got a raw key"):
        random.normal(raw)
    with sw.enable_custom_prng(True):
        assert str(random.PRNGKey(0).dtype) == "key<fry>"
        with pytest.warns(FutureWarning, match="it is treated as a threefry2x32 key"):
            assert str(random.split(raw).dtype) == "key<fry>"


def test_offset_of_seeds():
    want = [data(random.key(7)), data(random.key(-3))]
    sw.config.update("random_seed_offset", 5)
    try:
        for seed in (2, np.int32(2), sw.numpy.array(2)):
            np.testing.assert_array_equal(data(random.key(seed)), want[0])
        np.testing.assert_array_equal(data(sw.jit(random.key)(-8)), want[1])
    finally:
        sw.config.update("random_seed_offset", 0)


# -- definitions --


def counting(tag="cnt", step=1):
    """A key is a number; the bits count up from it."""

    def ids(shape):
        return sw.numpy.arange(np.prod(shape, dtype=int), dtype="uint32").reshape(shape)

    return extend.define_prng_impl(
        key_shape=(1,),
        name="counting",
        tag=tag,
        seed=lambda seed: seed.astype("uint32")[None],
        split=lambda key, shape: (key[0] + 100 * (ids(shape) + step).astype("uint32"))[..., None],
        random_bits=lambda key, width, shape: (key[0] + ids(shape)).astype(f"uint{width}"),
        fold_in=lambda key, n: key + n.astype("uint32"),
    )


def test_a_generator_of_ones_own():
    spec = counting()
    key = random.key(5, impl=spec)
    assert str(key.dtype) == "key<cnt>" and repr(spec) == "PRNGSpec('counting')"
    assert random.key_impl(key) == spec and random.key_dtype(spec) is key.dtype
    assert random.key(5, impl=counting()).dtype is not key.dtype  # of other functions
    assert data(random.split(key)).tolist() == [[105], [205]]
    assert random.bits(random.fold_in(key, 3), (2, 2), "uint32").tolist() == [[8, 9], [10, 11]]
    keys = sw.jit(random.split, static_argnums=1)(key, 3)
    assert sw.vmap(lambda k: random.bits(k, (2,), "uint8"))(keys).tolist() == [
        [105, 106],
        [205, 206],
        [49, 50],
    ]
    folded = sw.vmap(random.fold_in)(keys, np.arange(3, dtype=np.uint32))
    assert data(folded).tolist() == [[105], [206], [307]]
    fold = sw.vmap(sw.vmap(random.fold_in, (None, 0)), (0, None))
    both = fold(keys, np.arange(2, dtype=np.uint32))
    assert data(both)[..., 0].tolist() == [[105, 106], [205, 206], [305, 306]]
    assert random.gamma(key, np.ones(2, np.float32)).shape == (2,)


def test_wrong_definition():
    assert (
        message(
            TypeError,
            lambda: extend.define_prng_impl(
                key_shape=(1,), seed=3, split=abs, random_bits=abs, fold_in=abs
            ),
        )
        == "define_prng_impl: seed must be a function; got 3."
    )


def test_generators_of_the_library_as_records():
    for impl in (extend.threefry_prng_impl, extend.rbg_prng_impl, extend.unsafe_rbg_prng_impl):
        theirs = getattr(
            jax.extend.random,
            {"fry": "threefry_prng_impl", "rbg": "rbg_prng_impl", "urbg": "unsafe_rbg_prng_impl"}[
                str(impl)
            ],
        )
        assert (impl._fields, impl.name, impl.key_shape) == (
            theirs._fields,
            theirs.name,
            theirs.key_shape,
        )
        key = impl.seed(3)
        np.testing.assert_array_equal(key, theirs.seed(jax.numpy.int32(3)))
        np.testing.assert_array_equal(
            impl.random_bits(key, 32, (3,)),
            theirs.random_bits(theirs.seed(jax.numpy.int32(3)), 32, (3,)),
        )
        np.testing.assert_array_equal(
            impl.fold_in(key, 1), data(random.fold_in(random.key(3, impl=impl), 1))
        )
        assert random.key(3, impl=impl).dtype is random.key_dtype(impl.name)
    seeds = np.array([1, 2], np.int32)
    assert extend.random_seed(seeds, extend.rbg_prng_impl).shape == (2,)
    np.testing.assert_array_equal(
        data(extend.seed_with_impl(extend.threefry_prng_impl, 8)), data(random.key(8))
    )


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_threefry_2x32(count):
    pair, words = np.array([3, 4], np.uint32), np.arange(count, dtype=np.uint32)
    wanted = jax.extend.random.threefry_2x32(pair, words) if count else words
    np.testing.assert_array_equal(extend.threefry_2x32(pair, words), wanted)
    assert message(TypeError, lambda: extend.threefry_2x32(pair, words.astype("int32"))) == (
        f"threefry_2x32 takes uint32 words; got u32[], u32[] and i32[{count}]."
    )


def test_pickles():
    for key in (random.key(1, impl="rbg"), random.key(1, impl=extend.unsafe_rbg_prng_impl)):
        again = pickle.loads(pickle.dumps(key))
        assert again.dtype is key.dtype
        np.testing.assert_array_equal(data(again), data(key))


# -- matrices --


@pytest.mark.sweep
@pytest.mark.parametrize("method", everyday(["cholesky", "eigh", "svd"], 2))
def test_multivariate_normal(method):
    mean = np.array([[1.0, 2, 3], [0, 0, 0]], np.float32)
    cov = np.array([[2, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 3]], np.float32)
    args = mean, cov, (4, 2)
    got = random.multivariate_normal(random.key(1), *args, method=method)
    wanted = jax.random.multivariate_normal(jax.random.key(1), *args, method=method)
    if method == "cholesky":  # signs of the others' vectors are free
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    many = random.multivariate_normal(random.key(2), mean[0], cov, (20000,), None, method)
    many = np.asarray(many)
    np.testing.assert_allclose(np.cov(many.T), cov, atol=0.1)
    np.testing.assert_allclose(many.mean(0), mean[0], atol=0.05)


def test_wrong_normals():
    key, mean, cov = random.key(0), np.zeros(3, np.float32), np.eye(2, dtype=np.float32)
    assert message(ValueError, lambda: random.multivariate_normal(key, mean, cov)) == (
        "multivariate_normal takes a mean (..., n) and a covariance (..., n, n); got f32[3] and "
        "f32[2,2]."
    )
    assert message(
        ValueError, lambda: random.multivariate_normal(key, np.zeros((3, 2), np.float32), cov, (4,))
    ) == (
        "multivariate_normal: f32[3,2] and f32[2,2] do not broadcast to vectors in an array of "
        "shape (4,)."
    )
    assert message(ValueError, lambda: random.multivariate_normal(key, mean, cov, method="qr")) == (
        "multivariate_normal: method must be 'cholesky', 'eigh' or 'svd'; got 'qr'."
    )


@pytest.mark.sweep
@pytest.mark.parametrize(("n", "m"), everyday([(3, None), (3, 5), (5, 3), (0, 2)], 1))
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_orthogonal(n, m, dtype):
    got = np.asarray(random.orthogonal(random.key(1), n, (2,), dtype, m))
    assert got.shape == (2, n, n if m is None else m) and got.dtype == dtype
    wide = got if got.shape[1] <= got.shape[2] else got.conj().swapaxes(1, 2)
    one = np.broadcast_to(np.eye(wide.shape[1]), (2, wide.shape[1], wide.shape[1]))
    np.testing.assert_allclose(wide @ wide.conj().swapaxes(1, 2), one, atol=1e-5)
    if n:
        wanted = jax.random.orthogonal(jax.random.key(1), n, (2,), dtype, m)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
