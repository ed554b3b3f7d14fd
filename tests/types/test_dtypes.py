"""Dtypes: names, canonicalization, kinds and limits, against jax where jax has an equivalent."""

import copy
import pickle
import warnings

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jax._src import dtypes as jax_dtypes

from shardwise._src.base.config import enable_x64
from shardwise._src.types import dtypes
from shardwise._src.types.dtypes import (
    ExtendedDType,
    KeyDType,
    canonicalize,
    check_user_dtype,
    extended,
    float0,
    issubdtype,
    prng_key,
    short_name,
)
from tests.helpers.errors import message as error_of

ALL = [np.dtype(t) for types in dtypes.SCALAR_TYPES.values() for t in types]
KEY = KeyDType("threefry2x32", (2,))
names = pytest.mark.parametrize("dtype", ALL, ids=str)
both = pytest.mark.parametrize("x64", [False, True], ids=["x32", "x64"])


# ------------------------------------------------------------------------------- canonicalize


def test_every_dtype_of_jax_is_there():
    one_bit = {np.dtype(ml_dtypes.int1), np.dtype(ml_dtypes.uint1)}
    assert {*ALL} == {*jax_dtypes._jax_types} - one_bit


@both
@names
def test_canonicalize_agrees_with_jax_in_every_spelling(dtype, x64):
    with enable_x64(x64), jax.enable_x64(x64):
        expected = jax_dtypes.canonicalize_dtype(dtype)
        for spelling in (dtype, dtype.type, dtype.name, np.dtype(dtype, metadata={"a": 1})):
            found = canonicalize(spelling)
            assert found == expected
            assert found is canonicalize(expected)  # one object per dtype
            assert found.metadata is None


@both
@pytest.mark.parametrize("python_type", [bool, int, float, complex, None], ids=str)
def test_canonicalize_agrees_with_jax_on_python_types(python_type, x64):
    with enable_x64(x64), jax.enable_x64(x64):
        assert canonicalize(python_type) == jax_dtypes.jax_dtype(python_type)
        assert check_user_dtype(python_type, "zeros") == jax_dtypes.jax_dtype(python_type)


def test_canonicalize_follows_the_flag_within_its_block():
    assert canonicalize("float64") == np.float32
    with enable_x64(True):
        assert canonicalize("float64") == np.float64
        with enable_x64(False):
            assert canonicalize("float64") == np.float32
    assert canonicalize("float64") == np.float32


def test_canonicalize_takes_classes_and_objects_with_a_dtype():
    class Like:
        dtype = np.dtype("int16")

    assert canonicalize(Like) == np.int16
    assert canonicalize(Like()) == np.int16
    assert canonicalize(jax.numpy.bfloat16) == dtypes.bfloat16
    assert canonicalize(float0) is float0
    assert canonicalize(KEY) is KEY
    assert check_user_dtype(KEY, "zeros") is KEY


def test_canonicalize_does_not_keep_foreign_objects_alive():
    class Like:
        dtype = np.dtype("int16")

    like = Like()
    canonicalize(like)
    assert like not in dtypes._when_narrow


