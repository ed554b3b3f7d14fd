"""Which blocks and memory kernels for TPUs may have, checked before they are compiled.

Memory of TPUs is in tiles: blocks are of full tiles, or as large as the array. A kernel has a part
of VMEM, with two buffers for each block, so that one is copied while the other is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardwise._src.kernels.blocks import RevisitMode, Tile
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_module import has_windows
from shardwise._src.kernels.on_tpu.mosaic_text import element, sizes_in_memory, stored
from shardwise._src.kernels.spaces import LARGE, Scratch
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.targets.tpus import SMEM_BYTES, Tpu
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import itemsize_bits, short_name
from shardwise._src.types.symbolic import Symbolic

LANES = 128


def check_limits(launch: Launch, types: Sequence[ArrayType]) -> None:
    """Raises NotImplementedError for dtypes and blocks that no TPU has."""
    who = f"kernel {launch.name}"
    for *_, what, t in _memory(launch, launch.parts(types)[1]):
        element(t.dtype, f"{who}: {what}")
    for what, tile in named_tiles(launch):
        name = f"{who}: the block of {what}, {tile.type.str_short(True)},"
        if tile.space.name in LARGE:
            if not tile.is_whole:
                raise NotImplementedError(
                    f"{name} is a part of the array in {tile.space}, and refs there are whole "
                    f"arrays. Use `Block(space={tile.space})` and copy parts of the ref."
                )
        elif tile.space.name == "vmem" and has_windows(launch):
            _check_tiles(name, tile)
        mode = tile.buffered
        if mode is None:
            continue
        most = 1 if mode.revisit is RevisitMode.ANY else 2
        if mode.use_lookahead or not 1 <= tile.buffer_count <= most:
            raise NotImplementedError(
                f"{name} has {mode}. On TPUs blocks have one or two buffers, without lookahead; "
                "with RevisitMode.ANY one."
            )


def named_tiles(launch: Launch) -> list[tuple[str, Tile]]:
    """The blocks, with the names of their arrays for messages."""
    rows = [(f"argument {i}", tile) for i, tile in enumerate(launch.ins)]
    return rows + [(f"result {i}", tile) for i, tile in enumerate(launch.outs)]


def packing(dtype: Any) -> int:
    """How many elements of a dtype are in 32 bits.

    Raises NotImplementedError for dtypes that TPUs lack.
    """
    element(dtype)
    return 32 // itemsize_bits(stored(dtype))


def tile_rows(rows: Any, dtype: Any) -> int:
    """The rows of a tile of an array with this many: few rows have smaller tiles."""
    full = 8 * packing(dtype) if packing(dtype) > 2 else 8
    if isinstance(rows, Symbolic):
        return full
    while full > packing(dtype) and full // 2 >= rows:
        full //= 2
    return full


def _check_tiles(name: str, tile: Tile) -> None:
    shape, sizes, dtype = tile.type.shape, tile.sizes, tile.type.dtype
    if not shape:
        return
    steps = [tile_rows(shape[-2], dtype), LANES] if len(shape) > 1 else [LANES * packing(dtype)]
    first = len(shape) - len(steps)
    wrong = [
        (d, step) for d, step in enumerate(steps, first) if sizes[d] % step and sizes[d] != shape[d]
    ]
    if not wrong:
        return
    d, step = wrong[0]
    shown = tuple([n if keep else None for n, keep in zip(sizes, tile.kept, strict=True)])
    better = -(-sizes[d] // step) * step
    if not isinstance(shape[d], Symbolic):
        better = min(better, shape[d])
    size = f"{sizes[d]} elements" if tile.kept[d] else "one element"
    moved = "" if tile.kept[d] or len(shape) < 3 else (
        ", or transpose the array so that this dimension comes before the last two"
    )  # fmt: skip
    raise NotImplementedError(
        f"{name} has the shape {shown}, with {size} along dimension {d}. TPUs copy tiles of "
        f"{' x '.join(map(str, steps))} elements of {short_name(dtype)}: a block has a "
        f"multiple of {step} there, or the array's size {shape[d]}. Use a size of "
        f"{better}{moved}."
    )


# -- memory --


def _padded_bytes(shape: Sequence[int], dtype: Any, space: str) -> int:
    """The bytes of memory, which has full tiles."""
    sizes = list(sizes_in_memory(shape, space))
    sizes[-1] = -(-sizes[-1] // LANES) * LANES
    if space != "smem" and len(sizes) > 1:
        rows = tile_rows(sizes[-2], dtype)
        sizes[-2] = -(-sizes[-2] // rows) * rows
    return math.prod(sizes) * 4 // packing(dtype)


_BUFFERS = {"": 1, "the block of ": 1, "two blocks of ": 2}


def _memory(
    launch: Launch, prefetched: Sequence[ArrayType], scoped: Sequence[Scratch] = ()
) -> list[tuple[str, str, str, ArrayType]]:
    """The memory of a kernel: space, buffers, name, and type."""
    found = [("smem", "", f"prefetched argument {i}", t) for i, t in enumerate(prefetched)]
    for what, tile in named_tiles(launch):
        twice = has_windows(launch) and not tile.is_whole and tile.buffer_count > 1
        buffers = "two blocks of " if twice else "the block of "
        found.append((tile.space.name, buffers, what, tile.type.update(shape=tile.sizes)))
    first = -int(launch.params.has_barrier)
    rows = [(f"scratch memory {i}", s) for i, s in enumerate(launch.scratch, first)]
    rows += [("memory of run_scoped", s) for s in scoped]
    return found + [(s.space.name, "", what, s.type) for what, s in rows]


def memory_rows(
    launch: Launch, scoped: Sequence[Scratch], space: str, prefetched: Sequence[ArrayType] = ()
) -> list[tuple[int, str]]:
    """The memory that a kernel has in a space, the largest first: bytes, and what for."""
    rows = [
        (_padded_bytes(t.shape, t.dtype, space) * _BUFFERS[buffers],
         f"{buffers}{what}, {t.str_short(True)}")
        for own, buffers, what, t in _memory(launch, prefetched, scoped)
        if own == space
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row[0])


def too_large(
    launch: Launch, scoped: Sequence[Scratch], prefetched: Sequence[ArrayType], kind: Tpu,
    machine: str,
) -> str:  # fmt: skip
    """Why a kernel does not fit the memory of a core; "" if it may.

    scoped: the memory that its body allocates.
    """
    given = launch.params.vmem_limit_bytes
    vmem = kind.scoped_vmem if given is None else min(given, kind.vmem)
    for space, limit in (("vmem", vmem), ("smem", SMEM_BYTES)):
        rows = memory_rows(launch, scoped, space, prefetched)
        needed = sum([n for n, _ in rows])
        if needed < limit or (needed == limit and space == "vmem"):
            continue
        remedy = "Use smaller blocks."
        if space == "smem":
            remedy = "Pass large arrays in VMEM, or in parts by blocks."
        elif needed <= kind.vmem:
            remedy = (
                f"Use smaller blocks, or raise the limit, up to {in_bytes(kind.vmem)}: "
                f"`params=CompilerParams(vmem_limit_bytes={needed})`."
            )
        largest = "; ".join([f"{in_bytes(n)} for {what}" for n, what in rows[:3]])
        return (
            f"kernel {launch.name} needs {in_bytes(needed)} of {space.upper()}, and kernels have "
            f"{in_bytes(limit)} on {machine!r}: {largest}{'; …' * (len(rows) > 3)}. {remedy}"
        )
    return ""
