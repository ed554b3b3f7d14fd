"""Type annotations of the public functions: argument types, and `Array`, the result type.

A traced value is an instance of `Array` as well, so this one name covers both. The class is
defined in a higher layer, and only type checkers import it here; at run time the name is its base.
These types do no checking: functions check their arguments themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import numpy as np

from shardwise._src.types.devices import Device
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.named_shape import NamedShape
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.types.sharding_base import Sharding

if TYPE_CHECKING:
    from shardwise._src.arrays.array import Array as Array
else:
    from shardwise._src.types.array_base import ArrayBase as Array


# For functions that take functions, or return their argument unchanged.
P = ParamSpec("P")
T = TypeVar("T")
Aux = TypeVar("Aux")
Carry = TypeVar("Carry")
X = TypeVar("X")
Y = TypeVar("Y")


@runtime_checkable
class SupportsArray(Protocol):
    """An array of another library: `__array__` converts it to a NumPy array."""

    def __array__(self) -> np.ndarray[Any, Any]: ...


@runtime_checkable
class SupportsJaxArray(Protocol):
    """An object that converts itself: `__jax_array__` returns an array of this library."""

    def __jax_array__(self) -> Any: ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of another library that exports its memory through DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...


@runtime_checkable
class SupportsDType(Protocol):
    """An object with a `dtype` that can be used as one: `shardwise.numpy.float32`."""

    @property
    def dtype(self) -> Any: ...


# An array of another library, or a number. Lists do not count; `array` converts them.
NotOurs: TypeAlias = (
    np.ndarray[Any, Any]
    | np.generic
    | bool
    | int
    | float
    | complex
    | SupportsArray
    | SupportsJaxArray
    | SupportsDLPack
)
ArrayLike: TypeAlias = Array | NotOurs
DTypeLike: TypeAlias = str | type[Any] | np.dtype[Any] | ExtendedDType | SupportsDType
Ints: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
ShapeLike: TypeAlias = Ints | NamedShape
Axis: TypeAlias = Ints | None
# Dimensions, and names of axes in scope (mostly strings); None means all dimensions.
AnyAxis: TypeAlias = Ints | str | Sequence[SupportsIndex | str] | None
DeviceLike: TypeAlias = Device | Sharding | Format | None  # target of a result
OutSharding: TypeAlias = NamedSharding | PartitionSpec | None  # over explicit mesh axes
# A name, a `lax.Precision`, a `lax.DotAlgorithmPreset`, an enum of the same names, or a pair.
PrecisionLike: TypeAlias = str | enum.Enum | Sequence[str | enum.Enum | None] | None
