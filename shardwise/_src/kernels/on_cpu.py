"""The program of a launch on CPU: loops over the grid, with blocks by slices.

A block is cut out, and written back, around the loops over axes on which it does not depend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.accesses import INT32, as_int32
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.copying.in_step import communicates, report_missed, run_in_step
from shardwise._src.kernels.grid_values import (
    all_programs,
    count_of,
    ids_of,
    known_over_grid,
    used_axes,
)
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.simulation import (
    Simulation,
    check_inside,
    filled,
    read,
    record,
    simulated_order,
    value,
)
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.shape import concatenate, pad, slice_, slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import drop_sharding
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType

NEAREST = "nearest"  # a fill: see `padded`


@derived
def loop_program(
    body: Program,
    types: tuple[ArrayType, ...],
    maps: tuple[Program, ...],
    launch: Launch,
    fill: Any = None,
    backwards: bool = False,
) -> Program:
    """The loop over a grid, for operands of these types.

    fill: the value of memory that was not written, or NEAREST; None: that of the launch.
    backwards: along the parallel axes.
    """
    fill = launch.simulation.fill if fill is None else fill
    run = partial(run_loop, body, maps, launch, fill, backwards)
    return program_of(lambda *xs: run(xs)[0], types, launch.name)


def run_loop(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    fill: Any,
    backwards: bool,
    operands: Sequence[Any],
    more: Sequence[Any] = (),
) -> tuple[list[Any], list[Any]]:
    """The results, and the last values of `more`, which the body takes and returns after its
    scratch memory."""
    launch, ends = with_room(launch, maps), fill
    fill = launch.simulation.fill if fill == NEAREST else fill
    dynamic, prefetched, inputs = launch.parts([*map(drop_sharding, operands)])
    sizes = launch.sizes(dynamic)
    aliased = {out: i for i, out in launch.aliases}
    own = body.invars[launch.first_block :]
    inputs = [pvary(x, v.aval.varying) for x, v in zip(inputs, own, strict=False)]
    held = [padded(x, tile, ends) for x, tile in zip(inputs, launch.ins, strict=True)]
    outs = [
        padded(inputs[aliased[j]] if j in aliased else filled(tile.type, fill), tile, fill)
        for j, tile in enumerate(launch.outs)
    ]
    scratch = [filled(s.type, 0 if s.space.is_semaphore else fill) for s in launch.scratch]
    scratch += more
    first = [pvary(x, v.aval.varying) for x, v in zip((*outs, *scratch), body.outvars, strict=True)]
    outs, scratch = first[: len(outs)], first[len(outs) :]
    in_step = communicates(body)
    names = first and type_of(first[0]).varying
    depths, axes, count = _depths(launch, maps), len(sizes), len(launch.ins)
    stops = sorted({0, *depths, axes})
    cut = partial(_cut, simulation=launch.simulation)

    def visit(stop: int, ids: list[Any], blocks: list[Any], state: Any) -> Any:
        """The state after the programs whose first `stop` indices are `ids`."""
        rest = [np.int32(0)] * (axes - stop)  # the maps of this depth do not use them
        at = [
            m(*ids, *rest, *prefetched) if depth == stop else None
            for m, depth in zip(maps, depths, strict=True)
        ]
        check_inside(at, launch)
        rows = zip(blocks, launch.ins, at, strict=False)
        blocks = [x if i is None else cut(x, tile, i) for x, tile, i in rows]
        outs, scratch, missed = state
        places = list(zip(outs, launch.outs, at[count:], strict=True))
        own = [x if i is None else cut(x, tile, i) for x, tile, i in places]
        if stop < axes:
            own, scratch, missed = inner(stop, ids, blocks, (own, scratch, missed))
        else:
            record(ids, launch)
            args = *ids, *dynamic, *prefetched, *blocks, *own, *scratch
            found, missed = run_in_step(body, args, missed) if in_step else (body(*args), ())
            own, scratch = found[: len(own)], list(found[len(own) :])
        rows = zip(places, own, strict=True)
        outs = [y if i is None else _put(x, tile, i, y) for (x, tile, i), y in rows]
        return outs, scratch, missed

    def inner(stop: int, ids: list[Any], blocks: list[Any], state: Any) -> Any:
        """A loop over the next axes, up to those that further blocks depend on."""
        end = stops[stops.index(stop) + 1]
        part, marks = sizes[stop:end], launch.parallel[stop:end]

        def run_programs(t: Any, state: Any) -> Any:
            more = ids_of(as_int32(t), part)
            if backwards:
                rows = zip(more, part, marks, strict=True)
                more = [ew.sub(ew.sub(as_int32(n), np.int32(1)), i) if p else i for i, n, p in rows]
            more = simulated_order(more, stop, launch)
            return visit(end, [*ids, *more], blocks, state)

        total = count_of(part)
        if isinstance(total, int) and total == 1:
            return run_programs(np.int32(0), state)
        return fori_loop(0, total, run_programs, state)

    state = outs, scratch, pvary(np.int32(0), names) if in_step else ()
    if 0 not in [n for n in sizes if isinstance(n, int)]:
        state = visit(0, [], held, state)
    if in_step:
        report_missed(launch.name, state[2])
    outs = [cropped(x, tile) for x, tile in zip(state[0], launch.outs, strict=True)]
    return outs, list(state[1][len(launch.scratch) :])


def _depths(launch: Launch, maps: Sequence[Program]) -> list[int]:
    """For each block, of how many first indices of a program it depends."""
    rows = zip(maps, launch.tiles, strict=True)
    axes = len(launch.grid)
    return [max(used_axes(index, tile, axes), default=-1) + 1 for index, tile in rows]


def with_room(launch: Launch, maps: Sequence[Program]) -> Launch:
    """With padding for blocks by elements that may extend beyond their arrays, which slices would
    move inside."""
    if launch.simulation.outside != "moved":
        return launch
    pairs = zip(launch.tiles, maps, strict=True)
    tiles = [_wider(t) if any(t.element) and not _is_inside(t, m, launch) else t for t, m in pairs]
    count = len(launch.ins)
    return replace(launch, ins=tuple(tiles[:count]), outs=tuple(tiles[count:]))


def _wider(tile: Tile) -> Tile:
    rows = zip(tile.padding, tile.sizes, tile.element, strict=True)
    padding = [(a + n - 1, b + n - 1) if is_element else (a, b) for (a, b), n, is_element in rows]
    return replace(tile, padding=tuple(padding))


def _is_inside(tile: Tile, index: Program, launch: Launch) -> bool:
    """Whether all blocks are known to be inside of their padded array."""
    ids = all_programs(launch.grid)
    at = None if ids is None else known_over_grid(index, ids)
    if at is None:
        return False
    low, high = (np.asarray(row) for row in tile.bounds)
    at = at[:, : len(tile.sizes)]
    return bool(((at >= low) & (at <= high)).all())


def padded(x: Any, tile: Tile, fill: Any) -> Any:
    """The array with its padding: `fill`; if it is NEAREST, the last elements at the end of the
    last block, and otherwise 0."""
    rows = list(tile.padding)
    sizes = *type_of(x).shape, *[n for row in rows for n in row]
    is_known = all(isinstance(n, int) for n in sizes)
    if fill == NEAREST and is_known and 0 not in type_of(x).shape:
        for d, (_, high) in enumerate(rows):
            if high and not tile.element[d]:
                x, rows[d] = _repeated(x, d, high), (0, 0)
    if all(row == (0, 0) for row in rows):
        return x
    config = tuple([(low, high, 0) for low, high in rows])
    return pad(x, value(0 if fill == NEAREST else fill, type_of(x)), padding_config=config)


def _repeated(x: Any, d: int, count: int) -> Any:
    """The array with its last elements along a dimension repeated."""
    shape = type_of(x).shape
    last = slice_in_dim(x, shape[d] - 1, shape[d], d)
    more, dims = (*shape[:d], count, *shape[d + 1 :]), tuple(range(len(shape)))
    return concatenate(x, broadcast_in_dim(last, shape=more, dims=dims), dimension=d)


def cropped(x: Any, tile: Tile) -> Any:
    if all(row == (0, 0) for row in tile.padding):
        return x
    starts = tuple([low for low, _ in tile.padding])
    limits = tuple([low + n for (low, _), n in zip(tile.padding, tile.type.shape, strict=True)])
    return slice_(x, start_indices=starts, limit_indices=limits, strides=None)


def _starts(tile: Tile, at: Sequence[Any]) -> list[Any]:
    rows = zip(at, tile.sizes, tile.element, tile.padding, strict=False)
    return [
        ew.add(i, np.int32(low)) if is_element else ew.mul(i, np.int32(n))
        for i, n, is_element, (low, _) in rows
    ]


def _cut(x: Any, tile: Tile, at: Sequence[Any], simulation: Simulation) -> Any:
    if not tile.is_whole:
        starts = _starts(tile, at)
        if simulation.outside == "filled":
            x = read(x, starts, tile.sizes, (1,) * len(starts), simulation)
        else:
            x = dynamic_slice(x, *starts, slice_sizes=tile.sizes)
    return x if type_of(x).shape == tile.shape else reshape(x, shape=tile.shape)


def _put(x: Any, tile: Tile, at: Sequence[Any], block: Any) -> Any:
    if tile.shape != tile.sizes:
        block = reshape(block, shape=tile.sizes)
    if tile.is_whole:
        return block
    starts = _starts(tile, at)
    if tile.ragged:
        old = dynamic_slice(x, *starts, slice_sizes=tile.sizes)
        for d, size in zip(tile.ragged, at[len(tile.sizes) :], strict=True):
            number = iota(shape=tile.sizes, dtype=INT32, dimension=d)
            block = ew.where(
                ew.lt(number, broadcast_in_dim(size, shape=tile.sizes, dims=())), block, old
            )
    return dynamic_update_slice(x, block, *starts)
