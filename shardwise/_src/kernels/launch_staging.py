"""The programs of a launch: that of its body, and those of the indices of its blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.control.bodies import cached_body
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import walk
from shardwise._src.core.structure import shared
from shardwise._src.kernels.blocks import Block, Tile
from shardwise._src.kernels.launch_record import INT, Launch
from shardwise._src.kernels.program_frames import Frame, traced_with_memory
from shardwise._src.kernels.spaces import SMEM
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
) -> tuple[Program, tuple[Program, ...], Launch]:
    """The programs of the body and of the indices of blocks, cached by the functions; and the
    launch, with the memory that functions of the library need.

    Inside of `shard_map`, refs hold values that differ along the axes along which operands do, or
    along all of them if the body depends on the device.
    """

    def stage_all() -> tuple[Any, bool]:
        types = *prefetched, *[t.type for t in launch.ins]
        varying = frozenset().union(*[t.varying for t in types])

        def stage_body(launch: Launch) -> Program:
            return _staged_body(body, launch, prefetched, trees, blocks, tracked_names())

        program, own = traced_with_memory(stage_body, launch, Launch.with_memory)
        if tracked_names() != varying and all(e.op.named_axes is None for e in walk(program)):
            program = _staged_body(body, own, prefetched, trees, blocks, varying)
        rows = zip(launch.ref_names[launch.prefetch :], blocks, launch.tiles, strict=False)
        maps = [staged_index(own, *row, prefetched) for row in rows]
        return (shared(program), tuple(map(shared, maps)), own), True

    functions = {id(f): f for f in (body, *[b.index for b in blocks if b.index is not None])}
    order = [*functions]
    uses = tuple([None if b.index is None else order.index(id(b.index)) for b in blocks])
    key = ("kernel", current().key, launch, prefetched, trees, uses)
    return cached_body([*functions.values()], key, stage_all)


def _staged_body(
    body: Callable[..., None],
    launch: Launch,
    prefetched: Sequence[ArrayType],
    trees: tuple[Any, Any, Any],
    blocks: Sequence[Block],
    varying: frozenset[Any],
) -> Program:
    tree, out_tree, scratch_tree = trees
    axes, title = len(launch.grid), launch.name
    own = [*[t.ref_type for t in launch.tiles], *[s.type for s in launch.scratch]]
    types = [
        *[INT] * (axes + launch.dynamic),
        *prefetched,
        *[t.update(varying=varying) for t in own],
    ]
    spaces = [
        *[SMEM.readonly] * launch.prefetch,
        *[t.space.readonly for t in launch.ins],
        *[t.space for t in launch.outs],
        *[s.space for s in launch.scratch],
    ]

    def flat(*values: Any) -> list[Any]:
        ids, rest = values[:axes], values[axes:]
        dynamic, rest = rest[: launch.dynamic], rest[launch.dynamic :]
        refs = [*map(Ref, rest, spaces)]
        first, rest = refs[: launch.prefetch], refs[launch.prefetch :]
        ins, changed = rest[: len(launch.ins)], rest[len(launch.ins) :]
        outs, scratch = changed[: len(launch.outs)], changed[len(launch.outs) :]
        barrier = scratch.pop(0) if launch.params.has_barrier else None
        sizes = launch.sizes(dynamic)
        own = [scratch.pop() for _ in launch.own]
        held = dict(zip(reversed(launch.own), own, strict=True))
        frame = Frame(title, ids, sizes, launch.names, barrier, varying, launch.simulation, held)
        with frame.entered():
            names = launch.ref_names[launch.prefetch :]
            rows = zip(names, blocks, launch.tiles, [*ins, *outs], strict=False)
            views = [indirect_view(f"kernel {title}", *row, *ids, *first) for row in rows]
            more = scratch_tree.unflatten(scratch)
            named = more if isinstance(more, dict) else {}
            listed = () if named else _listed(more)
            own = [view.ref for view in views]
            given, results = tree.unflatten(own[: len(ins)]), out_tree.unflatten(own[len(ins) :])
            result = body(*first, *given, *_listed(results), *listed, **named)
            for view in views[len(ins) :]:
                view.write()
        if result is not None:
            raise ValueError(
                f"kernel {title} returned {short_repr(result)}. A kernel writes its results to "
                "refs, and returns None."
            )
        return [value_of(ref) for ref in changed]

    program, captured = stage(flat, types, transform="kernels.call", name=title)
    reject_captured(title, program, captured)
    return program


def _listed(given: Any) -> Sequence[Any]:
    """Results or scratch memory as arguments: a tuple or list is several."""
    return given if isinstance(given, tuple | list) else (given,)


def reject_captured(title: str, program: Program, captured: Sequence[Any]) -> None:
    found = [*captured, *[x for x in program.consts if np.ndim(x)]]
    if found:
        types = ", ".join(type_of(x).str_short(True) for x in found)
        raise ValueError(
            f"kernel {title} uses arrays from outside: {types}. Pass them as arguments, with "
            "blocks of their own."
        )


class IndirectView(NamedTuple):
    """The ref of a block as the body sees it; of an `Indirect` block the elements at `places`."""

    ref: Any
    whole: Any
    places: tuple[Any, ...] | None

    def write(self) -> None:
        """What was written to the ref goes to its places."""
        if self.places is not None:
            self.whole[self.places] = self.ref[...]


def indirect_view(
    who: str, what: str, block: Block, tile: Tile, ref: Any, *args: Any
) -> IndirectView:
    """The ref of a block, which is named `what` in messages. args: of the block's `index`."""
    d = block.indirect
    if d is None or block.shape is None:
        return IndirectView(ref, ref, None)
    size = block.shape[d].block_size
    rule = (
        f"{who}: the index of the block of {what} along its Indirect dimension is an array of "
        f"{size} integers, or a ref of them"
    )
    if block.index is None:
        raise ValueError(f"{rule}; the block has no index.")
    at = _index_entries(who, what, block.index(*args), tile)[d]
    try:
        at = at[...] if hasattr(at, "space") else as_arraylike(at)
        t = type_of(at)
    except TypeError:
        raise TypeError(f"{rule}; got {short_repr(at)}.") from None
    if t.shape != (size,) or not is_integer(t.dtype):
        raise ValueError(f"{rule}; got {t.str_short(True)}.")
    places = (*[slice(None)] * sum(tile.kept[:d]), at)
    return IndirectView(Ref(ref[places], ref.space), ref, places)


