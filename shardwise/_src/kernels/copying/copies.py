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
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.call import described_call
from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.kernels.accesses import INT32, kernel_store
from shardwise._src.kernels.ref_access import load_elements
from shardwise._src.lax.parallel import all_gather, axis_index
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.shape import concatenate
from shardwise._src.transforms.stage import program_of
from shardwise._src.values.convert import cast
from shardwise._src.values.indexing import getitem

# Ops on semaphores happen also if nothing uses the next versions.
RETAINED = frozenset({"copies and semaphores"})

kernel_copy = described_call("kernel_copy", effects=RETAINED)
kernel_wait_copy = described_call("kernel_wait_copy", effects=RETAINED)
kernel_signal = described_call("kernel_signal", effects=RETAINED)
kernel_wait = described_call("kernel_wait", effects=RETAINED)


class Region(NamedTuple):
    """Along each dimension of a ref: how many elements, how far apart, and whether the accessed
    elements have the dimension. Operands say where it starts."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[bool, ...]

    def load(self, version: Any, starts: Sequence[Any]) -> Any:
        return load_elements(version, starts, self._asdict())

    def store(
        self, version: Any, value: Any, starts: Sequence[Any], mode: str = "set", mask: Any = None
    ) -> Any:
        more = (
            () if mask is None else (broadcast_in_dim(mask, shape=type_of(value).shape, dims=()),)
        )
        static = self._asdict() | {"masked": mask is not None, "mode": mode}
        return kernel_store(version, value, *starts, *more, **static)


class CopyParams(NamedTuple):
    """The static facts of a copy, or of an op on a semaphore.

    regions: of the refs that are its first operands.
    axes:    names of the mesh axes along which other devices are; none for work within a device.
    amount:  whether an amount follows the refs.
    priority: of a copy, on TPUs.
    """

    regions: tuple[Region, ...]
    axes: tuple[Any, ...] = ()
    amount: bool = False
    priority: int = 0

    def parts(self, operands: Sequence[Any]) -> tuple[list[Any], list[list[Any]], list[Any]]:
        """The versions, where their regions start, and the other operands."""
        count = len(self.regions)
        versions, rest = list(operands[:count]), list(operands[count:])
        more = [rest.pop(0)] if self.amount else []
        starts = []
        for region in self.regions:
            n = len(region.sizes)
            starts.append(rest[:n])
            rest = rest[n:]
        return versions, starts, more + rest


def bound(
    op: Op, run: Callable[..., list[Any]], copy_params: CopyParams, operands: Sequence[Any]
) -> list[Any]:
    """The results of an op with these parameters."""
    types = tuple(map(type_of, operands))
    program = program_of(lambda *xs: run(copy_params, *xs), types, op.name)
    return list(op(*operands, program=program, copy_params=copy_params))


def copy(copy_params: CopyParams, *operands: Any) -> list[Any]:
    versions, starts, rest = copy_params.parts(operands)
    (source, target, done, *left), (at, to, *counted) = versions, starts
    value = copy_params.regions[0].load(source, at)
    size = _size(copy_params.regions[1], target)
    if not copy_params.axes:
        return [
            copy_params.regions[1].store(target, value, to),
            _add(copy_params.regions[2], done, counted[0], size),
        ]
    device, active = rest
    spread = len(to)

    def receive(state: Any, value: Any, places: Any, hit: Any) -> Any:
        target, done = state
        new = copy_params.regions[1].store(target, value, places[:spread], mask=hit)
        return new, _add(copy_params.regions[2], done, places[spread:], size, hit)

    places = [*to, *counted[0]]
    target, done = _exchanged(
        copy_params.axes, device, active, value, places, receive, (target, done)
    )
    return [target, done, _add(copy_params.regions[3], left[0], counted[1], size, active)]


def wait_copy(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (held, semaphore), (_, at), _ = copy_params.parts(operands)
    size = _size(copy_params.regions[0], held)
    return [held, _add(copy_params.regions[1], semaphore, at, np.int32(-size))]


def signal(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (semaphore,), (at,), (amount, *rest) = copy_params.parts(operands)
    if not copy_params.axes:
        return [_add(copy_params.regions[0], semaphore, at, amount)]

    def receive(state: Any, amount: Any, places: Any, hit: Any) -> Any:
        return _add(copy_params.regions[0], state, places, amount, hit)

    device, active = rest
    return [_exchanged(copy_params.axes, device, active, amount, at, receive, semaphore)]


def wait(copy_params: CopyParams, *operands: Any) -> list[Any]:
    (semaphore,), (at,), (amount,) = copy_params.parts(operands)
    return [_add(copy_params.regions[0], semaphore, at, ew.neg(amount))]


def _size(region: Region, version: Any) -> int:
    """Bytes."""
    return math.prod(region.sizes) * type_of(version).dtype.itemsize


def _add(region: Region, semaphore: Any, at: Sequence[Any], amount: Any, active: Any = None) -> Any:
    amount = np.int32(amount) if isinstance(amount, int) else cast(amount, INT32)
    if active is not None:
        amount = ew.where(active, amount, np.int32(0))
    return region.store(semaphore, amount, at, mode="add")


def _exchanged(
    axes: tuple[Any, ...],
    device: Any,
    active: Any,
    value: Any,
    places: Sequence[Any],
    receive: Callable[..., Any],
    state: Any,
) -> Any:
    """Receives what devices send, in their order: `receive(state, value, places, is_for_me)`."""
    target = ew.where(active, device, np.int32(-1))
    row = concatenate(*[reshape(x, shape=(1,)) for x in (target, *places)], dimension=0)
    rows, values = all_gather(row, axes), all_gather(value, axes)
    me = axis_index(axes)

    def add_row(sender: Any, state: Any) -> Any:
        row = getitem(rows, sender)
        hit = ew.eq(getitem(row, 0), me)
        at = [getitem(row, 1 + i) for i in range(len(places))]
        return receive(state, getitem(values, sender), at, hit)

    return fori_loop(0, type_of(rows).shape[0], add_row, state)
