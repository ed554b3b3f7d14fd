"""Forwards the flags `transfer_guard…` and `array_garbage_collection_guard` to the runtime.

jaxlib itself checks each transfer, and each array freed by Python's garbage collector. It has a
global value and one for each thread, which takes precedence if set. `device_put` and `device_get`
are explicit transfers; all others, such as those of NumPy arguments, are implicit.

The flags are re-exported here, so that setting one imports this module.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jaxlib import _jax

from shardwise._src.base.config import (
    array_garbage_collection_guard as array_garbage_collection_guard,
)
from shardwise._src.base.config import transfer_guard as transfer_guard
from shardwise._src.base.config import (
    transfer_guard_device_to_device as transfer_guard_device_to_device,
)
from shardwise._src.base.config import (
    transfer_guard_device_to_host as transfer_guard_device_to_host,
)
from shardwise._src.base.config import (
    transfer_guard_host_to_device as transfer_guard_host_to_device,
)
from shardwise._src.base.flags import FLAGS, GuardFlag

_guards: Any = _jax.guard_lib
# Whether a transfer guard was ever set; checked before transfers are marked as explicit.
used = False


def _level(name: str, value: str) -> tuple[str, Any]:
    """The runtime's name of a guard, and its level."""
    if name == "array_garbage_collection_guard":
        return "garbage_collect_array", getattr(_guards.GarbageCollectionGuardLevel, value.upper())
    level = getattr(_guards.TransferGuardLevel, value.upper())
    return name.removeprefix("transfer_guard_"), level


def _set_global(name: str, value: str) -> None:
    global used
    if name == "transfer_guard":  # its parts are forwarded
        return
    used = True
    place, level = _level(name, value)
    setattr(_guards.global_state(), place, level)
    own = _guards.thread_local_state()
    if getattr(own, place) is not None:
        setattr(own, place, level)


@contextmanager
def _scoped(name: str, value: str) -> Generator[None]:
    global used
    if name == "transfer_guard":
        yield
        return
    used = True
    place, level = _level(name, value)
    own = _guards.thread_local_state()
    before = getattr(own, place)
    setattr(own, place, level)
    try:
        yield
    finally:
        setattr(own, place, before)


@contextmanager
def explicitly(what: str) -> Generator[None]:
    """Marks transfers inside a `with` block as explicit. what: `put` or `get`."""
    state, name = _guards.thread_local_state(), f"explicit_device_{what}"
    before = getattr(state, name)
    setattr(state, name, True)
    try:
        yield
    finally:
        setattr(state, name, before)


@contextmanager
def between_devices() -> Generator[None]:
    """Treats copies inside a `with` block as device-to-device, though they go through the host."""
    state = _guards.thread_local_state()
    before = state.host_to_device, state.device_to_host
    allow = _guards.TransferGuardLevel.ALLOW
    set_in = (state.device_to_device, _guards.global_state().device_to_device)
    state.host_to_device = next((level for level in set_in if level is not None), allow)
    state.device_to_host = allow
    try:
        yield
    finally:
        state.host_to_device, state.device_to_host = before


def is_explicit(what: str) -> bool:
    return getattr(_guards.thread_local_state(), f"explicit_device_{what}")


GuardFlag.set_global, GuardFlag.scoped = staticmethod(_set_global), staticmethod(_scoped)


def follow() -> None:
    """Forwards flags that were set before this module was imported, as by the environment."""
    found = [f for f in FLAGS.values() if isinstance(f, GuardFlag) and f.value != f.default]
    for flag in found:
        _set_global(flag.name, flag.value)
        for part in flag.parts:
            if part.value == part.default:
                part.set(flag.value)
