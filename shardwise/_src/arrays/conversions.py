"""`Concrete`: conversion of arrays with a value to Python: scalars, lists, bytes, strings.

A subclass provides `_value()`, the value as a read-only NumPy array, and properties about its
location. All of these block until the value has been computed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from shardwise._src import visualize
from shardwise._src.messages.formatting import join
from shardwise._src.types.dtypes import is_bool, is_integer
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.values.value import Value

SHARDS_SHOWN = 8  # maximum shards shown, if other processes hold some


class Concrete(Value):
    """The mixin of `Array` that converts it to Python values."""

    __slots__ = ()

    def _value(self) -> np.ndarray:
        raise NotImplementedError

    def _numbers(self, what: str) -> np.ndarray:
        """The value, if the array is numeric."""
        if isinstance(self.dtype, ExtendedDType):
            raise TypeError(
                f"an array of keys, {self.aval.str_short(True)}, cannot become {what}: keys are "
                "not numbers. Use shardwise.random.key_data(x) for the underlying integers."
            )
        return self._value()

    # -- scalars --

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                f"the truth value of an array of type {self.aval.str_short(True)}, with "
                f"{self.size} elements, is ambiguous. Use x.any() or x.all(), or x.size > 0."
            )
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.shape or not is_integer(self.dtype):
            raise TypeError(
                "only a 0-d integer array can be used as an index; got "
                f"{self.aval.str_short(True)}."
            )
        return int(self._value())

    def __hex__(self) -> str:
        return hex(self)

    def __oct__(self) -> str:
        return oct(self)

    def _scalar(self, kind: str) -> Any:
        if isinstance(self.dtype, ExtendedDType) or (self.shape and kind != "bool"):
            raise TypeError(
                "only a 0-d array of numbers can be converted to "
                f"{kind}; got {self.aval.str_short(True)}."
            )
        value = self._value().reshape(())[()]
        if kind in ("int", "float") and isinstance(value, np.complexfloating):
            raise TypeError(f"a complex array cannot be converted to {kind}; use x.real.")
        return value

    def item(self, *args: int) -> Any:
        """The only element, or the one at an index, as a Python scalar."""
        found = self._numbers("a Python scalar").item(*args)
        if isinstance(found, np.generic):  # types that NumPy does not know
            return bool(found) if is_bool(self.dtype) else _python(found, self.dtype)
        return found

    # -- sequences and bytes --

    def tolist(self) -> Any:
        """Nested lists of Python scalars; a scalar if there are no dimensions."""
        values = self._numbers("a list")
        if values.dtype.type.__module__ == "numpy":
            return values.tolist()
        return values.astype(np.int64 if is_integer(self.dtype) else np.float64).tolist()

    def tobytes(self, order: Literal["C", "F", "A"] = "C") -> bytes:
        """The bytes of the elements in row-major order, or column-major if order is "F"."""
        return self._numbers("bytes").tobytes(order)

    # -- text --

    def __repr__(self) -> str:
        return array_text(self)

    def __str__(self) -> str:
        if _readable(self) and not isinstance(self.dtype, ExtendedDType):
            return str(self._value())
        return array_text(self)

    def _repr_html_(self) -> str:
        return visualize.array_html(self)

    def __format__(self, spec: str) -> str:
        if isinstance(self.dtype, ExtendedDType) or not (spec or _readable(self)):
            return format(str(self), spec)
        return format(self._value()[()] if not self.shape else self._value(), spec)


def _python(x: Any, dtype: Any) -> int | float:
    return int(x) if is_integer(dtype) else float(x)


def _readable(x: Any) -> bool:
    if x.is_deleted() or x.sharding.partial_axes[0]:  # partial sums are not the value
        return False
    return x.sharding.has_addressable_devices and x.sharding.is_held_here(x.shape)


def array_text(x: Any) -> str:
    """`Array([1., 2.], dtype=float32)`; without the elements if they cannot be read."""
    weak = ", weak_type=True" if x.aval.weak_type else ""
    kind = f"dtype={getattr(x.dtype, 'name', x.dtype)}{weak})"
    if x.is_deleted():
        where = f", sharded as {x.sharding}" if len(x.sharding.device_set) > 1 else ""
        return f"Array(deleted, shape={x.shape}, {kind}{where}"
    if not _readable(x):
        return _distributed_text(x, kind)
    if isinstance(x.dtype, ExtendedDType):
        return f"Array({x.shape}, {kind} overlaying:\n{x._value()}"
    if not x.size:
        return f"Array([], shape={x.shape}, {kind}"
    width = np.get_printoptions()["linewidth"]
    elements = np.array2string(
        x._value(), prefix="Array(", suffix=",", separator=", ", max_line_width=width
    )
    # Matches jax's repr: an overlong dtype gets a space, and stays on the same line.
    last = len(elements) - elements.rfind("\n") - 1
    gap = " " if last + len(kind) + 3 <= width else " " * 6
    return f"Array({elements},{gap}{kind}"


def _distributed_text(x: Any, kind: str) -> str:
    """For an array whose value cannot be read here, as other processes hold shards of it, or as it
    is unreduced: the local shards, without replicas."""
    whole = f"Array(shape={x.shape}, {kind} sharded as {x.sharding}, "
    if sums := x.sharding.partial_axes[0]:
        return f"{whole}partial sums along {join(sorted(sums, key=str))}: `reshard` adds them"
    here: dict[str, Any] = {}
    for shard in x.addressable_shards:
        here.setdefault(visualize.index_text(shard.index, x.shape), shard)
    lines = [f"{whole}addressable shards:"]
    for at, shard in list(here.items())[:SHARDS_SHOWN]:
        start = f"  {at} on {shard.device}: "
        values = np.array2string(shard.data._value(), separator=", ", prefix=start)
        lines.append(start + (values if shard.data.size else "no elements"))
    if len(here) > SHARDS_SHOWN:
        lines.append(f"  and {len(here) - SHARDS_SHOWN} more shards")
    return "\n".join(
        lines if here else [lines[0].replace(", addressable shards:", ", no addressable shards")]
    )
