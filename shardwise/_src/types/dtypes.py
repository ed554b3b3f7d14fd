"""Dtypes: the supported ones, how a request resolves to one, and their properties.

A dtype is a `numpy.dtype` of the types named below (from NumPy and ml_dtypes), `float0`, or an
`ExtendedDType`. `canonicalize` is the entry point: it takes anything that names a dtype, returns
the one object that represents it, and narrows 64 bits to 32 unless `enable_x64` is on. Inside the
library dtypes are compared by identity.

    canonicalize("float64")     # dtype('float32')
    canonicalize(None)          # dtype('float32'): the default is a float
    short_name(bfloat16)        # 'bf16'

`promotion` defines how two dtypes combine. Values are not converted here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.config import enable_x64, explicit_x64_dtypes
from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.warn import warn
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.types.extended import ExtendedDType as ExtendedDType
from shardwise._src.types.extended import KeyDType as KeyDType
from shardwise._src.types.extended import extended as extended
from shardwise._src.types.extended import prng_key as prng_key

DType = np.dtype[Any] | ExtendedDType

# ---------------------------------------------------------------------------------- the types
# ml_dtypes also has one-bit integers. They are left out: XLA's one-bit integer is a boolean.

bool_ = np.bool_
int2, int4 = ml_dtypes.int2, ml_dtypes.int4
int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
uint2, uint4 = ml_dtypes.uint2, ml_dtypes.uint4
uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
float4_e2m1fn = ml_dtypes.float4_e2m1fn
float6_e2m3fn = ml_dtypes.float6_e2m3fn
float6_e3m2fn = ml_dtypes.float6_e3m2fn
float8_e3m4 = ml_dtypes.float8_e3m4
float8_e4m3 = ml_dtypes.float8_e4m3
float8_e4m3b11fnuz = ml_dtypes.float8_e4m3b11fnuz
float8_e4m3fn = ml_dtypes.float8_e4m3fn
float8_e4m3fnuz = ml_dtypes.float8_e4m3fnuz
float8_e5m2 = ml_dtypes.float8_e5m2
float8_e5m2fnuz = ml_dtypes.float8_e5m2fnuz
float8_e8m0fnu = ml_dtypes.float8_e8m0fnu
bfloat16 = ml_dtypes.bfloat16
float16, float32, float64 = np.float16, np.float32, np.float64
complex64, complex128 = np.complex64, np.complex128

# Tangents of integers and booleans: a value without data.
float0 = np.dtype([("float0", np.void, 0)])

SCALAR_TYPES: dict[str, tuple[type[Any], ...]] = {
    "bool": (bool_,),
    "int": (int2, int4, int8, int16, int32, int64),
    "uint": (uint2, uint4, uint8, uint16, uint32, uint64),
    "float": (
        float4_e2m1fn,
        float6_e2m3fn,
        float6_e3m2fn,
        float8_e3m4,
        float8_e4m3,
        float8_e4m3b11fnuz,
        float8_e4m3fn,
        float8_e4m3fnuz,
        float8_e5m2,
        float8_e5m2fnuz,
        float8_e8m0fnu,
        bfloat16,
        float16,
        float32,
        float64,
    ),
    "complex": (complex64, complex128),
}
# By value, so that a dtype that only equals one of these (other name, metadata) is replaced.
_SUPPORTED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(t): np.dtype(t) for types in SCALAR_TYPES.values() for t in types
} | {float0: float0}

_NARROWED: dict[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        (int64, int32),
        (uint64, uint32),
        (float64, float32),
        (complex128, complex64),
    )
}

# ------------------------------------------------------------------------------ canonicalize

# Bounded by the number of names of supported dtypes.
_when_narrow: dict[Any, DType] = {}
_when_wide: dict[Any, DType] = {}


def canonicalize(dtype: Any) -> DType:
    """Returns the dtype that `dtype` names, with 64 bits narrowed to 32 unless `enable_x64` is on.

    dtype: anything `numpy.dtype` takes; bool, int, float, complex for the default of their kind;
           None for the default float; an extended dtype, which is returned unchanged.
    Raises TypeError if `dtype` is not a dtype, or is one of strings, dates, objects or structures.
    """
    table = _when_wide if enable_x64.value else _when_narrow
    try:
        found = table.get(dtype)
    except TypeError:  # unhashable
        found = None
    return _resolve(dtype, table) if found is None else found


def too_large(value: int, dtype: Any) -> OverflowError:
    """The error for a Python integer that does not fit the dtype of the computation."""
    wider = "" if enable_x64.value else ", or 64-bit integers, which the flag enable_x64 turns on"
    return OverflowError(
        f"the integer {value} does not fit into {np.dtype(dtype).name}. Use a float{wider}."
    )


def as_named(dtype: Any) -> DType:
    """The dtype that `dtype` names. Only the defaults, such as `float`, are narrowed."""
    if dtype is None or dtype is int or dtype is float or dtype is complex:
        return canonicalize(dtype)
    return dtype if isinstance(dtype, ExtendedDType) else exact_dtype(dtype)


def check_user_dtype(dtype: Any, fun_name: str = "") -> DType:
    """`canonicalize` for a dtype that a caller of `fun_name` requested.

    If an explicit 64-bit dtype has to be narrowed, it warns, raises a ValueError, or returns the
    dtype unchanged, by the flag `explicit_x64_dtypes`. int, float, complex and None are not
    explicit.
    """
    if dtype is None or dtype is int or dtype is float or dtype is complex:
        return canonicalize(dtype)
    if isinstance(dtype, ExtendedDType):
        return dtype
    try:
        exact = exact_dtype(dtype, f"{fun_name}: " if fun_name else "")
    except TypeError as error:
        pass_on(error)
        raise
    found = canonicalize(exact)
    if found is exact:
        return exact
    return exact if not_narrowed(partial(_narrowed_message, exact, found, fun_name)) else found


def not_narrowed(message: Callable[[bool], str]) -> bool:
    """Whether a 64-bit dtype is kept while `enable_x64` is off; warns or raises if it is not.

    message: given whether it is an error.
    """
    mode = explicit_x64_dtypes.value
    if mode == "error":
        raise ValueError(message(True))
    if mode == "warn":
        warn(message(False))
    return mode == "allow"


# Classes of constants in programs: unlike NumPy's scalars, they keep their 64 bits under any flag.
_WIDE_CONSTANTS: dict[Any, Any] = {
    wide: type(wide.name, (wide.type,), {"weak_type": False}) for wide in _NARROWED
}


def constant_of(value: Any, dtype: Any) -> Any:
    """A scalar constant of exactly this dtype."""
    scalar = np.asarray(value).astype(dtype)[()]
    wide = _WIDE_CONSTANTS.get(dtype)
    return scalar if wide is None else wide(scalar)


# The dtypes that names resolve to. Scalar types are here from the start: their wrappers in the
# NumPy namespace are equal to them.
_exact: dict[Any, np.dtype[Any]] = {d.type: d for d in _SUPPORTED.values() if d.type is not np.void}


def exact_dtype(dtype: Any, prefix: str = "") -> np.dtype[Any]:
    """The NumPy dtype that `dtype` names, not narrowed. Errors begin with `prefix`."""
    try:
        return _exact[dtype]
    except (KeyError, TypeError):
        pass
    if not names_dtype(dtype) and hasattr(dtype, "shape"):
        raise TypeError(f"{prefix}{_array_message(dtype)}")
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # NumPy parses strings with a comma
        raise TypeError(f"{prefix}{_unknown_message(dtype)}") from None
    exact = _SUPPORTED.get(found)
    if exact is None:
        raise TypeError(f"{prefix}{_unsupported_message(dtype, found)}")
    if isinstance(dtype, np.dtype | type | str):
        _exact[dtype] = exact
    return exact


def names_dtype(x: Any) -> bool:
    """Whether `x` is a dtype or the usual name of one, rather than a value that has one."""
    return x is None or isinstance(x, (np.dtype, type, str, ExtendedDType))


def _resolve(dtype: Any, table: dict[Any, DType]) -> DType:
    if isinstance(dtype, ExtendedDType):
        return dtype
    exact = exact_dtype(dtype)
    found = exact if table is _when_wide else _NARROWED.get(exact, exact)
    if names_dtype(dtype):  # any other key could keep data alive
        table[dtype] = found
    return found


def _narrowed_message(exact: DType, found: DType, fun_name: str, is_error: bool) -> str:
    where = f" in {fun_name}" if fun_name else ""
    result = "" if is_error else f"; the result is {found}"
    rest = f"request {found}" if is_error else f"without this warning, request {found}"
    return (
        f"Explicitly requested dtype {exact}{where} is not available while enable_x64 is off"
        f"{result}. To keep 64 bits, call "
        f"shardwise.config.update('enable_x64', True) or set SHARDWISE_ENABLE_X64=1 first. "
        f"To accept 32 bits{',' if is_error else ''} {rest}. {other_modes(is_error)}"
    )


def other_modes(is_error: bool) -> str:
    """What to do in place of a warning or an error about a narrowed dtype."""
    other = "'warn' narrows it with a warning" if is_error else "'error' makes this an error"
    return f"The option explicit_x64_dtypes decides this: {other}, 'allow' keeps 64 bits."


def _array_message(value: Any) -> str:
    kind = type(value).__name__
    return f"expected a dtype, got a value of type {kind}. To use the dtype it has, pass x.dtype."


def _unknown_message(dtype: Any) -> str:
    hint = ""
    if isinstance(dtype, str):
        names = [d.name for d in _SUPPORTED if d is not float0]
        hint = did_you_mean(dtype, names)
    return (
        f"{dtype!r} is not a dtype. Expected a name such as 'float32', a scalar type such as "
        f"numpy.int32, a numpy.dtype, bool, int, float or complex, or None for the default "
        f"float.{hint}"
    )


# By kind of NumPy dtype: what it contains, and what to do instead.
_UNSUPPORTED = {
    "S": ("bytes", "Encode them as integers, for example with numpy.frombuffer(x, 'uint8')."),
    "U": ("text", "Encode it as integers first."),
    "T": ("text", "Encode it as integers first."),
    "M": ("dates", "Convert them to integers with x.astype('int64')."),
    "m": ("time differences", "Convert them to integers with x.astype('int64')."),
    "O": ("Python objects", "If it comes from nested lists, make all rows the same length."),
    "V": ("structures", "Pass each field as a separate array."),
}


def _unsupported_message(dtype: Any, found: np.dtype[Any]) -> str:
    given = f"dtype {found}" if isinstance(dtype, (str, np.dtype)) else f"{dtype!r} as a dtype"
    expected = "Arrays hold booleans, integers, floating-point or complex numbers"
    if not found.isnative and (native := _SUPPORTED.get(found.newbyteorder("="))) is not None:
        reason = "its bytes are not in this machine's order"
        return f"{given} is not supported: {reason}. Convert it with x.astype({native.name!r})."
    if found.kind not in _UNSUPPORTED:
        near = {"f": "float64", "c": "complex128"}.get(found.kind, "int64")
        return f"{given} is not supported. {expected} of at most 64 bits. Try {near!r}."
    holds, advice = _UNSUPPORTED[found.kind]
    return f"{given} is not supported: it holds {holds}. {expected}. {advice}"


# ------------------------------------------------------------------------------------- kinds

_KINDS: dict[Any, str] = {
    form: kind
    for kind, types in SCALAR_TYPES.items()
    for scalar_type in types
    for form in (scalar_type, np.dtype(scalar_type))
} | {float0: "float0"}


def kind_of(dtype: Any) -> str:
    """One of bool, int, uint, float, complex, float0, extended; "other" for foreign dtypes."""
    try:
        return _KINDS[dtype]
    except (KeyError, TypeError):
        return (
            "extended" if isinstance(dtype, ExtendedDType) else _KINDS.get(np.dtype(dtype), "other")
        )


def is_bool(dtype: Any) -> bool:
    return kind_of(dtype) == "bool"


def is_signed(dtype: Any) -> bool:
    """Whether it is a signed integer."""
    return kind_of(dtype) == "int"


def is_unsigned(dtype: Any) -> bool:
    """Whether it is an unsigned integer."""
    return kind_of(dtype) == "uint"


def is_integer(dtype: Any) -> bool:
    """Whether it is a signed or unsigned integer; booleans are not."""
    return kind_of(dtype) in ("int", "uint")


def is_float(dtype: Any) -> bool:
    """Whether it is real floating-point, of any width."""
    return kind_of(dtype) == "float"


def is_complex(dtype: Any) -> bool:
    return kind_of(dtype) == "complex"


def is_inexact(dtype: Any) -> bool:
    """Whether it is floating-point or complex."""
    return kind_of(dtype) in ("float", "complex")


def is_numeric(dtype: Any) -> bool:
    """Whether it is an integer, floating-point or complex dtype; booleans are not."""
    return kind_of(dtype) in ("int", "uint", "float", "complex")


# Parents of ml_dtypes' scalar types in NumPy's hierarchy, to which they do not belong.
_PARENTS = {"int": np.signedinteger, "uint": np.unsignedinteger, "float": np.floating}


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether dtype `arg1` is, or belongs to the class, `arg2`; see `numpy.issubdtype`.

    The types of ml_dtypes count as numpy.floating or numpy.integer. Extended dtypes belong to
    `extended`, those of keys to `prng_key`.
    """
    try:
        return _is_subdtype(arg1, arg2)
    except TypeError:  # an unhashable dtype
        pass
    return _is_subdtype.__wrapped__(arg1, arg2)


