"""Spectra of signals by segments, under SciPy's names: stft, istft, csd, welch.

    frequencies, times, z = stft(x, fs=1000, nperseg=128)
    times, x = istft(z, fs=1000)

Segments of `nperseg` elements start every `nperseg - noverlap`; each is multiplied by a window.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.interrupts import uninterrupted
from shardwise._src.base.warn import warn
from shardwise._src.core.fused import body_of, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import as_operand, asarray, zeros
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.padding import pad
from shardwise._src.numpy.shapes import moveaxis
from shardwise._src.numpy.statistics.quantiles import median
from shardwise._src.numpy.unary import sqrt, square
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.signal.filters import detrend as detrended
from shardwise._src.signal.numpy_fft import fft, fftfreq, ifft, irfft, rfft, rfftfreq
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import complex_dtype, is_complex, real_dtype
from shardwise._src.values.convert import cast
from shardwise._src.values.indexing import get

_INT32 = np.dtype(np.int32)
_BLOCKS = 16  # maximum per segment; with more, elements are gathered one by one
_EXTENSIONS: dict[str | None, dict[str, Any]] = {
    "even": {"mode": "reflect"},
    "odd": {"mode": "reflect", "reflect_type": "odd"},
    "constant": {"mode": "edge"},
    "zeros": {"mode": "constant"},
    None: {},
}
Window = str | tuple[Any, ...] | ArrayLike


def _window(name: str, window: Any, nperseg: Any, length: int | None) -> tuple[Any, int]:
    """The window and its size. length: the length of the signal."""
    if isinstance(window, str | tuple):
        size = min(256, length or 256) if nperseg is None else operator.index(nperseg)
        if length and size > length:
            warn(
                f"{name}: nperseg is {size}, more than the signal's length, and is reduced to "
                f"{length}."
            )
            size = length
        window = asarray(_hann(size) if window == "hann" else _of_scipy(name, window, size))
    else:
        window = asarray(as_operand(window))
        shape = type_of(window).shape
        size = shape[0] if len(shape) == 1 and nperseg is None else operator.index(nperseg or 0)
        if shape != (size,) or (length is not None and size > length):
            raise ValueError(
                f"{name}: a window must be a vector of nperseg elements, not longer than the "
                f"signal; got shape {shape}."
            )
    if size < 1:
        raise ValueError(f"{name}: nperseg must be positive; got {size}.")
    return window, size


@cached(256)
def _hann(size: int) -> Any:
    return np.sin(np.arange(size) * (np.pi / size)) ** 2 if size > 1 else np.ones(size)


def _of_scipy(name: str, window: Any, size: int) -> Any:
    try:
        with uninterrupted():
            from scipy.signal import get_window
    except ImportError:
        raise ImportError(
            f"{name}: windows other than 'hann' come from SciPy, which is not installed; install "
            "it, or pass an array."
        ) from None
    return get_window(window, size)


def _sizes(name: str, nperseg: int, noverlap: Any, nfft: Any) -> tuple[int, int]:
    """The step between segments, and the FFT length."""
    overlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    length = nperseg if nfft is None else operator.index(nfft)
    if length < nperseg or not overlap < nperseg:
        raise ValueError(
            f"{name}: nfft must be at least nperseg, and noverlap less than nperseg; got nperseg "
            f"{nperseg}, nfft {length} and noverlap {overlap}."
        )
    return nperseg - overlap, length


def _segments(x: Any, size: int, step: int) -> Any:
    """[…, segments, size]: each segment consists of blocks of `step` elements."""
    *before, length = x.shape
    count, blocks = (length - size) // step + 1, -(-size // step)
    if blocks > _BLOCKS:
        shape = (count, size)
        first, within = [iota(dtype=_INT32, shape=shape, dimension=d) for d in (0, 1)]
        return get(x, (..., first * step + within), mode="clip", wrap=False)
    total = (count + blocks - 1) * step
    x = pad(x[..., :total], (*[(0, 0)] * len(before), (0, max(total - length, 0))))
    x = x.reshape(*before, -1, step)
    return concatenate([x[..., i : i + count, :] for i in range(blocks)], -1)[..., :size]


def _terms(x: Any, win: Any, trend: Any, step: int, nfft: int, onesided: bool) -> Any:
    """complex[…, segments, terms]"""
    parts = _segments(x, win.shape[0], step)
    if callable(trend):
        parts = trend(parts)
    elif trend:
        parts = detrended(parts, type=trend)
    parts = parts * win
    return rfft(parts.real, nfft) if onesided else fft(parts, nfft)


@fused(arrays=4)
def _spectra(
    *arrays: Any, terms: tuple[Any, ...], ends: tuple[Any, ...], scaling: str, power: bool
) -> tuple[Any, Any, Any]:
    """Frequencies, times and Fourier terms; with `power`, their products with conjugates.

    arrays: fs, the window, a signal, and optionally a second signal. terms: the arguments of
    `_terms` after the window. ends: the axis, its extension, and whether segments are padded.
    """
    fs, win, *given = arrays
    (_, step, nfft, onesided), (axis, boundary, padded) = terms, ends
    signals = inexact(*given)
    dtype, size = signals[0].dtype, win.shape[0]
    fs, win = fs.astype(real_dtype(dtype)), win.astype(dtype)
    total_weight = (win * win).sum() * fs if scaling == "density" else square(win.sum())
    win = win / sqrt(total_weight)
    signals = [moveaxis(x, axis, -1) for x in signals]
    length = max([x.shape[-1] for x in signals])
    half = size // 2 if boundary is not None else 0
    total = length + 2 * half
    filled = -(total - size) % step % size if padded else 0
    found = []
    for x in signals:
        before = [(0, 0)] * (x.ndim - 1)
        x = pad(x, (*before, (0, length - x.shape[-1])))
        if boundary is not None:
            x = pad(x, (*before, (half, half)), **_EXTENSIONS[boundary])
        x = pad(x, (*before, (0, filled)))
        found.append(_terms(x, win, *terms))
    count = found[0].shape[-2]
    out = found[0]
    if power:
        out = square(out.real) + square(out.imag) if len(found) == 1 else out.conj() * found[1]
    if onesided and power:  # the omitted terms are the conjugates of these
        k = iota(dtype=_INT32, shape=out.shape[-1:], dimension=0)
        out = where((k > 0) & (k < (nfft + 1) // 2), out * 2, out)
    frequencies = (rfftfreq if onesided else fftfreq)(nfft, dtype=real_dtype(dtype)) * fs
    middle = 0 if boundary is not None else size / 2
    places = iota(dtype=real_dtype(dtype), shape=(count,), dimension=0)
    return frequencies, (places * step + middle) / fs, moveaxis(out, -1, axis)


def _estimated(
    name: str,
    given: Sequence[Any],
    fs: Any,
    how: Sequence[Any],
    boundary: str | None,
    padded: bool,
    power: bool,
) -> tuple[Any, Any, Any]:
    """how: the arguments of `csd` from the window to the axis."""
    window, nperseg, noverlap, nfft, detrend, onesided, scaling, axis = how
    signals = [as_operand(v) for v in given]
    types = [type_of(v) for v in signals]
    axis = canonical_axis(axis, types[0].ndim)
    if types[-1].ndim != types[0].ndim:
        raise ValueError(
            f"{name}: x and y must have the same number of dimensions; got shapes {types[0].shape} "
            f"and {types[-1].shape}."
        )
    if boundary not in _EXTENSIONS:
        raise ValueError(f"{name}: boundary must be one of {tuple(_EXTENSIONS)}; got {boundary!r}.")
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"{name}: scaling must be 'density' or 'spectrum'; got {scaling!r}.")
    if any(0 in t.shape for t in types):
        dtype = inexact(*signals)[0].dtype
        none = zeros(types[0].shape, real_dtype(dtype))
        real = power and len(signals) == 1
        return none, none, none if real else cast(none, complex_dtype(dtype))
    win, size = _window(name, window, nperseg, types[0].shape[axis])
    step, nfft = _sizes(name, size, noverlap, nfft)
    if onesided and any(is_complex(t.dtype) for t in types):
        warn(f"{name}: spectra of complex signals are two-sided; return_onesided is ignored.")
        onesided = False
    # A user's function cannot be a cache key.
    run: Callable[..., Any] = body_of(_spectra) if callable(detrend) else _spectra
    return run(
        asarray(as_operand(fs)),
        win,
        *map(asarray, signals),
        scaling=scaling,
        power=power,
        terms=(detrend or None, step, nfft, bool(onesided)),
        ends=(axis, boundary, bool(padded)),
    )


def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[[Array], Array] = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Short-time Fourier transform of a signal.

    Args:
      x: a signal along `axis`.
      fs: elements per unit of time.
      window: "hann", a name or tuple that SciPy's `get_window` accepts, or nperseg weights.
      nperseg, noverlap: the length and the overlap of segments; by default they overlap by half.
      nfft: the FFT length, to which segments are zero-padded.
      detrend: what to remove from each segment: "constant", "linear", nothing if False; or a
        function of segments along the last axis.
      return_onesided: for real signals, whether to omit terms that are conjugates of others.
      boundary: how the signal is extended at both ends: "zeros", "even", "odd", "constant"; None
        for no extension.
      padded: whether the last segment is zero-padded.

    Returns:
      (frequencies, times, z): z has frequencies along `axis`, and segments along a new last axis.
    """
    how = window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis
    return _estimated("stft", [x], fs, how, boundary, padded, False)


