"""`Signature`: type, sharding and layout of an array in one interned object.

Every array has one; caches use them as keys, so a hit compares identities and nothing is derived
again. A signature also caches the objects that jaxlib needs for buffers of its kind.

A dimension of size n in k tiles is stored as k·ceil(n/k), padded at the end. Only `physical`, the
type of the buffer, reflects this; everything else here is about the logical array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.caches import Interned
from shardwise._src.base.config import poison_padding
from shardwise._src.runtime import host
from shardwise._src.runtime.compiler.modules import result_handler
from shardwise._src.runtime.compiler.runtime_shardings import placement
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.types.array_type import ArrayType, array_type, with_sharding
from shardwise._src.types.devices import is_attached
from shardwise._src.types.dtypes import iinfo, is_bool, is_integer
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Layout
from shardwise._src.types.symbolic import Symbolic

SIGNATURES_REMEMBERED = 8192
PLACES_REMEMBERED = 64


class Signature:
    """type: the logical type; sharding: its sharding; committed: whether it must stay there.
    layout: the element order of each shard in memory; None for the default one.

    stored:   the type of the stored elements: typed keys are integers.
    physical: the type of the buffer: `stored` with the padding of uneven shards.
    even:     whether there is no padding.
    stacked:  the dimension in which an int index selects a shard, or None.
    readable: if its elements are numbers, and NumPy can view all of them in the memory of one
              device of this process: the function that views a buffer so.

    A sharding of None means that the value is still on the host.
    """

    __slots__ = (
        "type",
        "sharding",
        "committed",
        "layout",
        "stored",
        "physical",
        "even",
        "placement",
        "handler",
        "devices",
        "ints",
        "stacked",
        "readable",
        "__weakref__",
    )
    type: ArrayType
    sharding: Any
    committed: bool
    layout: Layout | None
    stored: ArrayType
    physical: ArrayType
    even: bool
    stacked: int | None
    readable: Callable[[Any], np.ndarray] | None

    def __repr__(self) -> str:
        where = "host" if self.sharding is None else self.sharding
        order = "" if self.layout is None else f" in {self.layout}"
        free = "" if self.committed else ", uncommitted"
        return f"{self.type.str_short(True)} on {where}{order}{free}"


class Scalars(dict):
    """Number → its scalar array with one placement; shared by all signatures with it."""

    __slots__ = ("__weakref__",)


_table: Interned[Signature] = Interned(__name__, "signatures", SIGNATURES_REMEMBERED)
_recent = _table.recent
_ints: Interned[Scalars] = Interned(__name__, "integers as arrays", PLACES_REMEMBERED)


def cached_near() -> list[Scalars]:
    """The cached scalar arrays for each placement (`Signature.ints`)."""
    return _ints.values()


def stored_type(t: ArrayType) -> ArrayType:
    """The type of a value's stored elements: typed keys are stored as integers."""
    if isinstance(t.dtype, ExtendedDType):
        return array_type(t.shape + t.dtype.physical_shape, t.dtype.physical_dtype)
    return t if t.mesh is None and not t.weak_type else array_type(t.shape, t.dtype)


def padded_type(t: ArrayType, sharding: Any) -> ArrayType:
    """The type of the buffer that holds a value of type `t` under a sharding (or None)."""
    stored = stored_type(t)
    if sharding is None or sharding.num_devices == 1 or sharding.is_even(stored.shape):
        return stored
    return array_type(sharding.padded_shape(stored.shape), stored.dtype)


def padding_value(dtype: Any) -> Any:
    """The fill value of padding: zero, as nothing depends on it."""
    if not poison_padding.value:
        return np.zeros((), dtype)[()]
    if is_bool(dtype):
        return np.ones((), dtype)[()]
    return np.asarray(iinfo(dtype).max if is_integer(dtype) else np.nan).astype(dtype)[()]


def signature(
    t: ArrayType, sharding: Any, committed: bool, layout: Layout | None = None
) -> Signature:
    """The signature of arrays of type `t` under a sharding, which is then recorded in the type."""
    key = (t, sharding, committed) if layout is None else (t, sharding, committed, layout)
    found = _recent.get(key) or _table.find(key)
    if found is not None:
        return found
    typed = with_sharding(t, sharding) if sharding is not None else t
    if typed is not t:
        return _table.keep(key, signature(typed, sharding, committed, layout))
    if sharding is not None:
        sharding.check_rank(t.ndim)
    new = object.__new__(Signature)
    new.type, new.sharding, new.committed, new.layout = t, sharding, committed, layout
    new.stored, new.physical = stored_type(t), padded_type(t, sharding)
    new.even = new.stored.shape == new.physical.shape
    new.stacked, new.readable = None, None
    if sharding is None:
        new.devices, new.placement, new.handler = (), None, None
    else:
        dim = sharding.stacked_dim
        if dim is not None and layout is None and sharding.is_fully_addressable:
            new.stacked = dim if new.even else None
        new.devices = sharding.devices
        is_symbolic = any([isinstance(n, Symbolic) for n in t.shape])
        if len(new.devices) > 1 and is_symbolic:
            raise NotImplementedError(
                f"{t.str_short(True)} has symbolic dimensions, and is on {len(new.devices)} "
                "devices: functions with such dimensions can only be exported for one device. "
                "Export it for concrete sizes."
            )
        if is_symbolic or not is_attached(new.devices):  # there are no arrays of it
            new.placement = new.handler = None
        else:
            tiling = sharding.tiling(new.physical.ndim) if len(new.devices) > 1 else None
            new.placement = placement(new.devices, tiling, sharding.memory_kind)
            new.handler = result_handler(new.physical, new.placement)
            new.readable = _view_for(new, tiling is None or tiling.num_tiles == 1)
    # The mesh is part of the key: otherwise results would be over the mesh of the scalar.
    place = (new.devices, getattr(sharding, "memory_kind", None), getattr(sharding, "mesh", None))
    new.ints = _scalars_of(place)
    return _table.keep(key, new)


def _view_for(sig: Signature, whole: bool) -> Callable[[Any], np.ndarray] | None:
    """See `Signature.readable`. whole: whether each device holds all elements."""
    sharding, stored = sig.sharding, sig.stored
    here = platform_of(sig.devices[0]).shares_memory and sharding.is_fully_addressable
    plain = sig.layout is None and sig.type.dtype == stored.dtype and stored.size > 0
    if not (whole and here and plain and stored.dtype.isbuiltin == 1):
        return None
    if len(sig.devices) == 1:
        return np.asarray
    return None if sharding.partial_axes[0] else host.view_first


def _scalars_of(place: tuple) -> Scalars:
    found = _ints.find(place)
    return _ints.keep(place, Scalars()) if found is None else found
