"""Promotion: the full table against jax, with and without x64, standard and strict."""

import enum
import itertools
import warnings
from contextlib import contextmanager

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src import dtypes as jax_dtypes

from shardwise._src.base.config import enable_x64, numpy_dtype_promotion
from shardwise._src.types.dtypes import SCALAR_TYPES, ExtendedDType, KeyDType, canonicalize, float0
from shardwise._src.types.promotion import (
    TypePromotionError,
    dtype_and_weak,
    lattice_join,
    promote_types,
    result_type,
    scalar_type_of,
)
from tests.helpers.errors import message as error_of

ALL = [np.dtype(t) for types in SCALAR_TYPES.values() for t in types]
PAIRS = list(itertools.product(ALL, (False, True)))
KEY = KeyDType("threefry2x32", (2,))
BOOL = np.dtype(bool)
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, I32, I64, U64 = (np.dtype(n) for n in ("int8", "int32", "int64", "uint64"))
F16, F32, F64, C64 = (np.dtype(n) for n in ("float16", "float32", "float64", "complex64"))

x64s = pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])
modes = pytest.mark.parametrize("mode", ["standard", "strict"])


class Operand:
    """A value that jax treats as its own: jax trusts its dtype and weak type."""

    def __init__(self, dtype, weak_type):
        self.dtype = np.dtype(dtype)
        self.weak_type = weak_type
        self.aval = self


@pytest.fixture(autouse=True, scope="module")
def operands_known_to_jax():
    before = jax_dtypes._types_whose_dtype_should_not_be_canonicalized
    jax_dtypes.register_type_whose_dtype_should_not_be_canonicalized(Operand)
    yield
    jax_dtypes._types_whose_dtype_should_not_be_canonicalized = before


