"""The program of a launch on CPU: a loop over the grid, with blocks by slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.accesses import INT32
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape, zeros
from shardwise._src.ops.families import BOOL
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.shape import pad, slice_
from shardwise._src.ops.sharded.sharding_ops import drop_sharding
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import finfo, is_integer
from shardwise._src.values.convert import cast


@derived
def loop_program(
    body: Program,
    types: tuple[ArrayType, ...],
    maps: tuple[Program, ...],
    launch: Launch,
    fill: float = 0,
    backwards: bool = False,
) -> Program:
    """The loop over a grid, for operands of these types.

    fill: the value of memory that was not written. backwards: along the parallel axes.
    """
    run = partial(_run, body, maps, launch, fill, backwards)
    return program_of(lambda *xs: run(xs), types, launch.name)


def _run(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    fill: float,
    backwards: bool,
    operands: Sequence[Any],
) -> list[Any]:
    dynamic, prefetched, inputs = launch.parts([*map(drop_sharding, operands)])
    given = iter(dynamic)
    sizes = [next(given) if n is None else n for n in launch.grid]
    aliased = {out: i for i, out in launch.aliases}
    held = [_padded(x, tile, fill) for x, tile in zip(inputs, launch.ins, strict=True)]
    outs = [
        _padded(inputs[aliased[j]] if j in aliased else _filled(tile.type, fill), tile, fill)
        for j, tile in enumerate(launch.outs)
    ]
    scratch = [_filled(s.type, fill) for s in launch.scratch]
    count = len(launch.ins)

    def turn(t: Any, state: Any) -> Any:
        outs, scratch = state
        ids = _ids(t, sizes)
        if backwards:
            rows = zip(ids, sizes, launch.parallel, strict=True)
            ids = [ew.sub(ew.sub(_int(n), np.int32(1)), i) if p else i for i, n, p in rows]
        at = [m(*ids, *prefetched) for m in maps]
        blocks = [_cut(x, tile, i) for x, tile, i in zip(held, launch.ins, at, strict=False)]
        places = list(zip(outs, launch.outs, at[count:], strict=True))
        found = body(*ids, *dynamic, *prefetched, *blocks, *[_cut(*p) for p in places], *scratch)
        new = [_put(*place, block) for place, block in zip(places, found, strict=False)]
        return new, list(found[len(places) :])

    state = outs, scratch
    if all(isinstance(n, int) for n in sizes) and math.prod(sizes) == 1:
        state = turn(np.int32(0), state)
    elif 0 not in [n for n in sizes if isinstance(n, int)]:
        total: Any = math.prod([n for n in sizes if isinstance(n, int)])
        for n in dynamic:
            total = ew.mul(cast(n, INT32), np.int32(total) if isinstance(total, int) else total)
        state = fori_loop(0, total, turn, state)
    return [_cropped(x, tile) for x, tile in zip(state[0], launch.outs, strict=True)]


def _ids(t: Any, sizes: Sequence[Any]) -> list[Any]:
    """The indices of program number `t`; the last axis is the fastest."""
    t = cast(t, INT32)
    found: list[Any] = []
    for d in range(len(sizes) - 1, -1, -1):
        if d == 0:
            found.append(t)
            break
        n = _int(sizes[d])
        found.append(ew.rem(t, n))
        t = ew.div(t, n)
    return found[::-1]


def _int(n: Any) -> Any:
    return np.int32(n) if isinstance(n, int) else cast(n, INT32)


def _filled(t: ArrayType, fill: float) -> Any:
    return broadcast_in_dim(_value(fill, t), shape=t.shape, dims=()) if fill else zeros(t)


def _value(fill: float, t: ArrayType) -> Any:
    """The fill as a scalar of a dtype: of small integers the lower bits, of small floats their
    largest or smallest number."""
    if t.dtype == BOOL:
        return np.bool_(fill < 0)
    if is_integer(t.dtype):
        return np.asarray(int(fill)).astype(t.dtype)[()]
    ends = finfo(t.dtype)
    return np.asarray(min(max(fill, float(ends.min)), float(ends.max))).astype(t.dtype)[()]


def _padded(x: Any, tile: Tile, fill: float) -> Any:
    if all(row == (0, 0) for row in tile.padding):
        return x
    return pad(
        x,
        _value(fill, type_of(x)),
        padding_config=tuple([(low, high, 0) for low, high in tile.padding]),
    )


def _cropped(x: Any, tile: Tile) -> Any:
    if all(row == (0, 0) for row in tile.padding):
        return x
    starts = tuple([low for low, _ in tile.padding])
    limits = tuple([low + n for (low, _), n in zip(tile.padding, tile.type.shape, strict=True)])
    return slice_(x, start_indices=starts, limit_indices=limits, strides=None)


def _starts(tile: Tile, at: Sequence[Any]) -> list[Any]:
    rows = zip(at, tile.sizes, tile.element, tile.padding, strict=True)
    return [
        ew.add(i, np.int32(low)) if is_element else ew.mul(i, np.int32(n))
        for i, n, is_element, (low, _) in rows
    ]


def _cut(x: Any, tile: Tile, at: Sequence[Any]) -> Any:
    if tile.is_whole or not tile.sizes:
        return x
    block = dynamic_slice(x, *_starts(tile, at), slice_sizes=tile.sizes)
    return reshape(block, shape=tile.shape)


def _put(x: Any, tile: Tile, at: Sequence[Any], block: Any) -> Any:
    if tile.is_whole or not tile.sizes:
        return block
    return dynamic_update_slice(x, reshape(block, shape=tile.sizes), *_starts(tile, at))
