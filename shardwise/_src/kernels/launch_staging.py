"""The programs of a launch: that of its body, and those of the indices of its blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.control.bodies import cached_body
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import walk
from shardwise._src.core.structure import shared
from shardwise._src.kernels.blocks import Block, Tile
from shardwise._src.kernels.launch_record import INT, Launch
from shardwise._src.kernels.program_frames import Frame
from shardwise._src.kernels.spaces import SMEM, Space
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.ops.sharded.varying import tracked_names
from shardwise._src.refs.refs import Ref, value_of
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.convert import cast
from shardwise._src.values.dslice import Slice


def staged_programs(
    body: Callable[..., None],
    launch: Launch,
    prefetched: tuple[ArrayType, ...],
    trees: tuple[Any, Any, Any],
    blocks: Sequence[Block],
    names: Sequence[str],
) -> tuple[Program, tuple[Program, ...]]:
    """The programs of the body and of the indices of blocks, cached by the functions.

    names: of the inputs and results, for messages.
    """

    def stage_all() -> tuple[Any, bool]:
        program = staged_body(launch.name, body, launch, prefetched, trees)
        rows = zip(names, blocks, (*launch.ins, *launch.outs), strict=True)
        axes = len(launch.grid)
        maps = [staged_index(launch.name, name, b, t, axes, prefetched) for name, b, t in rows]
        return (shared(program), tuple(map(shared, maps))), True

    functions = {id(f): f for f in (body, *[b.index for b in blocks if b.index is not None])}
    order = [*functions]
    uses = tuple([None if b.index is None else order.index(id(b.index)) for b in blocks])
    key = ("kernel", current().key, launch, prefetched, trees, uses)
    return cached_body([*functions.values()], key, stage_all)


def staged_body(
    title: str,
    body: Callable[..., None],
    launch: Launch,
    prefetched: Sequence[ArrayType],
    trees: tuple[Any, Any, Any],
) -> Program:
    """The program of a body. Inside of `shard_map`, its refs hold values that differ along the axes
    along which operands do, or along all of them if it depends on the device."""
    varying = frozenset().union(*[t.varying for t in (*prefetched, *[t.type for t in launch.ins])])
    program = _staged_varying(title, body, launch, prefetched, trees, tracked_names())
    if tracked_names() == varying or any(e.op.named_axes is not None for e in walk(program)):
        return program
    return _staged_varying(title, body, launch, prefetched, trees, varying)


def _staged_varying(
    title: str,
    body: Callable[..., None],
    launch: Launch,
    prefetched: Sequence[ArrayType],
    trees: tuple[Any, Any, Any],
    varying: frozenset[Any],
) -> Program:
    tree, out_tree, scratch_tree = trees
    axes = len(launch.grid)
    refs_of = [
        *[t.ref_type for t in (*launch.ins, *launch.outs)],
        *[s.type for s in launch.scratch],
    ]
    types = [
        *[INT] * (axes + launch.dynamic),
        *prefetched,
        *[t.update(varying=varying) for t in refs_of],
    ]

    def flat(*values: Any) -> list[Any]:
        rest = iter(values)

        def take(count: int) -> list[Any]:
            return [next(rest) for _ in range(count)]

        def refs(spaces: Sequence[Space]) -> list[Ref]:
            return [
                Ref(value, space) for value, space in zip(take(len(spaces)), spaces, strict=True)
            ]

        ids, sizes = take(axes), iter(take(launch.dynamic))
        grid = [next(sizes) if n is None else n for n in launch.grid]
        first = refs([SMEM.readonly] * launch.prefetch)
        ins = refs([t.space.readonly for t in launch.ins])
        outs = refs([t.space for t in launch.outs])
        scratch = refs([s.space for s in launch.scratch])
        has_barrier = launch.params.collective_id is not None
        barrier = scratch[-1] if has_barrier else None
        frame = Frame(title, ids, grid, launch.names, barrier, varying, launch.simulation)
        with frame.entered():
            more = scratch_tree.unflatten(scratch[: len(scratch) - has_barrier])
            named = more if isinstance(more, dict) else {}
            listed = () if named else more if isinstance(more, tuple | list) else (more,)
            result = body(
                *first, *tree.unflatten(ins), *_listed(out_tree.unflatten(outs)), *listed, **named
            )
        if result is not None:
            raise ValueError(
                f"kernel {title} returned {short_repr(result)}. A kernel writes its results to "
                "refs, and returns None."
            )
        return [value_of(r) for r in (*outs, *scratch)]

    program, captured = stage(flat, types, transform="kernels.call", name=title)
    reject_captured(title, program, captured)
    return program


def _listed(out: Any) -> Sequence[Any]:
    """The results as arguments: a tuple or list is several."""
    return out if isinstance(out, tuple | list) else (out,)


def reject_captured(title: str, program: Program, captured: Sequence[Any]) -> None:
    found = [*captured, *[x for x in program.consts if np.ndim(x)]]
    if found:
        types = ", ".join(type_of(x).str_short(True) for x in found)
        raise ValueError(
            f"kernel {title} uses arrays from outside: {types}. Pass them as arguments, with "
            "blocks of their own."
        )


def index_entries(who: str, what: str, found: Any, tile: Tile) -> list[Any]:
    """The indices of a block, as its `index` returned them, and then the sizes of its slices."""
    found = found if isinstance(found, tuple | list) else (found,)
    if len(found) != len(tile.sizes):
        raise ValueError(
            f"{who}: the index of the block of {what} has {len(found)} entries; "
            f"expected {len(tile.sizes)}, one for each dimension of {tile.type.str_short(True)}."
        )
    slices = [_slice(who, what, found[d]) for d in tile.ragged]
    starts = dict(zip(tile.ragged, [s.start for s in slices], strict=True))
    found = [starts.get(d, x) for d, x in enumerate(found)]
    entries = [as_arraylike(x) for x in (*found, *[s.size for s in slices])]
    for x in entries:
        t = type_of(x)
        if t.shape or not is_integer(t.dtype):
            raise ValueError(
                f"{who}: the index of the block of {what} has an entry of type "
                f"{t.str_short(True)}; expected integers."
            )
    return [cast(x, INT.dtype, False) for x in entries]


def _slice(who: str, what: str, x: Any) -> Slice:
    if isinstance(x, Slice) and x.stride == 1:
        return x
    raise TypeError(
        f"{who}: the index of the block of {what} along a BoundedSlice is a slice, "
        f"`ds(start, size)`; got {short_repr(x)}."
    )


def _check_parameters(title: str, what: str, index: Any, axes: int, prefetched: int) -> None:
    """Raises if a function cannot take the indices of a program and refs of prefetched arrays."""
    try:
        inspect.signature(index).bind(*[None] * (axes + prefetched))
    except TypeError as error:
        more = f", and refs of {pluralize(prefetched, 'prefetched array')}" if prefetched else ""
        raise TypeError(
            f"kernel {title}: the index of the block of {what} is a function of "
            f"{pluralize(axes, 'index', 'indices')}, one for each axis of the grid{more}: {error}."
        ) from None
    except ValueError:  # a function without a signature
        pass


def staged_index(
    title: str, what: str, block: Block, tile: Tile, axes: int, prefetched: Sequence[ArrayType]
) -> Program:
    def flat(*values: Any) -> list[Any]:
        if block.index is None:
            return [np.int32(0)] * (len(tile.sizes) + len(tile.ragged))
        refs = [Ref(x, SMEM.readonly) for x in values[axes:]]
        _check_parameters(title, what, block.index, axes, len(refs))
        found = block.index(*values[:axes], *refs)
        return index_entries(f"kernel {title}", what, found, tile)

    program, captured = stage(
        flat, [INT] * axes + list(prefetched), transform="kernels.call", name="index"
    )
    if captured or any(np.ndim(x) for x in program.consts):
        raise ValueError(
            f"kernel {title}: the index of the block of {what} uses arrays from outside. Pass "
            "them as the first arguments, and their number as `prefetch`."
        )
    return program
