"""Programs as portable bytes: `export(jit(f))(*args).serialize()`, `deserialize(blob).call(*args)`.

The format is JAX's: exports from JAX load here, and exports from here load in JAX. See
docs/export.md.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.export.calling import Exported as Exported
    from shardwise._src.export.exporting import default_export_platform as default_export_platform
    from shardwise._src.export.exporting import export as export
    from shardwise._src.export.reading import deserialize as deserialize
    from shardwise._src.export.symbolic_shapes import SymbolicScope as SymbolicScope
    from shardwise._src.export.symbolic_shapes import is_symbolic_dim as is_symbolic_dim
    from shardwise._src.export.symbolic_shapes import symbolic_args_specs as symbolic_args_specs
    from shardwise._src.export.symbolic_shapes import symbolic_shape as symbolic_shape
    from shardwise._src.export.tree_records import (
        register_namedtuple_serialization as register_namedtuple_serialization,
    )
    from shardwise._src.export.tree_records import (
        register_pytree_node_serialization as register_pytree_node_serialization,
    )
    from shardwise._src.export.versions import DisabledSafetyCheck as DisabledSafetyCheck
    from shardwise._src.export.versions import (
        maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    )
    from shardwise._src.export.versions import (
        minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
    )

lazy_names(__name__)
