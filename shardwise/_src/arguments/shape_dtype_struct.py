"""`ShapeDtypeStruct`: the type of an array without its data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from shardwise._src.arguments.float0_partition import unflattened
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.lowering.layouts_and_memory import bare, order_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.refs.refs import is_ref
from shardwise._src.transfers.targets import as_placement
from shardwise._src.types.array_type import ArrayType, array_type, says_nothing
from shardwise._src.types.dtypes import canonicalize, exact_dtype
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.types.symbolic import Symbolic


def _sizes(shape: Sequence[Any]) -> tuple[Any, ...]:
    try:
        sizes = tuple([n if isinstance(n, Symbolic) else operator.index(n) for n in shape])
    except TypeError:
        raise TypeError(
            f"ShapeDtypeStruct: the shape is a tuple of integers; got {short_repr(shape)}."
        ) from None
    if any(not isinstance(n, Symbolic) and n < 0 for n in sizes):
        raise ValueError(f"ShapeDtypeStruct: the shape {sizes} has a negative size.")
    return sizes


class ShapeDtypeStruct:
    """The type of an array, and its requested sharding, without data.

    shape: tuple of ints; dtype: anything that names a dtype; sharding: a sharding, a `Format` or
    None. 64-bit dtypes are preserved; values traced from it have 32 bits unless `enable_x64` is on;
    `aval` is their type.
    """

    __slots__ = ("_type", "dtype", "sharding", "layout")

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, sharding: Any = None, weak_type: bool = False
    ):
        self._type: ArrayType = array_type(_sizes(shape), canonicalize(dtype), weak_type)
        extended = dtype is None or isinstance(dtype, ExtendedDType)
        self.dtype: Any = self._type.dtype if extended else exact_dtype(dtype)
        given = None if says_nothing(sharding) else sharding
        format = as_placement(given, "ShapeDtypeStruct: sharding")
        self.sharding = bare(format)
        self.layout: Any = order_of(format, self._type)  # None: the default one

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The type of an array, a tracer or a number, and its sharding, if it is committed.

        Raises:
          TypeError: for other objects, including refs.
        """
        if isinstance(x, ShapeDtypeStruct):
            return x
        if is_ref(x):
            raise TypeError(f"ShapeDtypeStruct.like takes an array; got {x!r}. Pass `ref[...]`.")
        t = type_of(x)
        place: Any = None
        if x.__class__ is Array:
            place = x.format if x.committed else None
        elif t.mesh is not None and t.spec is not None:
            place = NamedSharding(t.mesh, t.spec)
        return cls(t.shape, t.dtype, sharding=place, weak_type=t.weak_type)

    shape = property(lambda self: self._type.shape)
    ndim = property(lambda self: self._type.ndim)
    size = property(lambda self: self._type.size)
    weak_type = property(lambda self: self._type.weak_type)

    @property
    def aval(self) -> ArrayType:
        """The type of values traced from it, under the current flags."""
        dtype = canonicalize(self.dtype)
        return self._type if self._type.dtype == dtype else self._type.update(dtype=dtype)

    @property
    def format(self) -> Format:
        return Format(self.layout, self.sharding)

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with `shape`, `dtype`, `sharding` or `weak_type` replaced."""
        mine: dict[str, Any] = {n: getattr(self, n) for n in ("shape", "dtype", "weak_type")}
        mine["sharding"] = self.sharding if self.layout is None else self.format
        return ShapeDtypeStruct(**(mine | fields))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.weak_type, self.sharding, self.layout

    def __repr__(self) -> str:
        place = "" if self.sharding is None else f", sharding={self.sharding}"
        place += "" if self.layout is None else f", layout={self.layout}"
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{place}{weak})"


def shapes_of(program: Program, out_tree: Any) -> Any:
    """The types of a program's first results, in their pytree; with explicit shardings."""
    leaves = [
        ShapeDtypeStruct(t.shape, t.dtype, sharding=t.explicit_sharding, weak_type=t.weak_type)
        for t in program.out_types[: out_tree.num_leaves]
    ]
    return unflattened(out_tree, leaves, lambda x: ShapeDtypeStruct(x.shape, x.dtype))


def shape_of(sig: Signature) -> ShapeDtypeStruct:
    """The type and the sharding of arrays with a signature."""
    t, place = sig.type, Format(sig.layout, sig.sharding)
    return ShapeDtypeStruct(t.shape, t.dtype, sharding=place, weak_type=t.weak_type)