@cached(4096)
def _is_subdtype(a: Any, b: Any) -> bool:
    if isinstance(b, ExtendedDType):
        return a is b or (isinstance(a, ExtendedDType) and a == b)
    return _is_subclass(_scalar_class(a), _scalar_class(b))


def _scalar_class(dtype: Any) -> type[Any]:
    if isinstance(dtype, ExtendedDType):
        return dtype.type
    return dtype if _is_scalar_class(dtype) else np.dtype(dtype).type


def _is_scalar_class(x: Any) -> bool:
    return isinstance(x, type) and issubclass(x, np.generic)


def _is_subclass(a: type[Any], b: type[Any]) -> bool:
    if issubclass(a, b):
        return True
    if a.__module__.partition(".")[0] != "ml_dtypes":
        return False
    return issubclass(_PARENTS.get(_KINDS.get(a, "other"), a), b)


# ---------------------------------------------------------------------------- related dtypes


def to_inexact(dtype: Any) -> DType:
    """The dtype in which a function such as `sin` computes: itself if it is inexact, else a float.

    Booleans and integers of up to 32 bits become float32 (even with x64 on), 64-bit integers
    float64.
    """
    found = dtype if isinstance(dtype, ExtendedDType) else exact_dtype(dtype)
    if kind_of(found) not in ("bool", "int", "uint"):
        return found
    return np.dtype(float64 if found.itemsize == 8 else float32)


