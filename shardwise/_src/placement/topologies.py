"""Devices as a topology: the targets for compilation, `experimental.topologies`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from shardwise._src.placement.mesh_utils import create_device_mesh
from shardwise._src.runtime import backend
from shardwise._src.types.mesh import Mesh


class TopologyDescription:
    """Devices that programs may be compiled for.

    Args:
      devices: a list of them.
    """

    def __init__(self, devices: list[Any]):
        self.devices = devices

    def __repr__(self) -> str:
        kinds = sorted({d.device_kind for d in self.devices})
        return f"TopologyDescription({len(self.devices)} devices of {', '.join(kinds)})"


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The topology of the attached devices: of a platform, or of the default one."""
    return TopologyDescription(backend.devices(platform))


def get_topology_desc(
    topology_name: str = "", platform: str | None = None, **kwargs: Any
) -> NoReturn:
    """Not supported: the topology of devices that are not attached.

    Raises:
      NotImplementedError: always: the CPU and CUDA compilers query the devices, and
        compilers of other platforms are not part of this library.
    """
    raise NotImplementedError(
        f"get_topology_desc: the topology {topology_name!r} of platform {platform or 'tpu'!r} has "
        "no compiler here: those of 'cpu' and 'cuda' compile for attached devices only. Use "
        "get_attached_topology(), or `num_cpu_devices` for more virtual devices."
    )


def make_mesh(
    topo: TopologyDescription,
    mesh_shape: Sequence[int],
    axis_names: tuple[str, ...],
    *,
    contiguous_submeshes: bool = False,
) -> Mesh:
    """A mesh of the devices of a topology.

    Args:
      topo: as many devices as the shape requires.
      mesh_shape, axis_names: sizes and names of the axes.
      contiguous_submeshes: whether the devices of each host must be adjacent.
    """
    devices = create_device_mesh(
        mesh_shape, topo.devices, contiguous_submeshes=contiguous_submeshes
    )
    return Mesh(devices, axis_names)
