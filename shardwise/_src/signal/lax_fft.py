"""Fourier transforms over the last dimensions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from shardwise._src.base.errors import did_you_mean
from shardwise._src.core.fused import eager_jit
from shardwise._src.core.infer import type_of
from shardwise._src.ops import fft as ops
from shardwise._src.ops.fft import FftType as FftType
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import complex_dtype
from shardwise._src.values.convert import cast, promote_inexact


def _kind(fft_type: FftType | str) -> FftType:
    if fft_type.__class__ is FftType:
        return fft_type  # pyright: ignore[reportReturnType] (checked by the line above)
    names = [kind.name for kind in FftType]
    if isinstance(fft_type, str) and fft_type.upper() in names:
        return FftType[fft_type.upper()]
    if isinstance(fft_type, int) and not isinstance(fft_type, bool) and fft_type in [*FftType]:
        return FftType(fft_type)
    hint = did_you_mean(fft_type.upper(), names) if isinstance(fft_type, str) else ""
    raise ValueError(
        f"lax.fft: fft_type must be one of {', '.join(names)}, as a name or an FftType; got "
        f"{fft_type!r}.{hint}"
    )


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """A discrete Fourier transform over the last one to three dimensions.

    Args:
      x: floating or complex values of 32 bits each, or 64; real ones for RFFT.
      fft_type: FFT, IFFT (divided by the number of elements), RFFT of real values to the first
        n // 2 + 1 terms along the last dimension, or IRFFT back from these.
      fft_lengths: sizes of the transformed dimensions of the signal; the shape of `x` must match.

    Raises:
      ValueError: if the dimensions of `x` do not match, or for an unknown kind.
      TypeError: for a dtype that the kind does not support.
    """
    return _fft(x, int(_kind(fft_type)), tuple(map(operator.index, fft_lengths)))


@eager_jit
def _fft(x: Any, number: int, lengths: tuple[int, ...]) -> Any:
    kind = FftType(number)
    (found,) = promote_inexact(x)
    if kind != FftType.RFFT:
        found = cast(found, complex_dtype(type_of(found).dtype))
    return ops.fft(found, kind=kind, lengths=lengths) if lengths else found
