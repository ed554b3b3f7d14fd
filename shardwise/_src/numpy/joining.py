"""Joining and splitting arrays: concatenate, stack, split and related functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.fused import body_of, eager_jit, fused
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.core.remedies import gathered
from shardwise._src.messages.called import public_call
from shardwise._src.numpy.shapes import no_lists, reshape, with_ranks
from shardwise._src.numpy.statistics.reductions import checked_dtype
from shardwise._src.ops import basis
from shardwise._src.ops import shape as ops
from shardwise._src.ops.shape import canonical_axis, each_once
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, Ints
from shardwise._src.values.convert import as_integer, broadcast_to, cast, promote


def each_array(name: str, arrays: Any) -> list[Any]:
    """The operands of a joining function: a sequence of arrays, or the rows of an array."""
    if arrays.__class__ is not list and (is_array(arrays) or isinstance(arrays, np.ndarray)):
        if not type_of(arrays).ndim:
            raise TypeError(f"{name} takes a sequence of arrays; got a scalar.")
        arrays = unstack(arrays)
    found = list(arrays)
    if not found:
        raise ValueError(f"{name} needs at least one array.")
    no_lists(name, *found)
    return found


def _no_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"{name}: arrays are immutable, so `out` must be None.")


# -- joining --


@fused
def _concatenate(*arrays: Any, axis: int | None, dtype: Any) -> Any:
    if axis is None:
        arrays = tuple(basis.reshape(x, shape=(type_of(x).size,)) for x in arrays)
    else:
        axis = _checked_axis(axis, [type_of(x) for x in arrays])
    xs = promote(*arrays) if dtype is None else [cast(x, dtype) for x in arrays]
    xs = [x if is_array(x) else broadcast_to(x, type_of(x).shape) for x in xs]
    return ops.concatenate(*xs, dimension=axis or 0) if len(xs) > 1 else xs[0]


def _checked_axis(axis: int, types: list[Any]) -> int:
    ndim = types[0].ndim
    if not ndim:
        raise ValueError("concatenate: scalars have no dimension to concatenate along; use stack.")
    if any(t.ndim != ndim for t in types):
        shapes = ", ".join(str(t.shape) for t in types)
        who = public_call() or "concatenate"
        raise TypeError(
            f"{who}: arrays must have the same number of dimensions; got shapes {shapes}."
        )
    return canonical_axis(axis, ndim)


def concatenate(arrays: Sequence[ArrayLike], axis: int | None = 0, dtype: Any = None) -> Array:
    """Joins arrays along an existing dimension; with `axis=None`, flattens them first."""
    xs = each_array("concatenate", arrays)
    if axis is not None and axis.__class__ is not int:
        axis = canonical_axis(axis, type_of(xs[0]).ndim)
    return _concatenate(*xs, axis=axis, dtype=checked_dtype(dtype, "concatenate"))


def concat(arrays: Sequence[ArrayLike], /, *, axis: int | None = 0) -> Array:
    """`concatenate`, as in the array API standard."""
    return concatenate(arrays, axis)


@fused
def _stack(*arrays: Any, axis: int, dtype: Any) -> Any:
    wide = each_once(lambda x: ops.expand_dims(x, (axis,)), arrays)
    return body_of(_concatenate)(*wide, axis=axis, dtype=dtype)


def stack(
    arrays: ArrayLike | Sequence[ArrayLike],
    axis: int = 0,
    out: None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Joins arrays of the same shape along a new dimension."""
    _no_out("stack", out)
    xs = each_array("stack", arrays)
    shapes = [type_of(x).shape for x in xs]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"stack: arrays must have the same shape; got {', '.join(map(str, shapes))}."
        )
    place = canonical_axis(axis, len(shapes[0]) + 1)
    return _stack(*xs, axis=place, dtype=checked_dtype(dtype, "stack"))


@fused
def _joined(*arrays: Any, ndim: int, axis: int | None, dtype: Any) -> Any:
    """Concatenates, with at least `ndim` dimensions each. None: the second, or the only one."""
    xs = body_of(with_ranks)(*arrays, ndim=ndim)
    if axis is None:
        axis = 0 if type_of(xs[0]).ndim == 1 else 1
    return body_of(_concatenate)(*xs, axis=axis, dtype=dtype)


def vstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays vertically: along the first of at least two dimensions."""
    return _joined(*each_array("vstack", tup), ndim=2, axis=0, dtype=checked_dtype(dtype, "vstack"))


row_stack = vstack


def hstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays horizontally: along the second dimension, or the only one."""
    wanted = checked_dtype(dtype, "hstack")
    return _joined(*each_array("hstack", tup), ndim=1, axis=None, dtype=wanted)


def dstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Stacks arrays in depth: along the third of at least three dimensions."""
    return _joined(*each_array("dstack", tup), ndim=3, axis=2, dtype=checked_dtype(dtype, "dstack"))


def column_stack(tup: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Stacks vectors as the columns of a matrix; matrices are used unchanged."""
    return _column_stack(*each_array("column_stack", tup))


@fused
def _column_stack(*arrays: Any) -> Any:
    def column(x: Any) -> Any:
        t = type_of(x)
        return x if t.ndim > 1 else reshape(x, (t.size, 1))

    return concatenate(each_once(column, arrays), 1)


