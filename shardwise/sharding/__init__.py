"""Meshes, specs and shardings: where the parts of a global array live.

    mesh = Mesh(np.array(devices()).reshape(4, 2), ("data", "model"))
    NamedSharding(mesh, PartitionSpec("data", None))
"""

from shardwise.api.explicit import auto_axes as auto_axes
from shardwise.api.explicit import explicit_axes as explicit_axes
from shardwise.api.explicit import get_abstract_mesh as get_abstract_mesh
from shardwise.api.explicit import get_mesh as get_mesh
from shardwise.api.explicit import reshard as reshard
from shardwise.api.explicit import set_mesh as set_mesh
from shardwise.api.explicit import use_abstract_mesh as use_abstract_mesh
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
from shardwise.types.tiling import Tiling as Tiling
