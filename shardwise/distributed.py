"""Programs of many processes: joining them, and leaving."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.distributed.start import initialize as initialize
    from shardwise._src.distributed.start import is_initialized as is_initialized
    from shardwise._src.distributed.start import shutdown as shutdown

lazy_names(__name__)
