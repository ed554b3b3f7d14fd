"""Discrete Fourier transforms under NumPy's names: `shardwise.numpy.fft`.

    fft(x, n=16)                    # along the last axis, truncated or zero-padded to 16 elements
    rfftn(x, axes=(0, 2))           # of real values, without terms that are conjugates of others

Unlike in NumPy, transforms preserve the precision of their operand: float32 returns complex64
(float64, if enabled, complex128). Sharded dimensions stay sharded; along transformed dimensions,
CPU devices exchange lines; others gather them. Algorithm: XLA's, which is DUCC on the CPU.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import enable_x64
from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import asarray
from shardwise._src.numpy.rearrange import roll
from shardwise._src.numpy.shapes import moveaxis
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.fft import FFT, IFFT, IRFFT, RFFT, FftType
from shardwise._src.ops.fft import fft as transform
from shardwise._src.ops.shape import canonical_axis, pad
from shardwise._src.types.annotations import Array, ArrayLike, DeviceLike, DTypeLike
from shardwise._src.types.dtypes import complex_dtype, is_complex, is_float
from shardwise._src.values.binary import divide
from shardwise._src.values.convert import cast, promote_inexact

_AT_ONCE = 3  # dimensions that XLA transforms in one instruction
_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _factor(name: str, norm: str | None, inverse: bool, size: int) -> float:
    """The scale factor of a transform, given that the inverse already divides by its size."""
    if norm not in _SWAPPED:
        raise ValueError(
            f"{name}: norm must be 'backward' (or None), 'ortho' or 'forward'; got {norm!r}."
        )
    if norm == "ortho":
        return math.sqrt(size) if inverse else 1 / math.sqrt(size)
    if norm == "forward":
        return size if inverse else 1 / size
    return 1


def _lengths(
    name: str, kind: FftType, shape: tuple[int, ...], s: Any, axes: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The signal's lengths, and the axes. A real result's length is not in the operand's shape.

    Empty operands are allowed, but not explicit lengths of 0, nor an empty last axis of `rfft`.
    """
    if axes is None:
        axes = range(len(shape)) if s is None else range(len(shape) - len(s), len(shape))
    axes = tuple([canonical_axis(a, len(shape)) for a in axes])
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: axes must differ; got {axes}.")
    filled = range(len(axes))  # axes along which the signal must be nonempty
    if s is None:
        s = [shape[a] for a in axes]
        filled = filled[-1:] if kind == RFFT else ()
        if kind == IRFFT and axes:
            s[-1] = 0 if s[-1] == 0 else 2 * (s[-1] - 1)
    lengths = tuple([operator.index(n) for n in s])
    if len(lengths) != len(axes):
        raise ValueError(f"{name}: s and axes must have the same length; got {lengths} and {axes}.")
    if any(lengths[i] < 1 for i in filled):
        raise ValueError(
            f"{name}: signals must have at least one element; got lengths {lengths} along axes "
            f"{axes}."
        )
    return lengths, axes


def _size(lengths: Sequence[int]) -> int:
    """The number of elements of a signal, or 1 if empty, in which case nothing is scaled."""
    return 1 if 0 in lengths else math.prod(lengths)


def _fitted(x: Any, lengths: Sequence[int]) -> Any:
    """The last dimensions truncated or zero-padded to lengths."""
    shape = type_of(x).shape
    first = len(shape) - len(lengths)
    if shape[first:] == tuple(lengths):
        return x
    config = [(0, 0, 0)] * first + [
        (0, n - m, 0) for n, m in zip(lengths, shape[first:], strict=True)
    ]
    return pad(x, lit(0, x), padding_config=tuple(config))


@fused
def _transformed(a: Any, name: str, kind: FftType, s: Any, axes: Any, norm: str | None) -> Any:
    (x,) = promote_inexact(a)
    t = type_of(x)
    if is_float(t.dtype) and t.dtype.itemsize < 4:
        x = cast(x, np.dtype(np.float32))
    if kind == RFFT and is_complex(t.dtype):
        raise TypeError(
            f"{name} takes real values; got {t.str_short(True)}. Use `fft` for complex values, or "
            "pass `x.real`."
        )
    lengths, axes = _lengths(name, kind, t.shape, s, axes)
    if kind != RFFT:
        x = cast(x, complex_dtype(type_of(x).dtype))
    if not axes:
        return x
    last = tuple(range(t.ndim - len(axes), t.ndim))
    x = moveaxis(x, axes, last)
    before = [*lengths]
    if kind == IRFFT:
        before[-1] = lengths[-1] // 2 + 1
    x = _in_turns(_fitted(x, before), kind, lengths)
    factor = _factor(name, norm, kind in (IFFT, IRFFT), _size(lengths))
    if factor != 1:
        x = ew.mul(x, lit(factor, x))
    return moveaxis(x, last, axes)


def _in_turns(x: Any, kind: FftType, lengths: tuple[int, ...]) -> Any:
    """The transform over the last dimensions, a few at a time, as XLA requires.

    The real transform comes first, or last if inverse.
    """
    rest, own = lengths[:-_AT_ONCE], lengths[-_AT_ONCE:]
    if kind != IRFFT:
        x = transform(x, kind=kind, lengths=own)
    if rest:
        count = len(lengths)
        ndim = type_of(x).ndim
        places = tuple(range(ndim - count, ndim - len(own)))
        ends = tuple(range(ndim - len(rest), ndim))
        other = IFFT if kind in (IFFT, IRFFT) else FFT
        x = moveaxis(_in_turns(moveaxis(x, places, ends), other, rest), ends, places)
    return transform(x, kind=kind, lengths=own) if kind == IRFFT else x