HOLDS = "Arrays hold booleans, integers, floating-point or complex numbers"


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (
            "S3",
            f"dtype |S3 is not supported: it holds bytes. {HOLDS}. Encode them as integers, for "
            "example with numpy.frombuffer(x, 'uint8').",
        ),
        (
            np.dtype("<U3"),
            f"dtype <U3 is not supported: it holds text. {HOLDS}. Encode it as integers first.",
        ),
        (
            str,
            f"<class 'str'> as a dtype is not supported: it holds text. {HOLDS}. Encode it as "
            "integers first.",
        ),
        (
            np.dtypes.StringDType(),
            f"dtype StringDType() is not supported: it holds text. {HOLDS}. Encode it as integers "
            "first.",
        ),
        (
            "datetime64[ns]",
            f"dtype datetime64[ns] is not supported: it holds dates. {HOLDS}. Convert them to "
            "integers with x.astype('int64').",
        ),
        (
            "m8[s]",
            f"dtype timedelta64[s] is not supported: it holds time differences. {HOLDS}. Convert "
            "them to integers with x.astype('int64').",
        ),
        (
            list,
            f"<class 'list'> as a dtype is not supported: it holds Python objects. {HOLDS}. If "
            "it comes from nested lists, make all rows the same length.",
        ),
        (
            [("a", "f4")],
            f"[('a', 'f4')] as a dtype is not supported: it holds structures. {HOLDS}. Pass each "
            "field as a separate array.",
        ),
        (
            "V4",
            f"dtype |V4 is not supported: it holds structures. {HOLDS}. Pass each field as "
            "a separate array.",
        ),
        (
            ">i4",
            "dtype >i4 is not supported: its bytes are not in this machine's order. Convert it "
            "with x.astype('int32').",
        ),
        (
            np.dtype(np.longdouble),
            f"dtype {np.dtype(np.longdouble)} is not supported. {HOLDS} of at most 64 bits. Try "
            "'float64'.",
        ),
        (
            np.clongdouble,
            "<class 'numpy.clongdouble'> as a dtype is not supported. "
            f"{HOLDS} of at most 64 bits. Try 'complex128'.",
        ),
        (
            np.ones(3),
            "expected a dtype, got a value of type ndarray. To use the dtype it has, pass x.dtype.",
        ),
        (
            "flaot32",
            "'flaot32' is not a dtype. Expected a name such as 'float32', a scalar type such as "
            "numpy.int32, a numpy.dtype, bool, int, float or complex, or None for the default "
            "float. Did you mean 'float32'?",
        ),
        (
            7,
            "7 is not a dtype. Expected a name such as 'float32', a scalar type such as "
            "numpy.int32, a numpy.dtype, bool, int, float or complex, or None for the default "
            "float.",
        ),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_is_no_dtype_is_refused(dtype, message):
    assert error_of(TypeError, canonicalize, dtype) == message
    assert error_of(TypeError, check_user_dtype, dtype, "zeros") == f"zeros: {message}"