def _index_entries(who: str, what: str, found: Any, tile: Tile) -> Sequence[Any]:
    """What a block's `index` returned: an entry for each dimension."""
    found = found if isinstance(found, tuple | list) else (found,)
    if len(found) != len(tile.sizes):
        raise ValueError(
            f"{who}: the index of the block of {what} has {len(found)} entries; "
            f"expected {len(tile.sizes)}, one for each dimension of {tile.type.str_short(True)}."
        )
    return found


def block_index(who: str, what: str, block: Block, tile: Tile, *args: Any) -> list[Any]:
    """The indices of a block, and then the sizes of its slices. args: of its `index`."""
    if block.index is None:
        return [np.int32(0)] * (len(tile.sizes) + len(tile.ragged))
    starts, sizes = [*_index_entries(who, what, block.index(*args), tile)], []
    if block.indirect is not None:
        starts[block.indirect] = np.int32(0)
    for d in tile.ragged:
        x = starts[d]
        if not isinstance(x, Slice) or x.stride != 1:
            raise TypeError(
                f"{who}: the index of the block of {what} along a BoundedSlice is a slice, "
                f"`ds(start, size)`; got {short_repr(x)}."
            )
        starts[d] = x.start
        sizes.append(x.size)
    entries = [*map(as_arraylike, (*starts, *sizes))]
    for x in entries:
        t = type_of(x)
        if t.shape or not is_integer(t.dtype):
            raise ValueError(
                f"{who}: the index of the block of {what} has an entry of type "
                f"{t.str_short(True)}; expected integers."
            )
    return [cast(x, INT.dtype, False) for x in entries]


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
    launch: Launch, what: str, block: Block, tile: Tile, prefetched: Sequence[ArrayType] = ()
) -> Program:
    title, axes = launch.name, len(launch.grid)

    def flat(*values: Any) -> list[Any]:
        refs = [Ref(x, SMEM.readonly) for x in values[axes:]]
        if block.index is not None:
            _check_parameters(title, what, block.index, axes, len(refs))
        return block_index(f"kernel {title}", what, block, tile, *values[:axes], *refs)

    types = [*[INT] * axes, *prefetched]
    program, captured = stage(flat, types, transform="kernels.call", name="index")
    if captured or any(np.ndim(x) for x in program.consts):
        raise ValueError(
            f"kernel {title}: the index of the block of {what} uses arrays from outside. Pass "
            "them as the first arguments, and their number as `prefetch`."
        )
    return program
