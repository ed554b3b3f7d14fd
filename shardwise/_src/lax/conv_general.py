"""Convolutions, transposed and locally connected convolutions, and their helpers."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

from shardwise._src.base.errors import ShapeError
from shardwise._src.core.infer import type_of
from shardwise._src.lax.contraction import dot_general
from shardwise._src.lax.dimension_numbers import sizes
from shardwise._src.numpy.statistics.reductions import checked_dtype
from shardwise._src.ops import convolution as ops
from shardwise._src.ops.basis import reshape, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.convolution import ConvDimensionNumbers as ConvDimensionNumbers
from shardwise._src.ops.families import lit
from shardwise._src.ops.pooling import Window, patches
from shardwise._src.ops.precision import ALGORITHMS, canonical_precision
from shardwise._src.ops.shape import dilated, places, rev
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, PrecisionLike
from shardwise._src.values.convert import as_integer

ConvGeneralDilatedDimensionNumbers: TypeAlias = tuple[str, str, str] | ConvDimensionNumbers | None
Padding: TypeAlias = str | Sequence[tuple[int, int]]
Pairs = tuple[tuple[int, int], ...]

# -- dimension numbers, padding, shapes --


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """`dimension_numbers` as numbers, from None (batch, features, space) or strings like 'NHWC'.

    In the string of rhs, 'I' and 'O' are the features of lhs and of the result; the other letters
    specify the order of the spatial dimensions.

    Raises:
      TypeError: if ranks differ, or the strings do not fit the ranks.
      ValueError: if the letters of the strings do not fit.
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return ConvDimensionNumbers(*map(sizes, dimension_numbers))
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(
            "conv_dimension_numbers: lhs and rhs must have the same number of dimensions; got "
            f"{tuple(lhs_shape)} and {tuple(rhs_shape)}."
        )
    if dimension_numbers is None:
        return ConvDimensionNumbers(*[tuple(range(len(lhs_shape)))] * 3)
    given = dimension_numbers
    fits = (
        isinstance(given, list | tuple)
        and len(given) == 3
        and all(isinstance(s, str) and len(s) == len(lhs_shape) for s in given)
    )
    if not fits:
        raise TypeError(
            "conv_dimension_numbers: dimension_numbers must be None, ConvDimensionNumbers, or "
            f"three strings with a letter for each of {len(lhs_shape)} dimensions, such as "
            f"('NCHW', 'OIHW', 'NCHW'); got {given!r}."
        )
    return ConvDimensionNumbers(*conv_general_permutations(given))


