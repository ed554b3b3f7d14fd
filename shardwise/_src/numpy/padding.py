"""`pad`, in all of NumPy's modes.

For modes that repeat elements (edge, reflect, symmetric, wrap), the source of each element of the
result is known statically. They become slices and a concatenation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import array_or_host, is_array, type_of
from shardwise._src.numpy.joining import stack, unstack
from shardwise._src.numpy.rearrange import broadcast_in_place, known, take_static
from shardwise._src.numpy.shapes import moveaxis, no_lists, reshape
from shardwise._src.numpy.statistics.averages import mean
from shardwise._src.numpy.statistics.quantiles import median
from shardwise._src.numpy.unary import round as round_
from shardwise._src.ops import basis
from shardwise._src.ops import shape as ops
from shardwise._src.ops.reduce import reduce_max, reduce_min
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_inexact, to_inexact
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.types.symbolic import as_integer as index
from shardwise._src.values import binary
from shardwise._src.values.convert import cast

Widths = tuple[tuple[int, int], ...]
_REPEATING = ("edge", "reflect", "symmetric", "wrap")
_KEYWORDS = {
    "constant": ("constant_values",),
    "edge": (),
    "empty": (),
    "wrap": (),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
}


@eager_jit
def pad(
    array: ArrayLike, pad_width: Any, mode: str | Callable[..., Any] = "constant", **kwargs: Any
) -> Array:
    """`array` with `pad_width` elements added before and after, along each dimension.

    pad_width: one number, one pair, or a pair for each dimension; or a dict from axes to these.
    mode:      "constant" (`constant_values`), "edge", "empty", "linear_ramp" (`end_values`),
               "maximum", "mean", "median", "minimum" (all `stat_length`), "reflect", "symmetric"
               (both `reflect_type` "even" or "odd"), "wrap"; or a function `(vector, width, axis,
               kwargs) → vector` that is called on each vector along each axis.
    """
    no_lists("pad", array)
    t = type_of(array)
    widths = _pairs(pad_width, t.ndim, "pad_width", integers=True)
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError(f"pad: widths must not be negative; got {pad_width}.")
    if callable(mode):
        return _pad_by(array, widths, mode, kwargs)
    _check_keywords(mode, kwargs)
    if mode == "constant":
        values = _values(kwargs.get("constant_values", 0), t)
        return _pad_constant(array, *values, widths=widths)
    if mode == "linear_ramp":
        return _pad_ramp(array, *_values(kwargs.get("end_values", 0), t), widths=widths)
    if mode == "empty":
        return _pad_constant(array, *[np.zeros((), t.dtype)[()]] * 2 * t.ndim, widths=widths)
    if mode in _REPEATING:
        _check_not_empty(t.shape, widths, mode)
        return _pad_repeating(array, widths, mode, kwargs.get("reflect_type", "even"))
    _check_not_empty(t.shape, widths, mode)
    lengths = kwargs.get("stat_length")
    given = None if lengths is None else _pairs(lengths, t.ndim, "stat_length", integers=True)
    if given is not None and any(n < 1 for pair in given for n in pair):
        raise ValueError(f"pad: stat_length must be positive; got {lengths}.")
    return _pad_statistic(array, widths, mode, given)


def _check_keywords(mode: str, kwargs: dict) -> None:
    allowed = _KEYWORDS.get(mode)
    if allowed is None:
        known = ", ".join(_KEYWORDS)
        raise NotImplementedError(f"pad: unknown mode {mode!r}; the modes are {known}.")
    extra = sorted(set(kwargs) - set(allowed))
    if extra:
        raise ValueError(f"pad: mode {mode!r} does not accept {', '.join(extra)}.")


def _some(width: Any) -> bool:
    """Whether there are, or may be, elements to add."""
    return isinstance(width, Symbolic) or width > 0


def _check_not_empty(shape: tuple, widths: Widths, mode: str) -> None:
    for axis, (n, pair) in enumerate(zip(shape, widths, strict=True)):
        if n == 0 and any(map(_some, pair)):
            raise ValueError(
                f"pad: dimension {axis} is empty, so mode {mode!r} has no values to pad with."
            )


def _pairs(value: Any, ndim: int, name: str, integers: bool = False) -> tuple:
    """A number, a pair, or a pair for each dimension, expanded to a pair for each dimension."""
    if isinstance(value, dict):
        filled = [(0, 0)] * ndim
        for axis, width in value.items():
            filled[ops.canonical_axis(axis, ndim)] = _pairs(width, 1, name, integers)[0]
        return tuple(filled)
    array = array_or_host(value)
    array = known(array, f"pad: {name}") if is_array(array) else array
    if integers and array.dtype.kind not in "iu" and not _symbolic(array):
        raise TypeError(f"pad: {name} must consist of integers; got {value}.")
    try:
        rows = np.broadcast_to(array, (ndim, 2)).tolist()
    except ValueError:
        raise ValueError(
            f"pad: {name} must be a number, a pair, or a pair for each of the {ndim} dimensions; "
            f"got {value}."
        ) from None
    return tuple((index(a), index(b)) for a, b in rows)


def _symbolic(array: np.ndarray) -> bool:
    """Whether all are integers or symbolic."""
    return array.dtype == object and all(isinstance(n, int | Symbolic) for n in array.flat)


def _values(value: Any, t: Any) -> list[Any]:
    """The values before and after, for each dimension, in the array's dtype."""
    if is_array(value):
        shape = np.broadcast_shapes(value.shape, (t.ndim, 2))
        flat = basis.broadcast_in_dim(value, shape=shape, dims=tuple(range(2 - value.ndim, 2)))
        return [cast(v, t.dtype) for v in unstack(reshape(flat, (2 * t.ndim,)))]
    if isinstance(value, list | tuple) and len(value):
        rows = [value] * t.ndim if not isinstance(value[0], list | tuple) else value
        if any(is_array(v) for row in rows for v in row):
            return [cast(v, t.dtype) for row in rows for v in row]
    array = np.broadcast_to(np.asarray(value), (t.ndim, 2))
    return [cast(v, t.dtype) for v in array.ravel()]


