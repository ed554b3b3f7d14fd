"""Which parts of one sharding make up which part of another: numbers only, no data.

A *region* is a box of an array: a (start, stop) pair for each dimension. The tiles of a sharding
that it intersects form a grid, so a region is assembled from a grid of *pieces*:

    region(((2, 6),), (8,), tiles=(4,))     # of x[8] in 4 tiles of 2: tiles 1 and 2
        # grid (2,), pieces: tile 1, all of it, goes to [0:2]; tile 2, all of it, to [2:4]

Resharding on the host and on devices, and estimates of their cost, are based on these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.caches import cached
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.tiling import Index, tile_size

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a tile (`inside` it), and its position in a region (`at`)."""

    tile: int  # in row-major order of the grid of tiles
    inside: Index
    at: Index


@dataclass(frozen=True, slots=True)
class Region:
    """A box of an array as a grid of pieces of its tiles, in row-major order."""

    bounds: Bounds
    grid: Shape
    pieces: tuple[Piece, ...]

    @property
    def shape(self) -> Shape:
        return extent(self.bounds)


def extent(bounds: Bounds) -> Shape:
    return tuple([stop - start for start, stop in bounds])


def bounds_of(index: Index, shape: Shape) -> Bounds:
    """An index as a (start, stop) pair for each dimension of the shape."""
    given = [s.indices(n)[:2] for s, n in zip(index, shape, strict=False)]
    return tuple(given) + tuple([(0, n) for n in shape[len(given) :]])


def region(bounds: Bounds, shape: Shape, tiles: Shape) -> Region:
    """A box of an array of this shape, made of tiles by the ceil rule."""
    along = [_along(b, n, k) for b, n, k in zip(bounds, shape, tiles, strict=True)]
    pieces = []
    for crossing in itertools.product(*along):
        tile = 0
        for (number, _, _), count in zip(crossing, tiles, strict=True):
            tile = tile * count + number
        inside, at = tuple([c[1] for c in crossing]), tuple([c[2] for c in crossing])
        pieces.append(Piece(tile, inside, at))
    return Region(bounds, tuple(map(len, along)), tuple(pieces))


def _along(bound: tuple[int, int], size: int, tiles: int) -> list[tuple[int, slice, slice]]:
    """In one dimension: the tiles intersected, the slice of each, and its target in the region."""
    start, stop = bound
    step = tile_size(size, tiles)
    met = range(start // step, tile_size(stop, step)) if start < stop else ()
    out = []
    for number in met:
        low, high = max(start, number * step), min(stop, (number + 1) * step)
        inside = slice(low - number * step, high - number * step)
        out.append((number, inside, slice(low - start, high - start)))
    return out


@cached(256)
def regions(source: Any, target: Any, shape: Shape) -> tuple[tuple[Region, ...], tuple[int, ...]]:
    """The regions that the devices of this process get under `target`, from tiles of `source`.

    Returns the distinct regions, ordered by position in the array, and for each of
    `target.addressable_positions` the number of its region.
    """
    indices, tiles = target.indices(shape), source.tiling(len(shape)).dims
    wanted = [bounds_of(indices[p], shape) for p in target.addressable_positions]
    distinct = {bounds: i for i, bounds in enumerate(sorted(set(wanted)))}
    found = tuple([region(bounds, shape, tiles) for bounds in distinct])
    return found, tuple([distinct[bounds] for bounds in wanted])


@cached(512)
def holders(sharding: Any, ndim: int) -> tuple[tuple[int, ...], ...]:
    """For each tile in row-major order, the positions in `sharding.devices` that hold it."""
    tiling = sharding.tiling(ndim)
    grid = tiling.tile_assignment().reshape(tiling.num_tiles, tiling.replicas)
    return tuple([tuple(row) for row in grid.tolist()])


@cached(512)
def within_processes(source: Any, target: Any, shape: Shape) -> bool:
    """Whether each process holds everything its devices get. The same in all processes."""
    if source.is_fully_addressable and target.is_fully_addressable:
        return True
    held = [{source.devices[p].process_index for p in row} for row in holders(source, len(shape))]
    tiles = source.tiling(len(shape)).dims
    for device, index in zip(target.devices, target.indices(shape), strict=True):
        pieces = region(bounds_of(index, shape), shape, tiles).pieces
        if any(device.process_index not in held[piece.tile] for piece in pieces):
            return False
    return True


@cached(1024)  # slow for thousands of devices
def moved(source: Any, target: Any, shape: Shape) -> int:
    """The number of elements that devices get and lack so far, over all devices of `target`.

    If either has no devices, because its mesh is abstract, devices are identified by position.
    """
    here, there = places(source, target)
    held = dict(zip(here, source.indices(shape), strict=True))
    total = 0
    for device, index in zip(there, target.indices(shape), strict=True):
        wanted = bounds_of(index, shape)
        total += math.prod(extent(wanted))
        if device in held:
            total -= math.prod(extent(overlap(wanted, bounds_of(held[device], shape))))
    return total


def places(source: Any, target: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """The identifiers of two shardings' devices: the devices, or their positions (see `moved`)."""
    if is_abstract(source) or is_abstract(target):
        return range(source.num_devices), range(target.num_devices)
    return source.devices, target.devices


def is_abstract(sharding: Any) -> bool:
    """Whether a sharding is over a mesh that has no devices."""
    return isinstance(getattr(sharding, "mesh", None), AbstractMesh)


def overlap(a: Bounds, b: Bounds) -> Bounds:
    """The intersection of two boxes; without elements if they are disjoint."""
    corners = [(max(a0, b0), min(a1, b1)) for (a0, a1), (b0, b1) in zip(a, b, strict=True)]
    return tuple([(low, max(low, high)) for low, high in corners])
