"""What users pass for a sharding, as a sharding object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.context import current
from shardwise.runtime.backend import Device
from shardwise.types.partition_spec import PartitionSpec
from shardwise.types.sharding import NamedSharding, Sharding, SingleDeviceSharding


def is_sharding_leaf(x: Any) -> bool:
    return isinstance(x, Sharding | PartitionSpec | Device)


def as_sharding(x: Any, what: str) -> Any:
    """A sharding, device, bare spec (over the mesh in scope) or None, as a sharding or None."""
    if x is None:
        return None
    if isinstance(x, Sharding):
        return x
    if isinstance(x, Device):
        return SingleDeviceSharding(x)
    if isinstance(x, PartitionSpec):
        mesh = current().mesh
        if mesh is None:
            raise ValueError(
                f"{what}: a bare {x} needs a mesh in scope. Use NamedSharding(mesh, {x}), or enter "
                "`with mesh:`."
            )
        return NamedSharding(mesh if current().interpreter.eager else mesh.abstract_mesh, x)
    raise TypeError(
        f"{what} takes shardings, devices, PartitionSpecs or None; got {x!r} of type "
        f"{type(x).__name__}."
    )


def check_fit(
    shardings: Sequence[Any], types: Sequence[Any], names: Sequence[str], what: str
) -> None:
    """Raises where a sharding does not fit the value that it is for."""
    for sharding, t, name in zip(shardings, types, names, strict=True):
        if sharding is None:
            continue
        try:
            sharding.shard_shape(t.shape)
        except ValueError as error:
            raise ValueError(f"{what}: {name} of type {t.str_short(True)}: {error}") from None
