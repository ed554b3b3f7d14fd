"""Grids of TPUs, whose network is a torus: the axes of a mesh over the axes of the network.

    torus_grid((4, 16), devices)    # 4×4×4 chips: the last axis over planes of 4×4

The axes of a mesh are ordered by increasing communication. So the last one is placed first, over
as many axes of the network as possible, which add their bandwidths. Small machines have known
rings instead. Devices without coordinates, or with gaps between them, stay in the given order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Grid = NDArray[np.object_]

# Orders in which neighbors are connected, the last device to the first one.
_CORES_OF_TRAY = (0, 1, 2, 3, 6, 7, 4, 5)
_SQUARE = (0, 1, 3, 2)
# Kind → sizes of a machine, or the number of its devices → their order, sorted by z, y, x.
_RINGS: dict[str, dict[tuple[int, ...] | int, tuple[int, ...]]] = {
    "TPU v5 lite": {
        (2, 2, 1): _SQUARE,
        (2, 2, 2): (0, 4, 2, 6, 1, 5, 3, 7),
        8: (0, 1, 2, 3, 7, 6, 5, 4),
        (4, 4, 1): (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4),
    },
    "TPU v5p": {(2, 2, 2): (0, 1, 3, 2, 6, 7, 5, 4)},
}
_RINGS["TPU v6 lite"] = _RINGS["TPU v5 lite"]

# Sizes of a network → those of a mesh without ones → the order of axes in which the devices of each
# process are next to each other.
_CONTIGUOUS: dict[tuple[int, ...], dict[tuple[int, ...], tuple[int, ...]]] = {
    (2, 2, 1): {(2, 2): (0, 1, 2)},
    (2, 2, 4): {(4, 4): (0, 1, 2)},
    (4, 4, 4): {(16, 4): (0, 2, 1)},
    (4, 8, 8): {(64, 4): (0, 2, 1), (4, 64): (0, 2, 1)},
    (8, 8, 8): {(64, 8): (0, 2, 1)},
    (8, 16, 16): {(256, 8): (0, 2, 1), (8, 256): (0, 2, 1)},
}


def torus_grid(
    shape: tuple[int, ...], devices: Sequence[Any], split: bool, contiguous: bool = False
) -> Grid:
    """The devices as an array of this shape.

    split: whether an axis of the network may be shared by axes of the mesh, if necessary.
    contiguous: whether the devices of each process must be next to each other.

    Raises:
      NotImplementedError: if an axis of the network would have to be shared.
      ValueError: if devices of a process cannot be next to each other.
    """
    kind, given = devices[-1].device_kind, _array(devices)
    if kind in ("TPU v2", "TPU v3"):  # trays of four chips with two cores
        if len(devices) == 8 or shape[-1:] == (8,):
            given = given.reshape(-1, 8)[:, _CORES_OF_TRAY]
        return given.reshape(shape)
    torus = _torus(devices)
    if torus is None:
        return given.reshape(shape)
    ring = _ring(kind, torus, given, shape)
    if ring is not None:
        return ring.reshape(shape)
    if contiguous:
        torus = torus.transpose(_contiguous_order(torus.shape, shape))
    parts = _of_full_axes(torus.shape, shape)
    if parts is None and split:
        parts = _of_shared_axes(torus.shape, shape)
    if parts is None:
        raise NotImplementedError(
            f"a mesh of shape {shape} over a network of {torus.shape} devices: each size must be "
            "the product of axes of the network that no other one uses. Choose other sizes, or "
            "pass allow_split_physical_axes=True."
        )
    count, axes = parts.shape
    order = [row * axes + axis for axis in range(axes) for row in range(count)]
    return torus.reshape(parts.ravel().tolist()).transpose(order).reshape(shape)


def _array(devices: Sequence[Any]) -> Grid:
    flat = np.empty(len(devices), object)
    flat[:] = list(devices)
    return flat


def _torus(devices: Sequence[Any]) -> Grid | None:
    """The devices by coordinates, with a last axis for the cores of a chip if it has several; None
    without coordinates, or if they do not fill a box."""
    rows = [[*getattr(d, "coords", ()), getattr(d, "core_on_chip", 0)] for d in devices]
    if {len(row) for row in rows} != {4}:
        return None
    firsts = [min(column) for column in zip(*rows, strict=True)]
    sizes = [max(c) + 1 - low for c, low in zip(zip(*rows, strict=True), firsts, strict=True)]
    places = [tuple([n - low for n, low in zip(row, firsts, strict=True)]) for row in rows]
    if len({*places}) != math.prod(sizes):
        return None
    found: Grid = np.empty(sizes, object)
    for place, device in zip(places, devices, strict=True):
        found[place] = device
    return found if sizes[-1] > 1 else found[..., 0]


def _ring(kind: str, torus: Grid, given: Grid, shape: tuple[int, ...]) -> Grid | None:
    """The devices of a small machine as a ring."""
    if kind in ("TPU v4 lite", "TPU8i"):
        return given[[*_SQUARE]] if given.size == 4 else None
    if kind in ("TPU7", "TPU7x"):  # a ring of eight cores for each index of z
        small = given.size % 8 == 0 and given.size <= 32 and max(torus.shape[:2]) <= 2
        return given.reshape(-1, 8)[:, _CORES_OF_TRAY] if small else None
    known = _RINGS.get(kind, {})
    order = known.get(torus.shape, known.get(torus.size))
    if order is None or (len(order) == 16 and max(shape) != 16):
        return None
    return torus.transpose().ravel()[[*order]]


def _contiguous_order(sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    known = _CONTIGUOUS.get(sizes, {})
    order = known.get(tuple([n for n in shape if n != 1]))
    if order is None:
        raise ValueError(
            f"contiguous_submeshes: for a network of {sizes} devices, meshes in which the devices "
            f"of each process are next to each other have the shapes {[*known]}; got {shape}."
        )
    return order


def _of_full_axes(sizes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.int64] | None:
    """The size of each axis of the mesh along each axis of the network, which it has alone."""
    left = dict(enumerate(sizes))
    found = np.ones((len(sizes), len(shape)), np.int64)
    for axis, size in reversed([*enumerate(shape)]):
        sets = [c for k in range(len(left), 0, -1) for c in itertools.combinations(left, k)]
        chosen = next((c for c in sets if math.prod(left[i] for i in c) == size), ())
        if not chosen and size > 1:
            return None
        for i in chosen:
            found[i, axis] = left.pop(i)
    return found


def _of_shared_axes(sizes: tuple[int, ...], shape: tuple[int, ...]) -> NDArray[np.int64] | None:
    """The same, where axes of the mesh may share one: full axes are preferred."""
    found = np.ones((len(sizes), len(shape)), np.int64)
    for axis, size in reversed([*enumerate(shape)]):
        taken: list[int] = found.prod(axis=1).tolist()
        factors = [_divisors(n // t) for n, t in zip(sizes, taken, strict=True)]
        choices = [c for c in itertools.product(*factors) if math.prod(c) == size]
        if not choices:
            return None

        def preference(parts: tuple[int, ...], taken: list[int] = taken) -> tuple[Any, ...]:
            full = [n for n, whole in zip(parts, sizes, strict=True) if n == whole > 1]
            shared = [n for n, t in zip(parts, taken, strict=True) if t > 1]
            return math.prod(full), len(full), math.prod(shared), parts

        found[:, axis] = max(choices, key=preference)
    return found


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
