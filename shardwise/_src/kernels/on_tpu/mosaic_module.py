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

from shardwise._src.core.program import Program, Var
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.accesses import is_whole_store
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.copying.copies import kernel_copy, kernel_signal
from shardwise._src.kernels.emitted.emitted_programs import I32, INDEX
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_memory import load_all, store_all
from shardwise._src.kernels.on_tpu.mosaic_programs import Function
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Value, memory_of, sizes_in_memory
from shardwise._src.kernels.spaces import LARGE, Scratch
from shardwise._src.ops.sharded.collective import axis_index
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType

DYNAMIC = -(2**63)  # a size of the grid that is an operand


@dataclass(frozen=True)
class MosaicKernel:
    """A kernel: the text of its module, and the memory that its body allocates.

    places: the mesh axes along which it needs the position of its device: pairs of names and sizes.
    axes:   those, in order, that the numbers of devices are along to which it copies.
    """

    text: str
    scoped: tuple[Scratch, ...]
    places: tuple[tuple[Any, Any], ...]
    axes: tuple[Any, ...]

    def __repr__(self) -> str:
        return "MosaicKernel(…)"


def mosaic_kernel(
    body: Program, maps: Sequence[Program], launch: Launch, platform: Platform
) -> MosaicKernel:
    """The kernel of a launch.

    Raises NotImplementedError if Mosaic does not support an op.
    """
    ops = [(eqn.op, eqn.params) for eqn in walk(body)]
    places = dict.fromkeys((p["names"], p["sizes"]) for op, p in ops if op is axis_index)
    axes = [p["copy_params"].axes for op, p in ops if op in (kernel_copy, kernel_signal)]
    first = len(launch.grid) + launch.dynamic
    types = body.in_types[first : first + launch.prefetch]
    scalars = [memory_of(f"%p{i}", t, "smem") for i, t in enumerate(types)]
    one = INDEX.update(shape=(1,))
    memories = {place: memory_of(f"%a{i}", one, "smem") for i, place in enumerate(places)}
    ids = [f"%i{d}" for d in range(len(launch.grid) or has_windows(launch))]
    given = [*[f"{i}: i32" for i in ids], *_arguments([*scalars, *memories.values()])]

    w = Function(launch.name, platform, memories)
    blocks, scratch = _write_body(w, body, maps, launch, ids, scalars)
    scoped = tuple([s for _, s in w.scoped])
    notes = ", ".join(_notes(launch, len(scalars) + len(places), len(scratch)))
    more = _arguments([*blocks, *scratch])
    texts = [_function("main", given + more, f"attributes {{{notes}}}", w, "")]
    for i, (program, tile) in enumerate(zip(maps, launch.tiles, strict=True)):
        if has_windows(launch) and tile.space.name not in LARGE:
            w = Function(launch.name, platform, memories)
            found = _indices(w, program, tile, [*ids[: len(launch.grid)], *scalars])
            kinds = ", ".join(["i32"] * len(found))
            end = f" {', '.join(found)} : {kinds}"
            texts.append(_function(f"block_{i}", given, f"-> ({kinds})", w, end))
    text = "module {\n" + "\n".join(texts) + "\n}\n"
    return MosaicKernel(text, scoped, tuple(places), max(axes, default=(), key=len))


def _arguments(memories: Sequence[Memory]) -> list[str]:
    return [f"{m.name}: {m.type}" for m in memories]


def _function(name: str, arguments: Sequence[str], rest: str, w: Function, results: str) -> str:
    lines = "\n".join([*w.all_lines, f"    return{results}"])
    return f"  func.func @{name}({', '.join(arguments)}) {rest} {{\n{lines}\n  }}"


def has_windows(launch: Launch) -> bool:
    """Whether there is a grid, or a block of a part of an array."""
    return bool(launch.grid) or not all(tile.is_whole for tile in launch.tiles)


def _write_body(
    w: Function, body: Program, maps: Sequence[Program], launch: Launch, ids: Sequence[str],
    scalars: Sequence[Memory],
) -> tuple[list[Memory], list[Memory]]:  # fmt: skip
    """Returns the memory of the blocks, and of scratch."""
    blocks = [
        memory_of(f"%b{i}", tile.type.update(shape=tile.sizes), tile.space.name, tile.kept)
        for i, tile in enumerate(launch.tiles)
    ]
    scratch = [memory_of(f"%s{i}", s, s.space.name) for i, s in enumerate(launch.scratch)]
    sizes = [
        w.let(f"tpu.iteration_bound {d} : i32") for d, n in enumerate(launch.grid) if n is None
    ]
    _copy_aliased(w, body, maps, launch, blocks)
    given: list[Value] = [*ids[: len(launch.grid)], *sizes, *scalars, *blocks, *scratch]
    if launch.params.has_barrier:
        var, barrier = body.invars[len(body.invars) - len(scratch)], scratch.pop(0)
        if any(var in eqn.invars for eqn in body.eqns):
            w.lines.append(f"    {barrier.name} = tpu.sem_barrier : {barrier.type}")
    found = w.program(body, given)
    w.ended(found, given[len(given) - len(found) :], body.out_types)
    return blocks, [*scratch, *[memory for memory, _ in w.scoped]]


