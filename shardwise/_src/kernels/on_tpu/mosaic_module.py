"""The module of a launch in Mosaic's dialect: the body, and the indices of each block.

    main(indices…, prefetched…, blocks of inputs…, blocks of results…, scratch…)
    block_0(indices…, prefetched…) → the indices of the first block

Mosaic copies the blocks between the memory of the chip and that of its core, while the body runs on
those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.program import Program, Var
from shardwise._src.kernels.accesses import kernel_store
from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_memory import load_all, store_all
from shardwise._src.kernels.on_tpu.mosaic_programs import Function
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Value, element, stored
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType

INT = np.dtype("int32")
DYNAMIC = -(2**63)  # a size of the grid that is an operand


def module_text(body: Program, maps: Sequence[Program], launch: Launch, platform: Platform) -> str:
    """The module of a launch.

    Raises NotImplementedError if an op has no form in Mosaic's dialect.
    """
    tiles = [*launch.ins, *launch.outs]
    windows = has_windows(launch)
    functions = [_main(body, maps, launch, platform)]
    if windows:
        functions += [
            _indices(f"block_{i}", program, tile, launch, body, platform)
            for i, (program, tile) in enumerate(zip(maps, tiles, strict=True))
            if not is_remote(tile.space.name)
        ]
    return "module {\n" + "\n".join(functions) + "\n}\n"


def has_windows(launch: Launch) -> bool:
    """Whether there is a grid, or a block of a part of an array."""
    tiles = (*launch.ins, *launch.outs)
    return bool(launch.grid) or not all(t.is_whole for t in tiles)


def is_remote(space: str) -> bool:
    """Whether refs in a memory space are the arrays themselves, which are not copied."""
    return space in ("any", "hbm")


def sizes_in_memory(shape: Sequence[int], space: str) -> tuple[int, ...]:
    """The shape of memory for a shape: scalars have dimensions too."""
    return tuple(shape) or ((1,) if space == "smem" else (1, 1))


def _memory(
    name: str, shape: Sequence[int], kept: Sequence[bool], dtype: Any, space: str
) -> Memory:
    sizes = sizes_in_memory(shape, space)
    marks = tuple(kept) if shape else (False,) * len(sizes)
    return Memory(name, sizes, marks, element(stored(dtype)), space)


def _prefetched(body: Program, launch: Launch) -> list[Memory]:
    first = len(launch.grid) + launch.dynamic
    types = body.in_types[first : first + launch.prefetch]
    return [
        _memory(f"%p{i}", t.shape, [True] * t.ndim, t.dtype, "smem") for i, t in enumerate(types)
    ]


def _signature(name: str, ids: Sequence[str], memories: Sequence[Memory]) -> str:
    given = [*[f"{i}: i32" for i in ids], *[f"{m.name}: {m.type}" for m in memories]]
    return f"  func.func @{name}({', '.join(given)})"


def _ids(launch: Launch) -> list[str]:
    return [f"%i{d}" for d in range(len(launch.grid))]


def _main(body: Program, maps: Sequence[Program], launch: Launch, platform: Platform) -> str:
    w = Function(launch.name, platform)
    windows = has_windows(launch)
    ids = _ids(launch) if launch.grid else ["%i0"] if windows else []
    first = _prefetched(body, launch)
    tiles = [*launch.ins, *launch.outs]
    blocks = [
        _memory(f"%b{i}", t.sizes, t.kept, t.type.dtype, t.space.name) for i, t in enumerate(tiles)
    ]
    scratch = [
        _memory(f"%s{i}", s.shape, [True] * len(s.shape), s.dtype, s.space.name)
        for i, s in enumerate(launch.scratch)
    ]
    sizes: list[Value] = [
        w.let(f"tpu.iteration_bound {d} : i32") for d, n in enumerate(launch.grid) if n is None
    ]
    _copy_aliased(w, body, maps, launch, blocks)
    refs = [*blocks[len(launch.ins) :], *scratch]
    found = w.program(body, [*ids[: len(launch.grid)], *sizes, *first, *blocks, *scratch])
    for value, ref, t in zip(found, refs, body.out_types, strict=True):
        w.settle(value, ref, t)
    semantics = ", ".join(
        f"#tpu.dimension_semantics<{'parallel' if p else 'arbitrary'}>"
        for p in (launch.parallel if launch.grid else [False] * len(ids))
    )
    notes = [
        f"dimension_semantics = [{semantics}]",
        f"scalar_prefetch = {len(first)} : i64",
        f"scratch_operands = {len(scratch)} : i64",
        "tpu.core_type = #tpu.core_type<tc>",
    ]
    if windows:
        bounds = [DYNAMIC if n is None else n for n in launch.grid or (1,)]
        notes.append(f"iteration_bounds = array<i64: {', '.join(map(str, bounds))}>")
        notes.append(f"window_params = [{', '.join(map(_window, range(len(tiles)), tiles))}]")
    head = _signature("main", ids, [*first, *blocks, *scratch])
    text = "\n".join([*w.all_lines, "    return"])
    return f"{head} attributes {{{', '.join(notes)}}} {{\n{text}\n  }}"


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


def _indices(
    name: str, program: Program, tile: Tile, launch: Launch, body: Program, platform: Platform
) -> str:
    """The function that computes the indices of a block. If one of them is that of an element, all
    are."""
    w = Function(launch.name, platform)
    ids = _ids(launch) if launch.grid else ["%i0"]
    first = _prefetched(body, launch)
    values = w.program(program, [*ids[: len(launch.grid)], *first])
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
    return f"{_signature(name, ids, first)} -> ({kinds}) {{\n{text}\n  }}"


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
    """Whether the body may use the first values of a result."""
    uses = [e for e in body.eqns if any(a is var for a in e.invars)]
    if any(a is var for a in body.outvars) or not uses:
        return False
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
    def copy() -> None:
        store_all(w, to, load_all(w, source, t), t)

    if not axes:
        return copy()
    zero, flags = w.constant(0, INT), []
    for d in axes:
        flags.append(w.let(f"arith.cmpi eq, %i{d}, {zero} : i32"))
        if len(flags) > 1:
            flags.append(w.let(f"arith.andi {flags[-2]}, {flags[-1]} : i1"))
    with w.block() as lines:
        copy()
    w.line(f"scf.if {flags[-1]} {{\n" + "\n".join(lines) + "\n    }")
