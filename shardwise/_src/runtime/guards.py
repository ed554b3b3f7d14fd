"""What the runtime is told of the flags `transfer_guard…` and `array_garbage_collection_guard`.

jaxlib itself looks at each transfer, and at each array that Python's collector frees. It has a
value for all threads and one for each, which counts where it is set. `device_put` and `device_get`
are explicit transfers; all others, of arguments that are NumPy's for example, are implicit.

The flags are public from here, so that whoever sets one has this module.
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
# Whether a guard of transfers was ever set: whoever marks explicit ones asks this first.
used = False


def _level(name: str, value: str) -> tuple[str, Any]:
    """The runtime's name of a guard, and of what it is to do."""
    if name == "array_garbage_collection_guard":
        return "garbage_collect_array", getattr(_guards.GarbageCollectionGuardLevel, value.upper())
    level = getattr(_guards.TransferGuardLevel, value.upper())
    return name.removeprefix("transfer_guard_"), level


def _tell(name: str, value: str) -> None:
    global used
    if name == "transfer_guard":  # its parts are told
        return
    used = True
    place, level = _level(name, value)
    setattr(_guards.global_state(), place, level)
    own = _guards.thread_local_state()
    if getattr(own, place) is not None:
        setattr(own, place, level)


@contextmanager
def _told(name: str, value: str) -> Generator[None]:
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
    """Transfers inside a `with` block are explicit. what: `put` or `get`."""
    state, name = _guards.thread_local_state(), f"explicit_device_{what}"
    before = getattr(state, name)
    setattr(state, name, True)
    try:
        yield
    finally:
        setattr(state, name, before)


@contextmanager
def between_devices() -> Generator[None]:
    """Copies inside a `with` block count as those between devices, though they go over the host."""
    state = _guards.thread_local_state()
    before = state.host_to_device, state.device_to_host
    level = state.device_to_device
    state.host_to_device = _guards.global_state().device_to_device if level is None else level
    state.device_to_host = _guards.TransferGuardLevel.ALLOW
    try:
        yield
    finally:
        state.host_to_device, state.device_to_host = before


def is_explicit(what: str) -> bool:
    return getattr(_guards.thread_local_state(), f"explicit_device_{what}")


GuardFlag.tell, GuardFlag.told = staticmethod(_tell), staticmethod(_told)


def follow() -> None:
    """Tells the runtime of what was set before this module was there, as by the environment."""
    found = [f for f in FLAGS.values() if isinstance(f, GuardFlag) and f.value != f.default]
    for flag in found:
        _tell(flag.name, flag.value)
        for part in flag.parts:
            if part.value == part.default:
                part.set(flag.value)