# -- one kernel for each kind of mode --


@fused
def _pad_constant(x: Any, *values: Any, widths: Widths) -> Any:
    t = type_of(x)
    alike = all(v is values[0] for v in values) or (
        not any(is_array(v) for v in values) and len({v.item() for v in values}) <= 1
    )
    if values and alike:
        config = tuple((a, b, 0) for a, b in widths)
        out = ops.pad(x, cast(values[0], t.dtype), padding_config=config)
        return cast(out, t.dtype, t.weak_type)
    for axis, (before, after) in enumerate(widths):
        for value, config in (
            (values[2 * axis], (before, 0, 0)),
            (values[2 * axis + 1], (0, after, 0)),
        ):
            if config != (0, 0, 0):
                others = [(0, 0, 0)] * t.ndim
                others[axis] = config
                x = ops.pad(x, cast(value, t.dtype), padding_config=tuple(others))
    return cast(x, t.dtype, t.weak_type)


@fused(arrays=1)
def _pad_repeating(x: Any, widths: Widths, mode: Any, reflect_type: str) -> Any:
    if reflect_type not in ("even", "odd"):
        raise ValueError(f"pad: reflect_type must be 'even' or 'odd'; got {reflect_type!r}.")
    for axis, pair in enumerate(widths):
        if not any(map(_some, pair)):
            continue
        odd = reflect_type == "odd" and mode in ("reflect", "symmetric")
        if any(isinstance(n, Symbolic) for n in (*pair, type_of(x).shape[axis])):
            x = _pad_once(x, axis, pair, mode, odd)
            continue
        if odd:
            x = _pad_odd(x, axis, pair, mode)
            continue
        places = np.pad(np.arange(type_of(x).shape[axis]), pair, mode)
        x = take_static(x, places, axis)
    return x


def _pad_once(x: Any, axis: int, pair: Any, mode: str, odd: bool) -> Any:
    """For symbolic sizes: uses slices, which repeat no element, and broadcast edges."""
    n, skip = type_of(x).shape[axis], int(mode == "reflect")
    if mode != "edge" and (odd or not all(width <= n - skip for width in pair)):
        raise NotImplementedError(
            f"pad: mode {mode!r} of {type_of(x).str_short(True)} by {pair} along dimension {axis} "
            "needs concrete sizes: with symbolic ones, no element may be used twice, and "
            "reflect_type must be 'even'. Export the function for concrete sizes."
        )
    before, after = pair
    if mode == "edge":
        ends = (0, 1), (n - 1, n)
    elif mode == "wrap":
        ends = (n - before, n), (0, after)
    else:
        ends = (skip, skip + before), (n - skip - after, n - skip)
    parts = [ops.slice_in_dim(x, start, stop, axis) for start, stop in ends]
    if mode == "edge":
        shape = type_of(x).shape
        parts = [
            broadcast_in_place(p, (*shape[:axis], count, *shape[axis + 1 :]))
            for p, count in zip(parts, pair, strict=True)
        ]
    elif mode != "wrap":
        parts = [ops.rev(p, dimensions=(axis,)) for p in parts]
    return ops.concatenate(parts[0], x, parts[1], dimension=axis)


