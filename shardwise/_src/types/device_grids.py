"""Grids of devices, and meshes over them.

Hybrid grids span two networks: a fast one inside granules, a slow one between them. A granule is
the set of devices that the fast network connects: those of a slice, or of a process. Each axis of
the grid has a factor in each network; neighbors along the fast factor are in the same granule:

    create_hybrid_device_mesh((2, 2), (2, 1), devices)   # shape (4, 2), over two granules of four
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.types.devices import Device
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.mesh_axes import AxisName, AxisType, axis_names_of
from shardwise._src.types.torus_grids import torus_grid


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Device],
    *,
    split: bool = True,
    contiguous: bool = False,
) -> NDArray[np.object_]:
    """The devices as an array of shape `mesh_shape`: TPUs by `torus_grid`, GPUs by id, others in
    the given order.

    Consecutive GPU ids are neighbors in the network; the order of a list of GPUs may differ.
    split, contiguous: of `torus_grid`.
    """
    shape = tuple(operator.index(size) for size in mesh_shape)
    if math.prod(shape) != len(devices):
        raise ValueError(
            f"a mesh of shape {shape} takes {pluralize(math.prod(shape), 'device')}, "
            f"but {pluralize(len(devices), 'device')} were given."
        )
    if devices and platform_of(devices[-1]).is_torus:
        return torus_grid(shape, devices, split, contiguous)
    if all(platform_of(device).is_ordered_by_id for device in devices):
        devices = sorted(devices, key=lambda device: device.id)
    flat = np.empty(len(devices), dtype=object)
    flat[:] = list(devices)
    return flat.reshape(shape)


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: AxisName | Sequence[AxisName],
    *,
    devices: Sequence[Device],
    axis_types: AxisType | Sequence[AxisType] | None = None,
) -> Mesh:
    """A mesh of the given shape over the first of `devices`; its axes are Explicit by default."""
    try:
        shape = tuple([operator.index(size) for size in axis_shapes])
    except TypeError:
        got = short_repr(axis_shapes)
        message = f"make_mesh takes a sequence of ints as axis_shapes; got {got}."
        raise ValueError(message) from None
    names = axis_names_of(axis_names)
    if len(shape) != len(names):
        raise ValueError(
            f"make_mesh got {pluralize(len(shape), 'axis size')}, {shape}, "
            f"but {pluralize(len(names), 'axis name')}, {names!r}."
        )
    if any(size < 1 for size in shape):
        raise ValueError(f"each axis of a mesh must have at least one device; got shape {shape}.")
    needed = math.prod(shape)
    if needed > len(devices):
        raise ValueError(
            f"make_mesh needs {pluralize(needed, 'device')} for the shape {shape}, but only "
            f"{len(devices)} can be used. Choose sizes whose product is at most {len(devices)}; "
            "on CPU, SHARDWISE_NUM_CPU_DEVICES sets the number of virtual devices."
        )
    chosen = create_device_mesh(shape, list(devices)[:needed])
    return Mesh(chosen, names, AxisType.Explicit if axis_types is None else axis_types)


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device],
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    split: bool = False,
) -> NDArray[np.object_]:
    """The devices as an array whose shape is the product of the two shapes, axis by axis.

    mesh_shape:                  the factor of each axis inside a granule.
    dcn_mesh_shape:              the factor of each axis across granules.
    process_is_granule:          whether granules are processes rather than slices.
    should_sort_granules_by_key: whether granules are ordered by their index; otherwise by
        their first devices.
    split:                       of `torus_grid`.
    """
    inner = tuple(map(operator.index, mesh_shape))
    outer = tuple(map(operator.index, dcn_mesh_shape))
    if len(inner) != len(outer):
        raise ValueError(
            f"a hybrid mesh has two factors for each axis, but mesh_shape is {inner} and "
            f"dcn_mesh_shape is {outer}. Use factors of 1 for an axis within only one of the two "
            "networks."
        )
    attribute = "process_index" if process_is_granule else "slice_index"
    granules = _granules(devices, attribute)
    _check_granules(granules, attribute, inner, outer)
    keys = sorted(granules) if should_sort_granules_by_key else list(granules)
    blocks = np.stack([create_device_mesh(inner, granules[key], split=split) for key in keys])
    grid = blocks.reshape(outer + inner)
    axes = range(len(inner))
    pairs = [axis for i in axes for axis in (i, len(inner) + i)]
    return grid.transpose(pairs).reshape([m * n for m, n in zip(outer, inner, strict=True)])


def _granules(devices: Sequence[Device], attribute: str) -> dict[int, list[Device]]:
    found: dict[int, list[Device]] = {}
    for device in devices:
        key = getattr(device, attribute, None)
        if key is None:
            raise ValueError(
                f"the device {device} has no {attribute}, by which granules are distinguished. "
                "With process_is_granule=True they are distinguished by process_index."
            )
        found.setdefault(key, []).append(device)
    return found


def _check_granules(
    granules: dict[int, list[Device]],
    attribute: str,
    inner: tuple[int, ...],
    outer: tuple[int, ...],
) -> None:
    if len(granules) != math.prod(outer):
        raise ValueError(
            f"dcn_mesh_shape {outer} takes {pluralize(math.prod(outer), 'granule')}, but the "
            f"devices form {len(granules)}, by {attribute}: {sorted(granules)}."
        )
    for key, held in granules.items():
        if len(held) != math.prod(inner):
            raise ValueError(
                f"mesh_shape {inner} takes {pluralize(math.prod(inner), 'device')} of each "
                f"granule, but the one with {attribute} {key} has {len(held)}."
            )
