"""Which blocks and memory kernels for TPUs may have, checked before they are compiled.

Memory of TPUs is in tiles: blocks are of full tiles, or as large as the array. A kernel has a part
of VMEM, with two buffers for each block, so that one is copied while the other is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from shardwise._src.kernels.blocks import Tile
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.kernels.on_tpu.mosaic_module import has_windows, is_remote
from shardwise._src.kernels.on_tpu.mosaic_text import element, sizes_in_memory, stored
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.messages.formatting import in_bytes
from shardwise._src.targets.tpus import SMEM_BYTES, Tpu
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import short_name

LANES = 128


def check_limits(launch: Launch, types: Sequence[ArrayType]) -> None:
    """Raises NotImplementedError for dtypes and blocks that no TPU has."""
    who = f"kernel {launch.name}"
    _, prefetched, _ = launch.parts(types)
    rows = [(f"prefetched argument {i}", t) for i, t in enumerate(prefetched)]
    rows += [(what, tile.type) for what, tile in named_tiles(launch)]
    rows += [(f"scratch memory {i}", s.type) for i, s in enumerate(launch.scratch)]
    for what, t in rows:
        try:
            element(t.dtype)
        except NotImplementedError:
            raise NotImplementedError(
                f"{who}: {what} has the dtype {short_name(t.dtype)}, which kernels on TPUs cannot "
                f"have. {_other_dtype(t.dtype)}"
            ) from None
    for what, tile in named_tiles(launch):
        name = f"{who}: the block of {what}, {tile.type.str_short(True)},"
        if is_remote(tile.space.name):
            if not tile.is_whole:
                raise NotImplementedError(
                    f"{name} is a part of the array in {tile.space}, and refs there are whole "
                    f"arrays. Use `Block(space={tile.space})` and copy parts of the ref."
                )
        elif tile.space.name == "vmem" and has_windows(launch):
            _check_tiles(name, tile)


def _other_dtype(dtype: Any) -> str:
    try:
        element(dtype)
    except NotImplementedError as error:
        return str(error).rpartition(" cannot have. ")[2]
    return ""


def named_tiles(launch: Launch) -> Iterator[tuple[str, Tile]]:
    """The blocks, with the names of their arrays for messages."""
    for i, tile in enumerate(launch.ins):
        yield f"argument {i}", tile
    for i, tile in enumerate(launch.outs):
        yield f"result {i}", tile


def packing(dtype: Any) -> int:
    """How many elements of a dtype are in 32 bits."""
    kind = element(stored(dtype))
    bits = int(kind[2:] if kind.startswith("bf") else kind[1:3].rstrip("E"))
    return 32 // bits


def tile_rows(rows: int, dtype: Any) -> int:
    """The rows of a tile of an array with this many: few rows have smaller tiles."""
    full = 8 * packing(dtype) if packing(dtype) > 2 else 8
    least = packing(dtype)
    while full > least and full // 2 >= rows:
        full //= 2
    return full


def _check_tiles(name: str, tile: Tile) -> None:
    shape, sizes = tile.type.shape, tile.sizes
    if not shape:
        return
    lanes = LANES * packing(tile.type.dtype) if len(shape) == 1 else LANES
    steps = [lanes] if len(shape) == 1 else [tile_rows(shape[-2], tile.type.dtype), lanes]
    wrong = [
        len(shape) - len(steps) + i
        for i, step in enumerate(steps)
        if sizes[i - len(steps)] % step and sizes[i - len(steps)] != shape[i - len(steps)]
    ]
    if not wrong:
        return
    d = wrong[0]
    step = steps[d - len(shape)]
    shown = tuple([n if keep else None for n, keep in zip(sizes, tile.kept, strict=True)])
    size = "one element" if not tile.kept[d] else f"{sizes[d]} elements"
    fits = -(-sizes[d] // step) * step
    remedy = f"Use a size of {shape[d]}" if fits >= shape[d] else f"Use a size of {fits}"
    moved = "" if tile.kept[d] or len(shape) < 3 else (
        ", or transpose the array so that this dimension comes before the last two"
    )  # fmt: skip
    raise NotImplementedError(
        f"{name} has the shape {shown}, with {size} along dimension {d}. TPUs copy tiles of "
        f"{' x '.join(map(str, steps))} elements of {short_name(tile.type.dtype)}: a block has a "
        f"multiple of {step} there, or the array's size {shape[d]}. {remedy}{moved}."
    )


# -- memory --


def _padded_bytes(shape: Sequence[int], dtype: Any, space: str) -> int:
    """The bytes of memory, which has full tiles."""
    sizes = list(sizes_in_memory(shape, space))
    per_word = packing(dtype)
    sizes[-1] = -(-sizes[-1] // LANES) * LANES
    if space != "smem" and len(sizes) > 1:
        rows = tile_rows(sizes[-2], dtype)
        sizes[-2] = -(-sizes[-2] // rows) * rows
    return math.prod(sizes) * 4 // per_word


def memory_rows(launch: Launch, scoped: Sequence[Scratch], space: str) -> list[tuple[int, str]]:
    """The memory that a kernel has in a space: bytes, and what for."""
    windows, found = has_windows(launch), []
    for what, tile in named_tiles(launch):
        if tile.space.name == space:
            twice = windows and not tile.is_whole
            size = _padded_bytes(tile.sizes, tile.type.dtype, space) * (1 + twice)
            buffers = "two blocks" if twice else "the block"
            block = tile.type.update(shape=tile.sizes).str_short(True)
            found.append((size, f"{buffers} of {what}, {block}"))
    held = [(f"scratch memory {i}", s) for i, s in enumerate(launch.scratch)]
    held += [("memory of run_scoped", s) for s in scoped]
    for what, s in held:
        if s.space.name == space:
            size = _padded_bytes(s.shape, s.dtype, space)
            found.append((size, f"{what}, {s.type.str_short(True)}"))
    return sorted(found, key=lambda row: -row[0])


def too_large(
    launch: Launch, scoped: Sequence[Scratch], prefetched: Sequence[ArrayType], kind: Tpu,
    machine: str,
) -> str:  # fmt: skip
    """Why a kernel does not fit the memory of a core; "" if it may.

    scoped: the memory that its body allocates.
    """
    rows = memory_rows(launch, scoped, "vmem")
    given = launch.params.vmem_limit_bytes
    limit = kind.scoped_vmem if given is None else min(given, kind.vmem)
    if (needed := sum(n for n, _ in rows)) > limit:
        remedy = "Use smaller blocks."
        if needed <= kind.vmem:
            remedy = (
                f"Use smaller blocks, or raise the limit, up to {in_bytes(kind.vmem)}: "
                f"`params=CompilerParams(vmem_limit_bytes={needed})`."
            )
        return _message(launch, "VMEM", needed, limit, machine, rows, remedy)
    rows = memory_rows(launch, scoped, "smem")
    rows += [
        (_padded_bytes(t.shape, t.dtype, "smem"), f"prefetched argument {i}, {t.str_short(True)}")
        for i, t in enumerate(prefetched)
    ]
    if (needed := sum(n for n, _ in rows)) >= SMEM_BYTES:
        remedy = "Pass large arrays in VMEM, or in parts by blocks."
        return _message(launch, "SMEM", needed, SMEM_BYTES, machine, sorted(rows)[::-1], remedy)
    return ""


def _message(
    launch: Launch, space: str, needed: int, limit: int, machine: str,
    rows: Sequence[tuple[int, str]], remedy: str,
) -> str:  # fmt: skip
    largest = "; ".join(f"{in_bytes(n)} for {what}" for n, what in rows[:3])
    return (
        f"kernel {launch.name} needs {in_bytes(needed)} of {space}, and kernels have "
        f"{in_bytes(limit)} on {machine!r}: {largest}{'; …' if len(rows) > 3 else ''}. {remedy}"
    )