@given(st.text(max_size=8))
@example(",")  # a syntax error in NumPy
def test_any_text_is_a_dtype_or_a_type_error(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from NumPy, for deprecated spellings
        try:
            found = canonicalize(text)
        except TypeError:
            return
    assert found in ALL


def test_an_explicit_wide_dtype_warns_when_it_is_narrowed():
    message = (
        "Explicitly requested dtype float64 in zeros is not available while enable_x64 is off; "
        "the result is float32. To keep 64 bits, call "
        "shardwise.config.update('enable_x64', True) or set SHARDWISE_ENABLE_X64=1 first. "
        "To accept 32 bits without this warning, request float32. The option explicit_x64_dtypes "
        "decides this: 'error' makes this an error, 'allow' keeps 64 bits."
    )

    def zeros(dtype):
        return check_user_dtype(dtype, "zeros")

    for dtype in ("float64", np.float64, np.dtype("float64"), "d"):
        with pytest.warns(UserWarning) as record:
            assert zeros(dtype) == np.float32
        assert [str(w.message) for w in record] == [message]
        assert record[0].filename == __file__
    with pytest.warns(UserWarning, match="^Explicitly requested dtype uint64 is not available"):
        assert check_user_dtype("uint64") == np.uint32
    with enable_x64(True):
        assert zeros("float64") == np.float64  # without a warning


@both
@names
def test_check_user_dtype_warns_where_jax_does(dtype, x64):
    with enable_x64(x64), jax.enable_x64(x64):
        with warnings.catch_warnings(record=True) as theirs:
            warnings.simplefilter("always")
            expected = jax_dtypes.check_and_canonicalize_user_dtype(dtype, "f")
        with warnings.catch_warnings(record=True) as ours:
            warnings.simplefilter("always")
            assert check_user_dtype(dtype, "f") == expected
        assert len(ours) == len(theirs)


# -------------------------------------------------------------------------------------- kinds

CLASSES = [
    np.generic,
    np.number,
    np.integer,
    np.signedinteger,
    np.unsignedinteger,
    np.inexact,
    np.floating,
    np.complexfloating,
    np.bool_,
    np.void,
    np.character,
]
TO_JAX = {extended: jax_dtypes.extended, prng_key: jax_dtypes.prng_key}


@names
def test_issubdtype_agrees_with_jax(dtype):
    for b in [*CLASSES, extended, prng_key, *ALL, *(d.type for d in ALL), float, "int8"]:
        expected = jax_dtypes.issubdtype(dtype, TO_JAX.get(b, b))
        for spelling in (dtype, dtype.type, dtype.name):
            assert issubdtype(spelling, b) is expected, b


def test_issubdtype_of_classes_extended_dtypes_and_float0():
    theirs = jax.random.key(0).dtype
    for b in [*CLASSES, extended, prng_key, np.float32]:
        assert issubdtype(KEY, b) is jax_dtypes.issubdtype(theirs, TO_JAX.get(b, b)), b
        assert issubdtype(float0, b) is jax_dtypes.issubdtype(float0, TO_JAX.get(b, b)), b
    assert issubdtype(prng_key, extended)
    assert issubdtype(np.floating, np.inexact)
    assert issubdtype(KEY, KEY)
    assert not issubdtype(KEY, KeyDType("rbg", (4,)))
    assert not issubdtype(np.float32, KEY)


@names
def test_predicates_agree_with_the_class_hierarchy(dtype):
    classes = {
        dtypes.is_bool: np.bool_,
        dtypes.is_signed: np.signedinteger,
        dtypes.is_unsigned: np.unsignedinteger,
        dtypes.is_integer: np.integer,
        dtypes.is_float: np.floating,
        dtypes.is_complex: np.complexfloating,
        dtypes.is_inexact: np.inexact,
        dtypes.is_numeric: np.number,
    }
    for predicate, scalar_class in classes.items():
        for spelling in (dtype, dtype.type, dtype.name):
            assert predicate(spelling) is jax_dtypes.issubdtype(dtype, scalar_class), predicate
        assert predicate(KEY) is predicate(float0) is predicate("S3") is False


def test_kinds():
    assert [dtypes.kind_of(d) for d in ("int4", "uint8", float, "?", "c8")] == [
        "int",
        "uint",
        "float",
        "bool",
        "complex",
    ]
    assert [dtypes.kind_of(d) for d in (KEY, float0, "S1")] == ["extended", "float0", "other"]


# ------------------------------------------------------------------------------ related dtypes


@names
def test_related_dtypes_agree_with_jax(dtype):
    if dtype.name not in ("int2", "uint2"):  # jax leaves these integers
        assert dtypes.to_inexact(dtype) == jax_dtypes.to_inexact_dtype(dtype)
        assert dtypes.complex_dtype(dtype) == jax_dtypes.to_complex_dtype(dtype)
    if dtypes.is_complex(dtype):
        assert dtypes.real_dtype(dtype) == jax_dtypes.to_floating_dtype(dtype)
    else:
        assert dtypes.real_dtype(dtype) == dtype


@both
def test_to_inexact_is_the_dtype_of_a_sine(x64):
    with jax.enable_x64(x64):
        for name in ("bool", "int8", "uint32", "int64", "float16", "complex64"):
            if x64 or name != "int64":
                sine = jax.eval_shape(jax.numpy.sin, jax.ShapeDtypeStruct((), name))
                assert dtypes.to_inexact(name) == sine.dtype


def test_related_dtypes_of_two_bit_integers_and_of_what_is_no_number():
    assert dtypes.to_inexact("int2") == dtypes.to_inexact("uint2") == np.float32
    assert dtypes.complex_dtype("int2") == np.complex64
    for dtype in (KEY, float0):
        assert dtypes.to_inexact(dtype) is dtype
        assert dtypes.real_dtype(dtype) is dtype
    message = "key<fry> has no complex counterpart: it is not a number."
    assert error_of(TypeError, dtypes.complex_dtype, KEY) == message


# --------------------------------------------------------------------------------------- facts


@names
def test_short_names_agree_with_jax(dtype):
    assert short_name(dtype) == short_name(dtype.name) == jax_dtypes.short_dtype_name(dtype)


def test_short_names_of_the_others():
    assert (short_name(float0), short_name(KEY)) == ("float0", "key<fry>")
    assert (short_name("S3"), short_name(">i4")) == ("|S3", ">i4")


@names
def test_finfo_and_iinfo_agree_with_jax(dtype):
    if dtypes.is_inexact(dtype):
        fields = ("bits", "eps", "max", "min", "smallest_normal", "dtype")
        ours, theirs = dtypes.finfo(dtype), jax_dtypes.finfo(dtype)
    elif dtypes.is_integer(dtype):
        fields = ("bits", "max", "min", "dtype")
        ours, theirs = dtypes.iinfo(dtype), jax_dtypes.iinfo(dtype)
    else:
        return
    for field in fields:
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))


