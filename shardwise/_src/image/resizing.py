"""Image resampling: each dimension is multiplied by a matrix of weights.

    resize(image, (32, 32, 3), "linear")
    scale_and_translate(image, (32, 32, 3), (0, 1), scale, translation, "cubic")

An element is centered at its index plus one half. Weights are the kernel's values at the distance
of an element from the sampled position, divided by their sum. In downsampled images, the kernel is
widened, so that no element is skipped (`antialias`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import as_operand, asarray
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.picking import take
from shardwise._src.numpy.products.contractions import tensordot
from shardwise._src.numpy.shapes import moveaxis, shape_of
from shardwise._src.numpy.unary import absolute, sinc
from shardwise._src.ops.create import iota
from shardwise._src.ops.precision import Precision
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.types.annotations import Array, ArrayLike, PrecisionLike
from shardwise._src.values.binary import maximum, minimum
from shardwise._src.values.convert import cast, promote_inexact

_LEAST = 1000 * float(np.finfo(np.float32).eps)  # the smallest significant sum of weights


class ResizeMethod(enum.Enum):
    """How to interpolate between elements; see `resize`."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """The method with this name."""
        if s not in _NAMES:
            raise ValueError(
                f"ResizeMethod: unknown method {s!r}; the methods are {', '.join(_NAMES)}."
            )
        return _NAMES[s]


_NAMES = {
    name: method
    for method, names in {
        ResizeMethod.NEAREST: "nearest",
        ResizeMethod.LINEAR: "linear bilinear trilinear triangle",
        ResizeMethod.LANCZOS3: "lanczos3",
        ResizeMethod.LANCZOS5: "lanczos5",
        ResizeMethod.CUBIC: "cubic bicubic tricubic",
        ResizeMethod.CUBIC_PYTORCH: "cubic-pytorch bicubic-pytorch",
        ResizeMethod.AREA: "area",
    }.items()
    for name in names.split()
}


How = tuple[ResizeMethod, bool, Any]  # with the antialias option and the precision


def _lanczos(radius: int) -> Callable[[Any], Any]:
    return lambda x: where(x <= radius, sinc(x) * sinc(x / radius), 0)


def _cubic(a: float) -> Callable[[Any], Any]:
    """R. G. Keys, "Cubic convolution interpolation for digital image processing", 1981."""

    def kernel(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return where(x < 1, near, where(x < 2, far, 0))

    return kernel


_KERNELS = {
    ResizeMethod.LINEAR: lambda x: maximum(1 - x, 0),
    ResizeMethod.LANCZOS3: _lanczos(3),
    ResizeMethod.LANCZOS5: _lanczos(5),
    ResizeMethod.CUBIC: _cubic(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic(-0.75),
}


def _weights(m: int, n: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool) -> Any:
    """(m, n): the weight of each old element in each new one."""
    dtype = type_of(scale).dtype
    step = 1 / scale  # distance between result elements in the old image
    place = iota(dtype=dtype, shape=(1, n), dimension=1)
    edges = method is ResizeMethod.CUBIC_PYTORCH and not antialias
    beyond = 2 if edges else 0  # outside elements that replicate the outermost ones
    old = iota(dtype=dtype, shape=(m + 2 * beyond, 1), dimension=0) - beyond
    centre = (place + 0.5 - shift) * step - 0.5
    if method is ResizeMethod.AREA:
        left = (place - shift) * step
        w = maximum(minimum(left + step, old + 1) - maximum(left, old), 0)
    else:
        if method is ResizeMethod.CUBIC_PYTORCH and antialias:
            method = ResizeMethod.CUBIC
        w = _KERNELS[method](absolute(centre - old) / (maximum(step, 1) if antialias else 1))
    if edges:
        first, inner, last = w[:beyond], w[beyond : m + beyond], w[m + beyond :]
        i = old[beyond : m + beyond]
        w = inner + where(i == 0, first.sum(0), 0) + where(i == m - 1, last.sum(0), 0)
    total = w.sum(0, keepdims=True)
    enough = absolute(total) > _LEAST
    w = where(enough, w / where(enough, total, 1), 0)
    return w if edges else where((centre >= -0.5) & (centre <= m - 0.5), w, 0)


def _resampled(
    x: Any, shape: tuple[int, ...], dims: Sequence[int], scales: Any, shifts: Any, how: How
) -> Any:
    """Resizes the dimensions that shrink most first."""
    method, antialias, precision = how
    sizes = [(shape[d] / max(type_of(x).shape[d], 1), i) for i, d in enumerate(dims)]
    for _, i in sorted(sizes):
        d = dims[i]
        m = x.shape[d]
        w = cast(_weights(m, shape[d], scales[i], shifts[i], method, antialias), x.dtype)
        x = moveaxis(tensordot(x, w, ((d,), (0,)), precision=precision), -1, d)
    return x


@fused
def _resized(image: Any, shape: tuple[int, ...], how: How) -> Any:
    given = type_of(image).shape
    dims = [d for d, (m, n) in enumerate(zip(given, shape, strict=True)) if m != n]
    if how[0] is ResizeMethod.NEAREST:
        for d in dims:
            places = (2 * np.arange(shape[d]) + 1) * given[d] // (2 * shape[d])
            image = take(image, places.astype(np.int32), d)
        return image
    (image,) = [asarray(x) for x in promote_inexact(image)]
    wide = np.float64 if image.real.dtype == np.float64 else np.float32
    scales = [asarray(shape[d] / given[d] or 1, wide) for d in dims]
    return _resampled(image, shape, dims, scales, [0] * len(dims), how)


def _checked(
    name: str, image: Any, shape: Any, method: Any, antialias: bool, precision: Any
) -> tuple[Any, tuple[int, ...], How]:
    image, shape = as_operand(image), shape_of(shape)
    t = type_of(image)
    if len(shape) != t.ndim:
        raise ValueError(
            f"{name}: shape must have a size for each of the image's dimensions; got {shape} for "
            f"{t.str_short(True)}."
        )
    if 0 in t.shape and shape != t.shape:
        raise ValueError(f"{name}: the image must not be empty; got {t.str_short(True)}.")
    method = ResizeMethod.from_string(method) if isinstance(method, str) else method
    return image, shape, (method, bool(antialias), precision)


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """An image resized to another shape.

    Args:
      image: any dtype and rank. Integers become floats, unless method is "nearest".
      shape: the sizes of all dimensions; batch and channel sizes stay the same.
      method: "nearest"; "linear" (or "bilinear", "trilinear", "triangle"); "cubic" (or "bicubic",
        "tricubic") with the Keys kernel; "cubic-pytorch" (or "bicubic-pytorch"), the same unless
        `antialias` is off: then with PyTorch's kernel and the outermost elements repeated;
        "lanczos3", "lanczos5"; or "area", the mean of the area that an element covers. Or a
        `ResizeMethod`.
      antialias: whether to widen kernels in downsampled dimensions.
      precision: of products with the weights.

    Raises:
      ValueError: for a wrong number of sizes, an empty image, or an unknown method.
    """
    return _resized(*_checked("resize", image, shape, method, antialias, precision))


@fused(arrays=3)
def _moved(
    image: Any, scale: Any, shift: Any, shape: tuple[int, ...], dims: tuple[int, ...], how: How
) -> Any:
    (image,) = [asarray(x) for x in promote_inexact(image)]
    scale, shift = [asarray(x) for x in promote_inexact(scale, shift)]
    for what, x in (("scale", scale), ("translation", shift)):
        if x.shape != (len(dims),):
            raise ValueError(
                f"scale_and_translate: {what} must have an element for each of spatial_dims; got "
                f"shape {x.shape} for {dims}."
            )
    return _resampled(image, shape, dims, scale, shift, how)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """An image with the content at x moved to x · scale + translation, and zeros outside it.

    Args:
      shape: of the result; non-spatial dimensions keep their size.
      spatial_dims: k dimensions.
      scale, translation: vectors of k elements, one for each of these.
      method, antialias, precision: as for `resize`, except "nearest".
    """
    name = "scale_and_translate"
    image, wanted, how = _checked(name, image, shape, method, antialias, precision)
    dims = tuple([canonical_axis(d, len(wanted)) for d in spatial_dims])
    if how[0] is ResizeMethod.NEAREST:
        raise ValueError(f"{name}: method 'nearest' is supported by `resize` only.")
    given = type_of(image).shape
    if any(given[d] != wanted[d] for d in range(len(wanted)) if d not in dims):
        raise ValueError(
            f"{name}: only spatial_dims may change their size; got {dims}, and {given} to {wanted}."
        )
    scale, translation = as_operand(scale), as_operand(translation)
    return _moved(image, scale, translation, wanted, dims, how)
