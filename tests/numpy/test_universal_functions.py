"""Every ufunc against jax's, over dtypes and weak types."""

import inspect

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.numpy import floats, unary
from shardwise._src.running.eager import EAGER
from shardwise._src.values import binary
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.oracle import compare

MODULES = (unary, floats, binary)


def function(name):
    return next(getattr(m, name) for m in MODULES if name in vars(m))


RNG = np.random.default_rng(0)
REAL = np.array([-2.5, -1.0, -0.3, 0.0, 0.4, 1.0, 3.7], np.float32)
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, 1e-30, 2.5], np.float32)
COMPLEX = (REAL[:5] + 1j * RNG.normal(size=5).astype(np.float32)).astype(np.complex64)
SAMPLES = {
    "f32": REAL,
    "special": SPECIAL,
    "bf16": REAL.astype(ml_dtypes.bfloat16),
    "f16": REAL.astype(np.float16),
    "i32": np.array([-7, -2, -1, 0, 1, 2, 5], np.int32),
    "i8": np.array([-128, -2, -1, 0, 1, 2, 127], np.int8),
    "u8": np.array([0, 1, 2, 3, 200, 254, 255], np.uint8),
    "bool": np.array([False, True, True, False, True, False, True]),
    "c64": COMPLEX,
    "python int": 3,
    "python float": 0.5,
    "python complex": 0.5 - 2j,
    "python bool": True,
}

UNARY = """
negative absolute fabs sign square reciprocal floor ceil trunc rint exp exp2 expm1 log log2
log10 log1p sqrt cbrt sin cos tan arcsin arccos arctan sinc deg2rad rad2deg sinh cosh tanh arcsinh
arccosh arctanh i0 conjugate real imag angle isnan isinf isfinite isposinf isneginf iscomplex isreal
nan_to_num signbit spacing frexp modf logical_not bitwise_not bitwise_count positive
""".split()

ALIASES = """
abs=absolute asin=arcsin acos=arccos atan=arctan radians=deg2rad degrees=rad2deg asinh=arcsinh
acosh=arccosh atanh=arctanh conj=conjugate invert=bitwise_not bitwise_invert=bitwise_not
divide=true_divide mod=remainder pow=power atan2=arctan2 bitwise_left_shift=left_shift
bitwise_right_shift=right_shift
""".split()


@pytest.mark.parametrize("pair", ALIASES)
def test_two_names_for_one_function(pair):
    alias, name = pair.split("=")
    assert function(alias).__name__ == alias
    assert function(alias).__code__ is function(name).__code__
    assert inspect.signature(function(alias)) == inspect.signature(function(name))


# Where we follow NumPy and jax does not.
NUMPY_INSTEAD = {
    "modf": "special",  # the fraction of an infinity is 0, not NaN
    "fmod": "bool/bool",  # fmod(True, False) is 0
    "spacing": "f16",  # it has the sign of x
}


@pytest.mark.parametrize("name", everyday(UNARY, 10))
def test_unary(name):
    cases = [(x,) for key, x in SAMPLES.items() if key != NUMPY_INSTEAD.get(name)]
    tolerance = 20.0 if name in ("arccosh", "arctanh", "expm1") else 1.0
    compare(function(name), getattr(jnp, name), cases, tolerance)


def test_fraction_of_infinity():
    fraction, whole = floats.modf(EAGER.array(np.array([np.inf, -np.inf], np.float32)))
    np.testing.assert_array_equal(np.asarray(fraction), [0, 0])
    np.testing.assert_array_equal(np.asarray(whole), [np.inf, -np.inf])


def test_round_with_decimals():
    cases = [(x,) for k, x in SAMPLES.items() if "bool" not in k]
    for decimals in (0, 2, -1):
        legal = cases if decimals >= 0 else cases[:4]
        compare(
            lambda x, d=decimals: unary.round(x, d), lambda x, d=decimals: jnp.round(x, d), legal
        )


BINARY = """
add subtract multiply true_divide floor_divide remainder divmod fmod power float_power logaddexp
logaddexp2 hypot arctan2 heaviside maximum minimum fmax fmin equal not_equal less less_equal greater
greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift
right_shift gcd lcm copysign nextafter ldexp
""".split()

PAIRS = """
f32/f32 f32/special special/f32 bf16/f16 bf16/f32 f16/python_float f32/python_int i32/i32 i32/i8
u8/i8 u8/u8 u8/python_int bool/bool bool/i32 bool/python_int i32/python_float i32/f16 c64/c64
c64/f32 f32/python_complex python_int/python_float python_bool/python_bool python_int/python_int
python_complex/i32
""".split()


