"""Placement of arrays: `device_put`, sharding constraints, meshes and devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast, overload

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.values import as_value
from shardwise._src.arrays.array import Array, DeletedBuffer, wrap
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.base.progress import progress
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.messages.tracebacks import hides_frames, pass_on
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.ops.memory_kinds import Space, to_memory
from shardwise._src.ops.sharded.device_put_op import device_put as put_op
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.ops.sharded.sharding_ops import constrained
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime import backend as runtime
from shardwise._src.runtime import buffers, guards
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
from shardwise._src.types.sharding import SingleDeviceSharding
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
    return runtime.devices()[0].platform


@hides_frames
def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], *,
    axis_types: AxisType | Sequence[AxisType] | None = None, devices: Sequence[Any] | None = None,
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
    if guards.used and not guards.is_explicit("put"):
        with guards.explicitly("put"):
            return device_put(x, device, src=src, donate=donate, may_alias=may_alias)
    try:
        leaves, tree = flatten(x)
        single = device is None or is_sharding_leaf(device)
        if single and src is None and donate is False and may_alias is None:
            target = as_placement(device, "device_put")
            plain = not isinstance(target, Format | Space)
            if plain and all([v.__class__ is np.ndarray for v in leaves]):
                try:
                    committed = target is not None
                    there = placed_over(target, None) if committed else _default()
                    what = "device_put"
                    if len(leaves) < MANY:
                        placed = [transfer.put_host(v, there, committed, what=what) for v in leaves]
                    else:
                        placed = _put_many(leaves, there, committed, what)
                    return placed[0] if leaves and leaves[0] is x else tree.unflatten(placed)
                except (ValueError, TypeError):
                    pass  # raised again below, with the name of the leaf
                except runtime.RuntimeFailure as error:
                    if not is_disallowed(error):  # likewise
                        raise
            plans = [_Plan(target)] * len(leaves)
        else:
            plans = _plans(x, len(leaves), device, src, donate, may_alias)
        if len(leaves) == 1 and leaves[0] is x:
            return _put(x, plans[0], lambda: "x")
        # An array that occurs twice is donated once.
        last = {id(v): i for i, v in enumerate(leaves)}
        out = []
        with progress("device_put", len(leaves), "arrays") as bar:
            for i, (v, plan) in enumerate(zip(leaves, plans, strict=True)):
                if plan.donate and last[id(v)] != i:
                    plan = dataclasses.replace(plan, donate=False)
                out.append(_put(v, plan, lambda i=i: f"x{leaf_paths(x)[i]}"))
                bar.add(1)
        return tree.unflatten(out)
    except Exception as error:
        pass_on(error)
        raise


def _put_many(leaves: Sequence[Any], there: Any, committed: bool, what: str) -> list[Array]:
    """Transfers NumPy arrays, which may total many gigabytes."""
    out = []
    with progress("device_put", len(leaves), "arrays") as bar:
        for v in leaves:
            out.append(transfer.put_host(v, there, committed, what=what))
            bar.add(1)
    return out


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """How `device_put` treats a leaf; see its docstring."""

    target: Any
    src: Any = None
    donate: bool = False
    may_alias: bool | None = None


def _plans(x: Any, n: int, device: Any, src: Any, donate: Any, may_alias: Any) -> list[_Plan]:
    """One plan for each of the `n` leaves of `x`."""
    what = "device_put"
    columns = {
        "device": (device, is_sharding_leaf), "src": (src, is_sharding_leaf),
        "donate": (donate, _is_switch), "may_alias": (may_alias, _is_switch),
    }
    found = {
        name: [value] * n if value is None or is_leaf(value)
        else broadcast_prefix(value, x, f"{what}: {name}", is_leaf)
        for name, (value, is_leaf) in columns.items()
    }
    found["device"] = [as_placement(value, what) for value in found["device"]]
    found["src"] = [as_sharding(value, what) for value in found["src"]]
    for name in ("donate", "may_alias"):
        wrong = [v for v in found[name] if not (v is None or _is_switch(v))]
        if wrong:
            raise TypeError(f"{what}: {name} must be True or False; got {wrong[0]!r}.")
    plans = list(map(_Plan, *found.values()))
    if any(plan.donate and plan.may_alias for plan in plans):
        raise ValueError(
            f"{what}: donate and may_alias are both True. Donated memory belongs to the result "
            "alone: leave out may_alias."
        )
    return plans


def _is_switch(x: Any) -> bool:
    return isinstance(x, bool | np.bool_)


def _default() -> SingleDeviceSharding:
    return transfer.default_place()


def _put(x: Any, plan: _Plan, name: Callable[[], str]) -> Any:
    try:
        return _placed(x, plan)
    except UnexpectedTracerError:
        raise
    except runtime.RuntimeFailure as error:
        if not is_disallowed(error):
            raise
        there = plan.target if plan.target is not None else _default()
        here = x.sharding if x.__class__ is Array else None
        raise disallowed(error, type_of(x), here, there, f"{name()} of device_put") from None
    except (ValueError, TypeError) as error:
        raise type(error)(f"device_put: {name()}: {error}") from None


def _placed(x: Any, plan: _Plan) -> Any:
    if plan.target.__class__ is Format:
        near = _placed(x, dataclasses.replace(plan, target=plan.target.sharding))
        return near if isinstance(near, Tracer) else transfer.relayout(near, plan.target.layout)
    if isinstance(plan.target, Space):
        if isinstance(x, Tracer):
            return to_memory(x, space=plan.target)
        here = x.sharding if isinstance(x, Array) else _default()
        return _placed(x, dataclasses.replace(plan, target=plan.target.over(here)))
    if not isinstance(x, Value):
        return _from_host(x, plan)
    if isinstance(x, Tracer):
        to = plan.target
        check_manual(to)
        return as_value(x) if to is None else put_op(x, sharding=to, src=plan.src)
    return _moved(cast(Array, x), plan)


_DONATED = DeletedBuffer(
    "was donated to device_put",
    "Use what device_put returned; to keep the array as well, call it without `donate`.",
)


def _moved(x: Array, plan: _Plan) -> Array:
    target = plan.target
    if target is None:
        result = x._itself()
    else:
        target = placed_over(target, x.sharding)
        result = transfer.move(x, target)
    if plan.donate:
        if result is x:
            result = wrap(x._live(), x._sig)
        x._impl = _DONATED  # memory that the result does not share is freed
        x._host = None
    elif plan.may_alias is False and (target is None or _in_place(x, target)):
        result = wrap(transfer.copy(result)._impl, result._sig)
    return result


def _in_place(x: Array, target: Any) -> bool:
    """Whether each device already has the data of the target sharding, so that no data moves."""
    here, ndim = x.sharding, x.ndim
    if here is target:
        return True
    same = here.device_set == target.device_set
    return same and here.is_equivalent_to(transfer.aligned(target, here.devices, ndim), ndim)


def _from_host(x: Any, plan: _Plan) -> Any:
    """Transfers a value that is not an array of this library to its devices."""
    x = as_arraylike(x)
    if isinstance(x, Value):
        return _placed(x, dataclasses.replace(plan, donate=False))
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "masked arrays cannot be put on a device, where the mask would be lost. Use "
            "x.filled(value)."
        )
    committed = plan.target is not None
    there = placed_over(plan.target, None) if committed else _default()
    if plan.may_alias and isinstance(x, np.ndarray):
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
    leaves = [a for a in flatten(x)[0] if a.__class__ is Array]
    try:
        buffers.block_until_ready([a._live() for a in leaves])
    except runtime.RuntimeFailure:
        for a in leaves:
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
    targets = [as_sharding(wanted, what) for wanted in found]
    values = [as_value(leaf) for leaf in leaves]
    names = [f"x{p}" for p in leaf_paths(x)]
    check_fit(targets, [v.aval for v in values], names, what)
    rows = zip(values, targets, names, strict=True)
    return tree.unflatten([v if t is None else constrained(v, t, n) for v, t, n in rows])
