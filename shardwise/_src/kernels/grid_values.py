"""Values of all programs of a grid, computed in one call: indices of blocks, counts of loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.control.call import call
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Literal, Program
from shardwise._src.core.program_tools import derived, used
from shardwise._src.effects.callback import host_context
from shardwise._src.jit.stages import without_others
from shardwise._src.kernels.accesses import as_int32
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_record import INT
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import concatenate
from shardwise._src.transforms.batch import Axis, batch_program
from shardwise._src.transforms.stage import program_of

MOST_PROGRAMS = 2**18  # for which such values are computed


def programs_of(grid: Sequence[int], most: int | None = None) -> np.ndarray:
    """The indices of the programs of a grid in their order, at most the first `most`: int32[axes,
    programs]."""
    count = int(np.prod(grid, dtype=np.int64))
    numbers = np.arange(count if most is None else min(count, most))
    found = np.unravel_index(numbers, grid) if grid else ()
    return np.asarray(found, np.int32).reshape(len(grid), len(numbers))


def all_programs(grid: Sequence[int | None]) -> np.ndarray | None:
    """The indices of all programs of a grid, if they are known and not too many."""
    sizes = [n for n in grid if n is not None]
    is_known = len(sizes) == len(grid) and math.prod(sizes) <= MOST_PROGRAMS
    return programs_of(sizes) if is_known else None


def known_over_grid(index: Program, ids: np.ndarray) -> np.ndarray | None:
    """`over_grid` of a map of indices; None if these depend on prefetched arrays."""
    if index.effects or not used(index).isdisjoint(index.invars[len(ids) :]):
        return None
    return over_grid(without_others(index, tuple(range(len(ids)))), ids)


def count_of(sizes: Sequence[Any]) -> Any:
    """The number of programs of a grid, of which sizes may be traced."""
    total: Any = math.prod([n for n in sizes if isinstance(n, int)])
    for n in sizes:
        total = total if isinstance(n, int) else ew.mul(as_int32(total), as_int32(n))
    return total


def ids_of(t: Any, sizes: Sequence[Any]) -> list[Any]:
    """The indices of program number `t`; the last axis is the fastest."""
    found: list[Any] = []
    for n in map(as_int32, reversed(sizes[1:])):
        found.append(ew.rem(t, n))
        t = ew.div(t, n)
    return [t, *reversed(found)] if sizes else []


def used_axes(index: Program, tile: Tile, axes: int) -> list[int]:
    """The axes of a grid on which a block depends."""
    atoms = used(index)
    return [] if tile.is_whole else [d for d, v in enumerate(index.invars[:axes]) if v in atoms]


def over_grid(program: Program, ids: np.ndarray, others: Sequence[Any] = ()) -> np.ndarray:
    """The results of a program for each program of a grid: int32[programs, results].

    program: (indices…, others…) → int32 scalars, such as the map of a block's indices, whose other
      operands are the prefetched arrays. It is computed on the host.
    """
    axes, count = ids.shape
    if not program.eqns:
        rows = dict(zip(program.inputs, (*program.consts, *ids), strict=False))
        columns = [a.value if isinstance(a, Literal) else rows[a] for a in program.outvars]
        columns = [np.broadcast_to(np.asarray(c, np.int32), (count,)) for c in columns]
        return np.stack(columns, 1) if columns else np.zeros((count, 0), np.int32)
    values = [np.asarray(x) for x in others]
    many = _over_grid(program, axes, count, tuple(map(type_of, values)))
    with host_context().entered():
        (found,) = call(*ids, *values, program=many)
        return np.asarray(found)


@derived
def _over_grid(program: Program, axes: int, count: int, others: tuple) -> Program:
    marks = (*[True] * axes, *[False] * len(others))
    many, _ = batch_program(program, Axis(count), marks, (True,) * len(program.outvars))
    types = [*[INT.update(shape=(count,))] * axes, *others]

    def joined(*xs: Any) -> list[Any]:
        columns = [reshape(x, shape=(count, 1)) for x in many(*xs)]
        return [concatenate(*columns, dimension=1)]

    return program_of(joined, types, "index")
