"""How an array is resharded: the strategy is chosen here, from types and shardings alone.

`transfer.move` executes the steps returned by `reshard_steps`, in order; `planner.transfer_plan`
adds up their costs. docs/design/0012-moving-arrays.md explains how the strategies are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.arrays.interchange import SUBBYTE
from shardwise._src.arrays.signature import Signature
from shardwise._src.lowering.layouts_and_memory import stated_kind
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.transfers.regions import within_processes
from shardwise._src.types.sharding import GSPMDSharding
from shardwise._src.types.tiling import Tiling


@dataclass(frozen=True, slots=True)
class ReshardStep:
    """One step of resharding an array.

    act: a strategy of `transfer.STRATEGIES`, or a step of `transfer.move` before or after it:
        "layout" (`to` is a layout), "op" (a sharding), "convert" (a dtype), "move" (a sharding; the
        strategy is chosen then); inside of strategies "reshard" and "relabel" (shardings).
    """

    act: str
    to: Any


def reshard_steps(
    sig: Signature, target: Any, on_cpu: bool, ready: Callable[[], bool]
) -> tuple[ReshardStep, ...]:
    """The steps for an array that does not have the sharding `target` yet.

    on_cpu: whether its devices are CPUs; ready: whether its value has been computed.
    """
    if sig.layout is not None:
        return ReshardStep("layout", None), ReshardStep("move", target)
    if sig.sharding.partial_axes[0]:  # unreduced: only a program can take the sum
        if _same_sums(sig, target):
            return (ReshardStep("relabel" if sig.devices == target.devices else "copy", target),)
        return ReshardStep("op", without_unreduced(sig.sharding)), ReshardStep("move", target)
    if target.partial_axes[0]:
        there = ReshardStep("op", target), ReshardStep("relabel", target)
        if getattr(sig.sharding, "mesh", None) is target.mesh:
            return there
        return ReshardStep("move", without_unreduced(target)), *there
    way = strategy(sig, target, on_cpu, ready)
    over_processes = way == "host" and not sig.sharding.is_fully_addressable
    if is_subbyte(sig) and (way == "between" or over_processes):
        dtype = sig.type.dtype
        wide = np.dtype(SUBBYTE[dtype.name])
        there = ReshardStep("move", target)
        return ReshardStep("convert", wide), there, ReshardStep("convert", dtype)
    return (ReshardStep(way, target),)


def strategy(sig: Signature, target: Any, on_cpu: bool, ready: Callable[[], bool]) -> str:
    """The strategy to reshard an array, one of `transfer.STRATEGIES`.

    Over the same devices, a program moves the data between them ("program"). On CPU, where all
    devices share the host's memory, assembling shards there is faster and needs no compilation
    ("host"), unless the array is still being computed: a program can wait without blocking the
    caller. Other devices get full shards ("copy") or pieces of several ("pieces"; on CPU, and
    between platforms, "host"). "between" is for processes that do not hold what their devices
    need; a committed array of a single process counts as the same in all processes, except if it is
    moved to devices of other processes only.
    """
    here = sig.sharding
    if sig.devices == target.devices or here.device_set == target.device_set:
        return "host" if on_cpu and _better_on_host(sig, target, ready) else "program"
    same_platform = platform_of(sig.devices[0]) is platform_of(target.devices[0])
    if same_platform and same_tiles(sig, target):
        return "copy"
    if here.is_fully_addressable and not target.is_fully_addressable:
        if sig.committed and processes_of(here).isdisjoint(processes_of(target)):
            return "between"
        return "host"  # each process has the value, like a host value
    if not within_processes(here, target, sig.stored.shape):
        return "between"
    return "host" if on_cpu or not same_platform else "pieces"


def _better_on_host(sig: Signature, target: Any, ready: Callable[[], bool]) -> bool:
    here, ndim = sig.sharding, sig.type.ndim
    return (
        here.is_fully_addressable
        and stated_kind(here) is None
        and stated_kind(target) is None
        and not is_subbyte(sig)
        and not here.is_equivalent_to(aligned(target, here.devices, ndim), ndim)
        and ready()
    )


def on_same_devices(sig: Signature, target: Any) -> tuple[ReshardStep, ...]:
    """The steps of the strategy "program". Programs work on the default memory kind."""
    here, ndim = sig.sharding, sig.type.ndim
    working, kind = here.with_memory_kind(None), here.memory_kind
    there = aligned(target, here.devices, ndim).with_memory_kind(None)
    found: list[ReshardStep] = []
    if not working.is_equivalent_to(there, ndim):
        if here is not working:
            found.append(ReshardStep("copy", working))
        found.append(ReshardStep("reshard", there))
        kind = there.memory_kind
    if kind == target.memory_kind:
        return (*found, ReshardStep("relabel", target))
    there = ReshardStep("relabel", target.with_memory_kind(kind))
    return (*found, there, ReshardStep("copy", target))


def by_pieces(sig: Signature, target: Any) -> tuple[ReshardStep, ...]:
    """The steps of the strategy "pieces", which works in default device memory."""
    before: tuple[ReshardStep, ...] = ()
    if stated_kind(sig.sharding) is not None:
        before = (ReshardStep("copy", sig.sharding.with_memory_kind(None)),)
    if stated_kind(target) is None:
        return (*before, ReshardStep("join", target))
    there = ReshardStep("join", target.with_memory_kind(None))
    return (*before, there, ReshardStep("copy", target))


def same_tiles(sig: Signature, target: Any) -> bool:
    """Whether shards can be copied from device i to device i, each within one process."""
    ndim = sig.physical.ndim
    mine, theirs = sig.sharding.tiling(ndim), target.tiling(ndim)
    if len(sig.devices) != len(target.devices) or mine.dims != theirs.dims:
        return False
    pairs = zip(sig.devices, target.devices, strict=True)
    return all([a.process_index == b.process_index for a, b in pairs]) and (
        mine.tile_assignment().tolist() == theirs.tile_assignment().tolist()
    )


def aligned(sharding: Any, devices: tuple, ndim: int) -> Any:
    """An equivalent sharding, with the same shard on each device and the devices in this order."""
    if sharding.devices == devices:
        return sharding
    tiling = sharding.tiling(ndim)
    position = {d: i for i, d in enumerate(devices)}
    place = [position[d] for d in sharding.devices]
    order = tuple(place[p] for p in tiling.tile_assignment().ravel().tolist())
    same = Tiling(tiling.dims, (len(devices),), (0,), tiling.replicated, assignment=order)
    return GSPMDSharding(devices, same, sharding.memory_kind)


def _same_sums(sig: Signature, target: Any) -> bool:
    """Whether both shardings split a value into the same partial sums, in the same order."""
    here = sig.sharding
    if target.partial_axes != here.partial_axes or not same_tiles(sig, target):
        return False
    return here.mesh.shape_tuple == target.mesh.shape_tuple and (
        here.memory_kind == target.memory_kind
    )


def without_unreduced(sharding: Any) -> Any:
    return sharding.with_spec(sharding.spec.update(unreduced=frozenset()))


def is_subbyte(sig: Signature) -> bool:
    """Whether elements are sub-byte, so that NumPy cannot read them from a device."""
    return sig.physical.dtype.name in SUBBYTE


def processes_of(sharding: Any) -> set[int]:
    return {d.process_index for d in sharding.devices}