def pair(text):
    """Two arguments, truncated to a common length, the second in another order."""
    x, y = (SAMPLES[name.replace("_", " ")] for name in text.split("/"))
    lengths = [len(v) for v in (x, y) if np.ndim(v)]
    n = min(lengths, default=0)
    cut = [v[:n] if np.ndim(v) else v for v in (x, y)]
    return cut[0], cut[1][::-1] if np.ndim(cut[1]) else cut[1]


# jax's results lose their weak type when they are broadcast.
STRONG_IN_JAX = {"logaddexp2", "hypot", "heaviside", "gcd", "lcm"}

# XLA decides shifts by negative amounts or past the width, and may differ.
SHIFTS = {"left_shift", "right_shift"}


@pytest.mark.parametrize("name", everyday(BINARY, 2))
def test_binary(name):
    cases = [pair(p) for p in PAIRS if p != NUMPY_INSTEAD.get(name)]
    if name in SHIFTS:
        cases = [(x, np.abs(y) % 8 if np.ndim(y) and y.dtype.kind in "iu" else y) for x, y in cases]
    if name == "power":  # integers: below
        cases = [c for c in cases if not _whole(c)]
    compare(function(name), getattr(jnp, name), cases, 5.0, name not in STRONG_IN_JAX)


def _whole(case):
    return all(np.result_type(x).kind in "iub" for x in case)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", everyday(INTEGERS, 1))
def test_integers_to_negative_powers(dtype):
    """The last six bits of the exponent count, as in jax; powers of 0 are 0."""
    with sw.enable_x64(True), jax.enable_x64(True):
        x = np.array([0, 1, 2, 3, 5, -1, -2, -7, 127, -128]).astype(dtype)[:, None]
        for other in INTEGERS[:4]:
            y = np.array([-1, -2, -3, -31, -63, -64, -65, -127, -128, 0, 1, 5, 63], other)
            wanted = jnp.power(x, y)
            if wanted.dtype.kind == "f":  # uint64 and signed integers
                continue
            for f in (binary.power, sw.jit(binary.power)):
                got = f(x, y)
                assert got.dtype == wanted.dtype
                np.testing.assert_array_equal(got, wanted)
            assert int(sw.jit(binary.power)(x[3, 0], -3)) == int(jax.jit(jnp.power)(x[3, 0], -3))
            assert int(binary.power(3, y[:1])[0]) == int(jnp.power(3, y[:1])[0])


@pytest.mark.parametrize(
    "power", [-1, np.int32(-1), sw.numpy.array(-1), sw.numpy.array(np.int8(-1))], ids=repr
)
def test_integers_to_concrete_negative_powers(power):
    with pytest.raises(TypeError) as caught:
        binary.power(sw.numpy.array([1, 2]), power)
    assert str(caught.value) == (
        "integers cannot be raised to negative powers; got i32[2] to the power -1. Make the base a "
        "float."
    )
    assert binary.power(sw.numpy.array([2.0]), power).tolist() == [0.5]


def test_integers_to_powers_of_many_bits_wrap_around():
    """jax reads six bits of the exponent, so that 2**64 is 1."""
    y = np.array([33, 64, 65, 127], np.int8)
    assert binary.power(np.int8(2), y).tolist() == [0, 0, 0, 0]
    assert binary.power(np.int8(3), y).tolist() == [(3**n + 128) % 256 - 128 for n in y.tolist()]


@pytest.mark.parametrize("kind", [int, np.int8, np.int32, np.array])
def test_powers_that_are_known(kind):
    """NumPy's integers act as Python's: the result has the dtype of the base."""
    for x in (np.arange(6, dtype=np.int8), np.arange(6, dtype=np.float32), np.arange(3) > 1):
        got, wanted = binary.power(EAGER.array(x), kind(3)), jnp.power(x, kind(3))
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_array_equal(sw.jit(lambda x: x ** kind(3))(x), wanted)
    assert message(TypeError, binary.power, np.arange(6, dtype=np.int8), kind(-1)) == (
        "integers cannot be raised to negative powers; got i8[6] to the power -1. Make the base a "
        "float."
    )


def test_broadcasting():
    row, column = np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32)[:, None]
    result = binary.add(EAGER.array(row), EAGER.array(column))
    np.testing.assert_array_equal(np.asarray(result), row + column)
