"""`fft`: discrete Fourier transforms over the last one to three dimensions.

    fft(x, kind=FftType.FFT, lengths=(8,))         # c64[*, 8] → c64[*, 8]
    fft(x, kind=FftType.RFFT, lengths=(4, 8))      # f32[*, 4, 8] → c64[*, 4, 5]
    fft(x, kind=FftType.IRFFT, lengths=(8,))       # c64[*, 5] → f32[*, 8]

Forward transforms are plain sums, inverse ones are divided by the number of elements. `lengths` are
the sizes of the transformed dimensions of the global signal; terms of an empty signal are 0. On CPU
all dimensions may be sharded (see `distributed_linalg.fourier`); elsewhere the transformed
dimensions are unsharded.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import batch_leading, broadcast_in_dim, ints
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.rules import linear_jvp
from shardwise._src.ops.shape import along, pad
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import complex_dtype, real_dtype

INT32 = np.dtype(np.int32)
Lengths = tuple[int, ...]


@public("shardwise.lax")
class FftType(enum.IntEnum):
    """A kind of Fourier transform: complex to complex, real to complex, or complex to real."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


FFT, IFFT, RFFT, IRFFT = FftType


def half(n: int) -> int:
    """The number of terms of a real signal's transform that are not conjugates of others."""
    return n // 2 + 1


def _type(op: Op, x: ArrayType, *, kind: FftType, lengths: Lengths) -> ArrayType:
    taken = ("float32", "float64") if kind == RFFT else ("complex64", "complex128")
    if x.dtype.name not in taken:
        raise TypeError(f"[fft] {kind.name} takes {' or '.join(taken)}; got {x.str_short(True)}.")
    count = len(lengths)
    if not 1 <= count <= 3 or x.ndim < count:
        raise ValueError(
            "[fft] there must be one to three lengths, no more than the dimensions of "
            f"{x.str_short(True)}; got {lengths}."
        )
    before, after = [list(lengths), list(lengths)]
    if kind == IRFFT:
        before[-1] = half(lengths[-1])
    if x.shape[-count:] != tuple(before):
        raise ValueError(
            f"[fft] {kind.name} of lengths {lengths} takes last dimensions {tuple(before)}; got "
            f"{x.str_short(True)}."
        )
    if kind == RFFT:
        after[-1] = half(lengths[-1])
    dtype = {RFFT: complex_dtype, IRFFT: real_dtype}.get(kind, np.dtype)(x.dtype)
    return array_type((*x.shape[:-count], *after), dtype)


def _dims(op: Op, x: ArrayType, *, kind: FftType, lengths: Lengths) -> Dims:
    names = along(x, range(x.ndim - len(lengths), x.ndim))
    return Dims((names,), (names,), worked="kept")


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, kind: FftType, lengths: Lengths) -> str:
    (t,), (out,) = ins, outs
    if 0 in (*lengths, out.size):  # sums of no elements
        return e.constant(0, out)
    if e.may_partition("fft", ins):
        config = {"kind": int(kind), "lengths": list(lengths)}
        return e.partitioned_call("fft", [x], ins, outs, config)[0]
    x = e.replicate_dims(x, t, range(t.ndim - len(lengths), t.ndim))
    return e.let(
        f"stablehlo.fft {x}, type = {kind.name}, length = {ints(lengths)} : "
        f"({e.ty(t)}) -> {e.ty(out)}"
    )


def _transpose(op: Op, ct: Any, x: Any, *, kind: FftType, lengths: Lengths) -> list[Any]:
    """Sums of x·w to sums of ct·w. Terms that also represent their conjugates count twice."""
    if kind in (FFT, IFFT):
        return [op(ct, kind=kind, lengths=lengths)]
    shape = type_of(ct).shape
    last = len(shape) - 1
    if kind == RFFT:
        more = lengths[-1] - shape[-1]
        config = tuple([(0, more if d == last else 0, 0) for d in range(len(shape))])
        whole = pad(ct, lit(0, ct), padding_config=config)
        return [ew.real(op(whole, kind=FFT, lengths=lengths))]
    found = ew.conj(op(ct, kind=RFFT, lengths=lengths))
    shape, size = type_of(found).shape, math.prod(lengths)
    if not size:
        return [found]
    place = iota(dtype=INT32, shape=shape, dimension=last)
    alone = ew.eq(place, np.int32(0))
    if lengths[-1] % 2 == 0:
        alone = ew.bitwise_or(alone, ew.eq(place, np.int32(lengths[-1] // 2)))
    once, twice = (broadcast_in_dim(lit(n / size, found), shape=shape, dims=()) for n in (1, 2))
    return [ew.mul(found, select_n(alone, twice, once))]


fft = Op(
    "fft",
    is_expensive=True,
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=linear_jvp,
    transpose=_transpose,
    batch=batch_leading,
)
