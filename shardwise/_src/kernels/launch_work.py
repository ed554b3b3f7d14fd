"""The work of a launch: the blocks that it moves, and the operations of its body.

    work = launch_work(body, maps, launch, operands)
    work.operands[0].moved, work.operands[0].bytes, work.flops

A block is moved for a program if the program before, in the order of the grid, has another one; for
a result, it is written then. Memory that is not moved in blocks (ANY, HBM) is counted by the loads
and stores of the body. Index functions are evaluated for the first 2^20 programs at most; a larger
grid is counted in proportion to them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.grid_values import over_grid, programs_of
from shardwise._src.kernels.launch_record import INT, CostEstimate, Launch
from shardwise._src.kernels.program_work import CountedWork, Origin, Work, times
from shardwise._src.kernels.spaces import ANY, HBM, Space
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType

MOST_PROGRAMS = 2**20


@dataclass(frozen=True)
class OperandWork:
    """An operand or result of a launch.

    moved:    how often a block is read or written; reused: for how many programs it is the block
              of the program before. distinct: how many blocks there are.
    bytes:    that are moved, without those beyond the end of the array.
    accessed: bytes that the body loads and stores; largest: the most of one access.
    outside:  the share of the elements of its blocks that are beyond the end of the array.
    """

    what: str
    tile: Tile
    is_result: bool
    moved: int
    reused: int
    distinct: int
    bytes: int
    accessed: int
    largest: int
    outside: float

    @property
    def is_moved(self) -> bool:
        """Whether blocks are moved, and not what the body accesses."""
        return not is_outside(self.tile.space)

    @property
    def block_bytes(self) -> int:
        return math.prod(self.tile.sizes) * self.tile.type.dtype.itemsize


@dataclass(frozen=True)
class LaunchWork:
    """The work of a launch.

    grid:      with the sizes that were operands; None for those that are not known.
    operands:  and results. flops: by dtype, of products; elementwise: other arithmetic.
    is_exact:  whether nothing depends on values that are not known, so that it is an upper limit.
    evaluated: how many programs of the grid were evaluated.
    """

    launch: Launch
    grid: tuple[int | None, ...]
    operands: tuple[OperandWork, ...]
    flops: dict[Any, int]
    elementwise: int
    transcendentals: int
    is_exact: bool
    evaluated: int

    @property
    def programs(self) -> int:
        return math.prod([n or 1 for n in self.grid])

    @property
    def bytes(self) -> int:
        """The memory traffic; as the user states it, if so."""
        if self.launch.cost is not None:
            return self.launch.cost.bytes_accessed
        return sum([o.bytes if o.is_moved else o.accessed for o in self.operands])

    @property
    def cost(self) -> CostEstimate:
        if self.launch.cost is not None:
            return self.launch.cost
        flops = sum(self.flops.values()) + self.elementwise
        return CostEstimate(flops, self.transcendentals, self.bytes)


def is_outside(space: Space) -> bool:
    """Whether the memory space is that of whole arrays, of which no blocks are moved."""
    return space.name in (ANY.name, HBM.name)


def launch_work(
    body: Program, maps: Sequence[Program], launch: Launch, operands: Sequence[Any]
) -> LaunchWork:
    """operands: values, or types where values are not known."""
    dynamic, prefetched, _ = launch.parts(operands)
    sizes, known = iter(dynamic), [*map(_is_known, (*dynamic, *prefetched))]
    values = [x if k else None for x, k in zip((*dynamic, *prefetched), known, strict=True)]
    own = [next(sizes) if n is None else n for n in launch.grid]
    grid = tuple([int(np.asarray(n)) if _is_known(n) else None for n in own])
    ids = programs_of([1 if n is None else n for n in grid], MOST_PROGRAMS)
    scale = math.prod([n or 1 for n in grid]) / max(ids.shape[1], 1)
    total, largest, is_exact = _body_work(body, launch, ids, values)
    scaled = {name: round(n * scale) for name, n in total.items()}
    given = [x for x in values[launch.dynamic :] if x is not None]
    with_all = len(given) == launch.prefetch
    rows = []
    for number, (tile, index) in enumerate(zip((*launch.ins, *launch.outs), maps, strict=True)):
        result = number - len(launch.ins)
        at = over_grid(index, ids, given) if with_all and tile.sizes else None
        at = np.zeros((ids.shape[1], 0), np.int64) if not tile.sizes else at
        rows.append(
            OperandWork(
                what=f"result {result}" if result >= 0 else f"argument {number}",
                tile=tile,
                is_result=result >= 0,
                accessed=scaled.get(("read", number), 0) + scaled.get(("written", number), 0),
                largest=largest[number],
                **_moved(tile, at, ids.shape[1], scale),
            )
        )
    return LaunchWork(
        launch, grid, tuple(rows),
        flops={name[1]: n for name, n in scaled.items() if name[0] == "product"},
        elementwise=scaled.get("elementwise", 0) + scaled.get("reductions", 0),
        transcendentals=scaled.get("transcendentals", 0),
        is_exact=is_exact and with_all and None not in grid,
        evaluated=ids.shape[1],
    )  # fmt: skip


def _is_known(x: Any) -> bool:
    return not isinstance(x, ArrayType | Tracer)


def _moved(tile: Tile, at: np.ndarray | None, programs: int, scale: float) -> dict[str, Any]:
    """Counts blocks. at: their indices, int[programs, dimensions]; None if they are not known: then
    each program counts as having another one."""
    sizes, size = np.array(tile.sizes, np.int64), tile.type.dtype.itemsize
    if at is None:
        moved = round(programs * scale)
        each = math.prod(tile.sizes) * size
        return {"moved": moved, "reused": 0, "distinct": moved, "bytes": moved * each,
                "outside": 0.0}  # fmt: skip
    changed = np.ones(programs, bool)
    changed[1:] = (at[1:] != at[:-1]).any(1)
    at = at[changed]
    starts = np.where(tile.element, at, at * sizes)
    ends = np.minimum(starts + sizes, np.array(tile.type.shape, np.int64))
    inside = int(np.maximum(ends - np.maximum(starts, 0), 0).prod(1).sum())
    elements = len(at) * math.prod(tile.sizes)
    return {
        "moved": round(len(at) * scale),
        "reused": round((programs - len(at)) * scale),
        "distinct": len({*map(tuple, at.tolist())}),
        "bytes": round(inside * size * scale),
        "outside": 1 - inside / elements if elements else 0.0,
    }


# -- the body --


def _body_work(
    body: Program, launch: Launch, ids: np.ndarray, values: Sequence[Any]
) -> tuple[Work, Counter[int], bool]:
    """The work of these programs; the largest accesses; whether all of it is known.

    values: the dynamic sizes and prefetched arrays; None for those that are not known.
    """
    given = [x for x in values if x is not None]
    marks = tuple([x is not None for x in values])
    counted, program = _counting(body, launch, tuple(map(type_of, given)), marks)
    programs, total = ids.shape[1], Counter[Any]()
    counts = over_grid(program, ids, given).sum(0, dtype=np.int64) if program.outvars else ()
    dynamic = iter(counts)
    for work, count in counted.parts:
        runs = programs * count if isinstance(count, int) else int(next(dynamic))
        total.update(times(work, runs))
    return total, counted.largest, counted.is_exact


@derived
def _counting(
    body: Program, launch: Launch, types: tuple[ArrayType, ...], marks: tuple[bool, ...]
) -> tuple[CountedWork, Program]:
    """The work of a body in parts, and the program that computes how often these run for one
    program of the grid: those that do not run equally often for each."""
    counted, axes = CountedWork(), len(launch.grid)
    blocks = [*map(Origin, range(len(launch.ins) + len(launch.outs)))]

    def counts(*xs: Any) -> list[Any]:
        given = iter(xs[axes:])
        others = [next(given) if mark else None for mark in marks]
        counted.add(body, [*xs[:axes], *others, *blocks, *[None] * len(launch.scratch)])
        return [n for _, n in counted.parts if not isinstance(n, int)]

    program = program_of(counts, [*[INT] * axes, *types], "counts")
    counted.parts = [(w, n if isinstance(n, int) else None) for w, n in counted.parts]  # no tracers
    return counted, program
