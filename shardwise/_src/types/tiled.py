"""Shardings made of a list of devices and a `Tiling`, without a mesh.

`GSPMDSharding` is for layouts that no spec over a mesh expresses:

    GSPMDSharding(devices, Tiling((2, 1), (2,), (0,), False, assignment=(1, 0)))
    GSPMDSharding(devices, op_sharding)     # XLA's OpSharding or HloSharding

Like all shardings of the library they are interned: equal ones are the same object.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, cast, final
from weakref import WeakValueDictionary

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.formatting import pluralize
from shardwise._src.types.devices import Device, canonical_memory_kind, check_distinct, kind_text
from shardwise._src.types.frozen import Frozen
from shardwise._src.types.sharding_base import Sharding
from shardwise._src.types.tiling import Tiling, replicated_tiling

_table: WeakValueDictionary[tuple[Any, ...], TiledSharding] = WeakValueDictionary()
_lock = threading.RLock()


class TiledSharding(Frozen, Sharding):
    """Devices in logical order, and a tiling over as many positions.

    The tiling fixes the rank of the arrays, unless it is fully replicated.
    """

    instead = "make a new one"
    _devices: tuple[Device, ...]
    _tiling: Tiling
    _memory_kind: str | None

    @classmethod
    def interned(
        cls, devices: tuple[Device, ...], tiling: Tiling, memory_kind: str | None, **more: Any
    ) -> Self:
        """Returns the unique object with these fields; `more` are hashable subclass fields."""
        found = _table.get((cls, devices, tiling, memory_kind, *more.values()))
        if found is not None:
            return cast("Self", found)
        _check_tiling(cls.__name__, devices, tiling)
        kind = canonical_memory_kind(devices, memory_kind)
        new = object.__new__(cls)
        new.__dict__.update(_devices=devices, _tiling=tiling, _memory_kind=kind, **more)
        with _lock:
            key = (cls, devices, tiling, kind, *more.values())
            return cast("Self", _table.setdefault(key, new))

    @property
    def devices(self) -> tuple[Device, ...]:
        return self._devices

    def tiling(self, ndim: int) -> Tiling:
        given = self._tiling
        if len(given.dims) == ndim:
            return given
        if self.is_fully_replicated:
            return replicated_tiling(ndim, len(self._devices))
        if ndim < len(given.dims):
            raise ValueError(self._rank_text(ndim))
        whole = (1,) * (ndim - len(given.dims))  # dimensions of elements that are arrays: keys
        return replace(given, dims=given.dims + whole)

    def check_rank(self, ndim: int) -> None:
        if len(self._tiling.dims) != ndim and not self.is_fully_replicated:
            raise ValueError(self._rank_text(ndim))

    def _rank_text(self, ndim: int) -> str:
        return (
            f"{self} is for arrays of {pluralize(len(self._tiling.dims), 'dimension')}, "
            f"but the array has {pluralize(ndim, 'dimension')}."
        )

    @property
    def is_fully_replicated(self) -> bool:
        return self._tiling.num_tiles == 1

    @property
    def memory_kind(self) -> str | None:
        return self._memory_kind or self._cached_default_memory_kind

    def __repr__(self) -> str:
        copies = f", replicas={self._tiling.replicas}" if self._tiling.replicated else ""
        tiles = f"tiles={self._tiling.dims}{copies}{kind_text(self._memory_kind)}"
        return f"{type(self).__name__}({pluralize(len(self._devices), 'device')}, {tiles})"


@final
class GSPMDSharding(TiledSharding):
    """Any tiling over any devices.

    GSPMDSharding(devices, tiling, memory_kind=None)
        devices: in logical order.
        tiling:  a `Tiling` over as many devices, or an XLA `OpSharding` or `HloSharding`.
    """

    def __new__(
        cls, devices: Sequence[Device], tiling: Any, memory_kind: str | None = None
    ) -> GSPMDSharding:
        devices = tuple(devices)
        if not isinstance(tiling, Tiling):
            tiling = _tiling_of_op(tiling, len(devices))
        return cls.interned(devices, tiling, memory_kind)

    @staticmethod
    def get_replicated(devices: Sequence[Device], memory_kind: str | None = None) -> GSPMDSharding:
        """The full array on each of the devices."""
        return GSPMDSharding(devices, replicated_tiling(0, len(devices)), memory_kind)

    def with_memory_kind(self, kind: str | None) -> GSPMDSharding:
        return GSPMDSharding(self._devices, self._tiling, kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("GSPMDSharding", self._devices, self._tiling, self._memory_kind)


def _check_tiling(kind: str, devices: tuple[Device, ...], tiling: Tiling) -> None:
    total, copies = len(devices), 1 if not tiling.replicated else tiling.replicas
    check_distinct(kind, devices)
    if tiling.num_devices != total or tiling.num_tiles * copies != total:
        raise ValueError(
            f"{kind} got {pluralize(total, 'device')}, but a tiling of mesh sizes "
            f"{tiling.mesh_sizes} into {tiling.dims} tiles with {copies} replicas of each. "
            "Tiles × replicas and the product of the mesh sizes must both be the device count."
        )
    if sorted(tiling.tile_assignment().flat) != list(range(total)):
        raise ValueError(
            f"{kind} got a tiling that does not use each of the positions 0..{total - 1} "
            f"once: {tiling}."
        )


# ------------------------------------------------------------------------- XLA's own records


def _tiling_of_op(op: Any, devices: int) -> Tiling:
    """The tiling described by an `OpSharding`, or by an `HloSharding`, which is converted."""
    proto = op.to_proto() if hasattr(op, "to_proto") else op
    try:
        kind, last = proto.type.name, [type(proto.type)(n).name for n in proto.last_tile_dims]
    except AttributeError:
        raise TypeError(
            "the second argument of GSPMDSharding must be a Tiling, an OpSharding or an "
            f"HloSharding, got {op!r} of type {type(op).__name__}."
        ) from None
    if kind == "REPLICATED":
        return replicated_tiling(0, devices)
    if kind != "OTHER" or any(subgroup != "REPLICATED" for subgroup in last):
        what = f"type {kind}" + (f" with subgroups {', '.join(last)}" if last else "")
        raise ValueError(
            f"GSPMDSharding got an OpSharding of {what}; it must be REPLICATED, or OTHER with no "
            "subgroups but replicated ones: each device holds one tile of the array."
        )
    dims = tuple(proto.tile_assignment_dimensions)
    ndim = len(dims) - (len(last) or int(proto.replicate_on_last_tile_dim))
    copies = math.prod(dims[ndim:])
    if proto.iota_reshape_dims:
        grid, order = tuple(proto.iota_reshape_dims), tuple(proto.iota_transpose_perm)
        return Tiling(dims[:ndim], grid, order, copies > 1)
    return Tiling(dims[:ndim], (devices,), (0,), copies > 1, tuple(proto.tile_assignment_devices))


read_by("GSPMDSharding", GSPMDSharding)
