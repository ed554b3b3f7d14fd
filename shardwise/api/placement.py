"""Where arrays live: `device_put`, sharding constraints, meshes and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.api.grad import as_value
from shardwise.api.trees import broadcast_prefix, leaf_paths
from shardwise.core.infer import type_of
from shardwise.engine import transfer
from shardwise.engine.array import Array, Gone
from shardwise.engine.eager import EAGER
from shardwise.engine.shardings import as_sharding, check_fit, is_sharding_leaf
from shardwise.engine.signature import signature
from shardwise.numpy.value import Value
from shardwise.ops.sharding import sharding_constraint
from shardwise.runtime import backend as runtime
from shardwise.runtime.pytree import flatten
from shardwise.transforms.tracer import Tracer
from shardwise.types import mesh as _mesh
from shardwise.types.mesh import AxisType, Mesh
from shardwise.types.sharding import SingleDeviceSharding


def devices(backend: str | None = None) -> list[Any]:
    """All devices of a platform (`cpu`, `cuda`), by default of the preferred one."""
    return runtime.devices(backend)


def local_devices(process_index: int | None = None, backend: str | None = None) -> list[Any]:
    """The devices of a process, by default of this one."""
    if process_index is None:
        return runtime.local_devices(backend)
    return [d for d in runtime.devices(backend) if d.process_index == process_index]


def device_count(backend: str | None = None) -> int:
    return len(runtime.devices(backend))


def local_device_count(backend: str | None = None) -> int:
    return len(runtime.local_devices(backend))


def process_index(backend: str | None = None) -> int:
    return runtime.process_index(backend)


def process_count(backend: str | None = None) -> int:
    return 1 + max(d.process_index for d in runtime.devices(backend))


def default_backend() -> str:
    """The preferred platform's name."""
    return runtime.devices()[0].platform


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], *, axis_types: Any = None,
    devices: Sequence[Any] | None = None,
) -> Mesh:
    """A mesh of the given sizes over the first devices. Axes are Auto by default."""
    chosen = runtime.devices() if devices is None else devices
    types = AxisType.Auto if axis_types is None else axis_types
    return _mesh.make_mesh(axis_shapes, axis_names, devices=chosen, axis_types=types)


def device_put(x: Any, device: Any = None, *, donate: Any = False, may_alias: Any = None) -> Any:
    """A tree of values on a device or under shardings.

    Args:
      x: a tree of arrays, NumPy arrays and scalars.
      device: a device, a sharding, None (leave placed values where they are), or a tree of them
        that is a prefix of `x`'s.
      donate: whether the sources are given up, so that their memory can be reused.
      may_alias: whether the result may share memory with `x`; None: where that is free.

    Returns:
      The same tree of arrays, committed to where they were put.

    Raises:
      ValueError: if a sharding does not fit a value's shape.
    """
    leaves, tree = flatten(x)
    if device is None or is_sharding_leaf(device):
        target = as_sharding(device, "device_put")
        if all([v.__class__ is np.ndarray for v in leaves]):
            try:
                committed = target is not None
                there = target if committed else SingleDeviceSharding(transfer.default_single())
                placed = [transfer.put_host(v, there, committed) for v in leaves]
                return placed[0] if leaves and leaves[0] is x else tree.unflatten(placed)
            except (ValueError, TypeError):
                pass  # raised again below, with the name of the leaf
        elif len(leaves) == 1 and leaves[0] is x:
            return _put(x, target, donate, may_alias, lambda: "x")
        targets = [target] * len(leaves)
    else:
        found = broadcast_prefix(device, x, "device_put: device", is_sharding_leaf)
        targets = [as_sharding(d, "device_put") for d in found]
    pairs = enumerate(zip(leaves, targets, strict=True))
    return tree.unflatten(
        [_put(v, t, donate, may_alias, lambda i=i: f"x{leaf_paths(x)[i]}") for i, (v, t) in pairs]
    )


