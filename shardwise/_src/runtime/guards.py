"""Forwards the flags `transfer_guard…` and `array_garbage_collection_guard` to the runtime.

jaxlib itself checks each transfer, and each array freed by Python's garbage collector. It has a
global value and one for each thread, which takes precedence if set. `device_put` and `device_get`
are explicit transfers; all others, such as those of NumPy arguments, are implicit.

The flags are re-exported here, so that setting one imports this module.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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

_guards = _jax.guard_lib
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
def _with(**values: Any) -> Generator[None]:
    """Sets attributes of this thread's state inside a `with` block."""
    state = _guards.thread_local_state()
    before = {name: getattr(state, name) for name in values}
    for name, value in values.items():
        setattr(state, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(state, name, value)


def _scoped(name: str, value: str) -> AbstractContextManager[None]:
    global used
    if name == "transfer_guard":
        return nullcontext()
    used = True
    place, level = _level(name, value)
    return _with(**{place: level})


def explicitly(what: str) -> AbstractContextManager[None]:
    """Marks transfers inside a `with` block as explicit. what: `put` or `get`."""
    return _with(**{f"explicit_device_{what}": True})


def between_devices(is_program: bool) -> AbstractContextManager[None]:
    """Treats copies inside a `with` block as device-to-device, though they go through the host;
    or as a program's, which is not guarded."""
    allow = _guards.TransferGuardLevel.ALLOW
    if is_program:
        return _with(host_to_device=allow, device_to_host=allow)
    set_in = (_guards.thread_local_state(), _guards.global_state())
    levels = [state.device_to_device for state in set_in]
    level = next((level for level in levels if level is not None), allow)
    return _with(host_to_device=level, device_to_host=allow)


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
