"""`emit_pipeline`: a loop in a kernel over blocks of refs in a larger memory, two buffers for each.

While the body works on one block, the next one is copied into the other buffer, and the last one of
a result is copied out. A block whose index is that of the step before is not copied again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.control.while_api import fori_loop
from shardwise._src.kernels.accesses import INT32
from shardwise._src.kernels.blocks import Block, Tile, tile_of
from shardwise._src.kernels.copying.async_copies import make_async_copy
from shardwise._src.kernels.launch_arguments import grid_of
from shardwise._src.kernels.launch_staging import index_entries
from shardwise._src.kernels.program_frames import Frame, frame_here, when
from shardwise._src.kernels.ref_access import AnyRef, RefView
from shardwise._src.kernels.spaces import VMEM, SemaphoreType, run_scoped
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.refs.refs import Ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer
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
      in_specs, out_specs: lists of `Block`s, whose sizes divide those of the refs.

    Returns:
      A function of the refs of arguments and of results, and of `scratches=`, which are passed to
      the body after them.
    """
    title = name_of(body)
    sizes, names = grid_of(title, grid)
    specs = [_listed(in_specs), _listed(out_specs)]

    def pipeline(*refs: Any, scratches: Sequence[Any] = ()) -> None:
        count = len(specs[0]) + len(specs[1])
        if len(refs) != count:
            raise TypeError(
                f"emit_pipeline of {title}: expected {len(specs[0])} refs of arguments and "
                f"{len(specs[1])} of results; got {len(refs)}."
            )
        blocks = [*specs[0], *specs[1]]
        tiles = [_tile(title, i, *row) for i, row in enumerate(zip(refs, blocks, strict=True))]
        is_out = [i >= len(specs[0]) for i in range(count)]
        memory = [(VMEM((2, *t.shape), t.type.dtype), SemaphoreType.DMA((2,))) for t in tiles]

        def run(*held: Any) -> None:
            who = f"emit_pipeline of {title}"
            names_of = [(who, f"ref {i}") for i in range(count)]
            rows = zip(names_of, refs, tiles, blocks, held, is_out, strict=True)
            streams = [_Stream(*row) for row in rows]
            _run(title, body, streams, sizes, names, scratches)

        run_scoped(run, *memory)

    return pipeline


def _listed(specs: Any) -> list[Block]:
    found, _ = flatten(specs, lambda x: isinstance(x, Block))
    for block in found:
        if not isinstance(block, Block):
            raise TypeError(f"emit_pipeline: expected Blocks; got {short_repr(block)}.")
    return found


def _tile(title: str, i: int, ref: Any, block: Block) -> Tile:
    if not isinstance(ref, RefView) and not (isinstance(ref, Ref) and ref.space is not None):
        raise TypeError(
            f"emit_pipeline of {title}: expected refs of a kernel; got {short_repr(ref)}."
        )
    tile = tile_of(f"emit_pipeline of {title}", f"ref {i}", block, ref.type, VMEM)
    if tile.ragged:
        raise NotImplementedError(
            f"emit_pipeline of {title}: a block of ref {i} is a BoundedSlice, but copies have one "
            "size. Use blocks of one size, and mask what is beyond the end: "
            "`kernels.load(…, mask=…)`."
        )
    if any(row != (0, 0) for row in tile.padding):
        raise ValueError(
            f"emit_pipeline of {title}: blocks of {list(tile.sizes)} do not divide {ref.short}. "
            "Copies have one size: choose blocks that divide it, or pad the array."
        )
    return tile


