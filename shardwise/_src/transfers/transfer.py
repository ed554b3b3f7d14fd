"""Moving values: from the host to devices, and arrays from one sharding to another.

Host values are split into shards and put in one call. For arrays there are several strategies;
`reshard_strategy` chooses one, and docs/design/0012-moving-arrays.md explains the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from shardwise._src.arrays.array import Array, DeletedBuffer, wrap
from shardwise._src.arrays.interchange import is_subbyte
from shardwise._src.arrays.out_of_memory import is_exhausted, of_array
from shardwise._src.arrays.signature import Signature, cached_near, signature
from shardwise._src.base.caches import PLAIN, Table, cached, exact
from shardwise._src.base.config import default_device
from shardwise._src.base.context import current
from shardwise._src.compiling.module_cache import loaded_for
from shardwise._src.core.eval_context import eval_context
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program, Var
from shardwise._src.lowering.layouts_and_memory import order_of, stated_kind, storage_of
from shardwise._src.lowering.module import module_text
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.sharded.sharding_ops import reshard
from shardwise._src.runtime import backend, buffers, processes
from shardwise._src.runtime.backend import RuntimeFailure
from shardwise._src.runtime.compiler.modules import CompiledModule
from shardwise._src.runtime.target_machines import check_attached
from shardwise._src.transfers import reshard_strategy
from shardwise._src.transfers.between_devices import by_pieces
from shardwise._src.transfers.between_processes import between_processes, handle
from shardwise._src.transfers.from_host import by_host, from_host, is_large
from shardwise._src.transfers.from_host import put_parts as put_parts
from shardwise._src.transfers.replicas import agreed
from shardwise._src.transfers.reshard_strategy import ReshardStep, processes_of, reshard_steps
from shardwise._src.transfers.reshard_strategy import aligned as aligned
from shardwise._src.transfers.transfer_guards import disallowed, is_disallowed
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize, float0, too_large
from shardwise._src.types.layout import AutoLayout, Format
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import GSPMDSharding, NamedSharding, SingleDeviceSharding

SCALARS = frozenset((bool, int, float, complex))
_SCALAR_CACHE_SIZE = 4096
_RECENT = 64  # numbers that are known to have been put for an argument
scalars: dict[tuple, Array] = {}  # with the default sharding; for others: `Signature.ints`
_moved_scalars: Table[Array] = Table(__name__, "scalars", _SCALAR_CACHE_SIZE)


def default_single() -> Any:
    """The device of values without an explicit placement."""
    chosen = default_device.value
    if chosen is None or isinstance(chosen, str):
        return backend.local_devices(chosen)[0]
    return chosen


def default_place() -> Any:
    """The sharding of values without an explicit placement: the default device, or replicated over
    a mesh in scope whose axes are all Explicit."""
    scope = current().mesh
    if isinstance(scope, Mesh) and scope.are_all_axes_explicit:
        return NamedSharding(scope, PartitionSpec())
    return SingleDeviceSharding(default_single())


def put_host(
    value: Any, sharding: Any, committed: bool, t: ArrayType | None = None, what: str = "a value"
) -> Array:
    """Puts a NumPy array or scalar on devices. Each addressable device gets its own slice.

    what: for messages, the calling function.
    """
    if t is None and value.__class__ is np.ndarray:
        sig, indices, apart = _plan(value.shape, value.dtype, sharding, committed, current().key)
    else:
        sig, indices, apart = _plan_of(t or type_of(value), sharding, committed)
    if indices is not None and not indices:
        return handle(sig)
    try:
        return _put_planned(value, sig, indices, apart, what)
    except (MemoryError, RuntimeFailure) as error:
        if is_exhausted(error):
            raise of_array(sig, error) from None
        if is_disallowed(error):
            raise disallowed(error, sig.type, None, sharding) from None
        raise


def _put_planned(value: Any, sig: Signature, indices: Any, apart: bool, what: str) -> Array:
    """See `put_host`. indices: each device's slice of the value; None: one device has all."""
    if indices is not None and value.__class__ is np.ndarray and is_large(sig):
        processes.note(sig.devices, value)
        return agreed(from_host(sig, value), what)
    host = _as_host(value, sig)
    if indices is None:
        return wrap(buffers.put(sig.physical, sig.placement, (host,), sig.devices), sig)
    processes.note(sig.devices, host)
    parts = [host[index] for index in indices.values()]
    return agreed(put_parts(sig, parts, list(indices), apart), what)


