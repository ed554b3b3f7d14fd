"""Checks of a launch: its blocks, and what its results depend on.

`check_blocks` evaluates the index functions for the whole grid, before anything runs. `check_runs`
runs the kernel with different values in memory that it has not written, and with the programs of
parallel axes in reverse order: the results must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import KernelError
from shardwise._src.base.flags import make_user_context
from shardwise._src.control.call import call
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.checking.shadow_memory import as_text, differ
from shardwise._src.kernels.grid_values import over_grid, programs_of
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_cpu import loop_program

MOST_PROGRAMS = 2**22
are_checked = make_user_context(False)  # whether `checked` checks all launches
FILLS = 1.7e3, -2.9e5  # values of memory that was not written


def check(
    body: Program, maps: Sequence[Program], launch: Launch, operands: Sequence[Any]
) -> list[Any]:
    """Raises a `KernelError` that says what is wrong; returns the results."""
    if launch.dynamic or launch.prefetch:
        check_blocks(maps, launch, operands)
    else:
        _check_fixed_blocks(body, tuple(maps), launch)
    return check_runs(body, tuple(maps), launch, operands)


@derived
def _check_fixed_blocks(body: Program, maps: Any, launch: Launch) -> bool:
    check_blocks(maps, launch, ())
    return True


# -- blocks --


def check_blocks(
    maps: Sequence[Program], launch: Launch, operands: Sequence[Any], by_element: bool = False
) -> None:
    """by_element: whether the writes to results that programs see as a whole are checked otherwise,
    each element of them."""
    dynamic, prefetched, _ = launch.parts(operands)
    sizes = iter(dynamic)
    grid = [int(np.asarray(next(sizes))) if n is None else n for n in launch.grid]
    if math.prod(grid) > MOST_PROGRAMS:
        raise KernelError(
            f"kernel {launch.name}: check evaluates the blocks of at most {MOST_PROGRAMS} "
            f"programs; the grid {tuple(grid)} has {math.prod(grid)}. Check a smaller problem."
        )
    ids = programs_of(grid)
    rows = zip((*launch.ins, *launch.outs), maps, launch.ref_names[launch.prefetch :], strict=False)
    for number, (tile, index, name) in enumerate(rows):
        if not tile.sizes or not ids.shape[1]:
            continue
        at = over_grid(index, ids, prefetched)[:, : len(tile.sizes)]
        who = f"kernel {launch.name}: {name}, {tile.type.str_short(True)}"
        _check_inside(who, tile, ids, at)
        if number >= len(launch.ins) and not (by_element and tile.is_shared):
            is_aliased = number - len(launch.ins) in dict(launch.aliases).values()
            _check_written(who, tile, launch, ids, at, is_aliased)


def _check_inside(who: str, tile: Tile, ids: np.ndarray, at: np.ndarray) -> None:
    low, high = tile.bounds
    bad = ((at < low) | (at > high)).any(axis=1)
    if not bad.any():
        return
    p = int(bad.argmax())
    program, block, sizes = as_text(ids[:, p]), as_text(at[p]), as_text(tile.sizes)
    if any(tile.element):
        raise KernelError(
            f"{who}: program {program} has the block of {sizes} elements from {block}, which is "
            "outside of the array."
        )
    raise KernelError(
        f"{who}: program {program} has block {block}, but there are {as_text(np.add(high, 1))} "
        f"blocks of {sizes} elements."
    )


def _check_written(
    who: str, tile: Tile, launch: Launch, ids: np.ndarray, at: np.ndarray, is_aliased: bool
) -> None:
    if any(tile.element) or tile.is_indirect:
        return  # these may overlap
    counts = [last + 1 for last in tile.bounds[1]]
    flat: np.ndarray = np.asarray(np.ravel_multi_index(tuple(at.T), counts))
    missing = np.setdiff1d(np.arange(math.prod(counts)), flat)
    if len(missing) and not is_aliased:
        first = as_text(np.unravel_index(missing[0], counts))
        raise KernelError(
            f"{who}: no program has block {first}, and {len(missing)} of {math.prod(counts)} "
            "blocks are not visited, so that the result is not written there."
        )
    order = np.argsort(flat, kind="stable")
    same = np.flatnonzero(flat[order][1:] == flat[order][:-1])
    pairs = np.stack([order[same], order[same + 1]], 1).tolist()
    axes = [d for d, p in enumerate(launch.parallel) if p]
    for a, b in pairs:
        programs = f"programs {as_text(ids[:, a])} and {as_text(ids[:, b])}"
        if any(ids[d, a] != ids[d, b] for d in axes):
            raise KernelError(
                f"{who}: {programs} both write block {as_text(at[a])}, and differ along a parallel "
                "axis of the grid: a race."
            )
        if b != a + 1:
            raise KernelError(
                f"{who}: {programs} both have block {as_text(at[a])}, and others run in between: "
                "what the first one wrote is lost on hardware that keeps one block at a time. "
                "Order the axes of the grid so that the programs of one block follow each other."
            )


# -- runs --

_UNWRITTEN = (
    "memory that was not written: of scratch, of a result, or beyond the end of an argument. Write "
    "it first, or mask it"
)
_ORDER = "the order of programs along the parallel axes of the grid"


def check_runs(
    body: Program, maps: tuple[Program, ...], launch: Launch, operands: Sequence[Any]
) -> list[Any]:
    types, is_parallel = tuple(map(type_of, operands)), any(launch.parallel)

    def run(fill: float, backwards: bool) -> list[Any]:
        return call(*operands, program=loop_program(body, types, maps, launch, fill, backwards))

    def differences(fill: float, backwards: bool) -> list[np.ndarray]:
        """Which elements of the results differ in such a run."""
        pairs = zip(results, run(fill, backwards), strict=True)
        return [np.atleast_1d(differ(np.asarray(a), np.asarray(b))) for a, b in pairs]

    results = run(FILLS[0], False)
    if not any(marks.any() for marks in differences(FILLS[1], is_parallel)):
        return results
    names = launch.ref_names[launch.prefetch + len(launch.ins) :]
    cases = [(FILLS[1], False, _UNWRITTEN), (FILLS[0], True, _ORDER), (FILLS[1], True, _ORDER)]
    for fill, backwards, cause in cases:
        for name, marks in zip(names, differences(fill, backwards), strict=False):
            if marks.any():
                raise KernelError(
                    f"kernel {launch.name}: {marks.sum()} elements of {name}, the first at "
                    f"{as_text(np.argwhere(marks)[0])}, depend on {cause}."
                )
    return results
