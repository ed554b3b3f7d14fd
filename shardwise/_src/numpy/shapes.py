"""Shapes: reshaping, broadcasting, moving and adding dimensions, reversing.

Joining and splitting are in `joining`; rearranging elements (roll, repeat, …) in `rearrange`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol, overload

from shardwise._src.base.errors import (
    ShapeError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardwise._src.base.named import named
from shardwise._src.core.fused import body_of, eager_jit, fused
from shardwise._src.core.infer import check_alive, is_array, type_of
from shardwise._src.messages.called import by_name, public_call
from shardwise._src.messages.formatting import brief
from shardwise._src.ops import basis
from shardwise._src.ops import shape as ops
from shardwise._src.ops.elementwise import copy as copy_op
from shardwise._src.ops.shape import canonical_axis, each_once
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, Axis, Ints, OutSharding, ShapeLike
from shardwise._src.types.symbolic import as_integer
from shardwise._src.types.symbolic import broadcast_shapes as common_shape
from shardwise._src.values.convert import broadcast_to as _broadcast
from shardwise._src.values.convert import reject_traced

# -- arguments --


def shape_of(shape: Any) -> tuple[int, ...]:
    """Normalizes a shape argument: an integer or a sequence of integers; -1 is preserved."""
    if shape.__class__ is int:
        return (shape,)
    try:
        return tuple(map(operator.index, shape))
    except TypeError as error:
        with suppress(TypeError):
            return tuple(map(as_integer, shape))
        sizes: Sequence[Any] = shape if isinstance(shape, tuple | list) else (shape,)
        if isinstance(error, TracerIntegerConversionError | UnexpectedTracerError):
            _reject_traced_sizes(sizes, error)
    try:
        size: Any = shape
        return (as_integer(size),)
    except TypeError as error:
        _reject_traced_sizes(sizes, error)
        message = f"a shape must consist of concrete integers; got {brief(shape)}."
        raise TypeError(by_name(message)) from None


def _reject_traced_sizes(sizes: Sequence[Any], error: Exception) -> None:
    name = public_call()
    for size in sizes:
        if is_array(size) and hasattr(size, "needed_for_shape"):
            reject_traced(size, f"{name}: shape" if name else "a shape", error)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalizes an axis argument, an integer or several, to non-negative axes."""
    if axis.__class__ is int:
        return (canonical_axis(axis, ndim),)
    try:
        each = tuple(axis)
    except TypeError:
        each = (axis,)
    axes = tuple([canonical_axis(a, ndim) for a in each])
    if len(set(axes)) != len(axes):
        raise ShapeError(f"axes must be distinct; got {axis}.")
    return axes


_SEQUENCES = (list, tuple)


def no_lists(name: str, *args: Any) -> None:
    """Rejects Python sequences where an array is expected."""
    for a in args:
        if isinstance(a, _SEQUENCES):
            raise TypeError(
                f"{name} takes arrays; got the {type(a).__name__} {a!r}. Use asarray on it first."
            )


# -- reshaping --