def _as_host(value: Any, sig: Signature) -> np.ndarray:
    try:
        return np.asarray(value, dtype=sig.physical.dtype, order="C")
    except OverflowError:
        raise too_large(value, sig.physical.dtype) from None


def put_by_default(value: np.ndarray, key: Any) -> Array:
    """`put_host` for an operand without an explicit placement.

    key: the key of the context, which determines the device.
    """
    sig, indices, _ = _default_plan(value.shape, value.dtype, key)
    if indices is not None:
        return put_host(value, default_place(), False)
    host = np.asarray(value, sig.physical.dtype, order="C")
    return wrap(buffers.put(sig.physical, sig.placement, (host,), sig.devices), sig)


@cached(4096)
def _default_plan(shape: tuple, dtype: Any, key: Any) -> tuple:
    return _plan_of(array_type(shape, canonicalize(dtype)), default_place(), False)


@cached(4096)
def _plan(shape: tuple, dtype: Any, sharding: Any, committed: bool, key: Any) -> tuple:
    """`_plan_of` for the type of a NumPy array, which depends on flags in the context's key."""
    return _plan_of(array_type(shape, canonicalize(dtype)), sharding, committed)


def _plan_of(t: ArrayType, sharding: Any, committed: bool) -> tuple[Signature, Any, bool]:
    """The signature of a value on its devices, and the slice for each of them (None: all of it).

    The last result is True if all slices are distinct, or all are the same (see `buffers.put`).
    """
    check_attached(sharding.devices)
    if t.dtype == float0:
        raise TypeError(
            f"a value of type {t.str_short(True)}, such as the tangent of an integer, has no "
            "data and cannot be put on a device. Leave it out."
        )
    if sharding.partial_axes[0]:
        raise ValueError(
            f"a value of type {t.str_short(True)} cannot be placed with unreduced axes, which "
            f"{sharding} requires. Place it without unreduced axes, and use "
            f"`shardwise.sharding.reshard(x, {sharding.spec})`."
        )
    sig = signature(t, sharding, committed)
    if len(sig.devices) == 1 and sharding.addressable_positions:
        return sig, None, True
    indices = sharding.addressable_devices_indices_map(t.shape)
    distinct = {tuple((s.start, s.stop) for s in index) for index in indices.values()}
    return sig, indices, t.size > 0 and len(distinct) in (1, len(indices))


def scalar(value: Any, near: Signature | None = None) -> Array:
    """A Python or NumPy scalar as an uncommitted array, for use as an operand.

    near: the signature of an array whose devices are to hold it. Equal scalars on the same devices
    share a buffer, so the array must not be exposed to users, who could delete it.
    """
    held = scalars if near is None else near.ints
    key = (value, exact(value), current().key)  # as in `Eager._with_scalars`
    try:
        found = held.get(key)
    except TypeError:  # float0 is unhashable
        return put_host(value, default_place(), False)
    if found is not None and found._impl.__class__ is not DeletedBuffer:
        return found
    if near is None:
        sharding = default_place()
    else:
        sharding = replicated_like(near)
    if len(held) >= _SCALAR_CACHE_SIZE:
        held.clear()
    held[key] = new = put_host(value, sharding, False)
    return new


def moved_scalar(value: Any, target: Any) -> Array:
    """A Python scalar, as `move` returns it; cached, so it must not be exposed to users."""
    key = (value, exact(value), target, current().key)
    found = _moved_scalars.entries.get(key)
    return _moved_scalars.put(key, move(value, target)) if found is None else found


def into(t: ArrayType, target: Any) -> Callable[[Any], Any]:
    """A function like `move` to devices of this process, for values of type `t`; it returns the
    raw buffer. NumPy arrays are put by a plan that is made here, once."""
    sig = signature(t, target, True)
    put_numpy = _numpy_putter(t, target, sig)
    recent: set[Any] = set()

    def put(x: Any) -> Any:
        kind = x.__class__
        if put_numpy is not None and kind is np.ndarray:
            return put_numpy(x)
        if not (kind in SCALARS or isinstance(x, np.number | np.bool_)):
            return move(x, target)._impl
        key = (x, kind if kind in PLAIN else exact(x), sig)
        found = _moved_scalars.entries.get(key)
        if found is not None:
            return found._impl
        if put_numpy is None:
            raw = put_host(x, target, True, t)._impl
        else:
            raw = put_numpy(_as_host(x, sig))
        # Only numbers that return soon are kept: not those of steps.
        if key in recent:
            _moved_scalars.put(key, wrap(raw, sig))
        elif len(recent) >= _RECENT:
            recent.clear()
        recent.add(key)
        return raw

    return put


