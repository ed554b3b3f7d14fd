"""Devices that are not attached, for which a platform's compiler makes programs.

    target = described("h100:8", CUDA, topology, "cuda plugin 0.10.2")
    target_of(target.devices[0]) is target

They are devices like others, except that their client can only compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib import _jax

from shardwise._src.runtime import platforms, processes
from shardwise._src.runtime.platforms import Platform


@dataclass(frozen=True, eq=False)
class Target:
    """A machine that programs are compiled for.

    name:     as users write it: "h100:8".
    kind:     the description of its devices, a `Gpu` or `Tpu` of the package `targets`.
    is_named: whether its name finds it again, so that its devices can be pickled.
    node:     the devices of a node; None if it has no nodes.
    devices:  all of them, of one client.
    compiler: the package and version of the platform's compiler.
    """

    name: str
    kind: Any
    is_named: bool
    node: int | None
    platform: Platform
    devices: tuple[_jax.Device, ...]
    compiler: str

    def __repr__(self) -> str:
        return f"Target({self.name!r})"


_targets: dict[int, Target] = {}  # by the identity of their client, which they keep


def described(
    name: str,
    kind: Any,
    is_named: bool,
    node: int | None,
    platform: Platform,
    topology: _jax.DeviceTopology,
    compiler: str,
) -> Target:
    """The target of a topology, with new devices."""
    devices = topology._make_compile_only_devices()
    target = Target(name, kind, is_named, node, platform, tuple(devices), compiler)
    client = devices[0].client
    platforms.described(platform, client)
    _targets[id(client)] = target
    return target


def target_of(device: Any) -> Target | None:
    """The target that a device belongs to; None for a device that is attached."""
    return _targets.get(id(getattr(device, "client", None)))


def is_compile_only(devices: Sequence[Any]) -> bool:
    """Whether programs for these devices can be compiled but not run."""
    return bool(_targets) and len(devices) > 0 and target_of(devices[0]) is not None


def is_elsewhere(devices: Sequence[Any]) -> bool:
    """Whether programs for these devices run in other processes only."""
    if processes.link() is None or is_compile_only(devices):
        return False
    return all([d.process_index != d.client.process_index() for d in devices])


def machines_of(devices: Sequence[Any]) -> list[str]:
    """The machines that devices belong to, by name, if any is only described."""
    if not _targets:
        return []
    clients = {id(getattr(device, "client", None)) for device in devices}
    targets = [_targets.get(client) for client in clients]
    if not any(targets):
        return []
    return sorted({"devices of this process" if t is None else repr(t.name) for t in targets})


def check_attached(devices: Sequence[Any], what: str = "an array") -> None:
    """Raises RuntimeError if devices are only described, so that nothing can be put on them."""
    if is_compile_only(devices):
        target = target_of(devices[0])
        assert target is not None
        raise RuntimeError(
            f"{what} cannot be put on the devices of {target.name!r}: they are only described, so "
            "that programs for them can be compiled. Pass `ShapeDtypeStruct`s with shardings over "
            "them to `jit(f).lower` or `explain(f)`."
        )


def not_attached(what: str, device: Any) -> RuntimeError:
    """The error for a computation or transfer that needs the devices of a target."""
    target = target_of(device)
    name = "a described machine" if target is None else repr(target.name)
    return RuntimeError(
        f"{what} needs the devices of {name}, but they are only described here: programs for "
        "them can be compiled, and not run. Run it on the machine itself, or on "
        "`shardwise.devices()`."
    )
