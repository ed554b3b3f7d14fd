"""Fourier transforms of sharded arrays, one dimension after another.

Along a sharded dimension a device has parts of lines. One all-to-all among the devices of a line
gives each of them full lines, another sends their transforms back. If there are fewer lines than
devices, as in a one-dimensional array, they are transformed in four steps, provided that their
length is divisible by the square of the number of devices: transforms over the devices, twiddle
factors, local transforms, and an all-to-all that sorts the terms.

Source of the four steps: Bailey, "FFTs in external or hierarchical memory" (1990).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.distributed_linalg.columns import exchanged, padded, parts_of, rows_between
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import move_axis, reshape, transpose
from shardwise._src.ops.create import iota
from shardwise._src.ops.fft import FFT, IFFT, IRFFT, RFFT, FftType, fft, half
from shardwise._src.ops.linalg.lapack_kernels import as_dtype
from shardwise._src.ops.shape import slice_in_dim
from shardwise._src.ops.sharded.collective import axis_index


@dataclass(frozen=True)
class Tiles:
    """How an array is sharded; operand: the operand number in its axis names."""

    shape: tuple[int, ...]
    tiles: tuple[int, ...]
    operand: int

    def over(self, d: int) -> dict[str, Any]:
        """The named axis of the devices along a dimension."""
        return {"names": ((d, self.operand),), "sizes": (self.tiles[d],)}


def transformed(tile: Any, a: Tiles, kind: int, lengths: tuple[int, ...]) -> list[Any]:
    """`fft` of the full array."""
    last, first, kind = len(a.shape) - 1, len(a.shape) - len(lengths), FftType(kind)
    if set(a.tiles[first:]) == {1}:
        return [fft(tile, kind=kind, lengths=lengths)]
    others = {RFFT: FFT, IRFFT: IFFT}.get(kind, kind)
    steps = [(d, others, lengths[d - first]) for d in range(first, last)]
    own = (last, kind, lengths[-1])
    for d, one, n in [*steps, own] if kind == IRFFT else [own, *steps]:
        tile = _along(tile, a, d, one, n)
    return [tile]


def _along(x: Any, a: Tiles, d: int, kind: FftType, n: int) -> Any:
    x = move_axis(x, d, len(a.shape) - 1)
    *shape, own = type_of(x).shape
    lines, over, p = math.prod(shape), a.over(d), a.tiles[d]
    x = reshape(x, shape=(lines, own))
    if p == 1:
        x = fft(x, kind=kind, lengths=(n,))
    elif lines < p and n % p**2 == 0 and kind in (FFT, IFFT):
        x = _in_steps(x, over, p, kind)
    else:
        x = _exchanged_lines(x, over, p, kind, n)
    x = reshape(x, shape=(*shape, type_of(x).shape[1]))
    return move_axis(x, len(a.shape) - 1, d)


def _exchanged_lines(x: Any, over: dict[str, Any], p: int, kind: FftType, n: int) -> Any:
    lines, own = type_of(x).shape
    each = parts_of(lines, p)
    before, after = [half(n) if kind == k else n for k in (IRFFT, RFFT)]
    x = exchanged(padded(x, each * p, own), over, 0, 1)
    x = fft(slice_in_dim(x, 0, before, 1), kind=kind, lengths=(n,))
    x = exchanged(padded(x, each, parts_of(after, p) * p), over, 1, 0)
    return rows_between(x, 0, lines)


def _in_steps(x: Any, over: dict[str, Any], p: int, kind: FftType) -> Any:
    """For m elements on each device: with j = j₁ m + j₂, sums over j₁, then over j₂, give the
    terms k = k₁ + p k₂.
    """
    lines, m = type_of(x).shape
    part = m // p
    x = reshape(exchanged(x, over, 1, 0), shape=(p, lines, part))
    x = fft(transpose(x, perm=(1, 2, 0)), kind=kind, lengths=(p,))  # lines, j₂, k₁
    x = x * reshape(_factors(type_of(x).dtype, over, part, p, kind), shape=(1, part, p))
    x = reshape(transpose(x, perm=(2, 0, 1)), shape=(p * lines, part))
    x = fft(exchanged(x, over, 0, 1), kind=kind, lengths=(m,))  # lines, k₂
    x = reshape(exchanged(x, over, 1, 0), shape=(p, lines, part))  # k₁, lines, k₂
    return reshape(transpose(x, perm=(1, 2, 0)), shape=(lines, m))


def _factors(dtype: Any, over: dict[str, Any], part: int, p: int, kind: FftType) -> Any:
    """The twiddle factors (roots of unity) for terms k₁ and the device's elements j₂ of a line."""
    n, long = part * p * p, np.dtype(np.int64)
    first = as_dtype(axis_index(**over, varies=False), long) * np.int64(part)
    place, term = [iota(dtype=long, shape=(part, p), dimension=d) for d in (0, 1)]
    turn = as_dtype((place + first) * term, np.dtype(np.float64)) * (2 * math.pi / n)
    turn = turn if kind == IFFT else -turn
    return as_dtype(ew.complex(ew.cos(turn), ew.sin(turn)), dtype)