def _numpy_putter(t: ArrayType, target: Any, sig: Signature) -> Callable[[np.ndarray], Any] | None:
    """A function that puts a NumPy array of type `t` on devices; None if `move` has to do more."""
    dtype = sig.physical.dtype
    if len(sig.devices) == 1:
        put = buffers.putter(sig.physical, sig.placement, sig.devices)
        return lambda x: put((np.asarray(x, dtype, order="C"),))
    if target.partial_axes[0] or is_large(sig) or not sig.even:
        return None
    _, indices, apart = _plan_of(t, target, True)
    if not apart:
        return None
    put, slices = buffers.putter(sig.physical, sig.placement, list(indices)), indices.values()

    def put_shards(x: np.ndarray) -> Any:
        host = np.asarray(x, dtype, order="C")
        return put([host[index] for index in slices])

    return put_shards


def cached_scalars() -> list[Array]:
    """The arrays that are cached for use as operands."""
    near = [v for held in cached_near() for v in held.values()]
    return [*scalars.values(), *_moved_scalars.entries.values(), *near]


def replicated_like(sig: Signature) -> Any:
    """The sharding that replicates a value over the devices of a signature."""
    return replicated_on(sig.sharding)


def replicated_on(sharding: Any) -> Any:
    """The sharding that replicates a value over the devices of another one."""
    if isinstance(sharding, NamedSharding):
        return sharding.with_spec(PartitionSpec())
    if isinstance(sharding, SingleDeviceSharding):
        return sharding
    return GSPMDSharding.get_replicated(sharding.devices)


def move(x: Any, target: Any) -> Array:
    """`x` under another sharding, or in another `Format`, committed to it.

    On accelerators the data never passes through the host. If the target is not a Format, the
    layout of an array is preserved only if its sharding is.
    """
    if target.__class__ is Format:
        return relayout(move(x, target.sharding), target.layout)
    if not isinstance(x, Array):
        return put_host(x, target, True)
    sig = x._sig
    if sig.sharding is target:
        return x._itself() if sig.committed else _relabelled(x, target)
    check_attached(target.devices)
    try:
        return _in_steps(x, reshard_steps(sig, target, x._is_on_cpu(), x.is_ready))
    except RuntimeFailure as error:
        if is_disallowed(error):
            raise disallowed(error, sig.type, sig.sharding, target) from None
        raise


def _in_steps(x: Array, steps: Iterable[ReshardStep]) -> Array:
    for step in steps:
        x = EXECUTORS[step.act](x, step.to)
    return x


def _by_op(x: Array, target: Any) -> Array:
    """To or from unreduced shardings: this requires an op in a program."""
    with eval_context():
        return reshard(x, sharding=target)


def strategy(x: Array, target: Any) -> str:
    """The strategy to reshard an array, one of `STRATEGIES`: see `reshard_strategy.strategy`."""
    return reshard_strategy.strategy(x._sig, target, x._is_on_cpu(), x.is_ready)


# ---------------------------------------------------------------------------------- layouts


def relayout(x: Array, layout: Any) -> Array:
    """The array with another layout in memory; None: the default one."""
    wanted = order_of(Format(layout, x.sharding), x.aval)
    if isinstance(wanted, AutoLayout):
        raise ValueError(
            "Layout.AUTO lets the compiler choose the layout for a program, and there is no "
            "program here. Pass a Layout, or leave it out for the default one."
        )
    if x._sig.layout is wanted:
        return x._itself()
    return _passed(x, signature(x.aval, x.sharding, x._sig.committed, wanted))


# ------------------------------------------------------------------------ the same devices


def _relabelled(x: Array, target: Any) -> Array:
    """The same buffers under a sharding that puts the same data on each device."""
    sig = signature(x.aval, target, True, x._sig.layout)
    raw = x._live()
    if x._sig.devices != target.devices:
        raw = buffers.reorder(raw, sig.placement)
    return wrap(buffers.rewrap(raw, sig.physical, sig.placement), sig)


@cached(1024)
def resharder(sig: Signature, target: Signature) -> CompiledModule:
    """A compiled identity between two shardings over the same devices, in the same order."""
    var = Var(sig.type)
    program = Program([var], [var], [], name="reshard")
    ins, outs = [sig.sharding], [target.sharding]
    storage = storage_of(ins, [sig.layout], [stated_kind(target.sharding)], [target.layout])
    if len(sig.devices) == 1:
        ins, outs = [None], [None]
    text = module_text(program, sig.devices, [], ins, outs, storage=storage)
    return loaded_for(text, sig.devices, (False,))


