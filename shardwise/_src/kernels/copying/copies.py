"""Asynchronous copies between refs, and semaphores, as ops on versions.

    kernel_copy(source, target, semaphores…, starts…, [device, active])  → target', semaphores'…
    kernel_wait_copy(ref, semaphore, starts…)                            → ref', semaphore'
    kernel_signal(semaphore, amount, starts…, [device, active])          → semaphore'
    kernel_wait(semaphore, amount, starts…)                              → semaphore'

The parameter `copy_params` states which elements they access, `program` what CPUs run: a copy is
done when it starts, and adds its bytes to its semaphore; waiting subtracts them. A copy to another
device has two semaphores: that of the receiving device, and one here for the end of reading. Its
device is a position along `copy_params.axes`. `active` states whether this device copies at all, as
in a branch that not all devices take (`in_step`); all devices run the program of such an
op together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.call import described_call
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.accesses import Region
from shardwise._src.kernels.simulation import fail_if
from shardwise._src.lax.parallel import all_gather, axis_index
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.shape import concatenate
from shardwise._src.values.indexing import getitem

# Ops on semaphores happen also if nothing uses the next versions.
RETAINED = frozenset({"copies and semaphores"})

kernel_copy = described_call("kernel_copy", effects=RETAINED)
kernel_wait_copy = described_call("kernel_wait_copy", effects=RETAINED)
kernel_signal = described_call("kernel_signal", effects=RETAINED)
kernel_wait = described_call("kernel_wait", effects=RETAINED)


class CopyParams(NamedTuple):
    """The static facts of a copy, or of an op on a semaphore.

    regions: of the refs that are its first operands.
    axes:    names of the mesh axes along which other devices are; none for work within a device.
    amount:  whether an amount follows the refs.
    core:    whether the number of the core that is signaled follows that, and that of this core.
    priority: of a copy, on TPUs. add: whether a copy adds to its target.
    """

    regions: tuple[Region, ...]
    axes: tuple[Any, ...] = ()
    amount: bool = False
    core: bool = False
    priority: int = 0
    add: bool = False

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[list[Any]], list[Any]]:
        """The versions, where their regions start, and the other operands."""
        rest = iter(operands)
        versions = [*islice(rest, len(self.regions))]
        amount = [*islice(rest, int(self.amount) + 2 * int(self.core))]
        starts = [[*islice(rest, len(region.sizes))] for region in self.regions]
        return versions, starts, [*amount, *rest]


def _copy(copy_params: CopyParams, *operands: Any) -> list[Any]:
    versions, starts, rest = copy_params.parts(operands)
    (source, target, done, *left), (at, to, counted, *left_at) = versions, starts
    regions = copy_params.regions
    value, size = regions[0].load(source, at), _size(regions[1], target)

    def receive(state: Any, value: Any, places: Any, hit: Any) -> Any:
        mask = None if hit is None else broadcast_in_dim(hit, shape=type_of(value).shape, dims=())
        mode = "add" if copy_params.add else "set"
        new = regions[1].store(state[0], value, places[: len(to)], mode, mask)
        return new, _add(regions[2], state[1], places[len(to) :], size, hit)

    state = _exchanged(copy_params, rest, value, [*to, *counted], receive, (target, done))
    return [*state, *[_add(regions[3], left[0], at, size, rest[1]) for at in left_at]]


def _wait_copy(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (held, semaphore), (_, at), _ = copy_params.parts(operands)
    size = _size(copy_params.regions[0], held)
    return [held, _add(copy_params.regions[1], semaphore, at, -size)]


def _signal(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (semaphore,), (at,), (amount, *rest) = copy_params.parts(operands)
    if copy_params.core:
        core, own, *rest = rest
        fail_if(ew.ne(core, own), between_cores, core, own)

    def receive(state: Any, amount: Any, places: Any, hit: Any) -> Any:
        return _add(copy_params.regions[0], state, places, amount, hit)

    return [_exchanged(copy_params, rest, amount, at, receive, semaphore)]


def between_cores(core: Any, own: Any) -> str:
    """The error of a signal from one core to another one."""
    return (
        f"semaphore_signal: core {own} signals core {core}, but the cores of a device run one "
        "after another on CPUs. Use one core there."
    )


def _wait(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (semaphore,), (at,), (amount,) = copy_params.parts(operands)
    return [_add(copy_params.regions[0], semaphore, at, ew.neg(amount))]


RUNS = {kernel_copy: _copy, kernel_wait_copy: _wait_copy, kernel_signal: _signal}
RUNS[kernel_wait] = _wait


def _size(region: Region, version: Any) -> np.int32:
    """Bytes."""
    return np.int32(math.prod(region.sizes) * type_of(version).dtype.itemsize)


def _add(region: Region, semaphore: Any, at: Sequence[Any], amount: Any, active: Any = None) -> Any:
    if active is not None:
        amount = ew.where(active, amount, np.int32(0))
    return region.store(semaphore, amount, at, mode="add")


def _exchanged(
    copy_params: CopyParams,
    others: Sequence[Any],
    value: Any,
    places: Sequence[Any],
    receive: Callable[..., Any],
    state: Any,
) -> Any:
    """Receives what devices send, in their order: `receive(state, value, places, is_for_me)`.

    others: to which device this one sends, and whether it does. Within a device there are none,
    and `is_for_me` is None.
    """
    if not copy_params.axes:
        return receive(state, value, places, None)
    device, active = others
    target = ew.where(active, device, np.int32(-1))
    row = concatenate(*[reshape(x, shape=(1,)) for x in (target, *places)], dimension=0)
    rows, values = all_gather(row, copy_params.axes), all_gather(value, copy_params.axes)
    me = axis_index(copy_params.axes)

    def add_row(sender: Any, state: Any) -> Any:
        row = getitem(rows, sender)
        hit = ew.eq(getitem(row, 0), me)
        at = [getitem(row, 1 + i) for i in range(len(places))]
        return receive(state, getitem(values, sender), at, hit)

    return fori_loop(0, type_of(rows).shape[0], add_row, state)