def _one(n: int | None) -> Any:
    return None if n is None else (n,)


@eager_jit
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The Fourier transform along an axis: complex[…, n].

    Args:
      a: real or complex values.
      n: the length of the signal, which is truncated or zero-padded at its end; by default the size
        of the axis.
      norm: "backward" (the default) divides inverse transforms by the length, "forward" divides
        forward transforms, and "ortho" divides both by its square root.

    Raises:
      ValueError: if n is less than 1, or the norm is unknown.
    """
    return _transformed(a, "fft", FFT, _one(n), (axis,), norm)


@eager_jit
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`, with the same arguments."""
    return _transformed(a, "ifft", IFFT, _one(n), (axis,), norm)


@eager_jit
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The first n // 2 + 1 terms of `fft` of real values; the rest are their conjugates.

    Raises:
      TypeError: for complex values.
      ValueError: for an empty signal.
    """
    return _transformed(a, "rfft", RFFT, _one(n), (axis,), norm)


@eager_jit
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`: n real values (by default an even number) from n // 2 + 1 terms."""
    return _transformed(a, "irfft", IRFFT, _one(n), (axis,), norm)


@eager_jit
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The real transform of a signal with Hermitian symmetry, of which only half is given."""
    (x,) = promote_inexact(a)
    x = ew.conj(x) if is_complex(type_of(x).dtype) else x
    return _transformed(x, "hfft", IRFFT, _one(n), (axis,), _swapped("hfft", norm))


@eager_jit
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`: n // 2 + 1 terms from n real values."""
    return ew.conj(_transformed(a, "ihfft", RFFT, _one(n), (axis,), _swapped("ihfft", norm)))


def _swapped(name: str, norm: str | None) -> str | None:
    _factor(name, norm, False, 1)
    return _SWAPPED[norm]


@eager_jit
def fftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The Fourier transform along several axes.

    s: the lengths along the axes; axes: by default the last ones, as many as s has, or all.
    """
    return _transformed(a, "fftn", FFT, _fixed(s), _fixed(axes), norm)


@eager_jit
def ifftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `fftn`."""
    return _transformed(a, "ifftn", IFFT, _fixed(s), _fixed(axes), norm)


@eager_jit
def rfftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`fftn` of real values; the last axis has only the first n // 2 + 1 terms."""
    return _transformed(a, "rfftn", RFFT, _fixed(s), _fixed(axes), norm)


@eager_jit
def irfftn(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `rfftn`."""
    return _transformed(a, "irfftn", IRFFT, _fixed(s), _fixed(axes), norm)


@eager_jit
def fft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`fftn` along two axes."""
    return _transformed(a, "fft2", FFT, _fixed(s), _two("fft2", axes), norm)


@eager_jit
def ifft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`ifftn` along two axes."""
    return _transformed(a, "ifft2", IFFT, _fixed(s), _two("ifft2", axes), norm)


@eager_jit
def rfft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`rfftn` along two axes."""
    return _transformed(a, "rfft2", RFFT, _fixed(s), _two("rfft2", axes), norm)


@eager_jit
def irfft2(
    a: ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
) -> Array:
    """`irfftn` along two axes."""
    return _transformed(a, "irfft2", IRFFT, _fixed(s), _two("irfft2", axes), norm)


def _fixed(values: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(map(operator.index, values))


def _two(name: str, axes: Sequence[int]) -> tuple[int, ...]:
    found = tuple(map(operator.index, axes))
    if len(found) != 2:
        raise ValueError(
            f"{name}: axes must be two; got {found}. Use `{name[:-1]}n` for any other number of "
            "axes."
        )
    return found


def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None
) -> Array:
    """The frequencies of the terms of `fft`: [0, 1, …, -2, -1] / (n d), float[n].

    d: the sample spacing. dtype: the default float if None.
    """
    count = operator.index(n)
    places = np.fft.ifftshift(np.arange(-(count // 2), (count + 1) // 2))
    return _frequencies("fftfreq", places, count, d, dtype, device)


def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None
) -> Array:
    """The frequencies of the terms of `rfft`: [0, 1, …, n // 2] / (n d), float[n // 2 + 1]."""
    count = operator.index(n)
    return _frequencies("rfftfreq", np.arange(count // 2 + 1), count, d, dtype, device)


def _frequencies(name: str, places: np.ndarray, n: int, d: Any, dtype: Any, device: Any) -> Array:
    if n < 1:
        raise ValueError(f"{name}: n must be positive; got {n}.")
    kind = dtype or (np.float64 if enable_x64.value else np.float32)
    given = asarray(places, dtype=kind, device=device)
    return divide(given, ew.mul(asarray(d, dtype=kind), lit(n, given)))


@eager_jit
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The terms of `fft` with frequency zero moved to the middle; along all axes by default."""
    return _shifted(x, axes, 1)


@eager_jit
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, -1)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    shape = type_of(x).shape
    if axes is None:
        axes = range(len(shape))
    elif not isinstance(axes, Sequence):
        axes = (axes,)
    places = tuple([canonical_axis(a, len(shape)) for a in axes])
    shifts = [shape[a] // 2 if sign > 0 else -(shape[a] // 2) for a in places]
    return roll(x, shifts, places)