def csd(
    x: ArrayLike,
    y: ArrayLike | None,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[[Array], Array] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The cross power spectral density of two signals, by Welch's method.

    Args:
      x, y: signals along `axis`; the shorter one is zero-padded. Without y, x is used twice.
      nperseg: 256 by default, or the length of the signal if that is less.
      scaling: "density", power per frequency; or "spectrum", power.
      average: over segments: "mean", or the bias-corrected "median".
      others: as for `stft`.

    Returns:
      (frequencies, density): complex if y is given.
    """
    how = window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis
    return _averaged("csd", [x] if y is None else [x, y], fs, how, average)


def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[[Array], Array] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """The power spectral density of a signal: its `csd` with itself, which is real."""
    how = window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis
    return _averaged("welch", [x], fs, how, average)


def _averaged(
    name: str, signals: Sequence[Any], fs: Any, how: Sequence[Any], average: str
) -> tuple[Any, Any]:
    if average not in ("mean", "median"):
        raise ValueError(f"{name}: average must be 'mean' or 'median'; got {average!r}.")
    frequencies, _, p = _estimated(name, signals, fs, how, None, False, True)
    return frequencies, _over_segments(p, average) if 0 not in p.shape else p


@fused
def _over_segments(p: Any, average: str) -> Any:
    if average == "mean":
        return p.mean(-1)
    # B. Allen et al., "FINDCHIRP", 2012, appendix B.
    even = 2.0 * np.arange(1, (p.shape[-1] - 1) // 2 + 1)
    bias = float(1 + np.sum(1 / (even + 1) - 1 / even))
    if is_complex(p.dtype):
        return ew.complex(median(p.real, -1), median(p.imag, -1)) / bias
    return median(p, -1) / bias


def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: Window = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """The signal whose `stft` is nearest to Zxx (inverse STFT).

    Args:
      Zxx: frequencies along `freq_axis`, segments along `time_axis`.
      nperseg, nfft: if None, determined by the number of frequencies.
      input_onesided: whether Zxx has the one-sided spectrum of a real signal.
      boundary: whether the signal was extended at both ends; the extension is removed.
      others: as for `stft`.

    Returns:
      (times, x): unlike in SciPy and JAX, the times are along x's time axis even if x has several
      axes.
    """
    z = as_operand(Zxx)
    t = type_of(z)
    if t.ndim < 2:
        raise ValueError(
            "istft takes at least two dimensions, of frequencies and segments; got "
            f"{t.str_short(True)}."
        )
    axes = canonical_axis(freq_axis, t.ndim), canonical_axis(time_axis, t.ndim)
    if axes[0] == axes[1]:
        raise ValueError(f"istft: freq_axis and time_axis must differ; got {axes[0]} for both.")
    terms = t.shape[axes[0]]
    default = 2 * (terms - 1) if input_onesided else terms
    if nperseg is None and isinstance(window, str | tuple):
        nperseg = default
    win, size = _window("istft", window, nperseg, None)
    if nfft is None:
        nfft = default + (bool(input_onesided) and size == default + 1)
    how = *_sizes("istft", size, noverlap, nfft), bool(input_onesided), bool(boundary), axes
    return _signal(asarray(as_operand(fs)), asarray(z), win, how)


@fused(arrays=3)
def _signal(fs: Any, z: Any, win: Any, how: tuple[Any, ...]) -> tuple[Any, Any]:
    """how: the step between segments, the FFT length, and the last arguments of `istft`."""
    step, nfft, onesided, cut, axes = how
    (z,) = inexact(z)
    size = win.shape[0]
    z = cast(z, complex_dtype(z.dtype))
    z = moveaxis(z, (axes[1], axes[0]), (-2, -1))
    parts = (irfft if onesided else ifft)(z, nfft)[..., :size]  # […, segments, size]
    win = win.astype(parts.dtype)
    x = _added(parts * (win * win.sum()), step)
    weights = (win * win)[None] + iota(dtype=_INT32, shape=(parts.shape[-2], 1), dimension=0) * 0
    norm = _added(weights, step).real
    if cut and size > 1:
        x, norm = [v[..., size // 2 : -(size // 2)] for v in (x, norm)]
    x = x / where(norm > 1e-10, norm, 1)
    times = iota(dtype=norm.dtype, shape=x.shape[-1:], dimension=0) / fs.astype(norm.dtype)
    place = axes[1] - (axes[0] < axes[1])
    return times, moveaxis(x, -1, place)


def _added(parts: Any, step: int) -> Any:
    """The overlap-add of segments that start every `step`."""
    *before, count, size = parts.shape
    shifts = -(-size // step)
    none: Sequence[tuple[int, int]] = [(0, 0)] * len(before)
    parts = pad(parts, (*none, (0, 0), (0, shifts * step - size)))
    blocks = parts.reshape(*before, count, shifts, step)
    total: Any = 0
    for i in range(shifts):
        total = total + pad(blocks[..., i, :], (*none, (i, shifts - 1 - i), (0, 0)))
    length = step * (count - 1) + size
    return total.reshape(*before, -1)[..., :length]
