"""Placement of arrays: `device_put`, sharding constraints, meshes and devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.values import as_value
from shardwise._src.arrays.array import Array, DeletedBuffer, wrap
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.base.progress import progress
from shardwise._src.core.infer import as_arraylike, reject_masked, type_of
from shardwise._src.messages.tracebacks import hides_frames, pass_on
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.ops.memory_kinds import Space, to_memory
from shardwise._src.ops.sharded.device_put_op import device_put as put_op
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.ops.sharded.sharding_ops import constrained
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime import backend as runtime
from shardwise._src.runtime import buffers, guards
from shardwise._src.runtime.platforms import name_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transfers import parts, transfer
from shardwise._src.transfers.targets import (
    as_placement,
    as_sharding,
    check_fit,
    check_manual,
    is_sharding_leaf,
)
from shardwise._src.transfers.transfer_guards import disallowed, is_disallowed
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types import device_grids
from shardwise._src.types.annotations import ArrayLike, T
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.values.value import Value

MANY = 4  # arrays of a pytree, from which on progress is reported


@hides_frames
def devices(backend: str | None = None) -> list[Any]:
    """All devices of a platform (`cpu`, `cuda`), by default of the preferred one."""
    return runtime.devices(backend)


@hides_frames
def local_devices(
    process_index: int | None = None, backend: str | None = None, host_id: int | None = None
) -> list[Any]:
    """The devices of a process, by default of this one. `host_id` is its older name."""
    if process_index is None:
        process_index = host_id
    if process_index is None:
        return runtime.local_devices(backend)
    return [d for d in runtime.devices(backend) if d.process_index == process_index]


@hides_frames
def device_count(backend: str | None = None) -> int:
    """How many devices there are, in all processes: of a platform, or of the default one."""
    return len(runtime.devices(backend))


@hides_frames
def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has."""
    return len(runtime.local_devices(backend))


@hides_frames
def process_index(backend: str | None = None) -> int:
    """The number of this process, from 0."""
    return runtime.process_index(backend)


@hides_frames
def process_count(backend: str | None = None) -> int:
    """How many processes there are."""
    return 1 + process_indices(backend)[-1]


@hides_frames
def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of the processes that have devices."""
    return sorted({d.process_index for d in runtime.devices(backend)})


def copy_to_host_async(x: T) -> T:
    """Starts copying the arrays of a pytree to the host, for a later read; returns the pytree."""
    for leaf in flatten(x)[0]:
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


@hides_frames
def default_backend() -> str:
    """The preferred platform's name."""
    return name_of(runtime.devices()[0])


