"""Arrays, and pytrees of arrays, in TensorStore files."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.experimental.array_serialization import (
        pytree_serialization as pytree_serialization,
    )
    from shardwise.experimental.array_serialization import (
        pytree_serialization_utils as pytree_serialization_utils,
    )
    from shardwise.experimental.array_serialization import serialization as serialization
    from shardwise.experimental.array_serialization import tensorstore_impl as tensorstore_impl

lazy_names(__name__)