def _pad_odd(x: Any, axis: int, pair: tuple[int, int], mode: str) -> Any:
    """Reflected about the edge point, repeatedly if the pad is wider than the array."""
    before, after = pair
    skip = int(mode == "reflect")
    while before or after:
        n = type_of(x).shape[axis]
        if n == 1 and skip:
            return take_static(x, np.pad([0], (before, after)), axis)
        step = n - skip
        left, right = min(before, step), min(after, step)
        low = high = None
        if left:
            edge = ops.slice_in_dim(x, 0, 1, axis)
            low = _mirrored(x, edge, skip, skip + left, axis)
        if right:
            edge = ops.slice_in_dim(x, n - 1, n, axis)
            high = _mirrored(x, edge, n - skip - right, n - skip, axis)
        x = _between(low, x, high, axis)
        before, after = before - left, after - right
    return x


def _mirrored(x: Any, edge: Any, start: int, stop: int, axis: int) -> Any:
    part = ops.rev(ops.slice_in_dim(x, start, stop, axis), dimensions=(axis,))
    edge = broadcast_in_place(edge, type_of(part).shape)
    return binary.subtract(binary.add(edge, edge), part)


@fused
def _pad_ramp(x: Any, *ends: Any, widths: Widths) -> Any:
    for axis, (before, after) in enumerate(widths):
        n = type_of(x).shape[axis]
        if isinstance(before, Symbolic) or isinstance(after, Symbolic):
            raise NotImplementedError(
                f"pad: mode 'linear_ramp' needs concrete widths; got {(before, after)} along "
                f"dimension {axis}. Export the function for concrete sizes."
            )
        low = high = None
        if _some(before):
            low = _ramp(x, ends[2 * axis], 0, before, axis)
        if _some(after):
            high = ops.rev(_ramp(x, ends[2 * axis + 1], n - 1, after, axis), dimensions=(axis,))
        x = _between(low, x, high, axis)
    return x


def _between(low: Any, x: Any, high: Any, axis: int) -> Any:
    """`x` with the parts before and after it, if any."""
    parts = [part for part in (low, x, high) if part is not None]
    return ops.concatenate(*parts, dimension=axis) if len(parts) > 1 else x


def _ramp(x: Any, end: Any, edge_at: int, count: int, axis: int) -> Any:
    """From the end value up to, but not including, the edge."""
    t = type_of(x)
    work: Any = to_inexact(t.dtype)
    shape = list(t.shape)
    shape[axis] = count
    edge = broadcast_in_place(ops.slice_in_dim(x, edge_at, edge_at + 1, axis), tuple(shape))
    weights = (np.arange(count) / count).astype(work)
    weight = basis.broadcast_in_dim(weights, shape=tuple(shape), dims=(axis,))
    edge, end = cast(edge, work), cast(end, work)
    ramp = binary.add(end, binary.multiply(weight, binary.subtract(edge, end)))
    return cast(ramp, t.dtype, t.weak_type)


@fused(arrays=1)
def _pad_statistic(x: Any, widths: Widths, mode: str, lengths: Any) -> Any:
    for axis, (before, after) in enumerate(widths):
        n = type_of(x).shape[axis]
        left, right = (n, n) if lengths is None else lengths[axis]
        low = high = None
        if _some(before):
            low = _statistic(ops.slice_in_dim(x, 0, min(left, n), axis), mode, axis, before)
        if _some(after):
            high = ops.slice_in_dim(x, n - min(right, n), n, axis)
            high = _statistic(high, mode, axis, after)
        x = _between(low, x, high, axis)
    return x


def _statistic(x: Any, mode: str, axis: int, count: int) -> Any:
    t = type_of(x)
    if mode in ("mean", "median"):
        found = (mean if mode == "mean" else median)(x, axis=axis)
        found = cast(found if is_inexact(t.dtype) else round_(found), t.dtype, t.weak_type)
    else:
        found = (reduce_max if mode == "maximum" else reduce_min)(x, axes=(axis,))
    shape = (*t.shape[:axis], count, *t.shape[axis + 1 :])
    kept = tuple(i for i in range(t.ndim) if i != axis)
    return basis.broadcast_in_dim(found, shape=shape, dims=kept)


# -- by a user-defined function --


def _pad_by(x: Any, widths: Widths, function: Callable, kwargs: dict) -> Any:
    ndim = type_of(x).ndim
    x = pad(x, widths, "constant") if ndim else x
    for axis in range(ndim):
        last = moveaxis(x, axis, -1)
        shape = type_of(last).shape
        vectors = unstack(reshape(last, (-1, shape[-1])))
        done = [function(v, widths[axis], axis, kwargs) for v in vectors]
        x = moveaxis(reshape(stack(done), shape), -1, axis)
    return x
