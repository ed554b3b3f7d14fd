"""Tilings: an array split into a grid of tiles, one for each device. Numbers only, no devices.

A `Tiling` is what XLA calls a tile assignment. Devices are *positions* 0..n-1 in the logical order
of a sharding. Write the positions as an array of shape `mesh_sizes`, transpose by `order`, and
reshape to `dims`, with a last dimension for replicas if a tile has several holders:

    Tiling(dims=(4, 1), mesh_sizes=(4, 2), order=(0, 1), replicated=True)
        # rows in 4 tiles: tile i is held by positions 2i and 2i+1

Sizes follow the ceil rule: for n elements in k tiles, each has ceil(n/k), the last ones fewer or
none. Everything is vectorized or cached, because there may be thousands of devices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shardwise._src.base.caches import cached
from shardwise._src.base.pickles import read_by, reduced

Index = tuple[slice, ...]
WHOLE = slice(None)


@dataclass(frozen=True, slots=True)
class Tiling:
    """dims:       the number of tiles of each array dimension.
    mesh_sizes: the grid that the positions 0..n-1 are written into.
    order:      the permutation of its axes that puts those of dimension 0 first.
    replicated: whether tiles have several holders (a last tile dimension, of replicas).
    assignment: the positions tile by tile, for a tiling that no permutation expresses; else None.
    """

    dims: tuple[int, ...]
    mesh_sizes: tuple[int, ...]
    order: tuple[int, ...]
    replicated: bool
    assignment: tuple[int, ...] | None = None

    @property
    def num_tiles(self) -> int:
        return math.prod(self.dims)

    @property
    def num_devices(self) -> int:
        return math.prod(self.mesh_sizes)

    @property
    def replicas(self) -> int:
        """The number of positions that hold each tile."""
        return self.num_devices // self.num_tiles

    def tile_assignment(self) -> NDArray[np.intp]:
        """The position that holds each tile; shape `dims`, plus replicas if replicated."""
        if self.assignment is not None:
            flat = np.array(self.assignment, np.intp)
        else:
            flat = np.arange(self.num_devices).reshape(self.mesh_sizes).transpose(self.order)
        return flat.reshape(self.dims + ((self.replicas,) if self.replicated else ()))

    def tile_of_position(self) -> NDArray[np.intp]:
        """The tile (in row-major order) that each position holds."""
        grid = self.tile_assignment().reshape(self.num_tiles, self.replicas)
        tiles = np.empty(self.num_devices, np.intp)
        tiles[grid] = np.arange(self.num_tiles)[:, None]
        return tiles

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.dims, self.mesh_sizes, self.order, self.replicated, self.assignment)
        return reduced("Tiling", *fields)


read_by("Tiling", Tiling)


@cached(256)
def replicated_tiling(ndim: int, num_devices: int) -> Tiling:
    """The tiling in which every device holds the full array."""
    return Tiling((1,) * ndim, (num_devices,), (0,), num_devices > 1)


def tile_size(size: int, tiles: int) -> int:
    """The size of the first tile: ceil(size / tiles)."""
    return -(-size // tiles)


def tile_slices(size: int, tiles: int) -> list[slice]:
    """The slice of each tile of a dimension; `slice(None)` for a single tile."""
    if tiles == 1:
        return [WHOLE]
    step = tile_size(size, tiles)
    return [slice(min(i * step, size), min((i + 1) * step, size)) for i in range(tiles)]


def tile_indices(shape: tuple[int, ...], tiles: tuple[int, ...]) -> list[Index]:
    """The index of each tile of the grid, in row-major order."""
    return list(itertools.product(*map(tile_slices, shape, tiles)))


def tiling_of_indices(shape: tuple[int, ...], indices: Sequence[Index]) -> Tiling:
    """The tiling that gives each position its index; ValueError if no such tiling exists."""
    bounds = [index_bounds(shape, index) for index in indices]
    starts = [sorted({bound[dim] for bound in bounds}) for dim in range(len(shape))]
    dims = tuple(map(len, starts))
    tiles = {index_bounds(shape, t): i for i, t in enumerate(tile_indices(shape, dims))}
    holders: list[list[int]] = [[] for _ in tiles]
    for position, bound in enumerate(bounds):
        if bound not in tiles:
            raise ValueError(f"{indices[position]} is not a tile of a grid of {dims} equal tiles")
        holders[tiles[bound]].append(position)
    if len({len(held) for held in holders}) > 1:
        counts = f"between {min(map(len, holders))} and {max(map(len, holders))} devices"
        raise ValueError(
            f"the tiles of the grid {dims} are held by {counts}, not all by the same number"
        )
    assignment = tuple(itertools.chain.from_iterable(holders))
    return Tiling(dims, (len(bounds),), (0,), len(holders[0]) > 1, assignment)


def index_bounds(shape: tuple[int, ...], index: Any) -> tuple[tuple[int, int], ...]:
    """An index as (start, stop) of each dimension; ValueError if it does not consist of slices."""
    parts: list[Any] = list(cast("Index", index)) if isinstance(index, tuple) else []
    plain = [part.__class__ is slice and part.step in (None, 1) for part in parts]
    if len(parts) != len(shape) or not all(plain):
        raise ValueError(f"{index!r} is not a tuple of {len(shape)} slices with step 1")
    return tuple(s.indices(n)[:2] for s, n in zip(parts, shape, strict=True))


def replica_ids(shape: tuple[int, ...], tiling: Tiling) -> list[int]:
    """For each position, the number of earlier ones that hold the same index."""
    index = _distinct_indices(shape, tiling.dims)[tiling.tile_of_position()]
    order = np.argsort(index, kind="stable")  # equal indices together, by position
    ranked = index[order]
    count = np.arange(len(index))
    starts = np.where(np.diff(ranked, prepend=-1) != 0, count, 0)
    ids = np.empty_like(count)
    ids[order] = count - np.maximum.accumulate(starts)
    return ids.tolist()


def _distinct_indices(shape: tuple[int, ...], tiles: tuple[int, ...]) -> NDArray[np.intp]:
    """A number for each tile, equal for equal indices: all empty tiles are equal."""
    numbers = np.zeros((1,) * len(tiles), np.intp)
    for dim, (size, count) in enumerate(zip(shape, tiles, strict=True)):
        step = tile_size(size, count)
        first_empty = tile_size(size, step) if step else 0
        along = np.minimum(np.arange(count), first_empty)
        numbers = numbers * count + along.reshape((-1,) + (1,) * (len(tiles) - dim - 1))
    return numbers.reshape(-1)
