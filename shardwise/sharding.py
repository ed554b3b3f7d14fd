"""Meshes, specs and shardings: which device stores which shard of a global array.

For example:

    mesh = Mesh(np.array(devices()).reshape(4, 2), ("data", "model"))
    NamedSharding(mesh, PartitionSpec("data", None))
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.positional import PositionalSharding as PositionalSharding
    from shardwise._src.placement.explicit_axes import auto_axes as auto_axes
    from shardwise._src.placement.explicit_axes import explicit_axes as explicit_axes
    from shardwise._src.placement.explicit_axes import get_abstract_mesh as get_abstract_mesh
    from shardwise._src.placement.explicit_axes import get_mesh as get_mesh
    from shardwise._src.placement.explicit_axes import reshard as reshard
    from shardwise._src.placement.explicit_axes import set_mesh as set_mesh
    from shardwise._src.placement.explicit_axes import use_abstract_mesh as use_abstract_mesh
    from shardwise._src.types.abstract import AbstractDevice as AbstractDevice
    from shardwise._src.types.abstract import ManualAxisType as ManualAxisType
    from shardwise._src.types.mesh import AbstractMesh as AbstractMesh
    from shardwise._src.types.mesh import Mesh as Mesh
    from shardwise._src.types.mesh_axes import AxisType as AxisType
    from shardwise._src.types.partition_spec import PartitionSpec as PartitionSpec
    from shardwise._src.types.partition_spec import UnreducedKind as UnreducedKind
    from shardwise._src.types.pmap_sharding import PmapSharding as PmapSharding
    from shardwise._src.types.sharding import GSPMDSharding as GSPMDSharding
    from shardwise._src.types.sharding import NamedSharding as NamedSharding
    from shardwise._src.types.sharding import Sharding as Sharding
    from shardwise._src.types.sharding import Sharding as XLACompatibleSharding
    from shardwise._src.types.sharding import SingleDeviceSharding as SingleDeviceSharding
    from shardwise._src.types.sharding import (
        make_single_device_sharding as make_single_device_sharding,
    )
    from shardwise._src.types.tiling import Tiling as Tiling

lazy_names(__name__)
