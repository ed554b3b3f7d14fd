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
from shardwise._src.kernels.grid_values import programs_of
from shardwise._src.kernels.independent_axes import block_numbers, independent_axes
from shardwise._src.kernels.launch_halves import (
    Marks,
    Parts,
    divided,
    halves,
    launched,
    memory,
    of_each,
    read_all,
    stacked,
    tiled,
    write_all,
)
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_cpu import NEAREST, cropped, padded, used_axes, with_room
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

# Programs that share blocks add to them one after the other if blocks of their own would need
# several times the memory of all arguments and results.
MOST_ROOM = 4


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
    found = interpreter.known(op, [*prefetched, *own], _params(first))
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
        room = MOST_ROOM * sum(math.prod(t.type.shape) for t in launch.tiles)
        if used == [*range(len(used))] and math.prod((*more, *tile.type.shape)) > room:
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
    """

    parts: Parts
    wider: Launch
    contributions: tuple[Contribution | None, ...]


@derived
def _backward(
    body: Program, maps: tuple[Program, ...], launch: Launch, linear: Marks
) -> Backward | str:
    """The transpose; or why it is not a launch."""
    h, wider = halves(body, maps, launch, linear), with_room(launch, maps)
    names = launch.ref_names[launch.prefetch :]
    if any(h.saved):
        return "it is linear only for some values of its memory"
    depths = [
        _depth(m, t, launch) for m, t in zip(maps[len(launch.ins) :], wider.outs, strict=True)
    ]
    if None in depths:
        return (
            f"programs with the same block of {names[len(launch.ins) + depths.index(None)]} do not "
            "follow each other"
        )
    ordered = [not p for p in independent_axes(launch, body, maps)]
    back, marks = transpose_program(
        h.rest, len(h.residuals.outvars), (True,) * h.states.count(True)
    )
    rows = [
        _turned(m, t, launch, ordered) for m, t in zip(maps, (*wider.ins, *wider.outs), strict=True)
    ]
    ins, outs = (
        rows[: len(launch.ins)],
        picked(rows[len(launch.ins) :], h.states[: len(launch.outs)]),
    )
    wanted = spread(marks[: linear.count(True)], linear)
    contributions = [
        _contribution(*row, body, launch) if has else None
        for row, has in zip(ins, wanted, strict=True)
    ]
    kept = given(contributions)
    added = {a for c in kept for a in c.added}
    moving = [j for j, u in enumerate(h.states[: len(launch.outs)]) if u]
    in_place = {moving.index(j): n for n, (i, j) in enumerate(_linear_aliases(launch, linear))}
    known_memory, states = partition(memory(launch), h.states)
    used = picked(known_memory, h.used)
    # From which axis on programs pass on the cotangent of a state; None: it stays in place.
    passed = [None if n in in_place else depths[j] for n, j in enumerate(moving)]
    passed += [0] * (len(states) - len(moving))
    after = [[] if d is None else [a for a in range(d, len(ordered)) if ordered[a]] for d in passed]

    def run(fixed: Any, own: Any, refs: Any, scratch: Any) -> Any:
        ids = _turned_ids(fixed[: len(ordered)], launch, ordered)
        held, cts = own[: sum(h.ins)], own[sum(h.ins) :]
        results, places = refs[: len(kept)], refs[len(kept) :]
        memory_refs, carries = scratch[: len(used)], iter(scratch[len(used) :])
        residuals = h.residuals(*ids, *fixed[len(ordered) :], *held, *memory_refs)
        values, refs_of = [], []
        for n, s in enumerate(states):
            ref = places[in_place[n]] if n in in_place else next(carries) if after[n] else None
            ct = read_all(cts[n]) if n < len(cts) else zeros(s.type)
            if n in in_place:
                ct = read_all(ref)
            elif after[n]:
                is_last = _all_zero([fixed[a] for a in after[n]])
                old = read_all(ref)
                ct = pvary(ct, type_of(old).varying)
                ct = ew.where(broadcast_in_dim(is_last, shape=s.shape, dims=()), ct, old)
            values.append(ct)
            refs_of.append(ref)
        found = spread(back(*residuals, *values), marks)
        parts, ends = found[: linear.count(True)], found[linear.count(True) :]
        written = [
            ref if ref is None else write_all(ref, zeros(type_of(ref)) if x is None else x)
            for ref, x in zip(refs_of, ends, strict=True)
        ]
        at = {n: written[n] for n in in_place}
        ordered_places = [at[n] for n in sorted(in_place, key=lambda n: in_place[n])]
        carried = [ref for n, ref in enumerate(written) if ref is not None and n not in in_place]
        pairs = zip(results, given(parts), kept, strict=True)
        results = [write_all(ref, _sum_with(ref, x, fixed, c.added)) for ref, x, c in pairs]
        return [*results, *ordered_places], [*memory_refs, *carried]

    new = replace(
        launch,
        ins=tuple([t for _, t in (*picked(ins, h.ins), *outs)]),
        outs=(*[c.tile for c in kept], *[outs[n][1] for n in in_place]),
        scratch=(*used, *picked(states, after)),
        aliases=tuple([(sum(h.ins) + n, len(kept) + k) for n, k in in_place.items()]),
        labels=(),
        primal=None,
        parallel=tuple([not o and a not in added for a, o in enumerate(ordered)]),
        cost=launch.cost and launch.cost.times(2),
        is_transposed=True,
    )
    indices = [m for m, _ in (*picked(ins, h.ins), *outs)], [outs[n][0] for n in in_place]
    new_maps = *indices[0], *[c.index for c in kept], *indices[1]
    return Backward(launched(body, new_maps, new, run), wider, tuple(contributions))


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


def _turned_ids(ids: Sequence[Any], launch: Launch, ordered: Sequence[bool]) -> list[Any]:
    """The indices of the program that runs at these ones."""
    rows = zip(ids, launch.grid, ordered, strict=True)
    return [ew.sub(np.int32((n or 0) - 1), i) if o else i for i, n, o in rows]


def _turned(
    index: Program, tile: Tile, launch: Launch, ordered: Sequence[bool]
) -> tuple[Program, Tile]:
    """A block in the padded array, in the opposite order of programs."""
    axes, pairs = len(ordered), zip(tile.type.shape, tile.padding, strict=True)
    first = [low if e else 0 for (low, _), e in zip(tile.padding, tile.element, strict=True)]

    def run(*xs: Any) -> list[Any]:
        at = index(*_turned_ids(xs[:axes], launch, ordered), *xs[axes:])
        return [ew.add(i, np.int32(n)) if n else i for i, n in zip(at, first, strict=True)]

    shape = tuple([n + low + high for n, (low, high) in pairs])
    wide = replace(tile, type=tile.type.update(shape=shape), padding=((0, 0),) * len(shape))
    return program_of(run, index.in_types, "index"), wide


def _all_zero(ids: Sequence[Any]) -> Any:
    found = ew.eq(ids[0], np.int32(0))
    for i in ids[1:]:
        found = ew.bitwise_and(found, ew.eq(i, np.int32(0)))
    return found


def why_not_transposed(
    body: Program, maps: tuple[Program, ...], launch: Launch, linear: Sequence[bool]
) -> str | None:
    """Why the transpose of a launch is not a launch; None if it is. linear: which operands are."""
    found = _backward(body, maps, launch, tuple(linear[launch.prefetch :]))
    return found if isinstance(found, str) else None


def transposed(op: Op, cts: Sequence[Any], args: Sequence[Any], p: dict[str, Any]) -> list[Any]:
    """The cotangents of the operands of a launch."""
    launch = p["launch"]
    _, prefetched, inputs = launch.parts(args)
    linear = tuple([is_linear(x) for x in inputs])
    parts = p["body"], p["maps"], launch
    h, back = halves(*parts, linear), _backward(*parts, linear)
    assert not isinstance(back, str)
    ins, outs = back.wider.ins, back.wider.outs
    own = [padded(x, t, NEAREST) for x, t in picked(list(zip(inputs, ins, strict=True)), h.ins)]
    moving = [
        padded(zeros(t.type.strong()) if ct is None else ct, t, 0)
        for ct, t in picked(list(zip(cts, outs, strict=True)), h.states[: len(outs)])
    ]
    found = iter(op(*prefetched, *own, *moving, **_params(back.parts)))
    totals: list[Any] = []
    for c, tile in zip(back.contributions, ins, strict=True):
        wide = tuple(
            [n + low + high for n, (low, high) in zip(tile.type.shape, tile.padding, strict=True)]
        )
        total = None
        if c is not None:
            total = _total(next(found), c, tile.type.update(shape=wide), launch, prefetched)
            total = cropped(total, tile)
        totals.append(total)
    for i, j in _linear_aliases(launch, linear):
        more = cropped(next(found), outs[j])
        totals[i] = more if totals[i] is None else ew.add(totals[i], more)
    return [*[None] * len(prefetched), *totals]