class _Stream:
    """The blocks of one ref: two buffers, the semaphores of their copies.

    names: of the pipeline and of the ref, for messages.
    slot: the buffer of the present block. moved: how many blocks there have been.
    """

    def __init__(
        self,
        names: tuple[str, str],
        ref: AnyRef,
        tile: Tile,
        block: Block,
        held: tuple[Ref, Ref],
        is_out: bool,
    ):
        self.names = names
        self.ref, self.tile, self.block, self.is_out = ref, tile, block, is_out
        self.buffer, self.semaphores = held

    def index(self, ids: Sequence[Any]) -> list[Any]:
        if self.block.index is None:
            return [np.int32(0)] * len(self.tile.sizes)
        return index_entries(*self.names, self.block.index(*ids), self.tile)

    def copy(self, at: Sequence[Any], slot: Any) -> Any:
        rows = zip(at, self.tile.sizes, self.tile.kept, self.tile.element, strict=True)
        index = tuple(
            [
                ds(i if is_element else ew.mul(i, np.int32(n)), n) if keep else i
                for i, n, keep, is_element in rows
            ]
        )
        ends = self.ref.at[index], self.buffer.at[slot]
        source, target = reversed(ends) if self.is_out else ends
        return make_async_copy(source, target, self.semaphores.at[slot])


def _run(
    title: str,
    body: Callable[..., None],
    streams: Sequence[_Stream],
    sizes: Sequence[Any],
    names: Sequence[Any],
    scratches: Sequence[Any],
) -> None:
    total: Any = np.int32(math.prod([n for n in sizes if isinstance(n, int)]))
    for n in sizes:
        total = total if isinstance(n, int) else ew.mul(total, cast(n, INT32))
    sizes = [cast(n, INT32) if isinstance(n, Tracer) else np.int32(n) for n in sizes]

    def step(t: Any, state: Any) -> Any:
        ids, before, after = (_ids(x, sizes) for x in (t, ew.sub(t, 1), ew.add(t, 1)))
        is_first, is_last = ew.eq(t, 0), ew.eq(t, ew.sub(total, 1))
        views = []
        for stream, (slot, moved) in zip(streams, state, strict=True):
            is_new = ew.bitwise_or(is_first, _differ(stream, ids, before))
            _before(stream, slot, moved, is_new, ids, after, is_last)
            views.append(stream.buffer.at[slot])
        with _inner(title, ids, sizes, names).entered():
            body(*views, *scratches)
        new = []
        for stream, (slot, moved) in zip(streams, state, strict=True):
            ends = ew.bitwise_or(is_last, _differ(stream, ids, after))
            if stream.is_out:
                when(ends)(stream.copy(stream.index(ids), slot).start)
            count = cast(ends, INT32)
            new.append((ew.bitwise_xor(slot, count), ew.add(moved, count)))
        return new

    @when(ew.gt(total, 0))
    def _() -> None:
        first = _ids(np.int32(0), sizes)
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


def _before(
    stream: _Stream, slot: Any, moved: Any, is_new: Any, ids: Any, after: Any, is_last: Any
) -> None:
    """The copies before a step: of an argument, the present block must have arrived, and the next
    one may start; of a result, the buffer must have been copied out."""
    at = stream.index(ids)
    if stream.is_out:
        when(ew.bitwise_and(is_new, ew.ge(moved, 2)))(stream.copy(at, slot).wait)
        return
    starts = ew.bitwise_and(ew.bitwise_not(is_last), _differ(stream, ids, after))
    when(starts)(stream.copy(stream.index(after), ew.bitwise_xor(slot, 1)).start)
    when(is_new)(stream.copy(at, slot).wait)


def _differ(stream: _Stream, a: Sequence[Any], b: Sequence[Any]) -> Any:
    found: Any = np.bool_(False)
    for i, j in zip(stream.index(a), stream.index(b), strict=True):
        found = ew.bitwise_or(found, ew.ne(i, j))
    return found


def _inner(title: str, ids: Any, sizes: Any, names: Any) -> Frame:
    outer = frame_here()
    if outer is None:
        raise ValueError("emit_pipeline is for the body of a kernel, and is called outside of one.")
    return Frame(title, ids, sizes, names, outer.barrier, outer.varying, outer.simulation)


def _ids(t: Any, sizes: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for d in range(len(sizes) - 1, -1, -1):
        found.append(ew.rem(t, sizes[d]) if d else t)
        t = ew.div(t, sizes[d])
    return found[::-1]
