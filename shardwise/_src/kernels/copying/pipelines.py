"""`emit_pipeline`: a loop in a kernel over blocks of refs in a larger memory, two buffers for each.

While the body works on one block, the next one is copied into the other buffer, and the last one of
a result is copied out. A block whose index is that of the step before is not copied again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.kernels.accesses import INT32, as_int32
from shardwise._src.kernels.blocks import Block, Buffered, RevisitMode, Tile, tile_of
from shardwise._src.kernels.copying.async_copies import AsyncCopy, make_async_copy
from shardwise._src.kernels.grid_values import count_of, ids_of
from shardwise._src.kernels.launch_staging import block_index, indirect_view
from shardwise._src.kernels.launching import grid_of
from shardwise._src.kernels.program_frames import Frame, require_frame, when
from shardwise._src.kernels.ref_access import AnyRef
from shardwise._src.kernels.spaces import VMEM, SemaphoreType, run_scoped
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.refs.refs import Ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.values.convert import cast
from shardwise._src.values.dslice import ds


def emit_pipeline(
    body: Callable[..., None], *, grid: Any, in_specs: Any = (), out_specs: Any = ()
) -> Callable[..., None]:
    """A function of refs that runs a body for each point of a grid, over blocks of them in VMEM.

        def double(x, out):                       # refs of f32[8,128]
            out[...] = 2 * x[...]

        rows = Block((8, 128), lambda i: (i, 0))

        def kernel(x, out):                       # refs in HBM: Block(space=ANY)
            emit_pipeline(double, grid=(n,), in_specs=[rows], out_specs=[rows])(x, out)

    Args:
      body: takes refs of the blocks, of arguments and of results, and scratch memory.
      grid: as for `kernels.call`. `program_id` in the body is along this grid.
      in_specs, out_specs: lists of `Block`s, whose sizes divide those of the refs. Those of
        arguments may have an `Indirect` dimension. Each has two buffers.

    Returns:
      A function of the refs of arguments and of results, and of `scratches=`, which are passed to
      the body after them.
    """
    title = name_of(body)
    who = f"emit_pipeline of {title}"
    sizes, names = grid_of(f"kernel {title}", grid)
    ins, outs = _listed(in_specs), _listed(out_specs)

    def pipeline(*refs: Any, scratches: Sequence[Any] = ()) -> None:
        blocks = [*ins, *outs]
        if len(refs) != len(blocks):
            raise TypeError(
                f"{who}: expected {len(ins)} refs of arguments and {len(outs)} of results; got "
                f"{len(refs)}."
            )
        rows = enumerate(zip(refs, blocks, strict=True))
        tiles = [_tile(who, f"ref {i}", *row, i >= len(ins)) for i, row in rows]
        memory = [(VMEM((2, *t.shape), t.type.dtype), SemaphoreType.DMA((2,))) for t in tiles]

        def run(*held: Any) -> None:
            rows = enumerate(zip(refs, blocks, tiles, held, strict=True))
            streams = [_Stream(who, f"ref {i}", *row, i >= len(ins)) for i, row in rows]
            numbers = [*map(as_int32, sizes)]
            frame = replace(require_frame("emit_pipeline"), name=title, sizes=numbers, names=names)
            _run(body, streams, frame, as_int32(count_of(sizes)), scratches)

        run_scoped(run, *memory)

    return pipeline


def _listed(specs: Any) -> list[Block]:
    found, _ = flatten(specs, lambda x: isinstance(x, Block))
    for block in found:
        if not isinstance(block, Block):
            raise TypeError(f"emit_pipeline: expected Blocks; got {short_repr(block)}.")
    return found


def _tile(who: str, what: str, ref: Any, block: Block, is_out: bool) -> Tile:
    if not isinstance(ref, AnyRef) or ref.space is None:
        raise TypeError(f"{who}: expected refs of a kernel; got {short_repr(ref)}.")
    tile = tile_of(who, what, block, ref.type, VMEM)
    if block.buffered not in (None, Buffered(2), Buffered(2, revisit=RevisitMode.IMMEDIATE)):
        raise NotImplementedError(
            f"{who}: a block of {what} has {block.buffered}. In pipelines each has two buffers, "
            "without lookahead, and a block of a result is not read again. Leave it out."
        )
    if is_out and block.indirect is not None:
        raise NotImplementedError(
            f"{who}: a block of {what}, a result, has an Indirect dimension, but a pipeline copies "
            "all elements along it, also those at other indices. Use blocks without it, or copy to "
            "the result in the body: `sync_copy(block.at[0], out.at[i])`."
        )
    if tile.ragged:
        raise NotImplementedError(
            f"{who}: a block of {what} is a BoundedSlice, but copies have one size. Use blocks of "
            "one size, and mask what is beyond the end: `kernels.load(…, mask=…)`."
        )
    if any(row != (0, 0) for row in tile.padding):
        raise ValueError(
            f"{who}: blocks of {list(tile.sizes)} do not divide {ref.short}. Copies have one "
            "size: choose blocks that divide it, or pad the array."
        )
    return tile


@dataclass(eq=False)
class _Stream:
    """The blocks of one ref: two buffers, the semaphores of their copies.

    who, what: the pipeline and the ref, for messages. held: the buffers and semaphores.
    A `slot` is the buffer of the present block; `moved`, how many blocks there have been.
    """

    who: str
    what: str
    ref: AnyRef
    block: Block
    tile: Tile
    held: tuple[Ref, Ref]
    is_out: bool

    def index(self, ids: Sequence[Any]) -> list[Any]:
        return block_index(self.who, self.what, self.block, self.tile, *ids)

    def differs(self, a: Sequence[Any], b: Sequence[Any]) -> Any:
        found: Any = np.bool_(False)
        for i, j in zip(self.index(a), self.index(b), strict=True):
            found = ew.bitwise_or(found, ew.ne(i, j))
        return found

    def copy(self, at: Sequence[Any], slot: Any) -> AsyncCopy:
        rows = zip(at, self.tile.sizes, self.tile.kept, self.tile.element, strict=True)
        index = [
            ds(i if is_element else ew.mul(i, np.int32(n)), n) if keep else i
            for i, n, keep, is_element in rows
        ]
        buffers, semaphores = self.held
        ends = self.ref.at[tuple(index)], buffers.at[slot]
        source, target = reversed(ends) if self.is_out else ends
        return make_async_copy(source, target, semaphores.at[slot])

    def begin(self, slot: Any, moved: Any, is_first: Any, is_last: Any, *ids: Any) -> None:
        """The copies before a step: of an argument, the present block must have arrived, and the
        next one may start; of a result, the buffer must have been copied out.

        ids: of this step, the one before and the one after."""
        here, before, after = ids
        is_new = ew.bitwise_or(is_first, self.differs(here, before))
        at = self.index(here)
        if self.is_out:
            when(ew.bitwise_and(is_new, ew.ge(moved, 2)))(self.copy(at, slot).wait)
            return
        starts = ew.bitwise_and(ew.bitwise_not(is_last), self.differs(here, after))
        when(starts)(self.copy(self.index(after), ew.bitwise_xor(slot, 1)).start)
        when(is_new)(self.copy(at, slot).wait)


def _run(
    body: Callable[..., None],
    streams: Sequence[_Stream],
    frame: Frame,
    total: Any,
    scratches: Sequence[Any],
) -> None:
    """frame: that of the body, but for its indices. total: the number of steps."""
    sizes = frame.sizes

    def step(t: Any, state: Any) -> Any:
        here, before, after = (ids_of(x, sizes) for x in (t, ew.sub(t, 1), ew.add(t, 1)))
        is_first, is_last = ew.eq(t, 0), ew.eq(t, ew.sub(total, 1))
        views: list[Any] = []
        for stream, (slot, moved) in zip(streams, state, strict=True):
            stream.begin(slot, moved, is_first, is_last, here, before, after)
            views.append(stream.held[0].at[slot])
        with replace(frame, ids=here).entered():
            rows = zip(streams, views, strict=True)
            views = [indirect_view(s.who, s.what, s.block, s.tile, v, *here) for s, v in rows]
            body(*[view.ref for view in views], *scratches)
        new = []
        for stream, (slot, moved) in zip(streams, state, strict=True):
            ends = ew.bitwise_or(is_last, stream.differs(here, after))
            if stream.is_out:
                when(ends)(stream.copy(stream.index(here), slot).start)
            count = cast(ends, INT32)
            new.append((ew.bitwise_xor(slot, count), ew.add(moved, count)))
        return new

    @when(ew.gt(total, 0))
    def _() -> None:
        first = ids_of(np.int32(0), sizes)
        for stream in streams:
            if not stream.is_out:
                stream.copy(stream.index(first), np.int32(0)).start()

    state = fori_loop(0, total, step, [(np.int32(0), np.int32(0))] * len(streams))
    last = [ew.sub(n, 1) for n in sizes]
    for stream, (slot, moved) in zip(streams, state, strict=True):
        if stream.is_out:
            at = stream.index(last)
            when(ew.ge(moved, 1))(stream.copy(at, ew.bitwise_xor(slot, 1)).wait)
            when(ew.ge(moved, 2))(stream.copy(at, slot).wait)
