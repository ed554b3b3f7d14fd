"""A launch of which some inputs are unknown, as two: of the known part, and of the rest.

The second launch computes again, in each program, what it needs of the known part. What a program
of the known part finds in memory, from the programs before it, is saved by the first launch, and is
an input of the second. So the second has no values that are carried from program to program but
those that depend on unknown inputs, in which it is linear if the launch is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.base.marks import partition, picked
from shardwise._src.control.scan_split import unknown_carries
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived, pruned
from shardwise._src.kernels.accesses import Region, is_whole_store
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.copying.in_step import communicates
from shardwise._src.kernels.grid_values import MOST_PROGRAMS
from shardwise._src.kernels.independent_axes import independent_axes
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_cpu import with_room
from shardwise._src.kernels.spaces import LARGE, Scratch
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.transforms.linearize import split_program
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.symbolic import Symbolic

Marks = tuple[bool, ...]
Parts = tuple[Program, tuple[Program, ...], Launch]  # the parameters of an op: body, maps, launch

SIMULATED = "it is simulated"
SIZES = "the sizes of its grid are traced"
PREFETCHED = "the derivative is with respect to a prefetched array, which has no blocks"


def obstacle(body: Program, launch: Launch, unknown: Sequence[bool]) -> str | None:
    """Why a launch cannot be divided; None if it can. unknown: which operands are."""
    refs = (*launch.tiles, *launch.scratch)
    if not launch.simulation.is_compiled:
        return SIMULATED
    if launch.dynamic:
        return SIZES
    if any(unknown[: launch.prefetch]):
        return PREFETCHED
    if math.prod([n or 0 for n in launch.grid]) > MOST_PROGRAMS:
        return f"its grid has more than {MOST_PROGRAMS:,} programs"
    names = launch.ref_names[launch.prefetch :]
    for name, tile in zip(names, launch.tiles, strict=False):
        if tile.ragged:
            return f"the block of {name} has a BoundedSlice"
        if any(isinstance(n, Symbolic) for n in tile.type.shape):
            return f"{name} has symbolic sizes"
    if body.effects or communicates(body) or any(r.space.is_semaphore for r in refs):
        return "it has side effects, or communicates with other devices"
    for name, ref in zip(names, refs, strict=True):
        if ref.space.name in LARGE:
            return f"{name} is in {ref.space}, from which it copies"
    return None


@dataclass(frozen=True)
class Halves:
    """A body, divided by which inputs are unknown.

    states:    which results and scratch memory are unknown.
    residuals: what the rest needs, as a program: (indices…, prefetched…, known inputs that it
               uses…, known states that it uses…) → residuals.
    known:     (indices…, prefetched…, known inputs…, known states…) → known states, ….
    rest:      (residuals…, unknown inputs…, unknown states…) → unknown states.
    ins:       which inputs `residuals` takes.
    used:      which known states it takes. saved: of which it reads the values from before.
    """

    states: Marks
    residuals: Program
    known: Program
    rest: Program
    ins: Marks
    used: Marks
    saved: Marks


@derived
def halves(body: Program, maps: tuple[Program, ...], launch: Launch, unknown: Marks) -> Halves:
    fixed, ins = len(launch.grid) + launch.prefetch, len(launch.ins)
    states = _unknown_states(body, launch, unknown)
    parts = split_program(body, (*[False] * fixed, *unknown, *states))
    known = parts.known
    computed = iter(known.outvars[states.count(False) :])
    needed = pruned(
        known, [next(computed) if i is None else known.invars[i] for i in parts.forwarded]
    )
    read = {*needed.outvars}
    for eqn in needed.eqns:
        read.update(eqn.invars[is_whole_store(eqn) :])
    appear = read | {a for eqn in needed.eqns for a in eqn.invars}
    own = dict(zip([i for i in range(ins) if not unknown[i]], known.invars[fixed:], strict=False))
    appear.update([own[i] for i, j in launch.aliases if i in own and states[j]])
    memory = known.invars[fixed + len(own) :]
    known_states = [s for s, u in enumerate(states) if not u]
    from_before = {*range(len(states))} if not all(independent_axes(launch, body, maps)) else {
        j for _, j in launch.aliases
    }  # fmt: skip
    inputs = [v for v in known.invars[fixed:] if v in appear]
    return Halves(
        states,
        needed.replace(inputs=[*needed.constvars, *known.invars[:fixed], *inputs]),
        known,
        parts.rest,
        tuple([own.get(i) in appear for i in range(ins)]),
        tuple([v in appear for v in memory]),
        tuple([v in read and s in from_before for v, s in zip(memory, known_states, strict=True)]),
    )


def _unknown_states(body: Program, launch: Launch, unknown: Marks) -> Marks:
    """Which results and scratch memory depend on unknown inputs, or share memory with one."""
    fixed, count = len(launch.grid) + launch.prefetch, len(body.outvars)
    first = [False] * count
    for i, j in launch.aliases:
        first[j] = unknown[i]
    marks = (*[False] * fixed, *unknown, *first)
    return unknown_carries(body, fixed + len(unknown), count, marks)


def _whole(version: Any) -> tuple[Region, list[Any]]:
    """The region of all elements of a ref, and where it starts."""
    shape = type_of(version).shape
    n = len(shape)
    return Region(shape, (1,) * n, (True,) * n), [np.int32(0)] * n


def read_all(version: Any) -> Any:
    """All elements of a ref."""
    region, starts = _whole(version)
    return region.load(version, starts, is_known=True)


def write_all(version: Any, value: Any) -> Any:
    """The version of a ref with these elements."""
    region, starts = _whole(version)
    return region.store(version, pvary(value, type_of(version).varying), starts)


def launched(
    body: Program, maps: Sequence[Program], launch: Launch, run: Callable[..., Any]
) -> Parts:
    """A launch on the grid of another one, whose body this is.

    run: `(indices and prefetched arrays, inputs, results, scratch) → (results, scratch)`, all
      lists: the new body, of the refs that `launch` has.
    """
    first, ins, outs = len(launch.grid) + launch.prefetch, len(launch.ins), len(launch.outs)
    varying = frozenset().union(*[v.aval.varying for v in body.invars])
    refs = [*[t.ref_type for t in launch.tiles], *[s.type for s in launch.scratch]]

    def flat(*xs: Any) -> list[Any]:
        fixed, rest = [*xs[:first]], xs[first:]
        found, scratch = run(fixed, rest[:ins], rest[ins : ins + outs], rest[ins + outs :])
        return [*found, *scratch]

    types = [*body.in_types[:first], *[t.update(varying=varying) for t in refs]]
    return program_of(flat, types, body.name), tuple(maps), launch


def memory(launch: Launch) -> list[Scratch]:
    """The results and the scratch memory of a launch, as scratch memory."""
    return [*[Scratch(t.shape, t.type.dtype, t.space) for t in launch.outs], *launch.scratch]


def stacked(tile: Tile, more: tuple[int, ...], shape: tuple[int, ...]) -> Tile:
    """The blocks of an array of this shape, with more dimensions before, each in blocks of 1."""
    count = len(more)
    return replace(
        tile,
        type=tile.type.strong().update(shape=(*more, *shape), spec=None, mesh=None),
        sizes=(*[1] * count, *tile.sizes),
        kept=(*[False] * count, *tile.kept),
        element=(*[False] * count, *tile.element),
        padding=((0, 0),) * (count + len(shape)),
    )


def tiled(rank: int) -> tuple[int, ...]:
    """Sizes of dimensions to be added between others and the dimensions of blocks of this rank, of
    which there should be two: TPUs have tiles of two dimensions."""
    return (1,) * max(0, 2 - rank)


def of_each(tile: Tile, body: Program, launch: Launch) -> tuple[Tile, Program]:
    """The block of each program, in an array of the blocks of all; and its indices."""
    axes, more = len(launch.grid), tiled(len(tile.sizes))
    last = [np.int32(0)] * (len(more) + len(tile.sizes))
    types = body.in_types[: axes + launch.prefetch]
    index = program_of(lambda *xs: [*xs[:axes], *last], types, "index")
    new = replace(tile, element=(False,) * len(tile.sizes))
    return stacked(new, (*[n or 0 for n in launch.grid], *more), tile.sizes), index


def _block(s: Scratch) -> Tile:
    n = len(s.shape)
    return Tile(s.type, s.shape, (True,) * n, (False,) * n, ((0, 0),) * n, s.space)


def wide_type(tile: Tile) -> ArrayType:
    """The type of an array with its padding."""
    rows = zip(tile.type.shape, tile.padding, strict=True)
    return tile.type.update(shape=tuple([n + low + high for n, (low, high) in rows]))


def in_padded(tile: Tile) -> Tile:
    """A block of the array with its padding."""
    return replace(tile, type=wide_type(tile), padding=((0, 0),) * len(tile.sizes))


def index_in_padded(index: Program, tile: Tile) -> Program:
    """The indices of a block in the array with its padding."""
    first = [low if e else 0 for (low, _), e in zip(tile.padding, tile.element, strict=True)]
    if not any(first):
        return index

    def run(*xs: Any) -> list[Any]:
        return [ew.add(i, np.int32(n)) if n else i for i, n in zip(index(*xs), first, strict=True)]

    return program_of(run, index.in_types, "index")


def padded_launch(launch: Launch, maps: tuple[Program, ...], h: Halves) -> Launch | None:
    """The launch with the padding that the first half needs: what is saved must not depend on what
    is beyond the ends of arrays. None: it needs none."""
    wider = with_room(launch, maps)
    pairs = [(wide_type(wider.ins[i]), wide_type(wider.outs[j])) for i, j in launch.aliases]
    return wider if any(h.saved) and all(a.shape == b.shape for a, b in pairs) else None


def _computes_tangents(launch: Launch, unknown: Marks, states: Marks) -> bool:
    """Whether the known part of a launch is its `primal`, without its tangents."""
    primal, outs = launch.primal[2], len(launch.outs)
    rows = (unknown, primal.ins), (states[:outs], primal.outs), (states[outs:], primal.scratch)
    return all([not u for u in marks] == [n < len(own) for n in range(len(marks))]
               for marks, own in rows)  # fmt: skip


@derived
def divided(
    body: Program, maps: tuple[Program, ...], launch: Launch, unknown: Marks
) -> tuple[Parts, Parts]:
    """The launch of the known part, and that of the rest.

    The first returns the known results, then what it saves. The second takes the known inputs that
    it uses, what was saved, and the unknown inputs.
    """
    h = halves(body, maps, launch, unknown)
    ins, outs = len(launch.ins), len(launch.outs)
    by_memory, by_out = partition(memory(launch), h.states)[0], h.states[:outs]
    saved = [of_each(_block(s), body, launch) for s in picked(by_memory, h.saved)]
    tiles, indices = [t for t, _ in saved], [m for _, m in saved]
    known_scratch, rest_scratch = partition(launch.scratch, h.states[outs:])
    blocks = [*zip(launch.tiles, maps, strict=True)]
    rest_outs, rest_ins = picked(blocks[ins:], by_out), picked(blocks[:ins], unknown)
    wider = padded_launch(launch, maps, h)
    if wider is not None:
        pairs = zip(wider.tiles, maps, strict=True)
        blocks = [(in_padded(tile), index_in_padded(index, tile)) for tile, index in pairs]
    known_ins, known_outs = partition(blocks[:ins], unknown)[0], partition(blocks[ins:], by_out)[0]
    held = picked([*zip(launch.ins, maps, strict=False)], h.ins)

    def aliases(own_ins: Sequence[int], own_outs: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple([(own_ins.index(i), own_outs.index(j)) for i, j in launch.aliases
                      if i in own_ins and j in own_outs])  # fmt: skip

    def run_known(fixed: Any, own: Any, refs: Any, scratch: Any) -> Any:
        count = len(known_outs)
        states = [*refs[:count], *scratch]
        pairs = zip(refs[count:], picked(states, h.saved), strict=False)
        copies = [write_all(copy, read_all(s)) for copy, s in pairs]
        found = known_body(*fixed, *own, *states)[: len(states)]
        return [*found[:count], *copies], found[count:]

    def run_rest(fixed: Any, own: Any, refs: Any, scratch: Any) -> Any:
        first, count = len(held) + len(tiles), sum(h.used)
        states, values = [*scratch[:count]], iter(own[len(held) : first])
        for n, is_saved in enumerate(picked(h.saved, h.used)):
            if is_saved:
                states[n] = write_all(states[n], read_all(next(values)))
        residuals = h.residuals(*fixed, *own[: len(held)], *states)
        found = h.rest(*residuals, *own[first:], *refs, *scratch[count:])
        return found[: len(refs)], [*scratch[:count], *found[len(refs) :]]

    known_body, positions = h.known, range(ins)
    if launch.primal is not None and _computes_tangents(launch, unknown, h.states):
        known_body = launch.primal[0]
    known = replace(
        launch,
        ins=tuple([t for t, _ in known_ins]),
        outs=(*[t for t, _ in known_outs], *tiles),
        scratch=tuple(known_scratch),
        aliases=aliases(partition(positions, unknown)[0], partition(range(outs), by_out)[0]),
        labels=(),
        primal=None,
    )
    own_maps = [m for _, m in (*known_ins, *known_outs)]
    if saved:  # memory may not be written yet where it is saved: checks are of the launch without
        plain = replace(known, outs=known.outs[: len(known_outs)])
        known = replace(known, primal=launched(body, own_maps, plain, run_known))
    first = launched(body, [*own_maps, *indices], known, run_known)
    rest = replace(
        launch,
        ins=(*[t for t, _ in held], *tiles, *[t for t, _ in rest_ins]),
        outs=tuple([t for t, _ in rest_outs]),
        scratch=(*picked(by_memory, h.used), *rest_scratch),
        aliases=aliases(
            [*picked(positions, h.ins), *[-1] * len(tiles), *picked(positions, unknown)],
            picked(range(outs), by_out),
        ),
        parallel=independent_axes(launch, body, maps),
        labels=(),
        primal=None,
    )
    later = [*[m for _, m in held], *indices, *[m for _, m in (*rest_ins, *rest_outs)]]
    return first, launched(body, later, rest, run_rest)
