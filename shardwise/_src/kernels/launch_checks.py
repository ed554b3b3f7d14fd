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
from shardwise._src.kernels.grid_values import over_grid, programs_of
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_cpu import loop_program
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.ops.shape import concatenate
from shardwise._src.transforms.stage import program_of
from shardwise._src.values.convert import cast

MOST_PROGRAMS = 2**22
are_checked = make_user_context(False)  # whether `checked` checks all launches
FILLS = 1.7e3, -2.9e5  # values of memory that was not written


def check(
    body: Program, maps: Sequence[Program], launch: Launch, operands: Sequence[Any], names: Any
) -> list[Any]:
    """Raises a `KernelError` that says what is wrong; returns the results.

    names: of the inputs and results.
    """
    if launch.dynamic or launch.prefetch:
        check_blocks(maps, launch, operands, names)
    else:
        _check_fixed_blocks(body, tuple(maps), launch, tuple(names))
    return check_runs(body, tuple(maps), launch, operands, names)


@derived
def _check_fixed_blocks(body: Program, maps: Any, launch: Launch, names: tuple[str, ...]) -> bool:
    check_blocks(maps, launch, (), names)
    return True


# -- blocks --


def check_blocks(
    maps: Sequence[Program],
    launch: Launch,
    operands: Sequence[Any],
    names: Sequence[str],
    by_element: bool = False,
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
    tiles = (*launch.ins, *launch.outs)
    for number, (tile, index, name) in enumerate(zip(tiles, maps, names, strict=False)):
        if not tile.sizes or not ids.shape[1]:
            continue
        at = over_grid(index, ids, prefetched)[:, : len(tile.sizes)]
        who = f"kernel {launch.name}: {name}, {tile.type.str_short(True)}"
        _check_inside(who, tile, ids, at)
        if number >= len(launch.ins) and not (by_element and tile.is_shared):
            is_aliased = number - len(launch.ins) in dict(launch.aliases).values()
            _check_written(who, tile, launch, ids, at, is_aliased)


def _counts(tile: Tile) -> list[int]:
    return [-(-n // size) if n else 1 for n, size in zip(tile.type.shape, tile.sizes, strict=True)]


def _text(values: Any) -> str:
    return "(" + ", ".join(str(int(v)) for v in values) + ("," if len(values) == 1 else "") + ")"


def _check_inside(who: str, tile: Tile, ids: np.ndarray, at: np.ndarray) -> None:
    low, high = tile.bounds
    bad = ((at < low) | (at > high)).any(axis=1)
    if not bad.any():
        return
    p = int(bad.argmax())
    program, block = _text(ids[:, p]), _text(at[p])
    if any(tile.element):
        raise KernelError(
            f"{who}: program {program} has the block of {_text(tile.sizes)} elements from {block}, "
            "which is outside of the array."
        )
    raise KernelError(
        f"{who}: program {program} has block {block}, but there are {_text(_counts(tile))} blocks "
        f"of {_text(tile.sizes)} elements."
    )


def _check_written(
    who: str, tile: Tile, launch: Launch, ids: np.ndarray, at: np.ndarray, is_aliased: bool
) -> None:
    if any(tile.element):
        return  # these may overlap
    counts = _counts(tile)
    flat: np.ndarray = np.asarray(np.ravel_multi_index(tuple(at.T), counts))
    missing = np.setdiff1d(np.arange(math.prod(counts)), flat)
    if len(missing) and not is_aliased:
        first = _text(np.unravel_index(missing[0], counts))
        raise KernelError(
            f"{who}: no program has block {first}, and {len(missing)} of {math.prod(counts)} "
            "blocks are not visited, so that the result is not written there."
        )
    order = np.argsort(flat, kind="stable")
    same = np.flatnonzero(flat[order][1:] == flat[order][:-1])
    pairs = np.stack([order[same], order[same + 1]], 1).tolist()
    axes = [d for d, p in enumerate(launch.parallel) if p]
    for a, b in pairs:
        programs = f"programs {_text(ids[:, a])} and {_text(ids[:, b])}"
        if any(ids[d, a] != ids[d, b] for d in axes):
            raise KernelError(
                f"{who}: {programs} both write block {_text(at[a])}, and differ along a parallel "
                "axis of the grid: a race."
            )
        if b != a + 1:
            raise KernelError(
                f"{who}: {programs} both have block {_text(at[a])}, and others run in between: "
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
    body: Program,
    maps: tuple[Program, ...],
    launch: Launch,
    operands: Sequence[Any],
    names: Sequence[str],
) -> list[Any]:
    types, is_parallel = tuple(map(type_of, operands)), any(launch.parallel)
    *results, marks = call(*operands, program=_two_runs(body, types, maps, launch))
    if not np.asarray(marks).any():
        return results
    cases = [(FILLS[1], False, _UNWRITTEN), (FILLS[0], True, _ORDER), (FILLS[1], True, _ORDER)]
    for fill, backwards, cause in cases if is_parallel else cases[:1]:
        program = loop_program(body, types, maps, launch, fill, backwards)
        others = call(*operands, program=program)
        for name, a, b in zip(names[len(launch.ins) :], results, others, strict=False):
            different = np.atleast_1d(np.asarray(_different(a, b)))
            if different.any():
                place = _text(np.argwhere(different)[0])
                raise KernelError(
                    f"kernel {launch.name}: {different.sum()} elements of {name}, the first at "
                    f"{place}, depend on {cause}."
                )
    return results


@derived
def _two_runs(body: Program, types: Any, maps: tuple[Program, ...], launch: Launch) -> Program:
    """The results of a run, and which of them differ in one with other values of memory that was
    not written, in the reverse order."""

    def run(*operands: Any) -> list[Any]:
        def results(fill: float, backwards: bool) -> list[Any]:
            return loop_program(body, types, maps, launch, fill, backwards)(*operands)

        first, second = results(FILLS[0], False), results(FILLS[1], any(launch.parallel))
        pairs = zip(first, second, strict=True)
        marks = [reshape(_any(_different(a, b)), shape=(1,)) for a, b in pairs]
        return [*first, concatenate(*marks, dimension=0) if marks else np.zeros(0, bool)]

    return program_of(run, types, launch.name)


def _any(x: Any) -> Any:
    """Whether any is True. Bytes are reduced by columns first, which XLA does several at once."""
    found = cast(x, np.dtype("int8"))
    if type_of(x).ndim > 1:
        found = reduce_max(found, axes=(0,))
    found = reduce_max(found, axes=tuple(range(type_of(found).ndim)))
    return ew.gt(found, np.int8(0))


def _different(a: Any, b: Any) -> Any:
    nan = ew.bitwise_and(ew.ne(a, a), ew.ne(b, b))
    return ew.bitwise_and(ew.ne(a, b), ew.bitwise_not(nan))
