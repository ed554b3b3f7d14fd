"""Events and durations, reported to registered listeners; without listeners, there is no overhead.

    register_event_duration_secs_listener(lambda event, secs, **more: print(event, secs))

The library's own durations have JAX's names: for staging, lowering and compiling a function. Its
events are hits and misses of the on-disk cache of compiled programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

TRACE = "/jax/core/compile/jaxpr_trace_duration"
LOWER = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILE = "/jax/core/compile/backend_compile_duration"
DISK_ASKED = "/jax/compilation_cache/compile_requests_use_cache"
DISK_HIT = "/jax/compilation_cache/cache_hits"
DISK_MISS = "/jax/compilation_cache/cache_misses"

Listener = Callable[..., Any]


class _Listeners:
    """Listeners of one kind. The tuple is replaced, as other threads may be iterating over it."""

    def __init__(self, register: str):
        self.register = register
        self.all: tuple[Listener, ...] = ()

    def add(self, callback: Listener) -> None:
        if not callable(callback):
            raise TypeError(
                f"shardwise.monitoring.{self.register} expects a function; got {callback!r} of "
                f"type {type(callback).__name__}."
            )
        self.all = (*self.all, callback)

    def remove(self, callback: Listener) -> None:
        """Removes one registration of a listener."""
        if callback not in self.all:
            raise ValueError(
                f"{callback!r} is not registered: it was never passed to "
                f"shardwise.monitoring.{self.register}, or was removed."
            )
        at = self.all.index(callback)
        self.all = (*self.all[:at], *self.all[at + 1 :])

    def tell(self, event: str, *values: float, **more: str | int) -> None:
        for callback in self.all:
            callback(event, *values, **more)


_events = _Listeners("register_event_listener")
_durations = _Listeners("register_event_duration_secs_listener")
_spans = _Listeners("register_event_time_span_listener")
_scalars = _Listeners("register_scalar_listener")


def record_event(event: str, **kwargs: str | int) -> None:
    """Notifies event listeners of an event. kwargs: additional facts about it."""
    _events.tell(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Notifies duration listeners of a duration in seconds."""
    _durations.tell(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Notifies time span listeners of a start and an end time, as returned by `time.time`."""
    _spans.tell(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Notifies scalar listeners of a number."""
    _scalars.tell(event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Calls `callback(event, **kwargs)` for each event from now on."""
    _events.add(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Calls `callback(event, seconds, **kwargs)` for each duration from now on."""
    _durations.add(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Calls `callback(event, start, end, **kwargs)` for each time span from now on."""
    _spans.add(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Calls `callback(event, value, **kwargs)` for each scalar from now on."""
    _scalars.add(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Undoes `register_event_listener`. Raises ValueError if the callback is not registered."""
    _events.remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Undoes `register_event_duration_secs_listener`. Raises ValueError if it is not registered."""
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Undoes `register_event_time_span_listener`. Raises ValueError if it is not registered."""
    _spans.remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Undoes `register_scalar_listener`. Raises ValueError if it is not registered."""
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Removes all listeners."""
    for kind in (_events, _durations, _spans, _scalars):
        kind.all = ()


def took(event: str, seconds: float, name: str) -> None:
    """Records a duration of the library's own that has just ended: `name` is the function's."""
    if _durations.all:
        _durations.tell(event, seconds, fun_name=name)
    if _spans.all:
        now = time.time()
        _spans.tell(event, now - seconds, now, fun_name=name)