@hides_frames
def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: AxisType | Sequence[AxisType] | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh of the given sizes over the first devices.

    Its axes are Explicit by default: shardings over it are part of types. `Mesh` creates Auto ones.
    """
    chosen = runtime.devices() if devices is None else devices
    return device_grids.make_mesh(axis_shapes, axis_names, devices=chosen, axis_types=axis_types)


@overload
def device_put(
    x: ArrayLike, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Array: ...
@overload
def device_put(
    x: T, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> T: ...
def device_put(
    x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None
) -> Any:
    """Transfers a pytree of values to a device or to shardings.

    Args:
      x: a pytree of arrays, NumPy arrays and scalars.
      device: a device, a sharding, a `Format`, a `memory.Space` (of the current devices of `x`, or
        of the default one), None (leave placed values where they are), or a pytree of these that is
        a prefix of `x`; so may be all arguments below. Without a Format an array keeps its layout
        only if it keeps its sharding.
      src: the current location of `x`, for traced values: their cotangents are transferred back
        there. If `x` is known, as under `grad` outside `jit`, it may be omitted.
      donate: whether arrays in `x` are donated, so that their memory is freed or reused.
      may_alias: whether the result may share memory with `x`. None: with arrays of `x` that are
        already there; True: also with NumPy arrays, which must not be modified afterwards, if they
        are C-contiguous, aligned to 64 bytes and placed on a CPU device; False: with nothing.

    Returns:
      The same pytree of arrays, committed to their new location. Traced values are placed when
      they are computed.

    Raises:
      ValueError: if a sharding does not fit a value's shape, or a pytree is not a prefix of `x`.
      TypeError: if a leaf of `x` is not an array.
    """
    try:
        if guards.used and not guards.is_explicit("put"):
            with guards.explicitly("put"):
                return device_put(x, device, src=src, donate=donate, may_alias=may_alias)
        leaves, tree = flatten(x)
        if (
            src is may_alias is None
            and donate is False
            and (device is None or is_sharding_leaf(device))
        ):
            requests = [_Request(as_placement(device, "device_put"))] * len(leaves)
        else:
            requests = _requests(x, len(leaves), device, src, donate, may_alias)
        if len(leaves) < MANY:
            out = _put(x, leaves, requests)
        else:  # these may total many gigabytes
            with progress("device_put", len(leaves), "arrays") as bar:
                out = _put(x, leaves, requests, bar)
        return out[0] if len(leaves) == 1 and leaves[0] is x else tree.unflatten(out)
    except Exception as error:
        pass_on(error)
        raise


def _put(
    x: Any, leaves: Sequence[Any], requests: Sequence[_Request], bar: progress | None = None
) -> list[Any]:
    """The leaves of `x`, each at its target."""
    out, known, there = [], None, None
    for v, request in zip(leaves, requests, strict=True):
        try:
            if v.__class__ is not np.ndarray or request.may_alias:
                out.append(_placed(v, request))
            else:  # most often: no need to look at what it is
                if request is not known:
                    known, there = request, _host_place(request.target)
                target = request.target
                made = transfer.put_host(v, there, target is not None, what="device_put")
                plain = target.__class__ is not Format
                out.append(made if plain else transfer.relayout(made, target.layout))
        except (ValueError, TypeError, OverflowError, runtime.RuntimeFailure) as error:
            raise _named(error, f"x{leaf_paths(x)[len(out)]}", v, request) from None
        if bar is not None:
            bar.add(1)
    return out


class _Request(NamedTuple):
    """What `device_put` is to do with a leaf; see its docstring. Leaves may share one."""

    target: Any
    src: Any = None
    donate: bool = False
    may_alias: bool | None = None
    is_donated_later: bool = False


def _requests(x: Any, n: int, device: Any, src: Any, donate: Any, may_alias: Any) -> list[_Request]:
    """One request for each of the `n` leaves of `x`."""
    what = "device_put"
    columns = {
        "device": (device, is_sharding_leaf),
        "src": (src, is_sharding_leaf),
        "donate": (donate, _is_switch),
        "may_alias": (may_alias, _is_switch),
    }
    found = {
        name: [value] * n
        if value is None or is_leaf(value)
        else broadcast_prefix(value, x, f"{what}: {name}", is_leaf)
        for name, (value, is_leaf) in columns.items()
    }
    found["device"] = [as_placement(value, what) for value in found["device"]]
    found["src"] = [as_sharding(value, what) for value in found["src"]]
    for name in ("donate", "may_alias"):
        wrong = [v for v in found[name] if not (v is None or _is_switch(v))]
        if wrong:
            raise TypeError(f"{what}: {name} must be True or False; got {wrong[0]!r}.")
    requests = list(map(_Request, *found.values()))
    if any(r.donate and r.may_alias for r in requests):
        raise ValueError(
            f"{what}: donate and may_alias are both True. Donated memory belongs to the result "
            "alone: leave out may_alias."
        )
    if any(r.donate for r in requests):  # an array that occurs twice is donated the last time
        leaves = flatten(x)[0]
        last = {id(v): i for i, v in enumerate(leaves)}
        for i, (v, r) in enumerate(zip(leaves, requests, strict=True)):
            later = r.donate and last[id(v)] != i
            requests[i] = r._replace(donate=r.donate and not later, is_donated_later=later)
    return requests


def _is_switch(x: Any) -> bool:
    return isinstance(x, bool | np.bool_)


def _named(error: Exception, name: str, x: Any, request: _Request) -> Exception:
    """The error for a leaf, with its name."""
    if isinstance(error, UnexpectedTracerError):
        return error
    if isinstance(error, ValueError | TypeError | OverflowError):
        return type(error)(f"device_put: {name}: {error}")
    if not is_disallowed(error):
        return error
    there = transfer.default_place() if request.target is None else request.target
    here = x.sharding if x.__class__ is Array else None
    return disallowed(error, type_of(x), here, there, f"{name} of device_put")


def _host_place(target: Any) -> Any:
    """The sharding for a host value."""
    default = transfer.default_place
    if target is None:
        return default()
    if target.__class__ is Format:
        target = target.sharding
    return placed_over(target.over(default()) if target.__class__ is Space else target, None)


def _placed(x: Any, request: _Request) -> Any:
    """A leaf at its target: in the requested memory, then moved, then in the requested layout."""
    target, given = request.target, x
    layout = target.layout if target.__class__ is Format else _ANY
    if layout is not _ANY:
        target = target.sharding
    x = x if isinstance(x, Value) else as_arraylike(x)
    if isinstance(x, Tracer):
        return _traced(x, target, request.src)
    if x.__class__ is Array:
        if target.__class__ is Space:
            target = target.over(x.sharding)
        result = _moved(x, target, request if x is given else request._replace(donate=False))
    else:
        result = _from_host(x, request)
    return result if layout is _ANY else transfer.relayout(result, layout)


def _traced(x: Tracer, target: Any, src: Any) -> Any:
    if isinstance(target, Space):
        return to_memory(x, space=target)
    check_manual(target)
    return as_value(x) if target is None else put_op(x, sharding=target, src=src)


_ANY: Any = object()
_DONATED = DeletedBuffer(
    "was donated to device_put",
    "Use what device_put returned; to keep the array as well, call it without `donate`.",
)


def _moved(x: Array, target: Any, request: _Request) -> Array:
    if target is None:
        result = x._itself()
    else:
        target = placed_over(target, x.sharding)
        result = transfer.move(x, target)
    if result is x and (request.donate or request.is_donated_later):
        result = wrap(x._live(), x._sig)
    if request.donate:
        x._impl = _DONATED  # memory that the result does not share is freed
        x._host = None
    elif request.may_alias is False and (target is None or _in_place(x, target)):
        result = wrap(transfer.copy(result)._impl, result._sig)
    return result


def _in_place(x: Array, target: Any) -> bool:
    """Whether each device already has the data of the target sharding, so that no data moves."""
    here, ndim = x.sharding, x.ndim
    if here is target:
        return True
    same = here.device_set == target.device_set
    return same and here.is_equivalent_to(transfer.aligned(target, here.devices, ndim), ndim)


def _from_host(x: Any, request: _Request) -> Array:
    """Transfers another host value: it may share its memory, or is no plain NumPy array."""
    there, committed = _host_place(request.target), request.target is not None
    reject_masked(x)
    if request.may_alias and isinstance(x, np.ndarray):
        return parts.aliased(x, there, committed)
    if isinstance(x, np.ndarray | np.generic | int | float | complex):
        return transfer.put_host(x, there, committed, what="device_put")
    return transfer.move(EAGER.array(x), there)  # raises if not an array


def device_get(x: Any) -> Any:
    """A pytree with NumPy arrays for its arrays; all copies start before the first is awaited.

    Objects of other libraries that NumPy accepts are converted, too. Typed keys, which NumPy cannot
    represent, tracers and all other leaves are unchanged.
    """
    if guards.used and not guards.is_explicit("get"):
        with guards.explicitly("get"):
            return device_get(x)
    leaves, tree = flatten(x)
    for leaf in leaves:
        if leaf.__class__ is Array:
            leaf.copy_to_host_async()
    return tree.unflatten([_fetched(v) for v in leaves])


def _fetched(x: Any) -> Any:
    if isinstance(x, Value):
        keys = isinstance(x.dtype, ExtendedDType)
        return x if x.__class__ is not Array or keys else np.asarray(x)
    return np.asarray(x) if hasattr(x, "__array__") else x


def block_until_ready(x: T) -> T:
    """Waits until all arrays in a pytree are computed; returns the pytree."""
    if x.__class__ is Array:
        x.block_until_ready()  # pyright: ignore[reportAttributeAccessIssue] (its class is known)
        return x
    leaves = flatten(x)[0]
    try:
        buffers.block_until_ready([a._impl for a in leaves if a.__class__ is Array])
    except (runtime.RuntimeFailure, TypeError, AttributeError):  # the last two: one is deleted
        for a in leaves:
            if a.__class__ is Array:
                a.block_until_ready()  # the one that failed raises
        raise
    return x


@overload
def with_sharding_constraint(x: ArrayLike, shardings: Any) -> Array: ...
@overload
def with_sharding_constraint(x: T, shardings: Any) -> T: ...
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Constrains the sharding of the values at this point of the program.

    Args:
      x: a pytree of arrays.
      shardings: a sharding or spec, or a pytree of them that is a prefix of `x`. Dimensions
        that are `UNCONSTRAINED` are left to the partitioner.
    """
    leaves, tree = flatten(x)
    what = "with_sharding_constraint"
    found = broadcast_prefix(shardings, x, f"{what}: shardings", is_sharding_leaf)
    targets = [as_sharding(wanted, what, RuntimeError) for wanted in found]
    values = [as_value(leaf) for leaf in leaves]
    names = [f"x{p}" for p in leaf_paths(x)]
    check_fit(targets, [v.aval for v in values], names, what)
    rows = zip(values, targets, names, strict=True)
    return tree.unflatten([v if t is None else constrained(v, t, n) for v, t, n in rows])
