"""Launches on CPU with fewer and larger programs: all programs along an axis as one.

    grid (128,), blocks of f32[8,1024]  →  grid (1,), one block of f32[1024,1024]

This is possible along an axis that is independent, and that is itself the index of blocks along one
of their dimensions: then the blocks are adjacent. The body is mapped over the new dimension of its
refs, and scratch memory exists once for each program.

XLA's loops cost little, and the last bits may differ: XLA sums larger arrays in another order, has
several functions `exp`, rounds half precision where it likes, and makes one operation of a product
and a sum if no loop is in between, even if one of them is outside of the kernel. So this is an
option, `kernels_cpu_form`, and not the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise._src.base.config import kernels_cpu_form
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, walk
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.copying.in_step import communicates
from shardwise._src.kernels.independent_axes import independent_axes, is_written
from shardwise._src.kernels.launch_record import INT, Launch
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.create import iota
from shardwise._src.transforms.batch import batch, to_dim
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.symbolic import Symbolic

MOST_BYTES = 2**28  # of scratch memory, and of the largest intermediate value

Parts = tuple[Program, Launch]


@derived
def in_form(body: Program, launch: Launch, maps: tuple[Program, ...]) -> Parts:
    """The body and launch, with larger programs if the option says so. The maps are the same."""
    sizes = [n for tile in launch.tiles for n in tile.type.shape]
    is_known = not any(t.ragged for t in launch.tiles)
    is_known = is_known and not any(isinstance(n, Symbolic) for n in sizes)
    is_pure = not (body.effects or communicates(body))
    is_possible = launch.simulation.is_compiled and is_pure and is_known
    if kernels_cpu_form.value == "loop" or not is_possible:
        return body, launch
    for axis in reversed(range(len(launch.grid))):
        places, count = _places(body, launch, maps, axis), launch.grid[axis] or 0
        if places is not None and _bytes(body, launch) * count <= MOST_BYTES:
            body, launch = _joined(body, launch, axis, places)
    return body, launch


def _places(
    body: Program, launch: Launch, maps: tuple[Program, ...], axis: int
) -> tuple[int | None, ...] | None:
    """For each block the dimension along which an axis of the grid is its index, or None if it does
    not depend on it; None if its programs cannot be joined."""
    count = launch.grid[axis]
    if count is None or count < 2 or not independent_axes(launch, body, maps)[axis]:
        return None
    found: list[int | None] = []
    for number, (tile, index) in enumerate(zip(launch.tiles, maps, strict=True)):
        variable = index.invars[axis]
        dims = [d for d, v in enumerate(index.outvars) if v is variable]
        if any(variable in e.invars for e in index.eqns) or len(dims) > 1:
            return None
        j = number - len(launch.ins)
        if tile.is_whole or not dims:
            if j >= 0 and is_written(body, launch, j):
                return None  # a race
            found.append(None)
            continue
        (d,) = dims
        if tile.element[d] or count > -(-tile.type.shape[d] // tile.sizes[d]):
            return None
        found.append(d)
    return tuple(found)


def _bytes(body: Program, launch: Launch) -> int:
    """Of scratch memory, and of the largest value in a body."""
    sizes = [v.aval.size * v.aval.dtype.itemsize for e in walk(body) for v in e.outvars]
    scratch = [math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in launch.scratch]
    return max(sizes, default=0) + sum(scratch)


def _joined(body: Program, launch: Launch, axis: int, places: Sequence[int | None]) -> Parts:
    size: Any = launch.grid[axis]
    ins, scratch = len(launch.ins), launch.scratch
    rows = [*zip(launch.tiles, places, strict=True)]
    tiles = tuple([t if d is None else _larger(t, d, size) for t, d in rows])
    new = replace(
        launch,
        grid=(*launch.grid[:axis], 1, *launch.grid[axis + 1 :]),
        ins=tiles[:ins],
        outs=tiles[ins:],
        scratch=tuple([replace(s, shape=(size, *s.shape)) for s in scratch]),
    )
    first = launch.first_block
    olds = [x.shape for x in (*launch.tiles, *scratch)]
    dims = [None if d is None else sum(t.kept[:d]) for t, d in rows] + [0] * len(scratch)
    shapes = [x.shape for x in (*tiles, *new.scratch)]
    refs = zip(body.invars[first:], shapes, strict=True)
    types = [v.aval for v in body.invars[:first]] + [v.aval.update(shape=s) for v, s in refs]

    def run(*xs: Any) -> list[Any]:
        head, refs = list(xs[:first]), zip(xs[first:], olds, dims, strict=True)
        head[axis] = iota(dtype=INT.dtype, shape=(size,), dimension=0)
        blocks = [x if d is None else _shaped(x, (*s[:d], size, *s[d:])) for x, s, d in refs]
        marks = [0 if i == axis else None for i in range(first)] + dims
        outs, found = batch(body, [*head, *blocks], marks, size, name=body.name)
        rows = zip(outs, found, dims[ins:], shapes[ins:], strict=True)
        return [_shaped(to_dim(y, d, w, size), shape) for y, d, w, shape in rows]

    return program_of(run, types, body.name), new


def _larger(tile: Tile, d: int, size: int) -> Tile:
    sizes, kept = [*tile.sizes], [*tile.kept]
    sizes[d], kept[d] = size * sizes[d], True
    return replace(tile, sizes=tuple(sizes), kept=tuple(kept))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if type_of(x).shape == shape else reshape(x, shape=shape)
