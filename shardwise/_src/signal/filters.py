"""Convolutions, correlations and trends under SciPy's names.

For example:

    convolve(image, kernel, mode="same")
    fftconvolve(x, y, axes=0)
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.conv_general import conv_general_dilated
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.padding import pad
from shardwise._src.numpy.shapes import flip, moveaxis
from shardwise._src.ops.create import iota
from shardwise._src.ops.precision import canonical_precision
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.shape import pad as filled
from shardwise._src.signal.numpy_fft import fftn, ifftn, irfftn, rfftn
from shardwise._src.types.annotations import Array, ArrayLike, PrecisionLike
from shardwise._src.types.dtypes import is_complex

_MODES = ("full", "same", "valid")
_METHODS = ("auto", "direct", "fft")
_LITTLE = 32  # up to this size, kernel elements are multiplied one by one, which is faster on CPU
_BOUNDARIES = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def _checked(name: str, x: Any, y: Any, mode: str) -> tuple[Any, Any]:
    x, y = inexact(x, y)
    if mode not in _MODES:
        raise ValueError(f"{name}: mode must be one of {_MODES}; got {mode!r}.")
    if x.ndim != y.ndim or not x.size or not y.size:
        raise ValueError(
            f"{name}: in1 and in2 must be nonempty, with the same number of dimensions; got shapes "
            f"{x.shape} and {y.shape}."
        )
    return x, y


def _within(name: str, x: Any, y: Any, axes: Sequence[int]) -> bool:
    """Whether y fits in x, or x fits in y, as "valid" requires."""
    if all(x.shape[d] >= y.shape[d] for d in axes):
        return True
    if all(x.shape[d] <= y.shape[d] for d in axes):
        return False
    raise ValueError(
        f"{name}: in mode 'valid' one must be at least as large as the other in every dimension; "
        f"got shapes {x.shape} and {y.shape}."
    )


def _part(n: int, m: int, mode: str, late: bool = False) -> tuple[int, int]:
    """The start and length of the requested part of the full convolution of size n + m - 1.

    late: whether the center of an even m is the later element.
    """
    if mode == "full":
        return 0, n + m - 1
    if mode == "same":
        return (m if late else m - 1) // 2, n
    return min(n, m) - 1, abs(n - m) + 1


@fused(arrays=3)
def _direct(
    *arrays: Any, name: str, mode: str, precision: Any, boundary: str = "fill", late: bool = False
) -> Any:
    """The convolution of x and y as sums of products; a third array is the boundary value."""
    x, y, *fill = arrays
    parts = [_part(n, m, mode, late) for n, m in zip(x.shape, y.shape, strict=True)]
    zeros = boundary == "fill" and not fill
    if mode == "valid":
        swapped = not _within(name, x, y, range(x.ndim))
    else:
        swapped = zeros and x.size < y.size
    if swapped:
        x, y = y, x
    low = [m - 1 - start for m, (start, _) in zip(y.shape, parts, strict=True)]
    high = [count - n + start for n, (start, count) in zip(x.shape, parts, strict=True)]
    ends = [*zip(low, high, strict=True)]
    if not zeros and mode != "valid":
        value = {"constant_values": fill[0]} if boundary == "fill" else {}
        x = pad(x, ends, _BOUNDARIES[boundary], **value)
        ends = [(0, 0)] * x.ndim
    kernel, zero = flip(y), np.zeros((), x.dtype)[()]
    if y.size > _LITTLE or x.dtype.itemsize < 4:
        strides = [1] * x.ndim
        return conv_general_dilated(
            x[None, None], kernel[None, None], strides, ends, precision=precision
        )[0, 0]
    x = filled(x, zero, padding_config=tuple([(a, b, 0) for a, b in ends]))
    total: Any = 0
    for place in np.ndindex(kernel.shape):
        window = zip(place, x.shape, kernel.shape, strict=True)
        cut = tuple([slice(i, i + n - m + 1) for i, n, m in window])
        total = total + kernel[place] * x[cut]
    return total


def _good_size(n: int) -> int:
    """The next size without prime factors above 5, for which FFTs are fast."""
    best = 1 << (n - 1).bit_length()
    five = 1
    while five < best:
        odd = five
        while odd < best:
            best = min(best, odd << (-(-n // odd) - 1).bit_length())
            odd *= 3
        five *= 5
    return best


@fused(arrays=2)
def _by_fft(x: Any, y: Any, name: str, mode: str, axes: tuple[int, ...] | None) -> Any:
    x, y = _checked(name, x, y, mode)
    over = range(x.ndim) if axes is None else [canonical_axis(a, x.ndim) for a in axes]
    if any(
        n != m and 1 not in (n, m)
        for d, (n, m) in enumerate(zip(x.shape, y.shape, strict=True))
        if d not in over
    ):
        raise ValueError(
            f"{name}: shapes must broadcast along axes that are not convolved; got {x.shape} and "
            f"{y.shape} with axes {tuple(over)}."
        )
    if mode == "valid" and not _within(name, x, y, over):
        x, y = y, x
    parts = [_part(x.shape[d], y.shape[d], mode) for d in over]
    # Along a dimension where one operand has size 1, the convolution is a plain product.
    longer = [d for d in over if x.shape[d] > 1 and y.shape[d] > 1]
    if longer:
        sizes = [_good_size(x.shape[d] + y.shape[d] - 1) for d in longer]
        there, back = (fftn, ifftn) if is_complex(x.dtype) else (rfftn, irfftn)
        dtype = x.dtype
        out = back(there(x, sizes, longer) * there(y, sizes, longer), sizes, longer).astype(dtype)
    else:
        out = x * y
    cut = [slice(None)] * out.ndim
    for d, (start, count) in zip(over, parts, strict=True):
        cut[d] = slice(start, start + count)
    return out[tuple(cut)]


def _convolved(
    name: str, in1: Any, in2: Any, mode: str, method: str, precision: Any, correlate: bool
) -> Any:
    if method not in _METHODS:
        raise ValueError(f"{name}: method must be one of {_METHODS}; got {method!r}.")
    precision = canonical_precision(precision)
    x, y = _checked(name, in1, in2, mode)
    if correlate:
        y = flip(y.conj())
    if method == "fft":
        return _by_fft(x, y, name, mode, None)
    return _direct(x, y, name=name, mode=mode, precision=precision)


@eager_jit(arrays=2)
def convolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Array:
    """The convolution of two arrays of equal rank, with sizes n and m along each dimension.

    Args:
      in1, in2: arrays with elements; integers become floats.
      mode: "full" of size n + m - 1; "same" of in1's size, the center of "full"; "valid" where both
        overlap completely, of size |n - m| + 1: one must fit in the other.
      method: "direct" and "auto" sum products; "fft" is `fftconvolve`.
      precision: of the products.
    """
    return _convolved("convolve", in1, in2, mode, method, precision, False)


@eager_jit(arrays=2)
def correlate(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Array:
    """The correlation of two arrays: `convolve` with in2 conjugated and reversed."""
    return _convolved("correlate", in1, in2, mode, method, precision, True)


@eager_jit(arrays=2)
def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None
) -> Array:
    """`convolve` by FFTs: the absolute error is everywhere that of the largest sum.

    axes: the axes to convolve; by default all. Along other axes, shapes broadcast.
    """
    if axes is not None:
        axes = tuple(map(operator.index, axes if isinstance(axes, Sequence) else (axes,)))
    return _by_fft(as_operand(in1), as_operand(in2), "fftconvolve", mode, axes)


def _in_two(
    name: str,
    in1: Any,
    in2: Any,
    mode: str,
    boundary: str,
    fillvalue: Any,
    precision: Any,
    correlate: bool,
) -> Any:
    precision = canonical_precision(precision)
    x, y = _checked(name, in1, in2, mode)
    if x.ndim != 2:
        raise ValueError(
            f"{name} takes matrices; got {type_of(x).str_short(True)} and "
            f"{type_of(y).str_short(True)}."
        )
    if boundary not in _BOUNDARIES:
        raise ValueError(f"{name}: boundary must be one of {tuple(_BOUNDARIES)}; got {boundary!r}.")
    plain = mode == "valid" or (isinstance(fillvalue, int | float) and not fillvalue)
    fill = [] if plain or boundary != "fill" else [asarray(fillvalue, x.dtype)]
    if correlate:
        y = flip(y.conj())
    found = _direct(
        x, y, *fill, name=name, mode=mode, precision=precision, boundary=boundary, late=correlate
    )
    swapped = correlate and mode == "valid" and not _within(name, x, y, (0, 1))
    return found.conj() if swapped and is_complex(found.dtype) else found


@eager_jit(arrays=2)
def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """The convolution of two matrices; mode and precision as for `convolve`.

    boundary: the extension of in1: "fill" by `fillvalue`, "wrap" periodic, "symm" by reflection.
      Unused for "valid".
    """
    return _in_two("convolve2d", in1, in2, mode, boundary, fillvalue, precision, False)


@eager_jit(arrays=2)
def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """The correlation of two matrices, with the arguments of `convolve2d`.

    As in SciPy, and unlike `correlate`: for even sizes "same" uses the later center, and for
    "valid" the result is conjugated if in1 fits in in2.
    """
    return _in_two("correlate2d", in1, in2, mode, boundary, fillvalue, precision, True)


@fused
def _detrended(data: Any, axis: int, type: str, breaks: tuple[int, ...]) -> Any:
    (x,) = inexact(data)
    if type == "constant" or not x.size:
        return x - x.mean(axis, keepdims=True)
    x = moveaxis(x, axis, -1)
    parts = []
    for start, end in itertools.pairwise(breaks):
        part, n = x[..., start:end], end - start
        t = iota(dtype=x.real.dtype, shape=(n,), dimension=0) - (n - 1) / 2
        squares = n * (n * n - 1) / 12 or 1  # the sum of t²
        slope = (part * t).sum(-1, keepdims=True) / squares
        parts.append(part - part.mean(-1, keepdims=True) - slope * t)
    return moveaxis(concatenate(parts, -1), -1, axis)


def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray[Any, Any] = 0,
    overwrite_data: None = None,
) -> Array:
    """Removes the mean, or the least-squares line.

    Args:
      type: "linear" or "constant".
      bp: breakpoints along the axis, at which another line starts.
      overwrite_data: must be None: arrays are immutable.
    """
    x = as_operand(data)
    axis = canonical_axis(axis, type_of(x).ndim)
    n = type_of(x).shape[axis]
    if overwrite_data is not None:
        raise NotImplementedError("detrend: overwrite_data must be None; arrays are immutable.")
    if type not in ("linear", "constant"):
        raise ValueError(f"detrend: type must be 'linear' or 'constant'; got {type!r}.")
    breaks = tuple(map(int, np.unique(np.r_[0, np.asarray(bp, np.int64).ravel(), n])))
    if breaks[0] < 0 or breaks[-1] > n:
        raise ValueError(f"detrend: bp must be within the length {n} of the axis; got {bp}.")
    return _detrended(x, axis, type, breaks)
