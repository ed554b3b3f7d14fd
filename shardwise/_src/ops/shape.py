"""Ops that move elements without computation: concatenate, pad, slice, rev, split.

Functions that are just a broadcast or a reshape (squeeze, expand_dims, tile) are not ops.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import ShapeError, UnexpectedTracerError
from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.core.op import Elements, Op, is_linear
from shardwise._src.messages.called import by_name, public_call
from shardwise._src.ops.basis import (
    batch_dimension,
    batch_first,
    batch_leading_with,
    broadcast_in_dim,
    check_axes,
    ints,
    reduce_sum,
    reshape,
    zeros,
)
from shardwise._src.ops.elementwise import neg
from shardwise._src.ops.families import add, lit
from shardwise._src.ops.logical import where
from shardwise._src.ops.rules import linear_jvp
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.symbolic import Symbolic


def along(x: ArrayType, worked: Sequence[int]) -> tuple:
    """A factor for each dimension, None for the dimensions that an op works along."""
    return tuple(None if i in worked else f for i, f in enumerate(letters(x.ndim)))


# -- concatenate: operands one after another along `dimension` --


def _concatenate_type(op: Op, *xs: ArrayType, dimension: int) -> ArrayType:
    if not xs:
        raise TypeError("[concatenate] takes at least one operand; got none.")
    x = xs[0]
    if not 0 <= dimension < x.ndim:
        raise ValueError(
            f"[concatenate] dimension must be one of the {x.ndim} dimensions of "
            f"{x.str_short(True)}; got {dimension}."
        )
    if any(t.dtype != x.dtype for t in xs):
        raise TypeError(f"[concatenate] operands must have equal dtypes; got {join_types(xs)}.")
    rest = {t.shape[:dimension] + (0,) + t.shape[dimension + 1 :] for t in xs}
    if len(rest) > 1 or any(t.ndim != x.ndim for t in xs):
        raise TypeError(
            f"[concatenate] operands must have equal sizes in all dimensions but {dimension}; got "
            f"{join_types(xs)}."
        )
    total = sum(t.shape[dimension] for t in xs)
    shape = x.shape[:dimension] + (total,) + x.shape[dimension + 1 :]
    return array_type(shape, x.dtype, all(t.weak_type for t in xs))


def _concatenate_dims(op: Op, *xs: ArrayType, dimension: int) -> Dims:
    names = along(xs[0], (dimension,) if len(xs) > 1 else ())
    linear = (tuple(range(len(xs))),)
    return Dims((names,) * len(xs), (names,), linear=linear, worked="kept")


def each_once(fun: Callable, xs: Sequence[Any]) -> list[Any]:
    """The results of `fun` for each of `xs`, computed once for repeated values."""
    found: dict[int, Any] = {}
    xs = list(xs)  # an array gives new objects each time
    for x in xs:
        if id(x) not in found:
            found[id(x)] = fun(x)
    return [found[id(x)] for x in xs]


def _concatenate_jvp(op: Op, primals: Any, tangents: Any, *, dimension: int) -> tuple[Any, Any]:
    out = concatenate(*primals, dimension=dimension)
    if all(t is None for t in tangents):
        return out, None
    pairs = zip(primals, tangents, strict=True)
    given = [zeros(type_of(x)) if t is None else t for x, t in pairs]
    return out, concatenate(*given, dimension=dimension)


def _concatenate_transpose(op: Op, ct: Any, *xs: Any, dimension: int) -> list[Any]:
    cts: list[Any] = []
    start = 0
    for x in xs:
        stop = start + type_of(x).shape[dimension]
        cts.append(slice_in_dim(ct, start, stop, dimension) if is_linear(x) else None)
        start = stop
    return cts


concatenate = Op(
    "concatenate",
    elements=Elements.MOVED,
    type_rule=_concatenate_type,
    dims=_concatenate_dims,
    lower=lambda op, e, ins, outs, *xs, dimension: e.concatenate(xs, ins, outs[0], dimension),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=batch_leading_with("dimension", lambda d: d + 1),
)


# -- slice: the elements from start to limit, every stride-th, in each dimension --


def _slice_type(
    op: Op,
    x: ArrayType,
    *,
    start_indices: tuple,
    limit_indices: tuple,
    strides: tuple | None = None,
) -> ArrayType:
    steps = strides if strides is not None else (1,) * x.ndim
    if not len(start_indices) == len(limit_indices) == len(steps) == x.ndim:
        raise ShapeError(
            f"[slice] takes a start, a limit and a stride for each of the {x.ndim} dimensions of "
            f"{x.str_short(True)}; got {start_indices}, {limit_indices} and {strides}."
        )
    rows = zip(start_indices, limit_indices, steps, x.shape, strict=True)
    if any(not (0 <= a <= b <= n and s > 0) for a, b, s, n in rows):
        raise TypeError(
            "[slice] starts must not exceed limits, limits must not exceed the sizes of "
            f"{x.str_short(True)}, and strides must be positive; got {start_indices}, "
            f"{limit_indices} and {strides}."
        )
    rows = zip(start_indices, limit_indices, steps, strict=True)
    return array_type(tuple(-((a - b) // s) for a, b, s in rows), x.dtype, x.weak_type)


def _slice_dims(op: Op, x: ArrayType, **p: Any) -> Dims:
    t = _slice_type(op, x, **p)
    names = along(x, [i for i in range(x.ndim) if t.shape[i] != x.shape[i]])
    return Dims((names,), (names,), linear=((0,),), worked="kept")


def _slice_transpose(
    op: Op, ct: Any, x: Any, *, start_indices: tuple, strides: tuple | None = None, **p: Any
) -> list[Any]:
    t = x.aval
    steps = strides if strides is not None else (1,) * t.ndim
    config = []
    for a, m, s, n in zip(start_indices, type_of(ct).shape, steps, t.shape, strict=True):
        config.append((a, n - a - ((m - 1) * s + 1 if s > 1 and m else m), s - 1))
    return [pad(ct, lit(0, ct), padding_config=tuple(config))]


def _slice_batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, int]:
    (d,) = ds
    new = {"start_indices": 0, "limit_indices": mapped.size, "strides": 1}
    wide = {name: v and (*v[:d], new[name], *v[d:]) for name, v in p.items()}
    return op(args[0], **wide), d


slice_ = Op(
    "slice",
    elements=Elements.MOVED,
    type_rule=_slice_type,
    dims=_slice_dims,
    lower=lambda op, e, ins, outs, x, *, start_indices, limit_indices, strides=None: e.slice(
        x, ins[0], start_indices, limit_indices, strides
    ),
    jvp=linear_jvp,
    transpose=_slice_transpose,
    batch=_slice_batch,
)


def slice_in_dim(
    x: Any, start: int | Symbolic, limit: int | Symbolic, axis: int, stride: int = 1
) -> Any:
    """The slice from `start` to `limit` of one dimension; all non-negative."""
    shape = type_of(x).shape
    if (start, limit, stride) == (0, shape[axis], 1):
        return x
    starts: list[int | Symbolic] = [0] * len(shape)
    limits: list[int | Symbolic] = list(shape)
    strides = [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice_(
        x,
        start_indices=tuple(starts),
        limit_indices=tuple(limits),
        strides=None if stride == 1 else tuple(strides),
    )


# -- pad: lo elements before, hi after, interior between; negative lo and hi crop --


def padded_shape(shape: Sequence[int], config: Sequence[tuple]) -> tuple[int, ...]:
    rows = zip(shape, config, strict=True)
    return tuple(
        lo + hi + (n + (n - 1) * inner if inner and n else n) for n, (lo, hi, inner) in rows
    )


def dilated(n: int, dilation: int) -> int:
    """The size of a dimension whose elements are `dilation` apart."""
    return (n - 1) * dilation + 1 if n else 0


def places(n: int, window: int, stride: int) -> int:
    """The number of windows that fit into a dimension."""
    return max((n - window) // stride + 1, 0)


def _pad_type(op: Op, x: ArrayType, value: ArrayType, *, padding_config: tuple) -> ArrayType:
    if value.shape or value.dtype != x.dtype:
        raise TypeError(
            f"[pad] takes an array and a scalar of its dtype; got {join_types((x, value))}."
        )
    if len(padding_config) != x.ndim or any(inner < 0 for _, _, inner in padding_config):
        raise ShapeError(
            f"[pad] padding_config must be (lo, hi, interior) for each of the {x.ndim} dimensions "
            f"of {x.str_short(True)}, interior not negative; got {padding_config}."
        )
    shape = padded_shape(x.shape, padding_config)
    if any(n < 0 for n in shape):
        raise ValueError(
            f"[pad] {x.str_short(True)} with padding_config {padding_config} would have shape "
            f"{shape}: the padding removes more elements than there are."
        )
    return array_type(shape, x.dtype, x.weak_type and value.weak_type)


def _pad_dims(op: Op, x: ArrayType, value: ArrayType, *, padding_config: tuple) -> Dims:
    names = along(x, [i for i, c in enumerate(padding_config) if c != (0, 0, 0)])
    return Dims((names, ()), (names,), linear=((0,),), worked="kept")


def _pad_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    t, tv = tangents
    out = pad(*primals, **p)
    if t is None and tv is None:
        return out, None
    t = zeros(type_of(primals[0])) if t is None else t
    return out, pad(t, lit(0, t) if tv is None else tv, **p)


def _pad_transpose(op: Op, ct: Any, x: Any, value: Any, *, padding_config: tuple) -> list[Any]:
    cut = tuple((-lo, -hi, 0) for lo, hi, _ in padding_config)
    inner = pad(ct, lit(0, ct), padding_config=cut)
    shape = type_of(inner).shape
    if any(c[2] for c in padding_config):
        inner = slice_(
            inner,
            start_indices=(0,) * len(shape),
            limit_indices=shape,
            strides=tuple(c[2] + 1 for c in padding_config),
        )
    ct_value = None
    if is_linear(value):
        axes = tuple(range(len(shape)))
        ct_value = add(reduce_sum(ct, axes=axes), neg(reduce_sum(inner, axes=axes)))
    return [inner if is_linear(x) else None, ct_value]


def _pad_batch(
    op: Op, mapped: Any, args: Any, ds: Any, *, padding_config: tuple
) -> tuple[Any, int]:
    x, value = args
    if ds[1] is None:
        config = (*padding_config[: ds[0]], (0, 0, 0), *padding_config[ds[0] :])
        return pad(x, value, padding_config=config), ds[0]
    x = batch_first(mapped.size, x, ds[0])
    config = ((0, 0, 0), *padding_config)
    shape = type_of(x).shape
    inside = broadcast_in_dim(np.True_, shape=shape, dims=())
    inside = pad(inside, np.False_, padding_config=config)
    spread = broadcast_in_dim(value, shape=type_of(inside).shape, dims=(0,))
    return where(inside, pad(x, lit(0, x), padding_config=config), spread), 0


pad = Op(
    "pad",
    elements=Elements.MOVED,
    type_rule=_pad_type,
    dims=_pad_dims,
    lower=lambda op, e, ins, outs, x, value, *, padding_config: e.pad(
        x, value, ins[0], padding_config
    ),
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
)


# -- rev: the elements in reverse order along `dimensions` --


def _rev_type(op: Op, x: ArrayType, *, dimensions: tuple) -> ArrayType:
    check_axes("rev", x, dimensions)
    return x.update(spec=None, mesh=None)


def _rev_dims(op: Op, x: ArrayType, *, dimensions: tuple) -> Dims:
    names = along(x, dimensions)
    return Dims((names,), (names,), linear=((0,),), worked="kept")


def _rev_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, dimensions: tuple) -> str:
    return e.let(f"stablehlo.reverse {x}, dims = {ints(dimensions)} : {e.ty(ins[0])}")


rev = Op(
    "rev",
    elements=Elements.MOVED,
    type_rule=_rev_type,
    dims=_rev_dims,
    lower=_rev_lower,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [op(ct, **p)],
    batch=batch_dimension("dimensions"),
)


# -- split: parts of the given sizes along `axis` --


def _split_type(op: Op, x: ArrayType, *, sizes: tuple, axis: int) -> tuple[ArrayType, ...]:
    if not 0 <= axis < x.ndim or sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes):
        raise ValueError(
            f"[split] sizes must add up to the size of dimension {axis} of {x.str_short(True)}; "
            f"got {sizes}."
        )
    shapes = [x.shape[:axis] + (n,) + x.shape[axis + 1 :] for n in sizes]
    return tuple(array_type(shape, x.dtype, x.weak_type) for shape in shapes)


def _split_dims(op: Op, x: ArrayType, *, sizes: tuple, axis: int) -> Dims:
    names = along(x, (axis,))
    return Dims((names,), (names,) * len(sizes), linear=((0,),), worked="kept")


def _split_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, sizes: tuple, axis: int
) -> list[str]:
    parts, start = [], 0
    for out, n in zip(outs, sizes, strict=True):
        starts, limits = [0] * out.ndim, list(ins[0].shape)
        starts[axis], limits[axis] = start, start + n
        start += n
        parts.append(e.slice(x, ins[0], starts, limits))
    return parts


def _split_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    outs = split(primals[0], **p)
    return outs, [None] * len(outs) if tangents[0] is None else split(tangents[0], **p)


def _split_transpose(op: Op, cts: Any, x: Any, *, sizes: tuple, axis: int) -> list[Any]:
    like = next(type_of(ct) for ct in cts if ct is not None)
    types = _split_type(op, x.aval.update(dtype=like.dtype), sizes=sizes, axis=axis)
    pairs = zip(cts, [t.update(spec=like.spec, mesh=like.mesh) for t in types], strict=True)
    return [concatenate(*[zeros(t) if ct is None else ct for ct, t in pairs], dimension=axis)]


split = Op(
    "split",
    multiple=True,
    elements=Elements.MOVED,
    type_rule=_split_type,
    dims=_split_dims,
    lower=_split_lower,
    jvp=_split_jvp,
    transpose=_split_transpose,
    batch=batch_dimension("axis"),
)


# -- functions over broadcast and reshape --


def canonical_axis(axis: Any, ndim: int) -> int:
    """A non-negative axis; raises if out of range."""
    try:
        i = operator.index(axis)
    except UnexpectedTracerError:
        raise
    except TypeError:
        name = public_call()
        what = f"{name}: axis" if name else "an axis"
        if hasattr(axis, "needed_for_shape"):
            raise axis.needed_for_shape(what) from None
        raise TypeError(f"{what} must be an integer; got {axis!r}.") from None
    if not -ndim <= i < ndim:
        text = by_name(f"axis {i} is out of bounds for array of dimension {ndim}")
        raise np.exceptions.AxisError(text)  # a ValueError and an IndexError
    return i + ndim if i < 0 else i


def squeeze(x: Any, axes: Sequence[int]) -> Any:
    """`x` without the dimensions `axes`, which have size 1."""
    t = type_of(x)
    if len(set(axes)) < len(axes):
        raise ShapeError(by_name(f"axes must be distinct; got {tuple(axes)}."))
    bad = [a for a in axes if t.shape[a] != 1]
    if bad:
        raise ValueError(
            "cannot select an axis to squeeze out which has size not equal to one, "
            f"got shape={t.shape} and dimensions={tuple(axes)}"
        )
    if not axes:
        return check_alive(x)
    return reshape(x, shape=tuple(n for i, n in enumerate(t.shape) if i not in axes))


def expand_dims(x: Any, axes: Sequence[int]) -> Any:
    """`x` with new dimensions of size 1 at the positions `axes` of the result."""
    if not axes:
        return check_alive(x)
    sizes = iter(type_of(x).shape)
    ndim = type_of(x).ndim + len(axes)
    return reshape(x, shape=tuple(1 if i in axes else next(sizes) for i in range(ndim)))


def tile(x: Any, reps: Sequence[int]) -> Any:
    """`x` repeated `reps[i]` times along each dimension i."""
    shape = type_of(x).shape
    if all(r == 1 for r in reps):
        return check_alive(x)
    wide = [n for pair in zip(reps, shape, strict=True) for n in pair]
    kept = tuple(range(1, 2 * len(shape), 2))
    out = broadcast_in_dim(x, shape=tuple(wide), dims=kept)
    return reshape(out, shape=tuple(r * n for r, n in zip(reps, shape, strict=True)))
