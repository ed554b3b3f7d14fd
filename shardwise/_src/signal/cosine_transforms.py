"""Discrete cosine transforms under SciPy's names, of all four types.

    dct(x)                          # type 2 along the last axis
    idctn(dctn(x, norm="ortho"), norm="ortho")

Real inputs take one real FFT of the same length (types 2 and 3, by J. Makhoul, "A fast cosine
transform in one and two dimensions", 1980) or of twice the length (1 and 4); for complex inputs the
real and imaginary parts are transformed. Transformed dimensions may be gathered on each device;
other dimensions stay sharded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.inexact_arrays import inexact
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.padding import pad
from shardwise._src.numpy.shapes import moveaxis
from shardwise._src.numpy.unary import cos, sin
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.signal.numpy_fft import irfft, rfft
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import cast

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
_NORMS = (None, "backward", "ortho", "forward")


def _turned(z: Any, n: int, sign: int) -> Any:
    """Term k times exp(sign iπk / 2n)."""
    dtype = z.real.dtype
    angles = iota(dtype=dtype, shape=z.shape[-1:], dimension=0) * (math.pi / (2 * n))
    return z * ew.complex(cos(angles), sign * sin(angles))


def _second(x: Any) -> Any:
    """2 Σ x[j] cos(πk(2j + 1) / 2n)."""
    n = x.shape[-1]
    ordered = concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], -1)
    z = _turned(rfft(ordered), n, -1)
    return 2 * concatenate([z.real, -z.imag[..., 1 : (n + 1) // 2][..., ::-1]], -1)


def _third(x: Any) -> Any:
    """x[0] + 2 Σ x[j] cos(π(2k + 1)j / 2n), over j > 0."""
    n = x.shape[-1]
    before = [(0, 0)] * (x.ndim - 1)
    mirrored = pad(x[..., n - n // 2 :][..., ::-1], (*before, (1, 0)))
    z = _turned(ew.complex(x[..., : n // 2 + 1], -mirrored), n, 1)
    v = irfft(z, n, norm="forward")
    half = (n + 1) // 2
    odd = pad(v[..., half:][..., ::-1], (*before, (0, 2 * half - n)))
    return stack([v[..., :half], odd], -1).reshape(*x.shape[:-1], 2 * half)[..., :n]


def _first(x: Any) -> Any:
    """x[0] + (-1)^k x[-1] + 2 Σ x[j] cos(πkj / (n - 1)), over the inner elements."""
    return rfft(concatenate([x, x[..., 1:-1][..., ::-1]], -1)).real


def _fourth(x: Any) -> Any:
    """2 Σ x[j] cos(π(2k + 1)(2j + 1) / 4n): every other term of type 2 with twice the length."""
    return _second(pad(x, (*[(0, 0)] * (x.ndim - 1), (0, x.shape[-1]))))[..., 1::2]


_KINDS = {1: _first, 2: _second, 3: _third, 4: _fourth}


def _ends_times(x: Any, factor: float, kind: int) -> Any:
    """The first element times factor; for type 1 also the last one."""
    n = x.shape[-1]
    places = iota(dtype=np.dtype(np.int32), shape=(n,), dimension=0)
    ends = (places == 0) | (places == n - 1) if kind == 1 else places == 0
    return where(ends, x * factor, x)


def _along_last(x: Any, kind: int, norm: str | None, inverse: bool) -> Any:
    if is_complex(x.dtype):
        return ew.complex(*[_along_last(part, kind, norm, inverse) for part in (x.real, x.imag)])
    size = 2 * (x.shape[-1] - (kind == 1))
    kind = _INVERSE[kind] if inverse else kind
    if norm == "ortho" and kind in (1, 3):
        x = _ends_times(x, math.sqrt(2), kind)
    x = _KINDS[kind](x)
    if norm == "ortho":
        x = x * math.sqrt(1 / size)
        return _ends_times(x, math.sqrt(1 / 2), kind) if kind in (1, 2) else x
    return x / size if inverse != (norm == "forward") else x


@fused
def _transformed(
    x: Any,
    name: str,
    kind: int,
    s: tuple[int, ...] | None,
    axes: tuple[int, ...],
    norm: Any,
    inverse: bool,
) -> Any:
    (x,) = inexact(x)
    if x.dtype.itemsize < 4:
        x = cast(x, np.dtype(np.float32))
    for i, axis in enumerate(axes):
        x = moveaxis(x, axis, -1)
        given = x.shape[-1]
        n = given if s is None else s[i]
        if n < 1 + (kind == 1):
            raise ValueError(
                f"{name}: type {kind} takes signals of at least {1 + (kind == 1)} elements; got a "
                f"length of {n} along axis {axis}."
            )
        if n > given:
            x = pad(x, (*[(0, 0)] * (x.ndim - 1), (0, n - given)))
        x = moveaxis(_along_last(x[..., :n], kind, norm, inverse), -1, axis)
    return x


def _cosines(
    name: str, x: Any, kind: Any, s: Any, axes: Any, norm: str | None, inverse: bool
) -> Any:
    ndim = type_of(x).ndim
    if kind not in _KINDS:
        raise ValueError(f"{name}: type must be 1, 2, 3 or 4; got {kind!r}.")
    if norm not in _NORMS:
        raise ValueError(
            f"{name}: norm must be 'backward' (or None), 'ortho' or 'forward'; got {norm!r}."
        )
    s, axes = [None if v is None else _integers(v) for v in (s, axes)]
    if axes is None:
        axes = tuple(range(ndim) if s is None else range(ndim - len(s), ndim))
    axes = tuple([canonical_axis(a, ndim) for a in axes])
    if len(set(axes)) < len(axes) or (s is not None and len(s) != len(axes)):
        raise ValueError(
            f"{name}: axes must differ, and s must have a length for each; got axes {axes} and s "
            f"{s}."
        )
    return _transformed(x, name, int(kind), s, axes, norm, inverse)


def _integers(values: Any) -> tuple[int, ...]:
    found = values if hasattr(values, "__iter__") else (values,)
    return tuple(map(operator.index, found))


@eager_jit
def dct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The discrete cosine transform along an axis: float[…, n], or complex.

    Args:
      type: 1, 2, 3 or 4; see SciPy for their definitions.
      n: the length of the signal, which is truncated or zero-padded at its end.
      norm: "backward" (the default): inverse transforms are divided by 2n, for type 1 by 2(n - 1);
        "forward": forward transforms are; "ortho": all transforms are orthogonal.
    """
    return _cosines("dct", x, type, n, axis, norm, False)


@eager_jit
def idct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `dct`, with the same arguments."""
    return _cosines("idct", x, type, n, axis, norm, True)


@eager_jit
def dctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """`dct` along several axes.

    s: the lengths along the axes; axes: by default the last len(s) ones, or all.
    """
    return _cosines("dctn", x, type, s, axes, norm, False)


@eager_jit
def idctn(
    x: ArrayLike,
    type: int = 2,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Array:
    """The inverse of `dctn`."""
    return _cosines("idctn", x, type, s, axes, norm, True)
