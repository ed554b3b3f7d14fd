"""Mutable references: `new_ref`, `freeze`, and reading and writing as functions.

    r = new_ref(x)
    set(r, 0, 1.0)      # r[0] = 1.0
    get(r, slice(2))    # r[:2]
"""

from __future__ import annotations

from typing import Any

from shardwise._src.refs.refs import Ref as Ref
from shardwise._src.refs.refs import check_ref
from shardwise._src.refs.refs import empty_ref as empty_ref
from shardwise._src.refs.refs import free_ref as free_ref
from shardwise._src.refs.refs import freeze as freeze
from shardwise._src.refs.refs import new_ref as new_ref
from shardwise._src.types.annotations import Array, ArrayLike


def get(ref: Ref, idx: Any = None) -> Array:
    """`ref[idx]`; the whole value without an index."""
    check_ref("get", ref)
    return ref.get(idx)


def set(ref: Ref, idx: Any, value: ArrayLike) -> None:
    """`ref[idx] = value`; None stands for everything.

    Raises:
      TypeError: if the ref's dtype cannot hold the value.
    """
    check_ref("set", ref)
    ref.set(value, idx)


def swap(ref: Ref, idx: Any, value: ArrayLike) -> Array:
    """`ref[idx] = value`; returns what was there."""
    check_ref("swap", ref)
    return ref.swap(value, idx)


def addupdate(ref: Ref, idx: Any, x: ArrayLike) -> None:
    """`ref[idx] += x`, once for each time that a place is given."""
    check_ref("addupdate", ref)
    ref.addupdate(x, idx)
