"""Reverse mode of a launch, as launches.

`split` runs the known part of a launch and stages the rest (launch_halves.py). The transpose of the
rest runs the transposed body for each program, in the opposite order along axes whose order
matters; the cotangents of memory that programs pass on are scratch memory. Each program returns its
contribution to the cotangent of each linear input: as a block of the cotangent, if no other program
has this block; else as a separate block, and the sum is computed outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.base.marks import given, partition, picked, spread
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.grid_values import programs_of, used_axes
from shardwise._src.kernels.independent_axes import block_numbers, independent_axes
from shardwise._src.kernels.launch_halves import (
    Marks,
    Parts,
    divided,
    halves,
    in_padded,
    index_in_padded,
    launched,
    memory,
    of_each,
    padded_launch,
    read_all,
    stacked,
    tiled,
    wide_type,
    write_all,
)
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_cpu import NEAREST, cropped, padded, with_room
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, zeros
from shardwise._src.ops.indexing.gather_rules import ScatterDimensionNumbers
from shardwise._src.ops.indexing.gather_scatter import scatter_add
from shardwise._src.ops.shape import concatenate
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.batch import Axis, batch_program
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.array_type import ArrayType
from shardwise._src.values.convert import cast

# Programs that share blocks add to them one after the other if blocks of their own would need
# several times the memory of all arguments and results.
MOST_ROOM = 4
F32 = np.dtype("float32")


def _params(parts: Parts) -> dict[str, Any]:
    return dict(zip(("body", "maps", "launch"), parts, strict=True))


def split(op: Op, pure: Op, interpreter: Any, args: Sequence[Any], p: dict[str, Any]) -> list[Any]:
    """Partial evaluation: a launch of the known part now, and one of the rest, by the op `pure`."""
    launch = p["launch"]
    _, prefetched, inputs = launch.parts(args)
    unknown = tuple([interpreter.is_unknown(x) for x in inputs])
    parts = p["body"], p["maps"], launch
    h, (first, later) = halves(*parts, unknown), divided(*parts, unknown)
    own, moving = partition(inputs, unknown)
    outs = partition(launch.outs, h.states[: len(launch.outs)])[0]
    wider = padded_launch(launch, p["maps"], h)
    if wider is not None:
        rows = zip(own, partition(wider.ins, unknown)[0], strict=True)
        own = [padded(x, tile, NEAREST) for x, tile in rows]
        outs = partition(wider.outs, h.states[: len(launch.outs)])[0]
    found = list(interpreter.known(op, [*prefetched, *own], _params(first)))
    if wider is not None:
        found[: len(outs)] = [cropped(x, tile) for x, tile in zip(found, outs, strict=False)]
    states = h.states[: len(launch.outs)]
    count = states.count(False)
    operands = *prefetched, *picked(inputs, h.ins), *found[count:], *moving
    values, rest = iter(found), iter(interpreter.record(pure, operands, _params(later)))
    return [next(rest) if u else next(values) for u in states]


# -- contributions --


@dataclass(frozen=True)
class Contribution:
    """How programs return their parts of the cotangent of an input.

    tile, index: their blocks.
    summed:      how many first dimensions of the array are summed over.
    places:      the program of the first elements of the blocks to which they are added; None if
                 they are blocks of the sum.
    added:       the last axes of the grid, along which programs add to one block.
    """

    tile: Tile
    index: Program
    summed: int = 0
    places: Program | None = None
    added: range = range(0)


def _contribution(index: Program, tile: Tile, body: Program, launch: Launch) -> Contribution:
    """index, tile: of the input's blocks, which are inside of its array."""
    grid = [n or 0 for n in launch.grid]
    used = used_axes(index, tile, len(grid))
    ids = programs_of([n if d in used else 1 for d, n in enumerate(grid)])
    found = block_numbers(tile, index, ids)
    sizes = zip(tile.type.shape, tile.sizes, strict=True)
    count = math.prod([n // size for n, size in sizes])
    if found is not None and not any(tile.element) and _are_distinct(found) and count == len(ids.T):
        others = [d for d in range(len(grid)) if d not in used]
        more = tuple([grid[d] for d in others])
        room = MOST_ROOM * sum(t.type.nbytes for t in launch.tiles)
        if used == [*range(len(used))] and math.prod(more) * tile.type.nbytes > room:
            return Contribution(
                stacked(tile, (), tile.type.shape), index, added=range(len(used), len(grid))
            )
        more += tiled(len(tile.sizes)) if more else ()
        last = [np.int32(0)] * (len(more) - len(others))
        run = lambda *xs: [*[xs[d] for d in others], *last, *index(*xs)]  # noqa: E731
        new = program_of(run, index.in_types, "index")
        return Contribution(stacked(tile, more, tile.type.shape), new, len(more))

    def first_elements(*xs: Any) -> list[Any]:
        rows = zip(index(*xs), tile.sizes, tile.element, strict=True)
        return [i if is_element else ew.mul(i, np.int32(n)) for i, n, is_element in rows]

    places = program_of(first_elements, index.in_types, "places")
    return Contribution(*of_each(tile, body, launch), places=places)


def _are_distinct(numbers: np.ndarray) -> bool:
    """Whether no two programs have the same block."""
    return len(np.unique(numbers, axis=1).T) == numbers.shape[1]


def _total(x: Any, c: Contribution, t: ArrayType, launch: Launch, prefetched: Any) -> Any:
    """The cotangent, of type `t`, from the contributions of all programs."""
    dtype = type_of(x).dtype
    if dtype.itemsize < 4:  # many are added
        return cast(_total(cast(x, F32), c, t, launch, prefetched), dtype)
    if c.places is None or not t.ndim:
        dims = c.summed if c.places is None else type_of(x).ndim
        return reduce_sum(x, axes=tuple(range(dims))) if dims else x
    axes, varying = len(launch.grid), type_of(x).varying
    ids = programs_of([n or 0 for n in launch.grid])
    count, dims = ids.shape[1], tuple(range(t.ndim))
    marks = (*[True] * axes, *[False] * len(prefetched))
    many, _ = batch_program(c.places, Axis(count), marks, (True,) * t.ndim)
    columns = [reshape(row, shape=(count, 1)) for row in many(*ids, *prefetched)]
    return scatter_add(
        zeros(type_of(x).update(shape=t.shape)),
        pvary(concatenate(*columns, dimension=1), varying),
        reshape(x, shape=(count, *c.tile.sizes[-t.ndim :])),
        dimension_numbers=ScatterDimensionNumbers(tuple([d + 1 for d in dims]), (), dims, (), ()),
        indices_are_sorted=False,
        unique_indices=False,
        mode="clip",
    )


# -- transposition --


@dataclass(frozen=True)
class Backward:
    """The transpose of a launch that is linear in some inputs.

    parts:   a launch: (prefetched…, known inputs…, cotangents…) → (contributions…, cotangents of
             results that begin as inputs…). Its arrays have the padding of `wider`.
    wider:   the launch, with padding for all blocks.
    contributions: for each input, how its cotangent is returned; None if it has none.
    results: whose cotangents it takes.
    """

    parts: Parts
    wider: Launch
    contributions: tuple[Contribution | None, ...]
    results: tuple[int, ...]


@derived
def _backward(
    body: Program, maps: tuple[Program, ...], launch: Launch, linear: Marks, has: Marks
) -> Backward | str:
    """The transpose; or why it is not a launch. has: which results have cotangents."""
    h, wider = halves(body, maps, launch, linear), with_room(launch, maps)
    names = launch.ref_names[launch.prefetch :]
    if any(h.saved):
        return "it is linear only for some values of its memory"
    ordered = _ordered_axes(body, maps, launch)
    pairs = zip(maps[len(launch.ins) :], wider.outs, strict=True)
    depths = [_depth(m, t, launch) if any(ordered) else len(ordered) for m, t in pairs]
    if None in depths:
        return (
            f"programs with the same block of {names[len(launch.ins) + depths.index(None)]} do not "
            "follow each other"
        )
    rows = [_reversed_block(m, t, launch, ordered) for m, t in zip(maps, wider.tiles, strict=True)]
    ins, outs = rows[: len(launch.ins)], rows[len(launch.ins) :]
    known_memory, states = partition(memory(launch), h.states)
    used = picked(known_memory, h.used)
    moving = [j for j, u in enumerate(h.states[: len(launch.outs)]) if u]
    aliased = {j for _, j in _linear_aliases(launch, linear)}
    # From which axis on programs pass on the cotangent of a state; None: it stays in place.
    passed = [None if j in aliased else depths[j] for j in moving]
    passed += [0] * (len(states) - len(moving))
    after = [[] if d is None else [a for a in range(d, len(ordered)) if ordered[a]] for d in passed]
    nonzero = tuple([*[has[j] for j in moving], *[False] * (len(states) - len(moving))])
    while True:
        back, marks = transpose_program(h.rest, len(h.residuals.outvars), nonzero)
        ends = marks[linear.count(True) :]
        grown = tuple([a or (b and bool(c)) for a, b, c in zip(nonzero, ends, after, strict=True)])
        if grown == nonzero:
            break
        nonzero = grown
    wanted = spread(marks[: linear.count(True)], linear)
    contributions = [
        _contribution(*row, body, launch) if is_wanted else None
        for row, is_wanted in zip(ins, wanted, strict=True)
    ]
    kept = given(contributions)
    added = {a for c in kept for a in c.added}
    moving_cts = [n for n in range(len(moving)) if nonzero[n]]
    in_place = {n: k for k, n in enumerate([n for n in moving_cts if moving[n] in aliased])}
    carried = [bool(c) and z for c, z in zip(after, nonzero, strict=True)]

    def run(fixed: Any, own: Any, refs: Any, scratch: Any) -> Any:
        ids = _reversed_ids(fixed[: len(ordered)], launch, ordered)
        held, cts = own[: sum(h.ins)], own[sum(h.ins) :]
        results, places = refs[: len(kept)], refs[len(kept) :]
        memory_refs, carries = scratch[: len(used)], iter(scratch[len(used) :])
        residuals = h.residuals(*ids, *fixed[len(ordered) :], *held, *memory_refs)
        own_cts = dict(zip(moving_cts, map(read_all, cts), strict=True))
        values, written = [], {}
        for n, s in enumerate(states):
            if n in in_place:
                written[n] = places[in_place[n]]
                values.append(read_all(written[n]))
            elif carried[n]:
                written[n] = next(carries)
                is_last = _all_zero([fixed[a] for a in after[n]])
                old = read_all(written[n])
                ct = pvary(own_cts.get(n, zeros(s.type)), type_of(old).varying)
                is_last = broadcast_in_dim(is_last, shape=s.shape, dims=())
                values.append(ew.where(is_last, ct, old))
            elif nonzero[n]:
                values.append(own_cts[n])
        found = spread(back(*residuals, *values), marks)
        parts, ends = found[: linear.count(True)], found[linear.count(True) :]
        for n, ref in written.items():
            written[n] = write_all(ref, zeros(type_of(ref)) if ends[n] is None else ends[n])
        pairs = zip(results, given(parts), kept, strict=True)
        results = [write_all(ref, _sum_with(ref, x, fixed, c.added)) for ref, x, c in pairs]
        passed_on = [written[n] for n, has in enumerate(carried) if has]
        return [*results, *[written[n] for n in in_place]], [*memory_refs, *passed_on]

    blocks = [*picked(ins, h.ins), *[outs[moving[n]] for n in moving_cts]]
    new = replace(
        launch,
        ins=tuple([t for _, t in blocks]),
        outs=(*[c.tile for c in kept], *[outs[moving[n]][1] for n in in_place]),
        scratch=(*used, *picked(states, carried)),
        aliases=tuple(
            [(sum(h.ins) + moving_cts.index(n), len(kept) + k) for n, k in in_place.items()]
        ),
        labels=(),
        primal=None,
        parallel=tuple([not o and a not in added for a, o in enumerate(ordered)]),
        cost=launch.cost and launch.cost.times(2),
        is_transposed=True,
    )
    new_maps = [m for m, _ in blocks] + [c.index for c in kept]
    new_maps += [outs[moving[n]][0] for n in in_place]
    results = tuple([moving[n] for n in moving_cts])
    return Backward(launched(body, new_maps, new, run), wider, tuple(contributions), results)


def _ordered_axes(body: Program, maps: tuple[Program, ...], launch: Launch) -> list[bool]:
    """The axes along which programs run in the opposite order: those that are not independent, and
    all after the first of these, since programs pass on what others have written."""
    found: list[bool] = []
    for is_independent in independent_axes(launch, body, maps):
        found.append(any(found) or not is_independent)
    return found


def _sum_with(ref: Any, x: Any, ids: Sequence[Any], axes: range) -> Any:
    """The sum of a value and what programs before have written along these axes."""
    if not axes:
        return x
    is_first = broadcast_in_dim(_all_zero([ids[a] for a in axes]), shape=type_of(x).shape, dims=())
    return ew.where(is_first, x, ew.add(read_all(ref), pvary(x, type_of(ref).varying)))


def _linear_aliases(launch: Launch, linear: Marks) -> list[tuple[int, int]]:
    return [(i, j) for i, j in launch.aliases if linear[i]]


def _depth(index: Program, tile: Tile, launch: Launch) -> int | None:
    """Of how many first indices of a program a block depends; None if programs with different ones
    may have the same block."""
    axes = len(launch.grid)
    depth = max(used_axes(index, tile, axes), default=-1) + 1
    sizes = [n or 0 for n in launch.grid[:depth]]
    numbers = block_numbers(tile, index, programs_of([*sizes, *[1] * (axes - depth)]))
    return depth if numbers is not None and _are_distinct(numbers) else None


def _reversed_ids(ids: Sequence[Any], launch: Launch, ordered: Sequence[bool]) -> list[Any]:
    """The indices of the program that runs at these ones."""
    rows = zip(ids, launch.grid, ordered, strict=True)
    return [ew.sub(np.int32((n or 0) - 1), i) if o else i for i, n, o in rows]


def _reversed_block(
    index: Program, tile: Tile, launch: Launch, ordered: Sequence[bool]
) -> tuple[Program, Tile]:
    """A block in the padded array, in the opposite order of programs."""
    axes, index = len(ordered), index_in_padded(index, tile)
    run = lambda *xs: index(*_reversed_ids(xs[:axes], launch, ordered), *xs[axes:])  # noqa: E731
    return program_of(run, index.in_types, "index"), in_padded(tile)


def _all_zero(ids: Sequence[Any]) -> Any:
    found = ew.eq(ids[0], np.int32(0))
    for i in ids[1:]:
        found = ew.bitwise_and(found, ew.eq(i, np.int32(0)))
    return found


def why_not_transposed(
    cts: Sequence[Any], linear: Sequence[bool], body: Program, maps: Any, launch: Launch
) -> str | None:
    """Why the transpose of a launch is not a launch; None if it is. linear: which operands are."""
    has = tuple([ct is not None for ct in cts])
    found = _backward(body, maps, launch, tuple(linear[launch.prefetch :]), has)
    return found if isinstance(found, str) else None


def transposed(op: Op, cts: Sequence[Any], args: Sequence[Any], p: dict[str, Any]) -> list[Any]:
    """The cotangents of the operands of a launch."""
    launch = p["launch"]
    _, prefetched, inputs = launch.parts(args)
    linear = tuple([is_linear(x) for x in inputs])
    parts = p["body"], p["maps"], launch
    h = halves(*parts, linear)
    back = _backward(*parts, linear, tuple([ct is not None for ct in cts]))
    assert not isinstance(back, str)
    ins, outs = back.wider.ins, back.wider.outs
    own = [padded(x, t, NEAREST) for x, t in picked(list(zip(inputs, ins, strict=True)), h.ins)]
    moving = [
        padded(zeros(outs[j].type.strong()) if cts[j] is None else cts[j], outs[j], 0)
        for j in back.results
    ]
    found = iter(op(*prefetched, *own, *moving, **_params(back.parts)))
    totals: list[Any] = []
    for c, tile in zip(back.contributions, ins, strict=True):
        total = None
        if c is not None:
            total = _total(next(found), c, wide_type(tile), launch, prefetched)
            total = cropped(total, tile)
        totals.append(total)
    for i, j in _linear_aliases(launch, linear):
        if j in back.results:
            more = cropped(next(found), outs[j])
            totals[i] = more if totals[i] is None else ew.add(totals[i], more)
    return [*[None] * len(prefetched), *totals]