def conv_general_permutations(
    dimension_numbers: Sequence[str],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """For each of three strings, the positions of batch (or 'O'), features and spatial axes."""
    space = [c for c in dimension_numbers[1] if c not in "OI"]
    found = []
    for text, pair in zip(dimension_numbers, ("NC", "OI", "NC"), strict=True):
        letters = [*pair, *space]
        if sorted(text) != sorted(letters) or len(set(text)) != len(text):
            raise ValueError(
                "conv_general_permutations: the strings must have the letters N and C (lhs, "
                "result), O and I (rhs), and the same other letters, each once; got "
                f"{tuple(dimension_numbers)}."
            )
        found.append(tuple([text.index(c) for c in letters]))
    return found[0], found[1], found[2]


def padtype_to_pads(
    in_shape: Any, window_shape: Any, window_strides: Any, padding: Any
) -> list[tuple[int, int]]:
    """The `(low, high)` padding of each dimension for a named padding mode.

    'VALID' is no padding; 'SAME' makes `ceil(n / stride)` windows, with the odd element added at
    the end; 'SAME_LOWER' adds it at the start.
    """
    kind = getattr(padding, "name", padding)
    kind = kind.upper() if isinstance(kind, str) else kind
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise (RuntimeError if isinstance(kind, str) else ValueError)(
            f"padding must be 'VALID', 'SAME' or 'SAME_LOWER', or pairs (low, high); got "
            f"{padding!r}."
        )
    if not len(in_shape) == len(window_shape) == len(window_strides):
        raise ShapeError(
            "padding: a window needs a size and a stride for each of the dimensions "
            f"{tuple(in_shape)}; got {tuple(window_shape)} and {tuple(window_strides)}."
        )
    if any(stride < 1 for stride in window_strides):
        raise ShapeError(f"padding: strides must be positive; got {tuple(window_strides)}.")
    found = []
    for n, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        n, stride, window = [as_integer(v, "a size") for v in (n, stride, window)]
        total = (-(-n // stride) - 1) * stride + window - n
        total = total if total > 0 else 0
        small, large = total // 2, total - total // 2
        found.append((small, large) if kind == "SAME" else (large, small))
    return found


def conv_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    strides: Sequence[int],
    pads: Padding,
    batch_group_count: int = 1,
) -> tuple[int, ...]:
    """The shape of a convolution for shapes in the order (batch, features, space…)."""
    space, window = lhs_shape[2:], rhs_shape[2:]
    rows = padtype_to_pads(space, window, strides, pads) if isinstance(pads, str) else pads
    if len(rows) != len(space):
        raise TypeError(
            f"conv_shape_tuple: pads must have a pair for each of {len(space)} spatial dimensions; "
            f"got {tuple(rows)}."
        )
    padded = [n + low + high for n, (low, high) in zip(space, rows, strict=True)]
    if any(n < 0 for n in padded):
        raise ValueError(
            f"conv_shape_tuple: pads {tuple(rows)} remove more elements than {tuple(space)} has."
        )
    counts = map(places, padded, window, strides)
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *counts)


def _in_order(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], numbers: Any, shape_of: Any
) -> tuple[int, ...]:
    left, right, to = conv_general_permutations(numbers)
    found = shape_of([lhs_shape[d] for d in left], [rhs_shape[d] for d in right])
    return tuple([found[to.index(d)] for d in range(len(to))])


def conv_general_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of a convolution for shapes in the orders of `dimension_numbers`."""
    return _in_order(
        lhs_shape,
        rhs_shape,
        dimension_numbers,
        lambda x, y: conv_shape_tuple(x, y, window_strides, padding),
    )


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Sequence[str],
) -> tuple[int, ...]:
    """The shape of a `conv_transpose` for shapes in the orders of `dimension_numbers`."""

    def shape_of(x: list[int], y: list[int]) -> tuple[int, ...]:
        pads = [padding] * len(window_strides) if isinstance(padding, str) else padding
        rows = [
            _transposed_padding(k, s, p) if isinstance(p, str) else tuple(p)
            for k, s, p in zip(y[2:], window_strides, pads, strict=True)
        ]
        space = zip(x[2:], y[2:], window_strides, rows, strict=True)
        return (x[0], y[0], *[(n - 1) * s - k + 2 + sum(row) for n, k, s, row in space])

    return _in_order(lhs_shape, rhs_shape, dimension_numbers, shape_of)


# -- convolutions --


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sums of products of the kernel `rhs`, which is not flipped, with each window of `lhs`.

    Args:
      lhs: T[n, i, space…] in the order of `dimension_numbers`.
      rhs: T[o, i / feature_group_count, space…], in the order of `dimension_numbers`.
      window_strides: distance between windows, in each spatial dimension.
      padding: 'VALID', 'SAME', 'SAME_LOWER', or a pair (low, high) for each spatial dimension;
        negative values crop.
      lhs_dilation, rhs_dilation: distances between elements; the gaps are filled with zeros.
      dimension_numbers: see `conv_dimension_numbers`.
      feature_group_count: the number of groups of features, which are convolved separately.
      batch_group_count: the number of groups of the batch; each computes one group of the features
        of the result. Only one of the two counts may be above 1.
      precision: as for `dot_general`; a `Precision`, its name, or a pair.
      preferred_element_type: the dtype of the sums and of the result.
      out_sharding: how the result is sharded over explicit mesh axes.

    Returns:
      T[n / batch_group_count, o, space…], in the order of `dimension_numbers`.

    Raises:
      TypeError, ValueError: if shapes, dtypes or dimension numbers do not fit.
    """
    left, right = type_of(lhs), type_of(rhs)
    numbers = conv_dimension_numbers(left.shape, right.shape, dimension_numbers)
    space = max(left.ndim - 2, 0)
    strides = sizes(window_strides)
    holes = (1,) * space if lhs_dilation is None else sizes(lhs_dilation)
    rhs_holes = (1,) * space if rhs_dilation is None else sizes(rhs_dilation)
    if isinstance(padding, str):
        if any(n != 1 for n in holes):
            raise ValueError(
                f"conv_general_dilated: padding {padding!r} is ambiguous if lhs is dilated, here "
                f"by {holes}. Pass pairs (low, high), or use conv_transpose."
            )
        shape = [left.shape[d] for d in numbers.lhs_spec[2:]]
        window = map(dilated, [right.shape[d] for d in numbers.rhs_spec[2:]], rhs_holes)
        pads = tuple(padtype_to_pads(shape, [*window], strides, padding))
    else:
        pads = pairs(padding, "conv_general_dilated")
    given, precision = precision, canonical_precision(precision)
    if given is None and isinstance(precision, ALGORITHMS):  # the flag is for products, too
        precision = None
    if isinstance(precision, ALGORITHMS):
        raise ValueError(
            f"conv_general_dilated: XLA does not support the algorithm {precision} for "
            "convolutions. Pass a `Precision`, its name, or a pair."
        )
    preferred = checked_dtype(preferred_element_type, "conv_general_dilated")
    return placed(
        ops.conv_general_dilated,
        out_sharding,
        lhs,
        rhs,
        dimension_numbers=numbers,
        window_strides=strides,
        padding=pads,
        lhs_dilation=holes,
        rhs_dilation=rhs_holes,
        feature_group_count=as_integer(feature_group_count, "feature_group_count"),
        batch_group_count=as_integer(batch_group_count, "batch_group_count"),
        precision=precision,
        preferred_element_type=preferred,
    )