def new_shape(old: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    """The target shape of a reshape, with -1 replaced by the remaining size."""
    new = shape_of(shape)
    size, known = math.prod(old), math.prod(new)
    if -1 in new:
        if new.count(-1) > 1:
            raise ShapeError(f"reshape: only one size can be -1; got {new}.")
        known = -known
        if known == 0 or size % known:
            raise ShapeError(
                f"reshape: an array of shape {old} ({size} elements) cannot have the shape {new}: "
                f"{size} is not a multiple of {known}."
            )
        new = tuple(size // known if n == -1 else n for n in new)
    elif known != size:
        raise ShapeError(
            f"reshape: an array of shape {old} ({size} elements) cannot have the shape {new} "
            f"({known} elements)."
        )
    return new


@fused(arrays=1)
def _reshape(x: Any, shape: tuple, order: str = "C") -> Any:
    if order == "C":
        return basis.reshape(x, shape=shape) if type_of(x).shape != shape else x
    backwards = basis.transpose(x, perm=tuple(reversed(range(type_of(x).ndim))))
    flipped = basis.reshape(backwards, shape=shape[::-1])
    return basis.transpose(flipped, perm=tuple(reversed(range(len(shape)))))


def reshape(
    a: ArrayLike,
    shape: ShapeLike,
    order: str = "C",
    *,
    copy: bool | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """The elements of `a` in another shape. One size may be -1: the remaining size.

    order: "C", the last dimension varies fastest, or "F", the first one.
    copy: True for separate memory; False raises an error unless the shape is unchanged, since there
      are no views.
    """
    no_lists("reshape", a)
    if order not in ("C", "F"):
        raise ValueError(f"reshape: order must be 'C' or 'F'; got {order!r}.")
    if out_sharding is not None:
        new = new_shape(type_of(a).shape, shape)
        _check_copy(a, new, copy, True)
        return placed(_reshape, out_sharding, a, new, order)
    if copy is None:
        return _reshape(a, new_shape(type_of(a).shape, shape), order)
    new = new_shape(type_of(a).shape, shape)
    _check_copy(a, new, copy, order != "C" and len(new) > 1)
    return _reshape_copied(a, new, order) if copy else check_alive(a)


def _check_copy(a: Any, new: tuple, copy: bool | None, moves: bool) -> None:
    if copy is False and (moves or type_of(a).shape != new or not is_array(a)):
        raise ValueError(
            f"reshape: copy=False is not possible, as reshaping {type_of(a).str_short(True)} to "
            f"{new} creates a separate array. Leave copy out."
        )


@fused(arrays=1)
def _reshape_copied(x: Any, shape: tuple, order: str) -> Any:
    return copy_op(body_of(_reshape)(x, shape, order))


@eager_jit
def ravel(a: ArrayLike, order: str = "C", *, out_sharding: OutSharding = None) -> Array:
    """All elements in one dimension."""
    return reshape(a, (-1,) if type_of(a).size else (0,), order, out_sharding=out_sharding)


@fused(arrays=1)
def _transpose(x: Any, perm: tuple) -> Any:
    return basis.transpose(x, perm=perm)


def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permuted dimensions: dimension i of the result is `axes[i]` of `a`; None reverses them."""
    no_lists("transpose", a)
    ndim = type_of(a).ndim
    if axes is None:
        return _transpose(a, tuple(range(ndim))[::-1])
    perm = tuple([canonical_axis(i, ndim) for i in axes])
    if len(perm) != ndim or len(set(perm)) != ndim:
        raise ShapeError(
            f"transpose: axes must name each of the {ndim} dimensions once; got {tuple(axes)}."
        )
    return _transpose(a, perm)


def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permuted dimensions (see `transpose`)."""
    return transpose(a, axes)


@eager_jit
def matrix_transpose(x: ArrayLike, /) -> Array:
    """The array with its last two dimensions swapped."""
    if type_of(x).ndim < 2:
        raise ValueError(
            f"matrix_transpose needs at least two dimensions; got {type_of(x).str_short(True)}."
        )
    return swapaxes(x, -1, -2)


@eager_jit
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """The array with two dimensions swapped."""
    ndim = type_of(a).ndim
    i, j = canonical_axis(axis1, ndim), canonical_axis(axis2, ndim)
    perm = list(range(ndim))
    perm[i], perm[j] = j, i
    return _transpose(a, tuple(perm))


@eager_jit
def moveaxis(a: ArrayLike, source: Ints, destination: Ints) -> Array:
    """Moves the dimensions `source` to `destination`; other dimensions keep their order."""
    no_lists("moveaxis", a)
    ndim = type_of(a).ndim
    from_, to = axes_of(source, ndim), axes_of(destination, ndim)
    if len(from_) != len(to):
        raise ValueError(
            f"moveaxis needs as many sources as destinations; got {source} and {destination}."
        )
    perm = [i for i in range(ndim) if i not in from_]
    for place, axis in sorted(zip(to, from_, strict=True)):
        perm.insert(place, axis)
    return _transpose(a, tuple(perm))


@eager_jit
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Moves dimension `axis` to before `start`; `moveaxis` is easier to read."""
    ndim = type_of(a).ndim
    i = canonical_axis(axis, ndim)
    before = operator.index(start)
    if not -ndim <= before <= ndim:
        raise ValueError(f"rollaxis: start must be from {-ndim} to {ndim}; got {start}.")
    before += ndim if before < 0 else 0
    return moveaxis(a, i, before - (before > i))


_expand = fused(ops.expand_dims)


@eager_jit
def expand_dims(a: ArrayLike, axis: Ints) -> Array:
    """Adds dimensions of size 1 at the positions `axis` of the result."""
    no_lists("expand_dims", a)
    count = 1 if axis.__class__ is int or not isinstance(axis, Sequence) else len(axis)
    return _expand(a, axes_of(axis, type_of(a).ndim + count))


_squeeze = fused(ops.squeeze)


@eager_jit
def squeeze(a: ArrayLike, axis: Axis = None) -> Array:
    """Removes dimensions of size 1: all of them, or only those in `axis`."""
    no_lists("squeeze", a)
    shape = type_of(a).shape
    if axis is None:
        return _squeeze(a, tuple([i for i, n in enumerate(shape) if n == 1]))
    return _squeeze(a, axes_of(axis, len(shape)))


@fused
def with_ranks(*arrays: Any, ndim: int) -> list[Any]:
    return each_once(lambda x: _with_rank(x, ndim), arrays)


def _with_rank(x: Any, ndim: int) -> Any:
    shape = type_of(x).shape
    if len(shape) >= ndim:
        return x
    if ndim == 3 and len(shape):
        new = (*((1,) if len(shape) == 1 else ()), *shape, 1)
    else:
        new = (1,) * (ndim - len(shape)) + shape
    return basis.reshape(x, shape=new)


class AtLeast(Protocol):
    @overload
    def __call__(self, a: ArrayLike, /) -> Array: ...
    @overload
    def __call__(self, a: ArrayLike, b: ArrayLike, /, *arys: ArrayLike) -> list[Array]: ...
    @overload
    def __call__(self, *arys: ArrayLike) -> Array | list[Array]: ...


def _atleast(ndim: int, doc: str) -> AtLeast:
    name = f"atleast_{ndim}d"

    def fun(*arys: ArrayLike) -> Array | list[Array]:
        no_lists(name, *arys)
        found = with_ranks(*arys, ndim=ndim)
        return found[0] if len(arys) == 1 else found

    made: Any = eager_jit(named(fun, name, doc))
    return made


atleast_1d = _atleast(1, "Each array with at least one dimension.")
atleast_2d = _atleast(2, "Each array with at least two dimensions, new ones in front.")
atleast_3d = _atleast(
    3, "Each array with at least three dimensions: n becomes (1, n, 1), (m, n) becomes (m, n, 1)."
)

# -- broadcasting --


_broadcast_to = fused(_broadcast)


def broadcast_to(array: ArrayLike, shape: ShapeLike, *, out_sharding: OutSharding = None) -> Array:
    """`array` broadcast to `shape` by NumPy's rule."""
    no_lists("broadcast_to", array)
    new, old = shape_of(shape), type_of(array).shape
    pairs = zip(reversed(old), reversed(new), strict=False)
    if len(old) > len(new) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(f"broadcast_to: shape {old} does not broadcast to {new}.")
    return placed(_broadcast_to, out_sharding, array, new)


def broadcast_shapes(*shapes: ShapeLike) -> tuple[int, ...]:
    """The common broadcast shape of these shapes."""
    sizes = [shape_of(s) for s in shapes]
    try:
        return common_shape(*sizes)
    except ValueError:
        message = f"shapes {', '.join(map(str, sizes))} do not broadcast together."
        raise ValueError(by_name(message)) from None


@fused
def _broadcast_arrays(*arrays: Any, shape: tuple) -> list[Any]:
    return [_broadcast(x, shape) for x in arrays]


@eager_jit
def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays, each broadcast to their common shape."""
    no_lists("broadcast_arrays", *args)
    if not args:
        return []
    return _broadcast_arrays(*args, shape=broadcast_shapes(*[type_of(a).shape for a in args]))


# -- reversing --


@fused(arrays=1)
def _flip(x: Any, axes: tuple) -> Any:
    return ops.rev(x, dimensions=axes)


@eager_jit
def flip(m: ArrayLike, axis: Axis = None) -> Array:
    """The elements in reverse order along `axis`; along all dimensions by default."""
    no_lists("flip", m)
    ndim = type_of(m).ndim
    return _flip(m, tuple(range(ndim)) if axis is None else axes_of(axis, ndim))


@eager_jit
def fliplr(m: ArrayLike) -> Array:
    """The second dimension reversed."""
    return flip(m, 1)


@eager_jit
def flipud(m: ArrayLike) -> Array:
    """The first dimension reversed."""
    return flip(m, 0)


@fused(arrays=1)
def _rot90(x: Any, k: int, axes: tuple) -> Any:
    if not k:
        return x
    a, b = axes
    perm = list(range(type_of(x).ndim))
    perm[a], perm[b] = b, a
    if k == 2:
        return ops.rev(x, dimensions=axes)
    if k == 1:
        return basis.transpose(ops.rev(x, dimensions=(b,)), perm=tuple(perm))
    return ops.rev(basis.transpose(x, perm=tuple(perm)), dimensions=(b,))


@eager_jit
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotated by `k` quarter turns in the plane of two dimensions, from the first to the second."""
    no_lists("rot90", m)
    plane = axes_of(axes, type_of(m).ndim)
    if len(plane) != 2:
        raise ValueError(f"rot90: axes must name two dimensions; got {axes}.")
    return _rot90(m, k % 4, plane)
