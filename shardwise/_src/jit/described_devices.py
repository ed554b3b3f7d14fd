"""Programs for an `AbstractMesh`: lowered for described devices, and compiled for real ones.

    lowered = jit(f).trace(ShapeDtypeStruct(shape, dtype, sharding=abstract)).lower(
        lowering_platforms=("tpu",))
    lowered.compile(device_assignment=devices)

In place of each abstract mesh there is a mesh of described devices, which have no hardware; or of
the real devices of other arguments, or of the mesh in scope, if there are as many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.caches import cached
from shardwise._src.base.context import current
from shardwise._src.running.program_placement import is_abstract
from shardwise._src.types.devices import DescribedDevice, is_described
from shardwise._src.types.layout import Format
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.sharding import NamedSharding


@cached(16)  # slow for thousands of devices
def described_mesh(mesh: AbstractMesh) -> Mesh:
    """A mesh of described devices."""
    kind = mesh.abstract_device.device_kind if mesh.abstract_device is not None else "cpu"
    return mesh_on(mesh, [DescribedDevice(i, "cpu", kind) for i in range(mesh.size)])


def mesh_on(mesh: Any, devices: Sequence[Any]) -> Mesh:
    """A mesh with the same axes over these devices."""
    grid = np.array(devices, dtype=object).reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, mesh.axis_types)


def described(place: Any) -> Any:
    """A sharding or format, moved to a described mesh if it is abstract."""
    return _moved(place, is_abstract, described_mesh)


def on_real(place: Any, devices: Sequence[Any]) -> Any:
    """A sharding or format, moved to these devices if it is over described ones."""
    return _moved(place, lambda s: is_described(s.devices), lambda mesh: mesh_on(mesh, devices))


def _moved(place: Any, fits: Any, move: Any) -> Any:
    sharding = place.sharding if isinstance(place, Format) else place
    if not isinstance(sharding, NamedSharding) or not fits(sharding):
        return place
    there = NamedSharding(move(sharding.mesh), sharding.spec, sharding.memory_kind)
    return Format(place.layout, there) if isinstance(place, Format) else there


def signature_on(sig: Signature, devices: Sequence[Any]) -> Signature:
    """The signature with real devices in place of described ones."""
    there = on_real(sig.sharding, devices)
    return sig if there is sig.sharding else signature(sig.type, there, sig.committed, sig.layout)


def with_devices(what: str, leaves: Sequence[Any]) -> Sequence[Any]:
    """The leaves of a traced call, with devices for those that are over an abstract mesh.

    Raises:
      ValueError: if other arguments, or the mesh in scope, have another number of devices.
    """
    abstract = [x for x in leaves if isinstance(x, ShapeDtypeStruct) and is_abstract(x.sharding)]
    scope, found = current().mesh, _real_devices(leaves)
    met = [x.sharding.mesh for x in abstract]
    if isinstance(scope, AbstractMesh) and scope.size:
        met.append(scope)
    count = len(found) if found else met[-1].size if met else 0
    for mesh in met:
        if mesh.size != count:
            raise ValueError(
                f"{what}: {mesh} has {mesh.size} devices, but the program is for {count}. Use "
                "meshes of one size."
            )
    if not abstract:
        return leaves
    move = described_mesh if not found else lambda mesh: mesh_on(mesh, found)

    def there(x: Any) -> Any:
        if not isinstance(x, ShapeDtypeStruct):
            return x
        place = x.sharding if x.layout is None else x.format
        return x.update(sharding=_moved(place, is_abstract, move))

    return [*map(there, leaves)]


def _real_devices(leaves: Iterable[Any]) -> tuple[Any, ...]:
    """The devices of the first argument that is committed to some, or of the mesh in scope."""
    for x in leaves:
        sharding = x.sharding if isinstance(x, ShapeDtypeStruct | Array) else None
        if sharding is not None and not is_abstract(sharding) and getattr(x, "committed", True):
            return sharding.devices
    scope = current().mesh
    return scope.flat_devices if isinstance(scope, Mesh) else ()