def _put(x: Any, target: Any, donate: bool, may_alias: Any, name: Callable[[], str]) -> Any:
    try:
        return _placed(x, target, donate, may_alias)
    except (ValueError, TypeError) as error:
        raise type(error)(f"device_put: {name()}: {error}") from None


def _placed(x: Any, target: Any, donate: bool, may_alias: Any) -> Any:
    if x.__class__ is np.ndarray and target is not None:
        return transfer.put_host(x, target, True)
    if isinstance(x, Tracer):
        return x if target is None else sharding_constraint(x, sharding=target)
    if target is None:
        return as_value(x)
    if not isinstance(x, Value | np.ndarray | np.generic | int | float | complex):
        x = EAGER.array(x)
    result = transfer.move(x, target)
    if not isinstance(x, Array):
        return result
    if result.sharding is x.sharding and may_alias is False and not donate:
        return transfer.copy(result)
    if donate and result is not x:  # what the result does not share is freed with its last owner
        x._impl = Gone("was donated to device_put")
        x._host = None
    return result


def device_get(x: Any) -> Any:
    """A tree of arrays as NumPy arrays; all copies start before the first is waited for.

    Traced values are left as they are.
    """
    leaves, tree = flatten(x)
    for leaf in leaves:
        if leaf.__class__ is Array:
            leaf.copy_to_host_async()
    return tree.unflatten([np.asarray(v) if v.__class__ is Array else v for v in leaves])


def block_until_ready(x: Any) -> Any:
    """Waits until all arrays in a tree are computed; gives the tree."""
    leaves = [a for a in flatten(x)[0] if a.__class__ is Array]
    runtime.block_until_ready([a._live() for a in leaves])
    return x


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The values, with the partitioner told how they are sharded at this point.

    Args:
      x: a tree of arrays.
      shardings: a sharding or spec, or a tree of them that is a prefix of `x`'s. Dimensions
        that are `UNCONSTRAINED` are left to the partitioner.
    """
    leaves, tree = flatten(x)
    what = "with_sharding_constraint"
    found = broadcast_prefix(shardings, x, what, is_sharding_leaf)
    targets = [as_sharding(wanted, what) for wanted in found]
    values = [as_value(leaf) for leaf in leaves]
    check_fit(targets, [v.aval for v in values], [f"x{p}" for p in leaf_paths(x)], what)
    pairs = zip(values, targets, strict=True)
    return tree.unflatten(
        [v if t is None else sharding_constraint(v, sharding=t) for v, t in pairs]
    )


def make_array_from_callback(
    shape: Sequence[int], sharding: Any, data_callback: Callable, dtype: Any = None
) -> Array:
    """An array from a function of the index of each shard.

    Args:
      shape: of the whole array.
      sharding: where its parts go.
      data_callback: gets a tuple of slices and gives that part of the array.
      dtype: of the result; by default that of the parts.

    Raises:
      ValueError: if a part does not have the shard's shape.
    """
    shape = tuple(shape)
    sharding = as_sharding(sharding, "make_array_from_callback")
    local = sharding.addressable_devices_indices_map(shape)
    parts: dict[tuple, np.ndarray] = {}
    shards = []
    for index in local.values():
        key = tuple((s.start, s.stop) for s in index)
        if key not in parts:
            parts[key] = _checked_part(data_callback(index), index, shape, dtype)
        shards.append(parts[key])
    t = type_of(shards[0]).update(shape=shape)
    sig = signature(t, sharding, True)
    shards = [np.asarray(s, dtype=t.dtype, order="C") for s in shards]
    return transfer.put_parts(sig, shards, list(local))


def _checked_part(part: Any, index: tuple, shape: tuple, dtype: Any) -> np.ndarray:
    value = np.asarray(part, dtype=dtype)
    expected = tuple(len(range(*s.indices(n))) for s, n in zip(index, shape, strict=True))
    if value.shape != expected:
        raise ValueError(
            f"make_array_from_callback: the callback gave shape {value.shape} for index {index}; "
            f"expected {expected}."
        )
    return value