def _passed(x: Array, sig: Signature) -> Array:
    """The array as returned by a program that changes only its sharding or layout."""
    (raw,) = resharder(x._sig, sig).launch([x._live()], [sig.handler])
    return wrap(raw, sig)


# ----------------------------------------------------------------------------- other devices


def copy(x: Array) -> Array:
    """The same value in new memory, on the same devices."""
    return _copy(x, x.sharding) if x._sig.layout is None else _passed(x, x._sig)


def _copy(x: Array, target: Any) -> Array:
    """Copies in the default layout: on CPU, jaxlib copies other layouts wrongly."""
    assert x._sig.layout is None
    sig = signature(x.aval, target, True)
    if not x.is_fully_addressable:
        return _copied_here(x, sig)
    impl = buffers.copy_to_devices(x._live(), buffers.device_list(target.devices), sig.placement)
    return wrap(buffers.rewrap(impl, sig.physical, sig.placement), sig)


def _copied_here(x: Array, sig: Signature) -> Array:
    """Copies the shards of this process; jaxlib cannot copy an array that spans processes."""
    positions, tile = x.sharding.addressable_positions, sig.sharding.tile_shape(sig.stored.shape)
    kind, t = sig.sharding.memory_kind, array_type(tile, sig.stored.dtype)
    ones = [signature(t, SingleDeviceSharding(sig.devices[p], kind), True) for p in positions]
    if x._is_on_cpu() and not is_subbyte(x):
        pairs = zip(ones, x._raw_parts(positions), strict=True)
        raws = [buffers.put(s.physical, s.placement, (part,), s.devices) for s, part in pairs]
    else:
        raws = buffers.copy_each(
            x._single_buffers(positions),
            [buffers.device_list(s.devices) for s in ones],
            [s.placement for s in ones],
        )
    return wrap(buffers.assemble(sig.physical, sig.placement, raws), sig)


def _by_host(x: Array, target: Any) -> Array:
    new = by_host(x, target)
    if x.is_fully_addressable and not target.is_fully_addressable:
        processes.note(new._sig.devices, x._value())
        return agreed(new, "a value")
    return new


def _or_handle(way: Callable[[Array, Any], Array]) -> Callable[[Array, Any], Array]:
    """Wraps a strategy: returns a handle if this process has no devices of the target."""

    def here(x: Array, target: Any) -> Array:
        if target.has_addressable_devices:
            return way(x, target)
        return handle(signature(x.aval, target, True))

    return here


def _between(x: Array, target: Any) -> Array:
    theirs, ours = processes_of(x.sharding), processes_of(target)
    if len(theirs) == 1 and not x.sharding.addressable_positions and theirs < ours:
        (owner,) = theirs
        raise RuntimeError(
            f"array of type {x.aval.str_short(True)} is on devices of process {owner} alone, which "
            f"treats it as a value that each of the processes {sorted(ours)} has. This process "
            "has none: use `broadcast_one_to_all` there and here, or create it on devices of all "
            "of them."
        )
    return between_processes(x, target, move)


def _converted(x: Array, dtype: np.dtype[Any]) -> Array:
    if not x.sharding.has_addressable_devices:
        return handle(signature(array_type(x.shape, dtype), x.sharding, True))
    with eval_context():
        return convert_element_type(x, dtype=dtype)


STRATEGIES: dict[str, Callable[[Array, Any], Array]] = {
    "program": lambda x, to: _in_steps(x, reshard_strategy.on_same_devices(x._sig, to)),
    "copy": _copy,
    "host": by_host,
    "pieces": lambda x, to: _in_steps(x, reshard_strategy.by_pieces(x._sig, to)),
    "between": _between,
}

# The implementations of the steps of `reshard_steps`.
EXECUTORS: dict[str, Callable[[Array, Any], Array]] = {
    **{name: _or_handle(STRATEGIES[name]) for name in ("program", "copy", "pieces")},
    "host": _or_handle(_by_host),
    "between": _between,
    "move": move,
    "layout": relayout,
    "op": _by_op,
    "convert": _converted,
    "reshard": lambda x, to: _passed(x, signature(x.aval, to, True)),
    "relabel": _relabelled,
    "join": by_pieces,
}
