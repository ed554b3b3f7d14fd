"""The device attributes that types use; otherwise a device is any opaque hashable object.

The attributes are `process_index`, `client.process_index`, `default_memory` and
`addressable_memories`. A device without them belongs to this process and has no memory kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from shardwise._src.messages.formatting import join
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.target_machines import is_compile_only, machines_of

Device: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A device without hardware: programs can be lowered for it but not run on it."""

    id: int
    platform: str
    device_kind: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.id} (described)"


def is_described(devices: Sequence[Device]) -> bool:
    """Whether these are described devices, without hardware."""
    return len(devices) > 0 and devices[0].__class__ is DescribedDevice


def is_attached(devices: Sequence[Device]) -> bool:
    """Whether arrays can be on these devices, which have hardware here."""
    return not (is_described(devices) or is_compile_only(devices))


def check_distinct(kind: str, devices: Sequence[Device]) -> None:
    """Raises ValueError if a mesh or sharding, a `kind`, has a device twice, or mixes devices that
    are only described with others."""
    if len(set(devices)) != len(devices):
        twice = next(d for i, d in enumerate(devices) if d in devices[:i])
        raise ValueError(f"{kind} got the device {twice} twice; each device may occur only once.")
    machines = machines_of(devices)
    if len(machines) > 1:
        raise ValueError(
            f"{kind} mixes {' and '.join(machines)}. Its devices must be of one machine, since one "
            "compiler makes a program for all of them."
        )


def process_of(device: Device) -> int:
    """The process that the device belongs to; 0 if it has no process index."""
    return getattr(device, "process_index", 0)


def process_of_client(device: Device) -> int:
    """The index of this process, from the device's client; 0 if it has none."""
    client: Any = getattr(device, "client", None)
    if client is None:
        return 0
    index: Any = client.process_index
    return cast(int, index() if callable(index) else index)


def processes_text(numbers: Sequence[int]) -> str:
    """`process 1`, `the processes [0, 1]`."""
    return f"process {numbers[0]}" if len(numbers) == 1 else f"the processes {list(numbers)}"


def is_addressable(device: Device) -> bool:
    """Whether the device belongs to this process."""
    return process_of(device) == process_of_client(device)


def memory_kinds(device: Device) -> tuple[str, ...]:
    """The memory kinds of the device, if it belongs to this process and lists them."""
    if is_compile_only((device,)) and (kinds := platform_of(device).memory_kinds):
        return kinds
    memories = getattr(device, "addressable_memories", None)
    if memories is None or not is_addressable(device):
        return ()
    return tuple(memory.kind for memory in memories())


def default_memory_kind(device: Device) -> str | None:
    """The memory kind that the device uses by default."""
    if is_compile_only((device,)) and (kinds := platform_of(device).memory_kinds):
        return kinds[0]
    memory = getattr(device, "default_memory", None)
    if memory is None or not is_addressable(device):
        return None
    return memory().kind


def canonical_memory_kind(devices: tuple[Device, ...], kind: str | None) -> str | None:
    """The kind, or None if it is the default one. Only devices of this process are queried."""
    if kind is None:
        return None
    device = next(filter(is_addressable, devices), None)
    if device is None:
        return kind
    known = memory_kinds(device)
    if known and kind not in known:
        raise ValueError(
            f"the device {device} has no memory of kind {kind!r}; it has {join(known)}."
        )
    return None if kind == default_memory_kind(device) else kind


def kind_text(memory_kind: str | None) -> str:
    """For a repr: an empty string for the default kind."""
    return "" if memory_kind is None else f", memory_kind={memory_kind!r}"
