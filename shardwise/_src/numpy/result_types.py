"""Scalar types, dtype queries and constants of the NumPy namespace.

`float32` and the other scalar types name a dtype and convert when called: `float32(x)` is
`asarray(x, dtype=float32)`, for arrays and traced values too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.shapes import axes_of
from shardwise._src.types import dtypes as _dtypes
from shardwise._src.types.annotations import ArrayLike, DTypeLike
from shardwise._src.types.dtypes import finfo as finfo
from shardwise._src.types.dtypes import iinfo as iinfo
from shardwise._src.types.dtypes import issubdtype as issubdtype
from shardwise._src.types.promotion import promote_types as promote_types
from shardwise._src.types.promotion import result_type as result_type


@public("shardwise.numpy")
class ScalarType:
    """The name of a dtype, which also converts when called: `float32(x)`.

    `isinstance(x, float32)` is true of NumPy's scalars of that type; arrays have their own class.
    """

    __slots__ = ("dtype", "type")

    def __init__(self, kind: Any):
        self.dtype = np.dtype(kind)
        self.type = self.dtype.type

    def __call__(self, x: Any = 0) -> Any:
        return asarray(x, dtype=self.dtype)

    @property
    def __name__(self) -> str:
        return self.dtype.name

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.type or other == self.dtype

    def __hash__(self) -> int:
        return hash(self.type)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self.type)

    def __repr__(self) -> str:
        return f"<scalar type {self.dtype.name}>"

    def __reduce__(self) -> str:
        return next(name for name, x in globals().items() if x is self)


bool_ = ScalarType(np.bool_)
int4, int8, int16, int32, int64 = map(
    ScalarType, (_dtypes.int4, np.int8, np.int16, np.int32, np.int64)
)
uint4, uint8, uint16, uint32, uint64 = map(
    ScalarType, (_dtypes.uint4, np.uint8, np.uint16, np.uint32, np.uint64)
)
int2, uint2 = map(ScalarType, (_dtypes.int2, _dtypes.uint2))
bfloat16, float16, float32, float64 = map(
    ScalarType, (_dtypes.bfloat16, np.float16, np.float32, np.float64)
)
complex64, complex128 = map(ScalarType, (np.complex64, np.complex128))
float4_e2m1fn = ScalarType(_dtypes.float4_e2m1fn)
float6_e2m3fn = ScalarType(_dtypes.float6_e2m3fn)
float6_e3m2fn = ScalarType(_dtypes.float6_e3m2fn)
float8_e3m4 = ScalarType(_dtypes.float8_e3m4)
float8_e4m3 = ScalarType(_dtypes.float8_e4m3)
float8_e4m3b11fnuz = ScalarType(_dtypes.float8_e4m3b11fnuz)
float8_e4m3fn = ScalarType(_dtypes.float8_e4m3fn)
float8_e4m3fnuz = ScalarType(_dtypes.float8_e4m3fnuz)
float8_e5m2 = ScalarType(_dtypes.float8_e5m2)
float8_e5m2fnuz = ScalarType(_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = ScalarType(_dtypes.float8_e8m0fnu)


@public("shardwise.numpy")
class DefaultType(ScalarType):
    """The name of the default dtype of a kind: 64-bit under `enable_x64`, else 32-bit."""

    __slots__ = ("kind",)

    def __init__(self, kind: Any):
        self.kind = kind

    def __getattribute__(self, name: str) -> Any:
        if name == "dtype":
            return _dtypes.canonicalize(self.kind)
        return self.dtype.type if name == "type" else object.__getattribute__(self, name)


int_, uint = DefaultType(int), DefaultType(np.uint64)
float_, complex_ = DefaultType(float), DefaultType(complex)
single, double = float32, float64
csingle, cdouble = complex64, complex128

# Classes of dtypes, for `issubdtype`.
generic, number, inexact = np.generic, np.number, np.inexact
floating, complexfloating = np.floating, np.complexfloating
integer, signedinteger, unsignedinteger = np.integer, np.signedinteger, np.unsignedinteger
character, flexible, object_ = np.character, np.flexible, np.object_  # no array has these dtypes
dtype = np.dtype

pi, e, euler_gamma = np.pi, np.e, np.euler_gamma
inf, nan, newaxis = np.inf, np.nan, None


def isdtype(dtype: DTypeLike, kind: DTypeLike | tuple[DTypeLike, ...]) -> bool:
    """Whether a dtype is of a kind: a dtype, an array API standard name, or a tuple of these.

    The names are 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating',
    'complex floating' and 'numeric'.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return issubdtype(dtype, _KINDS[kind])
    given: Any = dtype
    wanted: Any = kind
    return np.dtype(given) == np.dtype(wanted)


_KINDS: dict[str, Any] = {
    "bool": np.bool_,
    "signed integer": np.signedinteger,
    "unsigned integer": np.unsignedinteger,
    "integral": np.integer,
    "real floating": np.floating,
    "complex floating": np.complexfloating,
    "numeric": np.number,
}


Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


def can_cast(from_: DTypeLike | ArrayLike, to: DTypeLike, casting: Casting = "safe") -> bool:
    """Whether a dtype can be cast to another under NumPy's `casting` rule."""
    source: Any = getattr(from_, "dtype", from_)
    target: Any = to
    return np.can_cast(source, target, casting)


def shape(a: ArrayLike) -> tuple[int, ...]:
    """The shape of an array."""
    return asarray(a).shape if isinstance(a, list | tuple) else type_of(a).shape


def ndim(a: ArrayLike) -> int:
    """The number of dimensions of an array."""
    return len(shape(a))


def size(a: ArrayLike, axis: int | Sequence[int] | None = None) -> int:
    """The number of elements of an array, or of a slice along one or several axes."""
    sizes = shape(a)
    if axis is None:
        return math.prod(sizes)
    return math.prod([sizes[i] for i in axes_of(axis, len(sizes))])
