"""Random numbers in kernels, and rounding by them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.stats

import shardwise as sw
from shardwise import lax, random
from shardwise import numpy as jnp
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.kernels import call
from tests.helpers.errors import messages
from tests.helpers.mosaic import text_of

ROWS = pl.BlockSpec((None, 8, 128), lambda i: (i, 0, 0))


def drawn(draw: Any, seed: Any = (3, 5), dtype: Any = np.float32, every: bool = False) -> Any:
    """The numbers of four programs, of which the first one, or each, sets the seed."""

    def body(out: Any) -> None:
        at = pl.program_id(0)
        if every:
            pltpu.prng_seed(*seed, at)
        else:
            pl.when(at == 0)(lambda: pltpu.prng_seed(*seed))
        out[...] = draw((8, 128)).astype(dtype)

    like = sw.ShapeDtypeStruct((4, 8, 128), dtype)
    return pl.pallas_call(body, like, grid=4, out_specs=ROWS)


SAMPLERS = {
    "uniform": (pltpu.stateful_uniform, scipy.stats.uniform()),
    "between": (
        lambda s: pltpu.stateful_uniform(s, minval=-1, maxval=3),
        scipy.stats.uniform(-1, 4),
    ),
    "normal": (pltpu.stateful_normal, scipy.stats.norm()),
    "bits": (lambda s: pltpu.stateful_bits(s) / 2**32, scipy.stats.uniform()),
    "int32": (lambda s: pltpu.prng_random_bits(s) / 2**32, scipy.stats.uniform(-0.5, 1)),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samples(name: str):
    draw, distribution = SAMPLERS[name]
    f = drawn(draw)
    found = np.asarray(f())
    np.testing.assert_array_equal(found, sw.jit(f)())
    assert scipy.stats.kstest(found.ravel(), distribution.cdf).pvalue > 1e-3
    assert not (found[0] == found[1]).any()
    text = text_of(f)
    assert '"tpu.prng_set_seed_32"(%c1, %c2) : (i32, i32) -> ()' in text
    assert '"tpu.prng_random_bits"() : () -> vector<8x128xi32>' in text


def test_seeds():
    first, same, other = [
        np.asarray(drawn(pltpu.stateful_uniform, seed, every=True)()) for seed in ((1,), (1,), (2,))
    ]
    np.testing.assert_array_equal(first, same)
    assert len({*first.ravel(), *other.ravel()}) > 8180  # of 8192


def test_bernoulli_and_dtypes():
    found = np.asarray(drawn(lambda s: pltpu.stateful_bernoulli(0.25, s), dtype=np.int32)())
    assert abs(found.mean() - 0.25) < 0.03
    halves = drawn(lambda s: pltpu.stateful_uniform(s, jnp.bfloat16))()
    assert 0.48 < np.asarray(halves).mean() < 0.52

    def body(out: Any) -> None:
        pltpu.prng_seed(0)

        def row(i: Any, _: Any) -> None:
            out[i] = pltpu.stateful_bits((128,), np.uint8).astype(np.float32)

        lax.fori_loop(0, 8, row, None)

    f = pl.pallas_call(body, sw.ShapeDtypeStruct((8, 128), np.float32))
    assert len(np.unique(f())) > 200
    assert "vector<1x128xi32>" in text_of(f)


def test_keys():
    key = pltpu.to_pallas_key(random.key(7))
    assert str(key.dtype) == "key<pl>" and jnp.issubdtype(key.dtype, sw.dtypes.prng_key)
    keys = pltpu.to_pallas_key(random.split(random.key(7), 3))
    assert keys.shape == (3,)
    wanted = np.asarray(random.uniform(key, (8, 128)))
    assert scipy.stats.kstest(wanted.ravel(), scipy.stats.uniform.cdf).pvalue > 1e-3
    new = random.uniform(random.fold_in(key, 1), (8, 128))
    assert not (np.asarray(new) == wanted).any()

    def drawn(words: Any, out: Any) -> None:
        own = random.wrap_key_data(words[...], impl="pallas_tpu")
        pltpu.prng_seed(own)
        out[0] = pltpu.stateful_uniform((8, 128))
        out[1] = random.uniform(own, (8, 128))

    f = pl.pallas_call(drawn, sw.ShapeDtypeStruct((2, 8, 128), np.float32))
    np.testing.assert_array_equal(f(random.key_data(key)), [wanted, wanted])
    f = seeded_by(lambda w: (w[0, 0], w[0, 1]))
    np.testing.assert_array_equal(f(random.key_data(key)), wanted)
    assert '"tpu.prng_set_seed_32"' in text_of(f, random.key_data(key))


def seeded_by(words: Any, space: Any = pltpu.SMEM) -> Any:
    """Numbers from the words of a key, which are in SMEM."""

    def uniform(w: Any, out: Any) -> None:
        pltpu.prng_seed(*words(w))
        out[...] = pltpu.stateful_uniform((8, 128))

    specs, like = [pl.BlockSpec(memory_space=space)], sw.ShapeDtypeStruct((8, 128), np.float32)
    return pl.pallas_call(uniform, like, in_specs=specs)


def on_tpu(words: Any, space: Any = pltpu.SMEM) -> str:
    return text_of(seeded_by(words, space), np.zeros((1, 2), np.uint32))


def wrapped(w: Any) -> Any:
    return [random.wrap_key_data(w[...], impl="pallas_tpu")]


def test_the_name_of_keys_needs_no_kernels():
    code = (
        "import sys, numpy as np; from shardwise import random;"
        "data = np.array([[3, 5]], np.uint32);"
        "print(random.key_data(random.wrap_key_data(data, impl='pallas_tpu')));"
        "assert 'shardwise._src.kernels.launches' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[[3 5]]\n"


def test_folding_in_is_a_round_of_threefry():
    data = np.array([[3, 5]], np.uint32)
    found = random.key_data(random.fold_in(random.wrap_key_data(data, impl="pallas_tpu"), 4))
    np.testing.assert_array_equal(found, [[12, (9 << 13) ^ 12]])


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_stochastic_rounding(name: str):
    """The mean is x, and values are the two floats next to it."""
    x = np.array([1 + 2**-9, -1 - 2**-9, 3.3, 0.0017, 2.1e-5, -0.3], np.float32)
    bits = random.bits(random.key(1), (6, 8192), np.uint32)
    wide = np.repeat(x[:, None], 8192, 1)
    found = pltpu.stochastic_round(wide, bits, target_dtype=getattr(jnp, name))
    assert found.dtype == name
    found = np.asarray(found).astype(np.float64)
    for value, row in zip(x, found, strict=True):
        low, high = np.unique(row)
        assert low <= value <= high
        spread = (high - low) / 2 / np.sqrt(8192)
        assert abs(row.mean() - value) < 5 * spread
    ends = np.array([np.inf, -np.inf, np.nan, 0, -0.0], np.float32)
    found = pltpu.stochastic_round(ends, bits[0, :5], target_dtype=jnp.bfloat16)
    found = np.asarray(found).astype(np.float32)
    np.testing.assert_array_equal(found, ends)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(ends))

    def body(x: Any, bits: Any, out: Any) -> None:
        out[...] = pltpu.stochastic_round(x[...], bits[...], target_dtype=getattr(jnp, name))

    f = pl.pallas_call(body, sw.ShapeDtypeStruct((32, 128), name))
    text = text_of(f, np.zeros((32, 128), np.float32), np.zeros((32, 128), np.uint32))
    assert "tpu.stochastic_convert" in text


def outside() -> Any:
    return pltpu.prng_random_bits((2,))


def of_floats() -> Any:
    seeded = call(lambda out: pltpu.prng_seed(0.5), sw.ShapeDtypeStruct((), "int32"))
    return seeded()


test_messages = messages(
    """
    outside()
        ValueError: prng_random_bits is for the body of a kernel, and is called outside of one.
    of_floats()
        TypeError: prng_seed: seeds are integers, or one key of shape (); got ~f32[].
    pltpu.stochastic_round(np.ones(2), np.ones(3, np.uint32), target_dtype="bfloat16")
        ValueError: stochastic_round: random_bits are uint32s of x's shape, [2]; got u32[3].
    pltpu.stochastic_round(np.ones(2, np.int32), np.ones(2, np.uint32), target_dtype="bfloat16")
        ValueError: stochastic_round: x is of float32, and the result of bfloat16 or a float8; got
        i32[2] and bfloat16.
    seeded_by(lambda w: [w[...]])(pltpu.to_pallas_key(random.key(0)))
        TypeError: kernel uniform: an argument has the type key<pl>[], of PRNG keys, which kernels
        cannot load. Pass the bits, `random.key_data(key)`, in SMEM, and seed the generator with
        them: `prng_seed(w[0, 0], w[0, 1])`.
    seeded_by(lambda w: [w[...]])(random.key(0))
        TypeError: kernel uniform: an argument has the type key<fry>[], of PRNG keys, which kernels
        cannot load. Pass the bits, `random.key_data(key)`, and (on CPUs) make the key in the
        kernel: `random.wrap_key_data(ref[...])`.
    on_tpu(wrapped, pltpu.VMEM)
        LoweringException: kernel uniform: [random_wrap] is not supported by Mosaic, the compiler of
        kernels for TPUs. TPUs have a generator, which is seeded by integers, such as the words of a
        key that is in SMEM: `prng_seed(w[0, 0], w[0, 1])`, and from which `stateful_uniform` and
        others draw. See `to_pallas_key`.
    on_tpu(lambda w: (w[0, 0], w[0, 1], 3))
        LoweringException: kernel uniform: [kernel_prng_seed] of 3 integers is not supported by
        Mosaic, the compiler of kernels for TPUs. Combine them: pass one or two.
    random.split(pltpu.to_pallas_key(random.key(0)))
        NotImplementedError: Keys for the generator of TPUs cannot be split. Make others with
        `random.fold_in`.
    """,
    globals(),
)