def _notes(launch: Launch, scalars: int, scratch: int) -> list[str]:
    """The attributes of the main function, for its numbers of arguments in scalar and in scratch
    memory."""
    windows = has_windows(launch)
    kinds = ["parallel" if p else "arbitrary" for p in launch.parallel]
    semantics = [f"#tpu.dimension_semantics<{kind}>" for kind in kinds or ["arbitrary"] * windows]
    notes = [
        f"dimension_semantics = [{', '.join(semantics)}]",
        f"scalar_prefetch = {scalars} : i64",
        f"scratch_operands = {scratch} : i64",
        "tpu.core_type = #tpu.core_type<tc>",
    ]
    if windows:
        bounds = [str(DYNAMIC if n is None else n) for n in launch.grid or (1,)]
        notes.append(f"iteration_bounds = array<i64: {', '.join(bounds)}>")
        found = [_window(i, tile) for i, tile in enumerate(launch.tiles)]
        notes.append(f"window_params = [{', '.join(found)}]")
    return notes


def _indices(w: Function, program: Program, tile: Tile, given: Sequence[Value]) -> list[str]:
    """The indices of a block. If one of them is that of an element, all are."""
    values = w.program(program, given)
    found = [w.name(v, t) for v, t in zip(values, program.out_types, strict=True)]
    if any(tile.element):
        rows = zip(found, tile.sizes, tile.element, tile.padding, strict=True)
        found = [
            w.let(f"arith.addi {i}, {w.constant(low, I32)} : i32")
            if is_element
            else w.let(f"arith.muli {i}, {w.constant(n, I32)} : i32")
            for i, n, is_element, (low, _) in rows
        ]
    return found or [w.constant(0, I32)] * len(sizes_in_memory((), tile.space.name))


def _window(number: int, tile: Tile) -> str:
    if tile.space.name in LARGE:
        return "{}"
    bounds = sizes_in_memory(tile.sizes, tile.space.name)
    parts = [
        f"transform_indices = @block_{number}",
        f"window_bounds = array<i64: {', '.join(map(str, bounds))}>",
    ]
    if any(tile.element):
        low, high = ([row[side] for row in tile.padding] for side in (0, 1))
        parts.append(f"window_kind = #tpu.element_window<{low}, {high}>")
    buffers = tile.buffer_count
    if buffers == 1 or tile.buffered is not None:
        kind = "synchronous" if buffers == 1 else "double_buffered"
        parts.append(f"pipeline_mode = #tpu.pipeline_mode<{kind}>")
    if tile.buffered is not None and tile.buffered.revisit is not None:
        parts.append(f"revisit_mode = #tpu.revisit_mode<{tile.buffered.revisit.value}>")
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
        if own.space.name in LARGE or not _may_read(body, outs[j]):
            continue
        tiles = (tile, maps[i]), (own, maps[count + j])
        first, last = [(t.sizes, t.kept, t.element, _indices_of(m)) for t, m in tiles]
        if first != last or first[-1] is None:
            raise NotImplementedError(
                f"kernel {launch.name}: result {j} begins with the values of argument {i}, and the "
                "kernel may read it before writing it. On TPUs both need the same blocks then, "
                "whose indices are indices of programs or constants. Write the result first, or "
                "read from the argument instead."
            )
        unused = [d for d, n in enumerate(launch.grid) if n != 1 and ("axis", d) not in first[-1]]
        _copied(w, blocks[i], blocks[count + j], own.ref_type, unused)


def _may_read(body: Program, var: Var) -> bool:
    """Whether the body may use the first values of a result, or keep them."""
    uses = [eqn for eqn in body.eqns if var in eqn.invars]
    return var in body.outvars or not all(map(is_whole_store, uses))


def _indices_of(program: Program) -> list[tuple[str, int]] | None:
    """The indices of blocks: axes of the grid, and numbers; None if they are computed."""
    if program.eqns:
        return None
    return [
        ("axis", program.invars.index(x)) if isinstance(x, Var) else ("number", int(x.value))
        for x in program.outvars
    ]


def _copied(w: Function, source: Memory, to: Memory, t: ArrayType, axes: Sequence[int]) -> None:
    def copy() -> list[Value]:
        store_all(w, to, load_all(w, source, t), t)
        return []

    if not axes:
        copy()
        return
    zero, flags = w.constant(0, I32), []
    for d in axes:
        flags.append(w.let(f"arith.cmpi eq, %i{d}, {zero} : i32"))
        if len(flags) > 1:
            flags.append(w.let(f"arith.andi {flags[-2]}, {flags[-1]} : i1"))
    w.branch(flags[-1], [], copy)
