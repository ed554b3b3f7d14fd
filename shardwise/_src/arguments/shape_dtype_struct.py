"""`ShapeDtypeStruct`: the type of an array without its data."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.float0_partition import unflattened
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.lowering.layouts_and_memory import bare, order_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.refs.refs import is_ref
from shardwise._src.transfers.targets import as_placement
from shardwise._src.types.array_type import NO_MESH, ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize, exact_dtype
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import NamedSharding, Sharding
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


def _dtype(dtype: Any) -> Any:
    if dtype is None:
        raise ValueError("ShapeDtypeStruct: dtype is required; got None.")
    if isinstance(dtype, ExtendedDType):
        return canonicalize(dtype)
    try:
        return exact_dtype(dtype)
    except TypeError:
        if isinstance(dtype, np.dtype) or (
            isinstance(dtype, type) and issubclass(dtype, np.generic)
        ):
            return np.dtype(dtype)
        raise


class ShapeDtypeStruct:
    """The type of an array, and its requested sharding, without data.

    shape: tuple of ints; dtype: anything that names a dtype; sharding: a sharding, a `Format` or
    None. 64-bit dtypes are preserved; values traced from it have 32 bits unless `enable_x64` is on;
    `aval` is their type. Other dtypes of NumPy, such as strings, describe data that no array holds.
    """

    __slots__ = ("shape", "dtype", "weak_type", "sharding", "layout")

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, sharding: Any = None, weak_type: bool = False
    ):
        self.shape = _sizes(shape)
        self.dtype: Any = _dtype(dtype)
        self.weak_type = weak_type
        given = None if getattr(sharding, "mesh", None) is NO_MESH else sharding
        format = as_placement(given, "ShapeDtypeStruct: sharding")
        self.sharding = bare(format)
        if isinstance(self.sharding, NamedSharding):
            self._check_rank(self.sharding)
        # None: the default one
        self.layout: Any = None if format is None else order_of(format, self.aval)

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

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))

    @property
    def aval(self) -> ArrayType:
        """The type of values traced from it, under the current flags.

        Raises TypeError for a dtype that arrays do not have.
        """
        return array_type(self.shape, canonicalize(self.dtype), self.weak_type)

    @property
    def format(self) -> Format:
        return Format(self.layout, self.sharding)

    def _check_rank(self, sharding: NamedSharding) -> None:
        try:
            sharding.spec.dims(self.ndim)
        except ValueError as error:
            raise ValueError(f"ShapeDtypeStruct of shape {self.shape}: {error}") from None

    def update(self, **fields: Any) -> ShapeDtypeStruct:
        """The same with `shape`, `dtype`, `sharding` or `weak_type` replaced.

        Raises:
          ValueError: if it has a layout, and is to get a sharding without one.
        """
        if self.layout is not None and isinstance(fields.get("sharding"), Sharding):
            raise ValueError(
                f"update: {self} has a layout, and the new sharding {fields['sharding']} has none. "
                "Pass Format(layout, sharding), or make a new ShapeDtypeStruct."
            )
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