def real_dtype(dtype: Any) -> DType:
    """The dtype of the real and imaginary parts; for a dtype that is not complex, the dtype."""
    found = dtype if isinstance(dtype, ExtendedDType) else exact_dtype(dtype)
    if kind_of(found) != "complex":
        return found
    return np.dtype(float64 if found.itemsize == 16 else float32)


def complex_dtype(dtype: Any) -> np.dtype[Any]:
    """complex128 for 64-bit dtypes and complex128, complex64 for other dtypes and booleans."""
    inexact = to_inexact(dtype)
    if not is_inexact(inexact):
        raise TypeError(f"{short_name(inexact)} has no complex counterpart: it is not a number.")
    return np.dtype(complex128 if real_dtype(inexact) == float64 else complex64)


# ------------------------------------------------------------------------------------- facts


@cached(4096)
def short_name(dtype: Any) -> str:
    """The short name for printing: f32, bf16, i32, u8, bool, c64, f8_e4m3fn, float0, key<fry>."""
    if isinstance(dtype, ExtendedDType):
        return dtype.short_name
    found = np.dtype(dtype)
    if found not in _SUPPORTED:
        return str(found)
    if found == float0:
        return "float0"
    name = found.name
    for word, letter in (("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        name = name.replace(word, letter)
    return name


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point or complex dtype (or of a value's dtype); see `numpy.finfo`."""
    found = _dtype_of(dtype)
    if not is_inexact(found):
        given = short_name(found)
        raise ValueError(
            f"finfo describes floating-point and complex dtypes, got {given}. "
            "For integers use iinfo."
        )
    return _info(ml_dtypes.finfo, found)


def iinfo(int_type: Any) -> Any:
    """Limits of an integer dtype (or of a value's dtype); see `numpy.iinfo`."""
    found = _dtype_of(int_type)
    if not is_integer(found):
        given = short_name(found)
        raise ValueError(f"iinfo describes integer dtypes, got {given}. For floats use finfo.")
    return _info(ml_dtypes.iinfo, found)


@cache
def _info(make: Any, dtype: DType) -> Any:
    return make(dtype)


def _dtype_of(x: Any) -> DType:
    found = x if names_dtype(x) else getattr(x, "dtype", x)
    return found if isinstance(found, ExtendedDType) else np.dtype(found)


@cache
def has_infinity(dtype: Any) -> bool:
    """Whether the dtype can represent ±inf; several 8-bit and all sub-byte floats cannot."""
    if not is_inexact(dtype):
        return False
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.array(-np.inf).astype(dtype)))


def min_value(dtype: Any) -> Any:
    """The identity of max: no value of the dtype is smaller. A scalar of that dtype.

    -inf if the dtype has it, else the smallest number; False; for complex, whose order is
    lexicographic, -inf in both parts.
    """
    return _limits(dtype)[0]


def max_value(dtype: Any) -> Any:
    """The identity of min: no value of the dtype is larger; see `min_value`."""
    return _limits(dtype)[1]


@cache
def _limits(dtype: Any) -> tuple[Any, Any]:
    kind = kind_of(dtype)
    if kind not in SCALAR_TYPES:
        raise TypeError(f"{short_name(dtype)} has no smallest or largest value: it has no order.")
    scalar = np.dtype(dtype).type
    if kind == "bool":
        return scalar(False), scalar(True)
    if kind == "complex":
        return scalar(complex(-np.inf, -np.inf)), scalar(complex(np.inf, np.inf))
    if has_infinity(dtype):
        return scalar(-np.inf), scalar(np.inf)
    info = iinfo(dtype) if kind in ("int", "uint") else finfo(dtype)
    return scalar(info.min), scalar(info.max)


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> DType:
    """The dtype that `dtype` names, with 64 bits narrowed to 32 unless `enable_x64` is on.

    Raises:
      TypeError: if `dtype` is not a dtype.
      ValueError: for an extended dtype, such as a key dtype, unless `allow_extended_dtype`.
    """
    if isinstance(dtype, ExtendedDType) and not allow_extended_dtype:
        raise ValueError(
            f"canonicalize_dtype: {dtype} is not a numeric dtype. It is allowed with "
            "allow_extended_dtype=True."
        )
    return canonicalize(dtype)


def itemsize_bits(dtype: Any) -> int:
    """Bits per element of a numeric dtype: 4 for int4, 8 for a boolean.

    Raises:
      ValueError: for a dtype that is not numeric.
    """
    found = None if dtype is None else canonicalize_dtype(dtype, allow_extended_dtype=True)
    if found is None or not (is_bool(found) or is_numeric(found)):
        raise ValueError(f"itemsize_bits takes a numeric dtype; got {dtype!r}.")
    exact = exact_dtype(dtype)
    if is_integer(exact):
        return iinfo(exact).bits
    if is_complex(exact):
        return exact.itemsize * 8
    return 8 if is_bool(exact) else finfo(exact).bits
