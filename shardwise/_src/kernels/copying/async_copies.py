"""Asynchronous copies and semaphores, as kernels use them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.accesses import INT32, as_int32
from shardwise._src.kernels.copying import copies
from shardwise._src.kernels.copying.copies import CopyParams
from shardwise._src.kernels.program_frames import require_frame, when
from shardwise._src.kernels.ref_access import AnyRef, Place, place_of, whole_ref
from shardwise._src.kernels.spaces import SemaphoreType, run_scoped
from shardwise._src.lax.parallel import axis_index
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.refs.ref_parts import Access
from shardwise._src.refs.refs import Ref, put, value_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import cast

P = ParamSpec("P")


class DeviceIdType(enum.Enum):
    """What the `device_id` of a copy or signal is.

    MESH: the device's position along each axis of the mesh, a tuple; or a dict from names of axes
      to positions, where other axes keep those of this device.
    LOGICAL: the number of the device in the mesh.
    """

    MESH = "mesh"
    LOGICAL = "logical"


class AsyncCopy:
    """A copy between refs: `start` it, and `wait` for its end before the refs are used again."""

    def __init__(self, source: AnyRef, target: AnyRef, semaphores: tuple[AnyRef, ...], to: Any):
        self.source, self.target, self.semaphores, self.to = source, target, semaphores, to

    def start(self, priority: int = 0, *, add: bool = False) -> None:
        """Starts the copy.

        priority: among those of a TPU's core, an integer from 0 on.
        add: whether to add to the elements of the target, on CPUs; TPUs only write them.
        """
        if isinstance(priority, bool) or not isinstance(priority, int) or priority < 0:
            raise ValueError(f"start: priority is an integer from 0 on; got {priority!r}.")
        refs = self.source, self.target, *self.semaphores
        _apply(copies.kernel_copy, refs, self.to, priority=priority, add=add)

    def wait(self) -> None:
        """Waits until the copy has ended: of one to another device, both sending and receiving."""
        if self.to is not None:
            self.wait_send()
        self.wait_recv()

    def wait_recv(self) -> None:
        """Waits until the target has been written: of a copy to another device, by the device that
        copies to this one."""
        _apply(copies.kernel_wait_copy, (self.target, self.semaphores[0]), self.to)

    def wait_send(self) -> None:
        """Waits until the source of a copy to another device has been read."""
        if self.to is None:
            raise ValueError("wait_send: this copy is within a device. Use `wait`.")
        _apply(copies.kernel_wait_copy, (self.source, self.semaphores[1]), self.to)


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> AsyncCopy:
    """A copy from one ref to another, of equal shape and dtype, which has not started.

        copy = make_async_copy(x.at[ds(i, 8)], buffer.at[0], semaphore)
        copy.start()
        ...
        copy.wait()

    src_ref, dst_ref: refs of a kernel, or parts of them: `ref.at[index]`.
    sem: one semaphore, `SemaphoreType.DMA`, that `wait` waits for.
    """
    source, target = _refs("make_async_copy", src_ref, dst_ref)
    return AsyncCopy(source, target, (_semaphore("make_async_copy", sem, True),), None)


def make_async_remote_copy(
    src_ref: Any,
    dst_ref: Any,
    send_sem: Any,
    recv_sem: Any,
    device_id: Any,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
) -> AsyncCopy:
    """A copy from a ref of this device to a ref of another one, inside of `shard_map`.

    All devices run the same kernel: each sends, and receives from the device that sends to it.

    Args:
      src_ref: of this device. dst_ref: of the other one, by the name that it has here.
      send_sem: of this device, for the end of reading. recv_sem: of the other one, for the end of
        writing. Both are `SemaphoreType.DMA`.
      device_id, device_id_type: of the other device: see `DeviceIdType`.
    """
    who = "make_async_remote_copy"
    source, target = _refs(who, src_ref, dst_ref)
    semaphores = _semaphore(who, recv_sem, True), _semaphore(who, send_sem, True)
    return AsyncCopy(source, target, semaphores, _device(who, device_id, device_id_type))


def async_copy(
    src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0, add: bool = False
) -> AsyncCopy:
    """Like `make_async_copy`, and starts the copy. priority, add: as of `AsyncCopy.start`."""
    made = make_async_copy(src_ref, dst_ref, sem)
    made.start(priority, add=add)
    return made


def _starting(make: Callable[P, AsyncCopy]) -> Callable[P, AsyncCopy]:
    @functools.wraps(make)
    def started(*args: P.args, **kwargs: P.kwargs) -> AsyncCopy:
        made = make(*args, **kwargs)
        made.start()
        return made

    doc = f"Like `{make.__name__}`, and starts the copy."
    return named(started, make.__name__.removeprefix("make_"), doc)


async_remote_copy = _starting(make_async_remote_copy)


def sync_copy(src_ref: Any, dst_ref: Any, *, add: bool = False) -> None:
    """Copies from one ref to another, or from each of a pytree, and waits for the end.

    add: as of `AsyncCopy.start`.
    """
    sources, tree = flatten(src_ref)
    targets, other = flatten(dst_ref)
    if tree != other:
        raise ValueError(f"sync_copy: the refs are in different pytrees, {tree} and {other}.")

    def copied(semaphore: Any) -> None:
        for pair in zip(sources, targets, strict=True):
            async_copy(*pair, semaphore, add=add).wait()

    run_scoped(copied, SemaphoreType.DMA)


class SelectedRef(Access):
    """One of several refs, by an index that may be traced: see `select_ref`."""

    def __init__(self, index: Any, refs: Sequence[Any]):
        self.index, self.refs = index, refs
        self.shape, self.dtype, self.space = refs[0].shape, refs[0].dtype, refs[0].space
        self.short = refs[0].short

    def get(self, idx: Any = ...) -> NoReturn:
        raise TypeError(
            f"select_ref: {self.short} is one of several refs, which copies take, but which cannot "
            "be read or written. Copy it: `sync_copy(selected, buffer)`."
        )

    def _write(self, method: str, idx: Any, value: Any) -> None:
        self.get()

    def part(self, index: Any) -> SelectedRef:  # type: ignore[override]
        return SelectedRef(self.index, [ref.at[index] for ref in self.refs])


def select_ref(idx: ArrayLike, *refs: Any) -> AnyRef | SelectedRef:
    """Ref number `idx` of several of one shape, dtype and memory space, for copies:

    async_copy(select_ref(i, x, y).at[0], buffer, semaphore)

    idx: an integer. A traced one that is out of range is that of the first or last ref.
    """
    found = [_kernel_ref("select_ref", ref) for ref in refs]
    if len({(ref.shape, ref.dtype, ref.space.name) for ref in found}) != 1:
        shown = ", ".join([f"{ref.short} in {ref.space}" for ref in found]) or "none"
        raise ValueError(
            f"select_ref: expected refs of one shape, dtype and memory space; got {shown}."
        )
    index = _integer("select_ref: the index is an integer", idx)
    if isinstance(idx, int | np.integer):
        if not 0 <= idx < len(found):
            raise ValueError(f"select_ref: there are {len(found)} refs; got the index {idx}.")
        return found[idx]
    inside = ew.max(ew.min(index, np.int32(len(found) - 1)), np.int32(0))
    return SelectedRef(inside, found)


def semaphore_signal(
    sem_or_view: Any,
    inc: ArrayLike = 1,
    *,
    device_id: Any = None,
    device_id_type: DeviceIdType = DeviceIdType.MESH,
    core_index: Any = None,
) -> None:
    """Adds to a semaphore, of this device or of another one.

    device_id, device_id_type: of the other device: see `DeviceIdType`.
    core_index: of the core of the device, by default this one. On CPUs, where cores run one after
      another, signaling another one is an error when the kernel runs.
    """
    who = "semaphore_signal"
    cores = None
    if core_index is not None:
        own = [axis.serial.value for axis in current().axes if axis.serial is not None]
        cores = _integer(f"{who}: core_index is an integer", core_index), (own or [np.int32(0)])[-1]
    ref = _semaphore(who, sem_or_view, False)
    to = None if device_id is None else _device(who, device_id, device_id_type)
    _apply(copies.kernel_signal, (ref,), to, _amount(who, inc), cores)


def semaphore_wait(sem_or_view: Any, value: ArrayLike = 1, *, decrement: bool = True) -> None:
    """Waits until a semaphore has a value, and subtracts it, unless `decrement` is False."""
    ref = _semaphore("semaphore_wait", sem_or_view, False)
    amount = _amount("semaphore_wait", value)
    _apply(copies.kernel_wait, (ref,), None, amount)
    if not decrement:
        semaphore_signal(sem_or_view, amount)


def semaphore_read(sem_or_view: Any) -> Array:
    """The value of a semaphore: an int32."""
    ref = _semaphore("semaphore_read", sem_or_view, None)
    place = _place(ref)
    return place.region.load(value_of(whole_ref(ref)), [*map(as_int32, place.starts)])


def get_barrier_semaphore() -> Ref:
    """The semaphore with which the devices that run a kernel wait for each other.

    The kernel must have a number for it: `params=CompilerParams(collective_id=0)`.
    """
    frame = require_frame("get_barrier_semaphore")
    if frame.barrier is None:
        raise ValueError(
            f"get_barrier_semaphore: kernel {frame.name} has no barrier. Give it a number: "
            "`params=CompilerParams(collective_id=0)`."
        )
    return frame.barrier


# -- refs, semaphores, devices --


def _kernel_ref(who: str, ref: Any) -> Any:
    if isinstance(ref, AnyRef | SelectedRef) and ref.space is not None:
        return ref
    raise TypeError(
        f"{who}: expected a ref of a kernel, or a part of one by integers, slices and `ds`; got "
        f"{short_repr(ref)}."
    )


def _refs(who: str, source: Any, target: Any) -> tuple[Any, Any]:
    source, target = _kernel_ref(who, source), _kernel_ref(who, target)
    if source.space.is_semaphore or target.space.is_semaphore:
        raise TypeError(f"{who}: semaphores cannot be copied.")
    for ref in target.refs if isinstance(target, SelectedRef) else [target]:
        ref.space.check_writable(whole_ref(ref))
    if (source.shape, source.dtype) != (target.shape, target.dtype):
        raise ValueError(
            f"{who}: {source.short} cannot be copied to {target.short}: they must have one shape "
            "and dtype."
        )
    return source, target


def _semaphore(who: str, ref: Any, is_dma: bool | None) -> AnyRef:
    """Checks a semaphore. is_dma: whether copies use it; None for any."""
    ref = _kernel_ref(who, ref)
    if not ref.space.is_semaphore:
        raise TypeError(f"{who}: expected a semaphore; got {ref.short}.")
    if ref.shape:
        raise ValueError(
            f"{who}: expected one semaphore; got {list(ref.shape)} of them. Select one: "
            "`semaphores.at[i]`."
        )
    if is_dma is not None and is_dma != (ref.space.name == "dma_semaphore"):
        needed = "SemaphoreType.DMA" if is_dma else "SemaphoreType.REGULAR"
        raise TypeError(
            f"{who}: expected a `{needed}`; got a {ref.space.name}."
            + ("" if is_dma else " Copies signal it, and their `wait` waits for it.")
        )
    return ref


def _amount(who: str, x: Any) -> Any:
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        if x < 0:
            raise ValueError(f"{who}: expected an amount of at least 0; got {x}.")
        return np.int32(x)
    return _integer(f"{who}: the amount is an integer", x)


def _device(who: str, device_id: Any, kind: DeviceIdType) -> tuple[tuple[Any, ...], Any]:
    """The names of all mesh axes, and the number of a device among their devices."""
    axes = [axis for axis in current().axes if not axis.is_loop and axis.serial is None]
    if not axes:
        raise ValueError(
            f"{who}: there are no other devices outside of `shard_map`. Call the kernel in a "
            "function that is mapped over a mesh."
        )
    names, is_listed = tuple([axis.name for axis in axes]), isinstance(device_id, tuple | list)
    rule = f"{who}: positions of a device are integers"
    if isinstance(device_id, Mapping):
        unknown = [name for name in device_id if name not in names]
        if unknown:
            raise ValueError(f"{who}: device_id has axis {unknown[0]!r}; the axes are {names}.")
        entries = [device_id[name] if name in device_id else axis_index(name) for name in names]
    elif kind.name == "LOGICAL":
        if is_listed:
            raise TypeError(f"{who}: a logical device_id is one integer; got {device_id!r}.")
        return names, _integer(rule, device_id)
    else:
        entries = device_id if is_listed else [device_id]
        if len(entries) != len(axes):
            raise ValueError(
                f"{who}: device_id has {len(entries)} positions; the mesh has the axes {names}. "
                "Give a position along each, or a dict from names to positions."
            )
    found: Any = None
    for axis, entry in zip(axes, entries, strict=True):
        if isinstance(entry, int) and not 0 <= entry < axis.size:
            raise ValueError(
                f"{who}: device_id is {entry} along axis {axis.name!r}, which has {axis.size} "
                "devices."
            )
        number = _integer(rule, entry)
        found = number if found is None else ew.add(ew.mul(found, np.int32(axis.size)), number)
    return names, found


def _integer(rule: str, x: Any) -> Any:
    x = as_arraylike(x)
    if type_of(x).shape or not is_integer(type_of(x).dtype):
        raise TypeError(f"{rule}; got {type_of(x).str_short(True)}.")
    return cast(x, INT32, False)


# -- ops --


def _place(ref: AnyRef) -> Place:
    place = place_of(ref, ...)
    assert place is not None
    return place


def _apply(
    op: Any, refs: Any, to: Any, amount: Any = None, cores: Any = None, **options: Any
) -> None:
    """Runs an op on the present versions of refs; its results are the next ones of the last refs.

    to: the names of axes and the number of another device; None: within this one.
    cores: the numbers of a core that is signaled, and of this one; None: of this one.
    options: other fields of `CopyParams`.
    """
    at = next((i for i, ref in enumerate(refs) if isinstance(ref, SelectedRef)), None)
    if at is not None:
        for number, ref in enumerate(refs[at].refs):
            own = (*refs[:at], ref, *refs[at + 1 :])
            when(ew.eq(refs[at].index, np.int32(number)))(
                functools.partial(_apply, op, own, to, amount, cores, **options)
            )
        return
    places = [_place(ref) for ref in refs]
    regions = tuple([place.region for place in places])
    axes, *others = ((),) if to is None else (*to, np.bool_(True))
    copy_params = CopyParams(regions, axes, amount is not None, cores is not None, **options)
    operands = [value_of(whole_ref(ref)) for ref in refs]
    operands += [] if amount is None else [amount, *(cores or ())]
    operands += [as_int32(start) for place in places for start in place.starts]
    operands += others
    run, types = functools.partial(copies.RUNS[op], copy_params), tuple(map(type_of, operands))
    program = program_of(run, types, op.name)
    found = op(*operands, program=program, copy_params=copy_params)
    for ref, value in zip(refs[-len(found) :], found, strict=True):
        put(whole_ref(ref), value)
