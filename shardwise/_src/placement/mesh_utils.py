"""Arranges devices in grids, for `Mesh`.

    Mesh(create_device_mesh((4, 2)), ("data", "model"))

`make_mesh` does both in one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise._src.runtime import backend
from shardwise._src.types import device_grids


def create_device_mesh(
    mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    contiguous_submeshes: bool = False,
    allow_split_physical_axes: bool = False,
) -> NDArray[np.object_]:
    """The devices as an array of shape `mesh_shape`: TPUs by their coordinates in the network, GPUs
    by id, others in the order given.

    Args:
      mesh_shape: its product is the number of devices. The axes are ordered by increasing
        communication: the last one gets the most axes of a TPU's network.
      devices: by default all.
      contiguous_submeshes: whether the TPUs of each process must be next to each other.
      allow_split_physical_axes: whether axes may share one of the TPUs' network.

    Raises:
      ValueError: if there are more or fewer devices, or for `contiguous_submeshes`, if impossible.
      NotImplementedError: if axes would have to share one of the network.
    """
    devices = backend.devices() if devices is None else devices
    return device_grids.create_device_mesh(
        mesh_shape, devices, split=allow_split_physical_axes, contiguous=contiguous_submeshes
    )


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Any] | None = None,
    *,
    process_is_granule: bool = False,
    should_sort_granules_by_key: bool = True,
    allow_split_physical_axes: bool = False,
) -> NDArray[np.object_]:
    """The devices as an array, for fast networks inside granules and a slow one between them.

    Args:
      mesh_shape: the factor of each axis inside a granule.
      dcn_mesh_shape: the factor of each axis between granules.
      devices: by default all.
      process_is_granule: whether granules are processes (by `process_index`); else they are the
        slices that devices report (by `slice_index`).
      should_sort_granules_by_key: whether granules are ordered by that index; else they are in
        the order of their first devices.
      allow_split_physical_axes: as in `create_device_mesh`.

    Returns:
      An array of shape `mesh_shape` × `dcn_mesh_shape`, axis by axis.

    Raises:
      ValueError: if the number or size of the granules does not match the shapes.
    """
    return device_grids.create_hybrid_device_mesh(
        mesh_shape,
        dcn_mesh_shape,
        backend.devices() if devices is None else devices,
        process_is_granule,
        should_sort_granules_by_key,
        allow_split_physical_axes,
    )
