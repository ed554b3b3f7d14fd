"""Events and durations, of the library and of programs, and listeners for them."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.monitoring import clear_event_listeners as clear_event_listeners
    from shardwise._src.base.monitoring import record_event as record_event
    from shardwise._src.base.monitoring import (
        record_event_duration_secs as record_event_duration_secs,
    )
    from shardwise._src.base.monitoring import record_event_time_span as record_event_time_span
    from shardwise._src.base.monitoring import record_scalar as record_scalar
    from shardwise._src.base.monitoring import (
        register_event_duration_secs_listener as register_event_duration_secs_listener,
    )
    from shardwise._src.base.monitoring import register_event_listener as register_event_listener
    from shardwise._src.base.monitoring import (
        register_event_time_span_listener as register_event_time_span_listener,
    )
    from shardwise._src.base.monitoring import register_scalar_listener as register_scalar_listener
    from shardwise._src.base.monitoring import (
        unregister_event_duration_listener as unregister_event_duration_listener,
    )
    from shardwise._src.base.monitoring import (
        unregister_event_listener as unregister_event_listener,
    )
    from shardwise._src.base.monitoring import (
        unregister_event_time_span_listener as unregister_event_time_span_listener,
    )
    from shardwise._src.base.monitoring import (
        unregister_scalar_listener as unregister_scalar_listener,
    )

lazy_names(__name__)
