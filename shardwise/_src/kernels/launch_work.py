"""The work of a launch: the blocks that it moves, and the operations of its body.

    work = launch_work(body, maps, launch, operands)
    work.operands[0].moved, work.operands[0].bytes, work.flops

A block is moved for a program if the program before, in the order of the grid, has another one; for
a result, it is written then. Of arrays that are not moved in blocks (ANY, HBM) the loads and stores
of the body count. The first 2^18 programs are evaluated; a larger grid counts in proportion.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.grid_values import MOST_PROGRAMS, over_grid, programs_of
from shardwise._src.kernels.launch_record import INT, CostEstimate, Launch
from shardwise._src.kernels.program_work import CountedWork, Origin, Work, times
from shardwise._src.kernels.spaces import ANY, HBM
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import short_name

UNKNOWN = (
    "at most: the grid, or which blocks are read and which branches run, depends on values that "
    "are not known"
)


@public("shardwise.kernels")
@dataclass(frozen=True)
class OperandWork:
    """An operand or result of a launch.

    what:     its name: "argument x" or "out". type: of the array; itemsize: bytes of an element.
    block:    the sizes of its blocks, None for one element without its dimension. space: of memory.
    moved:    how often a block is moved from memory or to it; reused: for how many programs of the
              grid it is the block of the program before. blocks: how many different ones there are.
    bytes:    that are moved, without those beyond the end of the array.
    accessed: bytes that the kernel loads and stores; largest: the most of one access.
    outside:  the share of the elements of its blocks that is beyond the end of the array.
    """

    what: str
    type: str
    itemsize: int
    block: tuple[int | None, ...]
    space: str
    moved: int
    reused: int
    blocks: int
    bytes: int
    accessed: int
    largest: int
    outside: float

    @property
    def is_moved(self) -> bool:
        """Whether blocks are moved; otherwise what the kernel accesses."""
        return self.space not in (ANY.name, HBM.name)


@dataclass(frozen=True)
class LaunchWork:
    """The work of a launch.

    name:  of the kernel. grid: the sizes of its axes, by name or number; 1 if not known.
    flops: of matrix products, by dtype; elementwise: other arithmetic operations.
    bytes: read from and written to memory.
    notes: what the numbers do not contain.
    """

    name: str
    grid: Mapping[str, int]
    operands: tuple[OperandWork, ...]
    flops: Mapping[str, int]
    elementwise: int
    transcendentals: int
    bytes: int
    notes: tuple[str, ...]

    @property
    def programs(self) -> int:
        return math.prod(self.grid.values())

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values()) + self.elementwise


def launch_cost(op: Op, types: Sequence[ArrayType], p: dict[str, Any]) -> tuple[int, int, int]:
    """The `cost` rule of ops that launch kernels: their parameter `launch` is a `Launch`."""
    found = launch_work(p["body"], p["maps"], p["launch"], types)
    return found.total_flops, found.transcendentals, found.bytes


def launch_work(
    body: Program, maps: Sequence[Program], launch: Launch, operands: Sequence[Any]
) -> LaunchWork:
    """operands: values, or types where values are not known."""
    dynamic, prefetched, _ = launch.parts(operands)
    values = [None if isinstance(x, ArrayType | Tracer) else x for x in (*dynamic, *prefetched)]
    sizes = iter(values)
    grid = [next(sizes) if n is None else n for n in launch.grid]
    known = [1 if n is None else int(np.asarray(n)) for n in grid]
    ids = programs_of(known, MOST_PROGRAMS)
    count = ids.shape[1]
    scale = math.prod(known) / max(count, 1)
    total, largest, is_exact = _body_work(body, launch, ids, values)
    work = Counter({name: round(n * scale) for name, n in total.items()})
    given, rows = values[launch.dynamic :], []
    has_all = None not in given
    for number, (tile, index) in enumerate(zip((*launch.ins, *launch.outs), maps, strict=True)):
        t = array_type(tile.type.shape, tile.type.dtype)
        at = over_grid(index, ids, given)[:, : len(tile.sizes)] if has_all and tile.sizes else None
        rows.append(
            OperandWork(
                launch.ref_names[launch.prefetch + number], t.str_short(True), t.dtype.itemsize,
                tuple([n if keep else None for n, keep in zip(tile.sizes, tile.kept, strict=True)]),
                tile.space.name, **_moved(tile, at, count, scale),
                accessed=work["read", number] + work["written", number], largest=largest[number],
            )
        )  # fmt: skip
    notes = [] if is_exact and has_all and None not in grid else [UNKNOWN]
    if scale > 1:
        notes.append(f"in proportion to the first {count:,} programs of the grid")
    names = [str(axis if name is None else name) for axis, name in enumerate(launch.names)]
    flops = {short_name(name[1]): n for name, n in work.items() if name[0] == "product"}
    found = LaunchWork(
        launch.name, dict(zip(names, known, strict=True)), tuple(rows), flops,
        work["elementwise"] + work["reductions"], work["transcendentals"],
        sum([o.bytes if o.is_moved else o.accessed for o in rows]), tuple(notes),
    )  # fmt: skip
    return found if launch.cost is None else _stated(found, launch.cost)


def _stated(work: LaunchWork, cost: CostEstimate) -> LaunchWork:
    """The work as the user of a kernel states it, with operations of one dtype."""
    dtypes = [*work.flops, *[o.type.partition("[")[0] for o in work.operands]]
    return replace(
        work, flops={dtypes[0]: cost.flops}, elementwise=0, bytes=cost.bytes_accessed,
        transcendentals=cost.transcendentals,
        notes=(*work.notes, "operations and bytes are those of `cost`"),
    )  # fmt: skip


def _moved(tile: Tile, at: np.ndarray | None, programs: int, scale: float) -> dict[str, Any]:
    """Counts blocks. at: their indices, int[programs, dimensions]; None if they are not known: then
    each program counts as having another one."""
    size = tile.type.dtype.itemsize
    if at is None:
        moved = round(programs * scale) if tile.sizes else 1
        moved_bytes = moved * math.prod(tile.sizes) * size
        return {"moved": moved, "reused": 0, "blocks": moved, "bytes": moved_bytes, "outside": 0.0}
    changed = np.ones(programs, bool)
    changed[1:] = (at[1:] != at[:-1]).any(1)
    at, sizes = at[changed], np.array(tile.sizes, np.int64)
    starts = np.where(tile.element, at, at * sizes)
    ends = np.minimum(starts + sizes, np.array(tile.type.shape, np.int64))
    inside = int(np.maximum(ends - np.maximum(starts, 0), 0).prod(1).sum())
    elements = len(at) * math.prod(tile.sizes)
    counts = [-(-n // size) for n, size in zip(tile.type.shape, tile.sizes, strict=True)]
    most = elements if any(tile.element) else math.prod(counts)
    return {
        "moved": round(len(at) * scale),
        "reused": round((programs - len(at)) * scale),
        "blocks": min(round(len(np.unique(at, axis=0)) * scale), most),
        "bytes": round(inside * size * scale),
        "outside": 1 - inside / elements if elements else 0.0,
    }


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
