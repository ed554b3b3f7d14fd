"""Topologies of devices to compile for."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.placement.topologies import TopologyDescription as TopologyDescription
    from shardwise._src.placement.topologies import get_attached_topology as get_attached_topology
    from shardwise._src.placement.topologies import get_topology_desc as get_topology_desc
    from shardwise._src.placement.topologies import make_mesh as make_mesh
    from shardwise._src.runtime.backend import Device as Device

lazy_names(__name__)
