"""Asynchronous serialization of arrays."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.saving.arrays import TS_CONTEXT as TS_CONTEXT
    from shardwise._src.saving.arrays import async_deserialize as async_deserialize
    from shardwise._src.saving.arrays import async_serialize as async_serialize
    from shardwise._src.saving.arrays import run_deserialization as run_deserialization
    from shardwise._src.saving.arrays import run_serialization as run_serialization
    from shardwise._src.saving.async_manager import AsyncManager as AsyncManager
    from shardwise._src.saving.async_manager import BarrierTimeoutError as BarrierTimeoutError
    from shardwise._src.saving.async_manager import (
        GlobalAsyncCheckpointManager as GlobalAsyncCheckpointManager,
    )
    from shardwise._src.saving.async_manager import (
        GlobalAsyncCheckpointManagerBase as GlobalAsyncCheckpointManagerBase,
    )
    from shardwise._src.saving.tensorstore_specs import is_remote_storage as is_remote_storage
    from shardwise._src.saving.tensorstore_specs import serialization_spec as get_tensorstore_spec

lazy_names(__name__)
