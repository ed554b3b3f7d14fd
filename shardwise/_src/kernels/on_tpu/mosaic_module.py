"""The module of a launch in Mosaic's dialect: the body, and the indices of each block.

    main(indices…, prefetched…, axes…, blocks of inputs…, blocks of results…, scratch…, scoped…)
    block_0(indices…, prefetched…, axes…) → the indices of the first block

Mosaic copies the blocks between the memory of the chip and that of its core, while the body runs on
those before. The positions of the device along mesh axes are arrays of one integer, which XLA
computes; memory that the body allocates is scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.accesses import kernel_store
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_memory import load_all, store_all
from shardwise._src.kernels.on_tpu.mosaic_programs import Function
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Value, memory_of, sizes_in_memory
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType

INT = np.dtype("int32")
DYNAMIC = -(2**63)  # a size of the grid that is an operand


@dataclass(frozen=True)
class Module:
    """The text of a module, the memory that its body allocates, and the mesh axes along which it
    needs its position: pairs of names and sizes."""

    text: str
    scoped: tuple[Scratch, ...]
    axes: tuple[tuple[Any, Any], ...]


def module_of(body: Program, maps: Sequence[Program], launch: Launch, platform: Platform) -> Module:
    """The module of a launch.

    Raises NotImplementedError if Mosaic does not support an op.
    """
    found = [eqn.params for eqn in walk(body) if eqn.op is axis_index]
    axes = tuple(dict.fromkeys((p["names"], p["sizes"]) for p in found))
    first = len(launch.grid) + launch.dynamic
    types = body.in_types[first : first + launch.prefetch]
    scalars = [memory_of(f"%p{i}", t.shape, t.dtype, "smem") for i, t in enumerate(types)]
    places = {axis: memory_of(f"%a{i}", (1,), INT, "smem") for i, axis in enumerate(axes)}
    writer = _Writer(body, maps, launch, platform, scalars, places)
    tiles = [*launch.ins, *launch.outs]
    main, scoped = writer.main(tiles)
    texts = [main]
    if has_windows(launch):
        rows = enumerate(zip(maps, tiles, strict=True))
        texts += [writer.indices(i, m, t) for i, (m, t) in rows if not is_remote(t.space.name)]
    return Module("module {\n" + "\n".join(texts) + "\n}\n", tuple(scoped), axes)


def has_windows(launch: Launch) -> bool:
    """Whether there is a grid, or a block of a part of an array."""
    tiles = (*launch.ins, *launch.outs)
    return bool(launch.grid) or not all(t.is_whole for t in tiles)


def is_remote(space: str) -> bool:
    """Whether refs in a memory space are the arrays themselves, which are not copied."""
    return space in ("any", "hbm")


@dataclass
class _Writer:
    """Writes the functions of a module. scalars: the memory of prefetched arrays; places: of the
    positions along mesh axes."""

    body: Program
    maps: Sequence[Program]
    launch: Launch
    platform: Platform
    scalars: list[Memory]
    places: dict[Any, Memory]

    def ids(self) -> list[str]:
        one = ["%i0"] if has_windows(self.launch) else []
        return [f"%i{d}" for d in range(len(self.launch.grid))] or one

    def function(self) -> Function:
        return Function(self.launch.name, self.platform, self.places)

    def head(self, name: str, more: Sequence[Memory] = ()) -> str:
        memories = [*self.scalars, *self.places.values(), *more]
        given = [*[f"{i}: i32" for i in self.ids()], *[f"{m.name}: {m.type}" for m in memories]]
        return f"  func.func @{name}({', '.join(given)})"

    def main(self, tiles: Sequence[Tile]) -> tuple[str, list[Scratch]]:
        w, launch, ids = self.function(), self.launch, self.ids()
        blocks = [
            memory_of(f"%b{i}", t.sizes, t.type.dtype, t.space.name, t.kept)
            for i, t in enumerate(tiles)
        ]
        scratch = [
            memory_of(f"%s{i}", s.shape, s.dtype, s.space.name)
            for i, s in enumerate(launch.scratch)
        ]
        sizes: list[Value] = [
            w.let(f"tpu.iteration_bound {d} : i32") for d, n in enumerate(launch.grid) if n is None
        ]
        _copy_aliased(w, self.body, self.maps, launch, blocks)
        given = [*ids[: len(launch.grid)], *sizes, *self.scalars, *blocks, *scratch]
        if launch.params.collective_id is not None:  # the last one is the barrier of all devices
            barrier = scratch.pop()
            if any(self.body.invars[-1] in eqn.invars for eqn in self.body.eqns):
                w.lines.append(f"    {barrier.name} = tpu.sem_barrier : {barrier.type}")
        found = w.program(self.body, given)
        w.ended(found, given[len(given) - len(found) :], self.body.out_types)
        held = [*scratch, *[memory for memory, _ in w.scoped]]
        marks = launch.parallel if launch.grid else [False] * len(ids)
        semantics = ", ".join(
            f"#tpu.dimension_semantics<{'parallel' if p else 'arbitrary'}>" for p in marks
        )
        notes = [
            f"dimension_semantics = [{semantics}]",
            f"scalar_prefetch = {len(self.scalars) + len(self.places)} : i64",
            f"scratch_operands = {len(held)} : i64",
            "tpu.core_type = #tpu.core_type<tc>",
        ]
        if has_windows(launch):
            bounds = [DYNAMIC if n is None else n for n in launch.grid or (1,)]
            notes.append(f"iteration_bounds = array<i64: {', '.join(map(str, bounds))}>")
            notes.append(f"window_params = [{', '.join(map(_window, range(len(tiles)), tiles))}]")
        text = "\n".join([*w.all_lines, "    return"])
        head = self.head("main", [*blocks, *held])
        return f"{head} attributes {{{', '.join(notes)}}} {{\n{text}\n  }}", [
            s for _, s in w.scoped
        ]

    def indices(self, number: int, program: Program, tile: Tile) -> str:
        """The function that computes the indices of a block. If one of them is that of an element,
        all are."""
        w = self.function()
        values = w.program(program, [*self.ids()[: len(self.launch.grid)], *self.scalars])
        found = [w.name(v, t) for v, t in zip(values, program.out_types, strict=True)]
        if any(tile.element):
            rows = zip(found, tile.sizes, tile.element, tile.padding, strict=True)
            found = [
                w.let(f"arith.addi {i}, {w.constant(low, INT)} : i32")
                if is_element
                else w.let(f"arith.muli {i}, {w.constant(n, INT)} : i32")
                for i, n, is_element, (low, _) in rows
            ]
        found = found or [w.constant(0, INT)] * len(sizes_in_memory((), tile.space.name))
        kinds = ", ".join("i32" for _ in found)
        text = "\n".join([*w.all_lines, f"    return {', '.join(found)} : {kinds}"])
        return f"{self.head(f'block_{number}')} -> ({kinds}) {{\n{text}\n  }}"


def _window(number: int, tile: Tile) -> str:
    if is_remote(tile.space.name):
        return "{}"
    bounds = sizes_in_memory(tile.sizes, tile.space.name)
    parts = [
        f"transform_indices = @block_{number}",
        f"window_bounds = array<i64: {', '.join(map(str, bounds))}>",
    ]
    if any(tile.element):
        low, high = ([row[side] for row in tile.padding] for side in (0, 1))
        parts.append(f"window_kind = #tpu.element_window<{low}, {high}>")
    if tile.is_whole and tile.space.name == "vmem":
        parts.append("pipeline_mode = #tpu.pipeline_mode<synchronous>")  # one buffer is enough
    return f"{{{', '.join(parts)}}}"


# -- results that begin with the values of arguments --


def _copy_aliased(
    w: Function, body: Program, maps: Sequence[Program], launch: Launch, blocks: Sequence[Memory]
) -> None:
    """Copies blocks of arguments to those of results at the first program of each, if the body may
    read them: Mosaic only writes the blocks of results."""
    count = len(launch.ins)
    outs = body.invars[len(body.invars) - len(launch.outs) - len(launch.scratch) :]
    for i, j in launch.aliases:
        tile, own = launch.ins[i], launch.outs[j]
        if is_remote(own.space.name) or not _may_read(body, outs[j]):
            continue
        again = None
        if (tile.sizes, tile.kept, tile.element) == (own.sizes, own.kept, own.element):
            again = _unused_axes(maps[i], maps[count + j], launch)
        if again is None:
            raise NotImplementedError(
                f"kernel {launch.name}: result {j} begins with the values of argument {i}, and the "
                "kernel may read it before writing it. On TPUs both need the same blocks then, "
                "whose indices are indices of programs or constants. Write the result first, or "
                "read from the argument instead."
            )
        _copied(w, blocks[i], blocks[count + j], own.ref_type, again)


def _may_read(body: Program, var: Var) -> bool:
    """Whether the body may use the first values of a result, or keep them."""
    uses = [e for e in body.eqns if any(a is var for a in e.invars)]
    if any(a is var for a in body.outvars):
        return True
    return not all(
        e.op is kernel_store
        and e.params["mode"] == "set"
        and not e.params["masked"]
        and e.params["sizes"] == var.aval.shape
        for e in uses
    )


def _unused_axes(a: Program, b: Program, launch: Launch) -> list[int] | None:
    """The axes of the grid along which a block stays; None if that is unknown, or blocks differ."""
    if a.eqns or b.eqns:
        return None
    at = [[_position(p, out) for out in p.outvars] for p in (a, b)]
    if at[0] != at[1]:
        return None
    return [d for d, n in enumerate(launch.grid) if n != 1 and ("axis", d) not in at[0]]


def _position(program: Program, out: Any) -> tuple[str, Any]:
    if out.__class__ is Var:
        return "axis", program.invars.index(out)
    return "number", int(out.value)


def _copied(w: Function, source: Memory, to: Memory, t: ArrayType, axes: Sequence[int]) -> None:
    def copy() -> list[Any]:
        store_all(w, to, load_all(w, source, t), t)
        return []

    if not axes:
        copy()
        return
    zero, flags = w.constant(0, INT), []
    for d in axes:
        flags.append(w.let(f"arith.cmpi eq, %i{d}, {zero} : i32"))
        if len(flags) > 1:
            flags.append(w.let(f"arith.andi {flags[-2]}, {flags[-1]} : i1"))
    w.branch(flags[-1], [], copy)
