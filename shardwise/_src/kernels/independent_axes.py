"""Which axes of a grid may be run in any order, and at the same time.

An axis is independent if its user declared it parallel, or if no program uses what another program
with a different index along it has written. The latter is proven from the blocks of all programs:

    rows = Block((8, 128), lambda i, j: (i, 0))    # of a result: programs with different j share
                                                   # a block, those with different i do not
    independent_axes(launch, body, maps)           # → (True, False)

All independent axes together may be reordered: programs that differ along any of them share no
memory that one of them writes.
"""

from __future__ import annotations

import numpy as np

from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, used
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.copying.copies import RETAINED
from shardwise._src.kernels.copying.in_step import communicates
from shardwise._src.kernels.grid_values import all_programs, known_over_grid
from shardwise._src.kernels.launch_record import Launch


def independent_axes(launch: Launch, body: Program, maps: tuple[Program, ...]) -> tuple[bool, ...]:
    """For each axis of the grid, whether its programs may run in any order.

    Declared axes are independent. Others are if this is proven: the launch has no scratch memory,
    sizes of the grid are known, the body has no effects and sends nothing to other devices, and
    blocks of results that it writes are those of programs with one index along the axis. Nothing
    runs on the launch's devices.
    """
    return _independent(body, launch, maps)


@derived
def _independent(body: Program, launch: Launch, maps: tuple[Program, ...]) -> tuple[bool, ...]:
    if all(launch.parallel):
        return launch.parallel
    ids = all_programs(launch.grid)
    if launch.scratch or body.effects - RETAINED or communicates(body) or ids is None:
        return launch.parallel
    found = np.ones(len(ids), bool)
    for j, (tile, index) in enumerate(zip(launch.outs, maps[len(launch.ins) :], strict=True)):
        if not is_written(body, launch, j):
            continue
        labels = block_numbers(tile, index, ids)
        if labels is None or not _reads_own_blocks(body, launch, maps, j, ids):
            return launch.parallel
        order = np.lexsort(labels)
        ordered = labels[:, order]
        shared = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).all(0))
        a, b = ids[:, order[shared]], ids[:, order[shared + 1]]
        found &= (a == b).all(1)
    return tuple([bool(p or f) for p, f in zip(launch.parallel, found, strict=True)])


def is_written(body: Program, launch: Launch, j: int) -> bool:
    """Whether the body may write to result number `j`."""
    return body.outvars[j] is not body.invars[launch.first_block + len(launch.ins) + j]


def block_numbers(tile: Tile, index: Program, ids: np.ndarray) -> np.ndarray | None:
    """int64[dimensions, programs]: equal columns for programs with overlapping blocks; None if
    unknown. Along each dimension, overlapping blocks have one number."""
    if tile.is_whole:
        return np.zeros((1, ids.shape[1]), np.int64)
    at = known_over_grid(index, ids)
    if at is None:
        return None
    found = []
    for first, size in zip(first_elements(tile, at), tile.sizes, strict=True):
        places, number = np.unique(first, return_inverse=True)
        found.append(np.cumsum(np.diff(places, prepend=places[:1]) >= size)[number])
    return np.stack(found)


def first_elements(tile: Tile, at: np.ndarray) -> np.ndarray:
    """The first elements of blocks in the padded array, int64[dimensions, programs]: those of
    slices, which are inside of it."""
    columns = []
    at = at[:, : len(tile.sizes)]
    rows = zip(at.T, tile.type.shape, tile.sizes, tile.element, tile.padding, strict=True)
    for column, n, size, is_element, (before, after) in rows:
        first = column.astype(np.int64)
        first = first + before if is_element else first * size
        columns.append(np.clip(first, 0, n + before + after - size))
    return np.stack(columns)


def _reads_own_blocks(
    body: Program, launch: Launch, maps: tuple[Program, ...], j: int, ids: np.ndarray
) -> bool:
    """Whether programs only read, of the argument that result `j` aliases, what they write."""
    aliased = [i for i, out in launch.aliases if out == j]
    if not aliased or body.invars[launch.first_block + aliased[0]] not in used(body):
        return True
    i = aliased[0]
    a, b = launch.ins[i], launch.outs[j]
    if (a.sizes, a.element, a.padding) != (b.sizes, b.element, b.padding):
        return False
    if a.is_whole:
        return True
    own, other = [known_over_grid(maps[n], ids) for n in (i, len(launch.ins) + j)]
    return own is not None and other is not None and np.array_equal(own, other)
