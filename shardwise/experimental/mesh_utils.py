"""Devices in grids, for `Mesh`.

    Mesh(create_device_mesh((4, 2)), ("data", "model"))

`make_mesh` does both in one step.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.placement.mesh_utils import create_device_mesh as create_device_mesh
    from shardwise._src.placement.mesh_utils import (
        create_hybrid_device_mesh as create_hybrid_device_mesh,
    )

lazy_names(__name__)
