"""Locations and formats for writing arrays with TensorStore."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.saving.arrays import async_deserialize as async_deserialize
    from shardwise._src.saving.arrays import async_serialize as async_serialize
    from shardwise._src.saving.arrays import combine_kvstores as combine_kvstores
    from shardwise._src.saving.arrays import (
        estimate_read_memory_footprint as estimate_read_memory_footprint,
    )
    from shardwise._src.saving.tensorstore_specs import get_tensorstore_spec as get_tensorstore_spec
    from shardwise._src.saving.tensorstore_specs import (
        is_tensorstore_spec_leaf as is_tensorstore_spec_leaf,
    )
    from shardwise._src.saving.tensorstore_specs import (
        merge_nested_ts_specs as merge_nested_ts_specs,
    )
    from shardwise._src.saving.tensorstore_specs import (
        verify_tensorstore_spec as verify_tensorstore_spec,
    )

lazy_names(__name__)
