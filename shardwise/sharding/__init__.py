"""Meshes, specs and shardings: where the parts of a global array live.

    mesh = Mesh(np.array(devices()).reshape(4, 2), ("data", "model"))
    NamedSharding(mesh, PartitionSpec("data", None))
"""

from shardwise.compat.pmap_sharding import PmapSharding as PmapSharding
from shardwise.compat.positional import PositionalSharding as PositionalSharding
from shardwise.types.mesh import AbstractMesh as AbstractMesh
from shardwise.types.mesh import AxisType as AxisType
from shardwise.types.mesh import Mesh as Mesh
from shardwise.types.partition_spec import PartitionSpec as PartitionSpec
from shardwise.types.sharding import GSPMDSharding as GSPMDSharding
from shardwise.types.sharding import NamedSharding as NamedSharding
from shardwise.types.sharding import Sharding as Sharding
from shardwise.types.sharding import SingleDeviceSharding as SingleDeviceSharding
