"""Clients and devices: enumeration, lazy start, and pickling."""

from __future__ import annotations

import copyreg
import functools
import sys
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from jaxlib import _jax
from jaxlib import version as _version

from shardwise._src.base.caches import cached
from shardwise._src.base.config import default_device, num_cpu_devices, platforms
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.runtime import forks, guards, processes
from shardwise._src.runtime import platforms as registry
from shardwise._src.runtime.target_machines import target_of

JAXLIB_VERSION = _version.__version__
JAXLIB: tuple[int, ...] = tuple([int(part) for part in JAXLIB_VERSION.split(".")[:2]])
RuntimeFailure = _jax.JaxRuntimeError
Device = _jax.Device
Client = _jax.Client

_lock = threading.RLock()
_clients: dict[str, Client] = {}
_failures: dict[str, str] = {}
_starting: set[str] = set()  # platforms whose client is being made
# Called before devices are started: `distributed.launched` joins other processes.
before_start: Callable[[], None] | None = None


def started() -> Mapping[str, Client]:
    """A live view of the clients, by platform."""
    return MappingProxyType(_clients)


def client(platform: str | None = None) -> Client:
    """The client of a platform, made on first use; without a platform, the default one."""
    if platform is None:
        return _default_client()
    found = _clients.get(platform)
    if found is not None:
        return found
    record = registry.startable(platform)
    name, make = record.name, cast("Callable[[], Any]", record.make_client)
    with _lock:
        if name not in _clients:
            if name in _failures:
                raise RuntimeError(_failures[name])
            if name in _starting:
                raise RuntimeError(f"its `make_client` uses the devices of {name!r} itself")
            if before_start is not None:
                before_start()
            processes.meet_to_start(name)
            _starting.add(name)
            try:
                with uninterrupted():
                    made: Any = make()
                    same = [n for n, c in _clients.items() if c is made]
                    if not isinstance(made, Client) or same:
                        what = f"the client of {same[0]!r}" if same else repr(made)
                        raise TypeError(
                            f"make_client must return a new PJRT client; got {what} of type "
                            f"{type(made).__name__}."
                        )
                    registry.started(record, made)
                    _clients[name] = made
                    forks.devices_started()
            except Exception as error:
                _failures[name] = f"platform {name!r} could not be started: {error}"
                raise RuntimeError(_failures[name]) from error
            finally:
                _starting.discard(name)
    return _clients[name]


@functools.cache
def _default_client() -> Client:
    wanted = platforms.value
    if wanted:
        return client(wanted.split(",")[0].strip())
    return client(registry.default().name)


guards.follow()


def clients() -> dict[str, Client]:
    """The started clients, by platform name."""
    return dict(_clients)


def is_started() -> bool:
    """Whether devices were started; then it is too late to join other processes."""
    return bool(_clients)


def _started() -> str:
    return ", ".join(f"{len(c.devices())} of {name}" for name, c in _clients.items())


def _only_before_start(flag: Any) -> Any:
    def guard(value: Any) -> None:
        if _clients and value != flag.value:
            raise RuntimeError(
                f"{flag.name} cannot be set to {value!r} any more: the devices ({_started()}) have "
                "already been started. Set it before the first use of an array or device, or with "
                f"the environment variable SHARDWISE_{flag.name.upper()}."
            )

    return guard


def _check_device(value: Any) -> None:
    if value is not None and not isinstance(value, Device | str):
        raise TypeError(
            f"default_device must be a device, a platform's name or None; got {value!r} of type "
            f"{type(value).__name__}."
        )


default_device.guard = _check_device
num_cpu_devices.guard = _only_before_start(num_cpu_devices)
platforms.guard = _only_before_start(platforms)


def devices(platform: str | None = None) -> list[Device]:
    return client(platform).devices()


def local_devices(platform: str | None = None) -> list[Device]:
    return client(platform).local_devices()


def process_index(platform: str | None = None) -> int:
    return client(platform).process_index()


def _reduced(device: Device) -> tuple[Any, ...]:
    if (target := target_of(device)) is not None:
        if not target.is_named:
            raise TypeError(
                f"cannot pickle a device of {target.name!r}, a topology without a name. Use the "
                "devices of `shardwise.targets.devices(name)`."
            )
        return reduced("described device", target.name, device.id)
    if device.client not in _clients.values():
        raise TypeError(f"cannot pickle the device {device}: another library started it.")
    return reduced("device", registry.platform_of(device).name, device.id)


def _device(platform: str, number: int) -> Device:
    """The device that a pickle names; the process that reads it must have such a device."""
    try:
        known = _numbered(client(platform))
    except RuntimeError as error:
        raise RuntimeError(
            f"this was written for devices of {platform!r}, which this process cannot use. Read it "
            f"on such a machine. ({error})"
        ) from error
    if number not in known:
        raise ValueError(
            f"a pickle refers to device {number} of platform {platform!r}, but there are only "
            f"{len(known)} in this process. Read it with as many devices as it was written with."
        )
    return known[number]


@cached(4)
def _numbered(client: Client) -> dict[int, Device]:
    return {device.id: device for device in client.devices()}


copyreg.pickle(Device, _reduced)
read_by("device", _device)


_their_live_buffers = Device.live_buffers


def _live_buffers(device: Device) -> list[Any]:
    """`Device.live_buffers`, which is unchanged for devices of other clients."""
    if all(client is not device.client for client in _clients.values()):
        return _their_live_buffers(device)
    raise RuntimeError(
        "Device.live_buffers() was removed: an array may be on many devices. Use "
        "shardwise.live_arrays(), and `x.addressable_shards` for the shard on a device."
    )


Device.live_buffers = _live_buffers


forks.closed_by_fork(sys.modules[__name__], "client")