def outcome(function, *args, **kwargs):
    """The result and whether there were warnings; "error" if the dtypes do not promote."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        try:
            return function(*args, **kwargs), bool(record)
        except ValueError:
            return "error", bool(record)


@contextmanager
def settings(mode, x64):
    """Both libraries under the same flags."""
    theirs = jax.enable_x64(x64), jax.numpy_dtype_promotion(mode)
    with enable_x64(x64), numpy_dtype_promotion(mode), theirs[0], theirs[1]:
        yield


# ---------------------------------------------------------------------------------- the table


@modes
@x64s
def test_join_agrees_with_jax_on_every_pair(mode, x64):
    with settings(mode, x64):
        for a, b in itertools.product(PAIRS, PAIRS):
            expected = outcome(jax_dtypes.lattice_result_type, Operand(*a), Operand(*b))
            assert outcome(lattice_join, a, b) == expected, (a, b)
            assert outcome(lattice_join, a, b) == expected, (a, b)  # from the table, with warnings


@modes
@x64s
def test_join_agrees_with_jax_on_single_values(mode, x64):
    with settings(mode, x64):
        for pair in PAIRS:
            expected = outcome(jax_dtypes.lattice_result_type, Operand(*pair))
            assert outcome(lattice_join, pair) == expected, pair


@modes
@x64s
def test_join_agrees_with_jax_on_triples_and_longer(mode, x64):
    with settings(mode, x64):
        rng = np.random.default_rng(0)
        for n in (3, 3, 3, 4, 12):
            for _ in range(100):
                pairs = [PAIRS[i] for i in rng.integers(len(PAIRS), size=n)]
                expected = outcome(jax_dtypes.lattice_result_type, *(Operand(*p) for p in pairs))
                assert outcome(lattice_join, *pairs) == expected, pairs


@modes
@x64s
def test_promote_types_agrees_with_jax_on_every_pair(mode, x64):
    with settings(mode, x64):
        for a, b in itertools.product([*ALL, int, float, complex], repeat=2):
            expected = outcome(jax.numpy.promote_types, a, b)
            assert outcome(promote_types, a, b) == expected, (a, b)


def test_promote_types_takes_every_spelling():
    assert promote_types("int8", np.float16) == promote_types(bool, "float16") == F16
    assert promote_types(None, "int8") == jax.numpy.promote_types(None, "int8") == F64


ARGUMENTS = [
    True,
    1,
    1.5,
    2j,
    np.bool_(True),
    np.int8(1),
    np.float64(1.0),
    np.complex64(1),
    BF16.type(1),
    np.ones(2, "uint8"),
    np.ones(2),
    np.zeros((), "float16"),
    np.ones(3, "int64"),
    bool,
    int,
    float,
    complex,
    None,
    np.float32,
    np.float64,
    BF16.type,
    "int16",
    "bfloat16",
    "f8",
    np.dtype("complex128"),
    np.dtype("uint64"),
    Operand(I64, False),
    Operand(F16, True),
    Operand(I8, True),
    Operand(BF16, True),
]


@modes
@x64s
def test_result_type_agrees_with_jax(mode, x64):
    with settings(mode, x64):
        for args in [*itertools.product(ARGUMENTS), *itertools.product(ARGUMENTS, ARGUMENTS)]:
            # Not the warnings: jax warns about any 64-bit dtype; here a query is not a request.
            expected, _ = outcome(jax_dtypes.result_type, *args, return_weak_type_flag=True)
            found, _ = outcome(result_type, *args, return_weak_type_flag=True)
            assert found == expected, args
            if found != "error":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    assert result_type(*args) == found[0]


# ------------------------------------------------------------------------------------- algebra

pairs = st.sampled_from(PAIRS)
strong_pairs = st.sampled_from([(dtype, False) for dtype in ALL])


@given(st.lists(pairs, min_size=1, max_size=5), st.randoms(), st.booleans())
def test_join_does_not_depend_on_order_or_repetition(operands, random, x64):
    shuffled = [*operands, random.choice(operands)] if len(operands) > 1 else [*operands]
    random.shuffle(shuffled)
    with enable_x64(x64):
        assert outcome(lattice_join, *operands) == outcome(lattice_join, *shuffled)


@given(pairs)
def test_join_is_idempotent(pair):
    dtype, weak = pair
    with enable_x64(True):
        assert lattice_join(pair, pair) == lattice_join(pair) == (dtype, weak and dtype is not BOOL)


some_mode = st.sampled_from(["standard", "strict"])


@given(strong_pairs, strong_pairs, strong_pairs, st.booleans(), some_mode)
def test_join_is_an_upper_bound_and_associative(a, b, c, x64, mode):
    def nested(first, second, third):
        inner, _ = outcome(lattice_join, first, second)
        return "error" if inner == "error" else outcome(lattice_join, inner, third)[0]

    with enable_x64(x64), numpy_dtype_promotion(mode):
        joined = outcome(lattice_join, a, b)[0]
        if x64 and joined != "error":
            assert lattice_join(joined, a) == lattice_join(joined, b) == joined
        if x64:
            assert nested(a, b, c) == nested(b, c, a) == outcome(lattice_join, a, b, c)[0]


@given(strong_pairs, st.sampled_from([1, 1.0, 1j]))
def test_a_python_scalar_never_widens_a_dtype_of_its_kind(pair, scalar):
    kinds = [bool, int, float, complex]
    if kinds.index(scalar_type_of(pair[0])) >= kinds.index(scalar.__class__):
        with enable_x64(True):
            assert lattice_join(pair, dtype_and_weak(scalar)) == pair


# ------------------------------------------------------------------------ values and their dtypes


@x64s
def test_dtype_and_weak_of_values(x64):
    class Number(enum.IntEnum):
        ONE = 1

    class Temperature(float):
        pass

    class Foreign:
        dtype = np.dtype("float64")

    with enable_x64(x64):
        assert dtype_and_weak(True) == (np.bool_, False)
        assert dtype_and_weak(3) == (canonicalize(int), True)
        assert dtype_and_weak(2.5) == (canonicalize(float), True)
        assert dtype_and_weak(1j) == (canonicalize(complex), True)
        assert dtype_and_weak(Number.ONE) == (canonicalize(int), True)
        assert dtype_and_weak(Temperature(3)) == (canonicalize(float), True)
        assert dtype_and_weak(np.float64(1)) == (canonicalize(float), False)
        assert dtype_and_weak(np.ones(2, "int64")) == (canonicalize(int), False)
        assert dtype_and_weak(np.zeros(2, float0)) == (float0, False)
        assert dtype_and_weak(Foreign()) == (canonicalize(float), False)
        assert dtype_and_weak(Operand("float64", False)) == (F64, False)  # trusted
        assert dtype_and_weak(Operand("float16", True)) == (F16, True)


def test_dtype_and_weak_refuses_what_is_no_value():
    for value, message in [
        ([1, 2], "got a list. Convert a sequence with `shardwise.numpy.asarray` first."),
        ((1,), "got a tuple. Convert a sequence with `shardwise.numpy.asarray` first."),
        ("float32", "got a str."),
        (None, "got a NoneType."),
        (np.float32, "got a type."),
        (object(), "got a object."),
    ]:
        with pytest.raises(TypeError) as info:
            dtype_and_weak(value)
        assert str(info.value) == f"expected an array or a Python or NumPy scalar, {message}"


def test_scalar_types():
    assert [scalar_type_of(d) for d in ("bool", "int4", np.uint8, BF16, "complex64")] == [
        bool,
        int,
        int,
        float,
        complex,
    ]
    assert [scalar_type_of(x) for x in (True, 1, 1.0, 1j, np.ones(2), np.uint8(1))] == [
        bool,
        int,
        float,
        complex,
        float,
        int,
    ]
    for dtype in ALL:
        assert scalar_type_of(dtype) is jax_dtypes.scalar_type_of(np.zeros((), dtype))
    with pytest.raises(TypeError) as info:
        scalar_type_of(KEY)
    assert str(info.value) == "elements of key<fry> have no Python scalar type."


# ----------------------------------------------------------------------- what does not promote


def join_error(*operands):
    with pytest.raises(TypePromotionError) as info:
        lattice_join(*operands)
    return str(info.value)


def test_extended_dtypes_meet_only_themselves():
    same = ExtendedDType("pair", (2,), F32), ExtendedDType("pair", (2,), F32)
    for a, b in [(KEY, KEY), (float0, float0), same]:
        assert lattice_join((a, False), (b, False)) == (a, False)
        assert promote_types(a, b) == result_type(a, b) == a
    message = (
        "key<fry> and float32 do not promote to a common dtype: elements of key<fry> are not "
        "numbers. They combine only with their own dtype."
    )
    assert join_error((KEY, False), (F32, False)) == message
    for function in (promote_types, result_type):
        assert error_of(TypeError, function, KEY, "float32") == message
    assert join_error((F32, True), (KEY, False)) == (
        "weak float32 and key<fry> do not promote to a common dtype: elements of key<fry> are not "
        "numbers. They combine only with their own dtype."
    )
    assert join_error((I8, False), (float0, False)) == (
        "int8 and float0 do not promote to a common dtype: elements of float0 are not numbers. "
        "They combine only with their own dtype."
    )
    assert join_error((KEY, False), (KeyDType("rbg", (4,)), False)).startswith("key<fry> and key<r")


def test_narrow_dtypes_say_what_to_do():
    float8, float4 = np.dtype("float8_e4m3fn"), np.dtype("float4_e2m1fn")
    rule = (
        "do not promote to a common dtype: floats of 8 bits or fewer and integers of 4 bits or "
        "fewer combine only with their own dtype and with Python scalars of their kind or below, "
        "so that nothing is widened implicitly."
    )
    assert join_error((float8, False), (BF16, False)) == (
        f"float8_e4m3fn and bfloat16 {rule} Cast them, for example with x.astype('bfloat16')."
    )
    assert join_error((float8, False), (float4, False), (float8, False)) == (
        f"float8_e4m3fn and float4_e2m1fn {rule} Cast them, for example with x.astype('float32')."
    )
    assert error_of(TypePromotionError, promote_types, "int4", "int8") == (
        f"int4 and int8 {rule} Cast them, for example with x.astype('int8')."
    )


def test_strict_promotion_says_what_mixes():
    with numpy_dtype_promotion("strict"):
        assert lattice_join((F16, False), (F32, True)) == (F16, False)
        assert join_error((F32, False), (I32, False), (F32, True)) == (
            "float32, int32 and weak float32 do not mix while numpy_dtype_promotion is 'strict'. "
            "Cast one of them with x.astype(...), or set numpy_dtype_promotion to 'standard' here."
        )
    assert lattice_join((F32, False), (I32, False)) == (F32, False)


def test_errors_are_type_errors_and_as_in_jax_value_errors():
    assert issubclass(TypePromotionError, TypeError)
    assert issubclass(TypePromotionError, ValueError)


def test_narrowing_a_wide_result_warns_each_time():
    for _ in range(2):
        with pytest.warns(UserWarning) as record:
            assert lattice_join((F64, False), (F32, True)) == (F32, False)
        assert [str(w.message) for w in record] == [
            "float64 and weak float32 promote to float64, which is narrowed to float32 while "
            "enable_x64 is off. To keep 64 bits, compute under enable_x64(True). The "
            "option explicit_x64_dtypes decides this: 'error' makes this an error, 'allow' keeps "
            "64 bits."
        ]
        assert record[0].filename == __file__
    assert lattice_join((F64, False), (F64, False)) == (F64, False)
    assert lattice_join((I64, False), (U64, False)) == (F32, True)


def test_result_type_of_nothing():
    with pytest.raises(ValueError) as info:
        result_type()
    assert str(info.value) == "result_type expects at least one array, scalar or dtype; got none."
