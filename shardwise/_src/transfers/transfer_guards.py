"""Transfers that the flags `transfer_guard…` disallow: errors that name the source and target.

jaxlib checks each transfer and raises; it knows neither the function's argument nor the name of
the sharding. The exception keeps its class.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shardwise._src.arrays.signature import Signature
from shardwise._src.base.flags import FLAGS
from shardwise._src.runtime import guards
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.sharding import SingleDeviceSharding

_DISALLOWED = re.compile(r"Disallowed (\w+-to-\w+) transfer")
_DIRECT = "Disallowed device-to-device transfer"
_of_host: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def is_disallowed(error: BaseException) -> bool:
    """Whether an error of the runtime comes from a transfer guard."""
    return isinstance(error, RuntimeFailure) and _DISALLOWED.search(str(error)) is not None


def disallowed(
    error: BaseException, t: ArrayType, source: Any, target: Any, name: str = ""
) -> Exception:
    """The error to raise for one that satisfies `is_disallowed`.

    source, target: shardings; None for the host. name: the value's name in a function.
    """
    found = _DISALLOWED.search(str(error))
    direction = found[1] if found else ""
    flag = f"transfer_guard_{direction.replace('-', '_')}"
    value = FLAGS[flag].value
    explicit = guards.is_explicit("get" if direction.endswith("host") else "put")
    kind = f"of type {t.str_short(True)}"
    what = f"{name}, {kind}," if name else f"a value {kind}"
    if explicit:
        advice = "That value rejects explicit transfers, too. Allow it"
    elif direction.endswith("host"):
        advice = "Use `shardwise.device_get`, which is explicit, or allow it"
    else:
        where = "" if target is None or _is_one(target) else ", sharding"
        advice = f"Use `shardwise.device_put(x{where})`, which is explicit, or allow it"
    return RuntimeFailure(
        f"INVALID_ARGUMENT: Disallowed {direction} transfer: {what} was to go from "
        f"{_place(source)} to {_place(target)}, and the flag {flag} is {value!r}. {advice}: "
        f'`with shardwise.{flag}("allow"):`.'
    )


@contextmanager
def copy_between_devices(source: Any, target: Any) -> Generator[None]:
    """A block that copies between devices by way of the host, and counts as a direct copy.

    Over the same devices in another order it counts as a program, as in JAX.
    """
    is_same_set = source.device_set == target.device_set
    try:
        with guards.between_devices(is_same_set and source.devices != target.devices):
            yield
    except RuntimeFailure as error:
        if is_disallowed(error):
            raise RuntimeFailure(_DISALLOWED.sub(_DIRECT, str(error))) from None
        raise


def host_operand(x: Any) -> Any:
    """Marks an array as the operand of an eager op that was a host value; returns it."""
    if guards.used:
        _of_host[id(x)] = x
    return x


def is_host_operand(x: Any) -> bool:
    return _of_host.get(id(x)) is x


@contextmanager
def guarded(sig: Signature) -> Generator[None]:
    """A block that transfers a host value to the sharding of a signature."""
    try:
        yield
    except RuntimeFailure as error:
        if is_disallowed(error):
            raise disallowed(error, sig.type, None, sig.sharding) from None
        raise


def _place(sharding: Any) -> str:
    if sharding is None:
        return "the host"
    if _is_one(sharding):
        return f"device {sharding.devices[0].id}"
    return f"{sharding}"


def _is_one(sharding: Any) -> bool:
    return isinstance(sharding, SingleDeviceSharding)
