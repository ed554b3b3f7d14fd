"""Mutable references: `new_ref`, `freeze`, and functions to read and write them.

For example:

    r = new_ref(x)
    set(r, 0, 1.0)      # r[0] = 1.0
    get(r, slice(2))    # r[:2]
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.refs.refs import Ref as Ref
from shardwise._src.refs.refs import check_kind, check_plain, check_ref
from shardwise._src.refs.refs import empty_ref as empty_ref
from shardwise._src.refs.refs import free_ref as free_ref
from shardwise._src.refs.refs import freeze as freeze
from shardwise._src.refs.refs import new_ref as new_ref
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import ArrayType


class AbstractRef:
    """The type of a ref: `typeof(ref)`.

    Args:
      inner_aval: the type of its value.
      memory_space: None; it is for kernels.
      kind: that of `new_ref`.
    """

    __slots__ = ("inner_aval", "memory_space", "kind")

    def __init__(self, inner_aval: ArrayType, memory_space: Any = None, kind: Any = None):
        check_plain("AbstractRef", memory_space=memory_space)
        check_kind("AbstractRef", kind)
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: self.inner_aval.ndim)
    size = property(lambda self: self.inner_aval.size)
    weak_type = property(lambda self: self.inner_aval.weak_type)
    sharding = property(lambda self: self.inner_aval.sharding)

    def update(
        self, inner_aval: ArrayType | None = None, memory_space: Any = None, kind: Any = None
    ) -> AbstractRef:
        """A copy with the given fields replaced."""
        return AbstractRef(inner_aval or self.inner_aval, memory_space, kind)

    def str_short(self, short_dtypes: bool = False) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbstractRef):
            return False
        return (self.inner_aval, self.kind) == (other.inner_aval, other.kind)

    def __hash__(self) -> int:
        return hash((AbstractRef, self.inner_aval, self.kind))

    def __repr__(self) -> str:
        return f"Abstract{self.str_short(True)}"


def typeof(x: Any) -> ArrayType | AbstractRef:
    """The type of an array or scalar, traced or not; for a ref, an `AbstractRef`.

    Raises:
      TypeError: for anything else.
    """
    return AbstractRef(x.type, kind=x.kind) if x.__class__ is Ref else type_of(x)


def get(ref: Ref, idx: Any = None) -> Array:
    """`ref[idx]`; the full value without an index."""
    check_ref("get", ref)
    return ref.get(idx)


def set(ref: Ref, idx: Any, value: ArrayLike) -> None:
    """`ref[idx] = value`; None means everything.

    Raises:
      DtypeError: if the ref's dtype cannot hold the value.
    """
    check_ref("set", ref)
    ref.set(value, idx)


def swap(ref: Ref, idx: Any, value: ArrayLike, _function_name: str = "swap") -> Array:
    """`ref[idx] = value`; returns the previous value. _function_name: the name used in errors."""
    check_ref(_function_name, ref)
    return ref.swap(value, idx)


def addupdate(ref: Ref, idx: Any, x: ArrayLike) -> None:
    """`ref[idx] += x`; an element that is indexed repeatedly is incremented each time."""
    check_ref("addupdate", ref)
    ref.addupdate(x, idx)