@eager_jit(arrays=2)
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """`values` appended to `arr` along `axis`; None flattens both."""
    return concatenate([arr, values], axis)


def block(arrays: ArrayLike | Sequence[ArrayLike]) -> Array:
    """An array assembled from nested lists of blocks; the innermost lists are joined along the last
    dimension."""
    blocks: list[Any] = []
    places = _places(arrays, blocks)
    return _block(*blocks, places=places, depth=_depth(places))


def _places(arrays: Any, blocks: list[Any]) -> Any:
    """The lists as tuples of block indices; appends the blocks to `blocks`."""
    if isinstance(arrays, tuple):
        raise TypeError("block: blocks must be arranged in lists, not tuples.")
    if isinstance(arrays, list):
        return tuple([_places(a, blocks) for a in arrays])
    blocks.append(arrays)
    return len(blocks) - 1


def _depth(places: Any) -> int:
    if isinstance(places, int):
        return 0
    depths = {_depth(p) for p in places}
    if len(depths) != 1:
        raise ValueError(
            "block: lists must not be empty, and must all be nested to the same depth."
        )
    return depths.pop() + 1


@fused
def _block(*blocks: Any, places: Any, depth: int) -> Any:
    rank = max(depth, *[type_of(x).ndim for x in blocks])

    def put_together(places: Any, axis: int) -> Any:
        if isinstance(places, tuple):
            return concatenate([put_together(p, axis + 1) for p in places], axis)
        shape = type_of(blocks[places]).shape
        return reshape(blocks[places], (1,) * (rank - len(shape)) + shape)

    return put_together(places, rank - depth)


# -- splitting --


@fused(arrays=1)
def _split(x: Any, sizes: tuple, axis: int) -> list[Any]:
    return ops.split(x, sizes=sizes, axis=axis)


@eager_jit
def array_split(
    ary: ArrayLike, indices_or_sections: ArrayLike | Ints, axis: int = 0
) -> list[Array]:
    """Splits along `axis` into parts of nearly equal size, or before the given indices."""
    return _cut("array_split", ary, indices_or_sections, axis, even=False)


@eager_jit
def split(ary: ArrayLike, indices_or_sections: ArrayLike | Ints, axis: int = 0) -> list[Array]:
    """Splits along `axis` into parts of equal size, or before the given indices."""
    return _cut("split", ary, indices_or_sections, axis, even=True)


def _cut(name: str, ary: Any, sections: Any, axis: int, even: bool) -> list[Any]:
    no_lists(name, ary)
    t = type_of(ary)
    if not t.ndim:
        raise ValueError(f"{name}: a scalar cannot be split.")
    axis = canonical_axis(axis, t.ndim)
    n = t.shape[axis]
    if isinstance(sections, Sequence) or getattr(sections, "ndim", 0):
        places = [as_integer(i, f"{name}: indices_or_sections") for i in sections]
        cuts = [0, *[min(max(i + n if i < 0 else i, 0), n) for i in places], n]
        sizes = [b - a for a, b in pairwise(cuts)]
        if any(s < 0 for s in sizes):
            return [_part(ary, a, max(a, b), axis) for a, b in pairwise(cuts)]
    else:
        count = as_integer(sections, f"{name}: indices_or_sections")
        if count <= 0:
            raise ValueError(f"{name}: the number of sections must be positive; got {count}.")
        if even and n % count:
            raise ValueError(
                f"{name}: dimension {axis} of size {n} cannot be split into {count} equal parts: "
                f"the remainder is {n % count}. Use array_split for parts of unequal size."
            )
        sizes = [n // count + (i < n % count) for i in range(count)]
    return list(_split(ary, tuple(sizes), axis))


_part = fused(ops.slice_in_dim)


@eager_jit
def vsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Ints) -> list[Array]:
    """Splits along the first dimension."""
    return split(ary, indices_or_sections, 0)


@eager_jit
def hsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Ints) -> list[Array]:
    """Splits along the second dimension, or the only one."""
    return split(ary, indices_or_sections, 0 if type_of(ary).ndim == 1 else 1)


@eager_jit
def dsplit(ary: ArrayLike, indices_or_sections: ArrayLike | Ints) -> list[Array]:
    """Splits along the third dimension."""
    return split(ary, indices_or_sections, 2)


@fused(arrays=1)
def _unstack(x: Any, axis: int) -> list[Any]:
    n = type_of(x).shape[axis]
    if n == 1:
        return [ops.squeeze(x, (axis,))]
    return [ops.squeeze(p, (axis,)) for p in ops.split(x, sizes=(1,) * n, axis=axis)]


@eager_jit
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices `x[0]`, `x[1]`, … along `axis`, which no explicit mesh axis may shard."""
    t = type_of(x)
    if not t.ndim:
        raise ValueError("unstack: a scalar has no dimension to unstack.")
    axis = canonical_axis(axis, t.ndim)
    if t.spec is not None and t.spec.dims(t.ndim)[axis]:
        raise ShardingTypeError(
            f"unstack: x of type {t.str_short(True)} is sharded along dimension {axis}, of which "
            f"each device would need all. Use {gathered('x', t, axis)}."
        )
    return tuple(_unstack(x, axis)) if t.shape[axis] else ()
