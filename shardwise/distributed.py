"""Multi-process programs: initialization and shutdown."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.distributed.start import initialize as initialize
    from shardwise._src.distributed.start import is_initialized as is_initialized
    from shardwise._src.distributed.start import shutdown as shutdown
    from shardwise._src.distributed.status_files import report_progress as report_progress
    from shardwise._src.distributed.survivors import Survivors as Survivors
    from shardwise._src.distributed.survivors import flight_record as flight_record
    from shardwise._src.distributed.survivors import survivors as survivors

lazy_names(__name__)
