"""Profiles of device and host activity, for Perfetto and XProf, and of device memory.

For example:

    with shardwise.profiler.trace("profile", create_perfetto_trace=True):
        step(state).block_until_ready()
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.runtime.profiler import ProfileData as ProfileData
    from shardwise._src.runtime.profiler import ProfileEvent as ProfileEvent
    from shardwise._src.runtime.profiler import ProfileLine as ProfileLine
    from shardwise._src.runtime.profiler import ProfileOptions as ProfileOptions
    from shardwise._src.runtime.profiler import ProfilePlane as ProfilePlane
    from shardwise._src.runtime.profiler import ProfileSession as ProfileSession
    from shardwise._src.runtime.profiler import StepTraceAnnotation as StepTraceAnnotation
    from shardwise._src.runtime.profiler import TraceAnnotation as TraceAnnotation
    from shardwise._src.runtime.profiler import annotate_function as annotate_function
    from shardwise._src.runtime.profiler import device_memory_profile as device_memory_profile
    from shardwise._src.runtime.profiler import export_profile_data as export_profile_data
    from shardwise._src.runtime.profiler import register_subprocess as register_subprocess
    from shardwise._src.runtime.profiler import (
        save_device_memory_profile as save_device_memory_profile,
    )
    from shardwise._src.runtime.profiler import start_server as start_server
    from shardwise._src.runtime.profiler import start_trace as start_trace
    from shardwise._src.runtime.profiler import stop_server as stop_server
    from shardwise._src.runtime.profiler import stop_trace as stop_trace
    from shardwise._src.runtime.profiler import trace as trace

lazy_names(__name__)
