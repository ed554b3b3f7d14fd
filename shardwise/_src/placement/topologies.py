"""Devices as a topology: the targets for compilation, `experimental.topologies`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.placement.mesh_utils import create_device_mesh
from shardwise._src.runtime import backend
from shardwise._src.runtime.platforms import named
from shardwise._src.targets.machine_names import topology_target
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
) -> TopologyDescription:
    """The topology of devices that are not attached.

    Args:
      topology_name: a machine of `shardwise.targets.devices`, "h100:2x8" or "tpu-v5e:2x4"; or
        chips in libtpu's notation, "v5e:2x4"; or any name, for GPUs with a `target_config`.
      platform: "tpu" or "cuda"; by default the platform of the machine, or "tpu".
      kwargs: for TPUs, the options of libtpu, such as `chips_per_host_bounds=(2, 2, 1)` and
        `num_slices=2`. For GPUs, `target_config`, XLA's description of a GPU as text, and
        `topology="1x2x8"`: slices, hosts in each, and GPUs in each host.

    Raises:
      ImportError: if the compiler is missing, or of another version than jaxlib.
      NotImplementedError: for another platform.
      ValueError: for an unknown machine, or one that the compiler rejects.
    """
    kind = None if platform is None else named(platform)
    return TopologyDescription([*topology_target(topology_name, kind, kwargs).devices])


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