def test_finfo_and_iinfo_of_values_and_of_the_wrong_kind():
    assert dtypes.finfo(np.ones(2, "float16")).bits == 16
    assert dtypes.finfo(np.float32(1)).bits == 32
    assert dtypes.finfo(dtypes.bfloat16).bits == 16
    assert dtypes.iinfo("int4").max == 7
    assert error_of(ValueError, dtypes.finfo, "int32") == (
        "finfo describes floating-point and complex dtypes, got i32. For integers use iinfo."
    )
    assert error_of(ValueError, dtypes.iinfo, KEY) == (
        "iinfo describes integer dtypes, got key<fry>. For floats use finfo."
    )


@names
def test_limits_are_the_identities_of_max_and_min(dtype):
    low, high = dtypes.min_value(dtype), dtypes.max_value(dtype)
    assert np.asarray(low).dtype == np.asarray(high).dtype == dtype
    if dtypes.is_complex(dtype):
        assert (low.real, low.imag, high.real, high.imag) == (-np.inf, -np.inf, np.inf, np.inf)
        return
    every = [0, 1] if dtypes.is_bool(dtype) else [low, high]
    if dtype.itemsize == 1 and dtypes.is_float(dtype):
        every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        every = every[~np.isnan(every)]
    assert float(low) == float(min(every))
    assert float(high) == float(max(every))
    assert dtypes.has_infinity(dtype) == bool(np.isinf(float(high)))
    if dtypes.is_integer(dtype):
        assert (int(low), int(high)) == (dtypes.iinfo(dtype).min, dtypes.iinfo(dtype).max)


def test_what_has_no_order_has_no_limits():
    message = "key<fry> has no smallest or largest value: it has no order."
    assert error_of(TypeError, dtypes.min_value, KEY) == message
    assert error_of(TypeError, dtypes.max_value, KEY) == message


# ------------------------------------------------------------------------------------ extended


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_key_dtypes_print_and_measure_as_in_jax(impl):
    theirs = jax.random.key(0, impl=impl).dtype
    ours = KeyDType(impl, theirs._impl.key_shape)
    assert (str(ours), repr(ours), ours.name) == (str(theirs), repr(theirs), theirs.name)
    assert ours.itemsize == theirs.itemsize
    assert ours.short_name == short_name(ours) == str(ours)


def test_key_dtypes_are_interned_and_frozen():
    assert KeyDType("threefry2x32", (2,)) is KEY
    assert KeyDType("threefry2x32", [2]) is KEY and KEY.physical_shape == (2,)
    assert KEY.physical_dtype == np.uint32
    assert copy.deepcopy(KEY) is copy.copy(KEY) is pickle.loads(pickle.dumps(KEY)) is KEY
    other = KeyDType("mine", (3,))
    assert other != KEY and str(other) == "key<mine>" and len({KEY, other}) == 2
    with pytest.raises(AttributeError):
        KEY.impl_name = "rbg"
    assert np.dtype("float32") != KEY and np.float32 != KEY


def test_extended_dtypes_compare_by_fields():
    pair = ExtendedDType("pair", (2,), np.dtype("float32"))
    same = ExtendedDType("pair", (2,), np.dtype("float32"))
    assert pair == same and hash(pair) == hash(same) and pair.itemsize == 8
    assert pair != ExtendedDType("pair", (3,), np.dtype("float32")) and pair != KEY
    assert issubdtype(pair, extended) and not issubdtype(pair, prng_key)
    assert issubdtype(pair, same)
    assert canonicalize(pair) is pair and short_name(pair) == repr(pair) == "pair"


@pytest.mark.parametrize(
    "name",
    [
        "bool",
        "int4",
        "uint8",
        "int64",
        "bfloat16",
        "float64",
        "complex64",
        "complex128",
        "float8_e4m3fn",
    ],
)
def test_bits_of_dtypes_are_those_of_jax(name):
    assert dtypes.itemsize_bits(name) == jax.dtypes.itemsize_bits(jax.numpy.dtype(name))
    assert dtypes.canonicalize_dtype(name) == jax.dtypes.canonicalize_dtype(name)


def test_what_has_no_bits_and_is_no_dtype_of_numbers():
    key = KeyDType("fry", (2,))
    assert dtypes.canonicalize_dtype(key, allow_extended_dtype=True) is key
    assert error_of(ValueError, dtypes.canonicalize_dtype, key) == (
        f"canonicalize_dtype: {key} is not a numeric dtype. It is allowed with "
        "allow_extended_dtype=True."
    )
    assert error_of(ValueError, dtypes.itemsize_bits, None) == (
        "itemsize_bits takes a numeric dtype; got None."
    )
