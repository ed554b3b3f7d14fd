"""`Signature`: type and place of an array in one interned object.

Every array holds one; caches are keyed by them, so a hit compares identities and nothing is derived
again. A signature also keeps what jaxlib needs for buffers of its kind.
"""

from __future__ import annotations

from typing import Any

from shardwise.runtime.placement import placement
from shardwise.runtime.program import result_handler
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.extended import ExtendedDType


class Signature:
    """type: the logical type; sharding: where it lives; committed: whether it must stay there.

    A sharding of None stands for a value that is still on the host.
    """

    __slots__ = (
        "type", "sharding", "committed", "physical", "placement", "handler", "devices", "ints",
    )
    type: ArrayType
    sharding: Any
    committed: bool

    def __repr__(self) -> str:
        where = "host" if self.sharding is None else self.sharding
        return f"{self.type.str_short(True)} on {where}{'' if self.committed else ', uncommitted'}"


_table: dict[tuple, Signature] = {}
_ints: dict[tuple, dict[Any, Any]] = {}  # place → number → the scalar array of it there


def physical_type(t: ArrayType) -> ArrayType:
    """The type of the buffer behind a value: typed keys are stored as integers."""
    if isinstance(t.dtype, ExtendedDType):
        return array_type(t.shape + t.dtype.physical_shape, t.dtype.physical_dtype)
    return t


def signature(t: ArrayType, sharding: Any, committed: bool) -> Signature:
    key = (t, sharding, committed)
    found = _table.get(key)
    if found is not None:
        return found
    new = object.__new__(Signature)
    new.type, new.sharding, new.committed = t, sharding, committed
    new.physical = physical_type(t)
    if sharding is None:
        new.devices, new.placement, new.handler = (), None, None
    else:
        new.devices = sharding.devices
        tiling = sharding.tiling(new.physical.ndim) if len(new.devices) > 1 else None
        new.placement = placement(new.devices, tiling, sharding.memory_kind)
        new.handler = result_handler(new.physical, new.placement)
    # A mesh is part of a place: results would come out over the mesh of the scalar.
    place = (new.devices, getattr(sharding, "memory_kind", None), getattr(sharding, "mesh", None))
    new.ints = _ints.setdefault(place, {})
    return _table.setdefault(key, new)
