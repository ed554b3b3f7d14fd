"""Host callbacks that write their results into buffers of the program."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.ffi.buffer_callback import buffer_callback as buffer_callback
    from shardwise._src.runtime.compiler.ffi import Buffer as Buffer
    from shardwise._src.runtime.compiler.ffi import ExecutionContext as ExecutionContext
    from shardwise._src.runtime.compiler.ffi import ExecutionStage as ExecutionStage

lazy_names(__name__)
