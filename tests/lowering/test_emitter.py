"""The emitter: literals that are bit-exact for every dtype; functions that are emitted once."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.core.program import Literal, Program
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.lowering.text import element_text, literal_text, tensor_text
from shardwise._src.ops.elementwise import add, mul, sin
from shardwise._src.testing.running import compiled
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import array_type

F32 = np.dtype(np.float32)
SMALL_FLOATS = [
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3b11fnuz",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn",
]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def through_a_program(values: np.ndarray) -> list[np.ndarray]:
    """Passes each value through a compiled program as a literal, and reads it back."""
    t = array_type((), values.dtype)
    program = Program([], [Literal(v, t) for v in values], [])
    return [np.asarray(r) for r in compiled(program, [])([])]


def assert_exact(values: np.ndarray) -> None:
    for value, came in zip(values, through_a_program(values), strict=True):
        assert came.dtype == values.dtype
        assert came.tobytes() == np.asarray(value).tobytes(), (value, came)


def from_bits(bits: list[int], dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    return np.array(bits, f"u{dtype.itemsize}").view(dtype)


BITS = {
    "float32": [
        0,
        0x80000000,
        1,
        0x80000001,
        0x007FFFFF,
        0x00800000,
        0x3F800001,
        0x7F7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFC00000,
        0x7FC00123,
        0x3DCCCCCD,
    ],
    "float64": [
        0,
        1 << 63,
        1,
        0x000FFFFFFFFFFFFF,
        0x0010000000000000,
        0x3FF0000000000001,
        0x7FEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x7FF8000000000000,
        0x7FF8000000000ABC,
        0x3FB999999999999A,
        0x4415AF1D78B58C40,
    ],
    "float16": [0, 0x8000, 1, 0x03FF, 0x0400, 0x3C01, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7E01],
    "bfloat16": [0, 0x8000, 1, 0x007F, 0x0080, 0x3F81, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0x7FC1],
}


@pytest.mark.parametrize("name", BITS)
def test_floats(name: str):
    assert_exact(from_bits(BITS[name], dtype_of(name)))


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_all_small_floats(name: str):
    """Every bit pattern; a NaN may be returned as another NaN."""
    dtype = dtype_of(name)
    count = 16 if "float4" in name else 256
    values = np.arange(count, dtype=np.uint8).view(dtype)
    with np.errstate(invalid="ignore"):
        numbers = values[~np.isnan(values.astype(np.float32))]
    assert_exact(numbers)
    if len(numbers) < count:
        (came,) = through_a_program(values[np.isnan(values.astype(np.float32))][:1])
        assert np.isnan(came.astype(np.float32))


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_doubles_are_rounded_once(name: str, bits: int):
    rng = np.random.default_rng(3)
    whole = rng.integers(2 ** (bits - 1), 2**bits, 64) + 0.5  # between two adjacent numbers
    x = np.ldexp(whole, -bits) * [[1], [-1], [1 + 1e-12], [1 - 1e-12], [-1 - 1e-9]]
    ends = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -1e-300, 7e4, 65519.999999]
    x = np.append(x.ravel(), ends)
    part, power = np.frexp(x)
    wanted = np.ldexp(np.rint(np.ldexp(part, bits)), power - bits)
    wanted = np.where(np.isfinite(x), wanted, x)
    with np.errstate(over="ignore", under="ignore"):
        wanted = wanted.astype(dtype_of(name))  # exact if it is in range
    with sw.enable_x64(True):
        found = np.asarray(sw.jit(lambda x: x.astype(dtype_of(name)))(x))
    np.testing.assert_array_equal(found.astype(float), wanted.astype(float))
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(x)], np.signbit(x)[~np.isnan(x)])


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_narrow_integers(name: str):
    info = ml_dtypes.iinfo(dtype_of(name))
    assert_exact(np.arange(int(info.min), int(info.max) + 1).astype(dtype_of(name)))


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_integers(name: str):
    info = np.iinfo(name)
    assert_exact(np.array([info.min, info.max, 0, 1, info.max // 3], name))


def test_booleans():
    assert_exact(np.array([False, True]))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex(name: str):
    parts = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-310, 0.1, -3e30])
    dtype = np.dtype(name)
    values = np.empty(64, dtype)
    with np.errstate(all="ignore"):
        values.real, values.imag = np.repeat(parts, 8), np.tile(parts, 8)
    assert_exact(values)


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1, np.float32, "1.0"),
        (-0.0, np.float32, "-0.0"),
        (1e30, np.float64, "1.0e+30"),
        (np.inf, np.float32, "0x7F800000"),
        (-np.inf, np.float16, "0xFC00"),
        (np.nan, np.float64, "0x7FF8000000000000"),
        (True, bool, "true"),
        (0, bool, "false"),
        (-3, np.int8, "-3"),
        (2**64 - 1, np.uint64, "18446744073709551615"),
        (1 - 2j, np.complex64, "(1.0, -2.0)"),
        (2.7, np.int32, "2"),
    ],
)
def test_texts(value: Any, dtype: Any, text: str):
    found = literal_text(value, np.dtype(dtype))
    assert found == text


def test_types():
    assert tensor_text(array_type((8, 4), F32)) == "tensor<8x4xf32>"
    assert tensor_text(array_type((), np.dtype(np.complex64))) == "tensor<complex<f32>>"
    assert tensor_text(array_type((0,), np.dtype(np.uint8))) == "tensor<0xui8>"
    assert tensor_text(array_type((2,), np.dtype(bool))) == "tensor<2xi1>"
    with pytest.raises(TypeError) as caught:
        element_text(np.dtype("datetime64[s]"))
    assert str(caught.value) == "dtype datetime64[s] has no representation on devices"


# -- lines and functions --


def program_of(fun: Any, *types: Any, name: str = "f") -> Program:
    return stage(fun, types, name=name)[0]


VECTOR = array_type((3,), F32)


def test_names_of_results():
    e = Emitter()
    assert e.let("a") == "%1"
    assert e.lets("b", 2) == ["%2#0", "%2#1"]
    assert e.lets("c", 1) == ["%3"]
    assert e.lets("d", 0) == []
    assert e.fresh() == "%4"
    assert e.lines == ["%1 = a", "%2:2 = b", "%3 = c", "d"]


def test_regions_do_not_leak():
    e = Emitter()
    e.let("outside")
    assert e.region(lambda: e.let("inside")) == "%2 = inside"
    assert e.lines == ["%1 = outside"]


def test_a_held_program_is_written_once():
    e = Emitter()
    held = program_of(lambda x: [mul(sin(x), x)], VECTOR, name="held")
    first, second = e.call(held, "%arg0"), e.call(held, "%arg1")
    assert first != second
    assert [re.sub(r"%\d+ = ", "", line) for line in e.lines] == [
        "func.call @held(%arg0) : (tensor<3xf32>) -> (tensor<3xf32>)",
        "func.call @held(%arg1) : (tensor<3xf32>) -> (tensor<3xf32>)",
    ]
    (function,) = e.functions
    assert function.startswith("func.func private @held(%arg0: tensor<3xf32>) -> (tensor<3xf32>)")


def test_programs_of_equal_names_get_symbols_of_their_own():
    e = Emitter()
    names = ["f", "f", "main", "<lambda>", "f"]
    for name in names:
        e.call(program_of(lambda x: [sin(x)], VECTOR, name=name), "%arg0")
    symbols = [re.search(r"@(\w+)", f).group(1) for f in e.functions]  # type: ignore[union-attr]
    assert len(set(symbols)) == 5
    assert symbols[0] == "f" and "main" not in symbols


def double(x: Any) -> Any:
    return add(x, x)


def test_via_stages_once_for_each_types():
    e = Emitter()
    e.via(double, (VECTOR,), "%arg0")
    e.via(double, (VECTOR,), "%arg1")
    assert len(e.functions) == 1
    e.via(double, (array_type((2,), F32),), "%arg2")
    assert len(e.functions) == 2
    other = Emitter()
    other.via(double, (VECTOR,), "%arg0")
    assert other.functions[0] == e.functions[0]


def test_functions_inside_functions():
    inner = program_of(lambda x: [double(x)], VECTOR, name="inner")
    e = Emitter()
    e.call(inner, "%arg0")
    e.call(program_of(lambda x: inner(x), VECTOR, name="outer"), "%arg0")
    assert [re.search(r"@(\w+)", f).group(1) for f in e.functions] == [  # type: ignore[union-attr]
        "inner",
        "outer",
    ]


def test_functions_may_have_names_in_any_letters():
    @sw.jit
    def größe(x):
        return sw.jit(lambda x: x.sum(), inline=False)(x) + λ(x)

    @sw.jit
    def λ(x):
        return x.max()

    assert float(größe(np.arange(3, dtype=F32))) == 5