def pairs(padding: Any, name: str) -> Pairs:
    """User-supplied padding as pairs of ints."""
    try:
        return tuple([(operator.index(low), operator.index(high)) for low, high in padding])
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: padding must be 'VALID', 'SAME' or 'SAME_LOWER', or pairs (low, high); got "
            f"{padding!r}."
        ) from None


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` without dilation, in the order T[n, i, space…], T[o, i, space…]."""
    how = precision, preferred_element_type
    return conv_with_general_padding(lhs, rhs, window_strides, padding, None, None, *how)


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """`conv_general_dilated` in the order T[n, i, space…], T[o, i, space…]."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


# The default dimension order of `conv_transpose`, by the number of dimensions.
_CHANNELS_LAST = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def _transposed_padding(k: int, s: int, padding: Any) -> tuple[int, int]:
    """The padding of a transposed convolution, from the padding of the forward convolution."""
    kind: Any = padding.upper() if isinstance(padding, str) else padding
    if kind == "SAME":
        total = k + s - 2
        low = k - 1 if s > k - 1 else -(-total // 2)
    elif kind == "VALID":
        total, low = k + s - 2 + max(k - s, 0), k - 1
    elif isinstance(kind, str):
        raise RuntimeError(
            "conv_transpose: padding must be 'SAME', 'VALID' or pairs (low, high); got "
            f"{padding!r}."
        )
    else:
        low, high = kind
        return k - low - 1, k - high - 1
    return low, total - low


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A fractionally strided convolution: `strides - 1` zeros between the elements of `lhs`.

    Args:
      lhs, rhs: as for `conv_general_dilated`; the default order is ('NHWC', 'HWIO', 'NHWC').
      padding: 'SAME' or 'VALID', as in the forward convolution that this one transposes; or pairs
        to add here (with `use_consistent_padding`, pairs also refer to the forward convolution).
      transpose_kernel: whether to flip the kernel and swap its feature dimensions, so that the
        result is the derivative of a convolution with it.
    """
    left, right = type_of(lhs), type_of(rhs)
    if dimension_numbers is None:
        if left.ndim not in _CHANNELS_LAST:
            raise ValueError(
                "conv_transpose: dimension_numbers are required for fewer than 2 or more than 5 "
                f"dimensions; got {left.str_short(True)}."
            )
        dimension_numbers = _CHANNELS_LAST[left.ndim]
    numbers = conv_dimension_numbers(left.shape, right.shape, dimension_numbers)
    space = numbers.rhs_spec[2:]
    holes = (1,) * len(space) if rhs_dilation is None else sizes(rhs_dilation)
    if len(strides) != len(space):
        raise ShapeError(
            f"conv_transpose: strides must have an entry for each of {len(space)} spatial "
            f"dimensions; got {tuple(strides)}."
        )
    if use_consistent_padding or isinstance(padding, str):
        pads = [padding] * len(space) if isinstance(padding, str) else padding
        windows = map(dilated, [right.shape[d] for d in space], holes)
        padding = [_transposed_padding(*row) for row in zip(windows, strides, pads, strict=True)]
    if transpose_kernel:
        rhs = rev(rhs, dimensions=tuple(sorted(space)))
        o, i = numbers.rhs_spec[:2]
        perm = [i if d == o else o if d == i else d for d in range(right.ndim)]
        rhs = transpose(rhs, perm=tuple(perm))
    return conv_general_dilated(
        lhs,
        rhs,
        (1,) * len(space),
        padding,
        strides,
        holes,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """The windows of a convolution: features T[i · prod(filter_shape)] at each position.

    The features are ordered by feature of `lhs`, then by window element in row-major order.
    Elements are moved, not multiplied: infinities and NaN stay in place (JAX multiplies with
    ones and zeros), and `precision` has no effect.
    """
    canonical_precision(precision)  # for its errors
    t = type_of(lhs)
    window = sizes(filter_shape)
    order = conv_dimension_numbers(t.shape, (1,) * t.ndim, dimension_numbers)
    left, _, to = order
    space = [t.shape[d] for d in left[2:]]
    holes, rhs_holes = (
        (1,) * len(window) if given is None else sizes(given)
        for given in (lhs_dilation, rhs_dilation)
    )
    strides = sizes(window_strides)
    if isinstance(padding, str):
        space = [*map(dilated, space, holes)]
        rows = padtype_to_pads(space, [*map(dilated, window, rhs_holes)], strides, padding)
    else:
        rows = pairs(padding, "conv_general_dilated_patches")
    ones = (1, 1)
    taken = Window(
        (*ones, *window),
        (*ones, *strides),
        ((0, 0), (0, 0), *rows),
        (*ones, *holes),
        (*ones, *rhs_holes),
    )
    x = transpose(lhs, perm=tuple(left))
    found = patches(x, lit(0, x), taken)  # T[n, i, space…, 1, 1, window…]
    shape = type_of(found).shape
    n, rank = t.ndim, 2 * t.ndim
    found = transpose(found, perm=(0, 1, *range(n, rank), *range(2, n)))
    found = reshape(found, shape=(shape[0], shape[1] * math.prod(window), *shape[2:n]))
    found = transpose(found, perm=tuple([to.index(d) for d in range(n)]))
    dtype = checked_dtype(preferred_element_type, "conv_general_dilated_patches")
    return found if dtype is None else convert_element_type(found, dtype=dtype)


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """A convolution whose kernel differs for each position.

    Args:
      rhs: T[o, i · prod(filter_shape), space…], in the order of `dimension_numbers`: for each
        position of the result a kernel of `filter_shape`, flat, with features before the window.
    """
    numbers = conv_dimension_numbers(type_of(lhs).shape, type_of(rhs).shape, dimension_numbers)
    taken = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers
    )
    _, right, to = numbers
    pairs = ((to[1],), (right[1],)), (to[2:], right[2:])
    found = dot_general(taken, rhs, pairs, precision)  # T[space…, n, o]
    space = len(to) - 2
    at = {to[0]: space, to[1]: space + 1, **{d: i for i, d in enumerate(to[2:])}}
    return transpose(found, perm=tuple([at[d] for d in range(len(to))]))
