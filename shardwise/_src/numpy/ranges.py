"""Ranges and grids: arange, linspace, logspace, meshgrid, indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

from shardwise._src.base.errors import TracerArrayConversionError
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import body_of, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import INT, as_operand, dtype_of, shape_of
from shardwise._src.ops import create
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DeviceLike, DTypeLike, OutSharding
from shardwise._src.types.dtypes import (
    canonicalize,
    is_bool,
    is_complex,
    is_float,
    is_integer,
    real_dtype,
    to_inexact,
)
from shardwise._src.types.promotion import result_type
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.values import binary
from shardwise._src.values.convert import (
    as_integer,
    broadcast,
    broadcast_to,
    cast,
    constant,
    promote_inexact,
    reject_traced,
)

# -- ranges --


@fused(arrays=0)
def count_up(size: int, dtype: Any) -> Any:
    return create.iota(dtype=dtype, shape=(size,), dimension=0)


@fused(arrays=2)
def _steps(start: Any, step: Any, size: int) -> Any:
    count = create.iota(dtype=type_of(start).dtype, shape=(size,), dimension=0)
    return ew.add(ew.mul(count, step), start)


def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Numbers from `start` (0 if only one bound is given) up to but excluding `stop`, by `step`.

    dtype: if None, the promoted dtype of the arguments.
    """
    low, high = (0, start) if stop is None else (start, stop)
    apart = 1 if step is None else step
    if dtype is None and low.__class__ is high.__class__ is apart.__class__ is int:
        wanted = canonicalize(INT)
    elif dtype is None:
        wanted = result_type(*[as_operand(v) for v in (start, stop, step) if v is not None])
    else:
        wanted = dtype_of(dtype, "arange")
    if is_bool(wanted):
        raise TypeError("arange does not support booleans. Pass dtype=int.")
    bounds = _number(low, "start"), _number(high, "stop"), _number(apart, "step")
    if out_sharding is not None:
        return placed(_range, out_sharding, *bounds, wanted)
    made = _range(*bounds, wanted)
    return made if device is None else eval_trace().place(made, device)


def _number(x: Any, argument: str) -> Any:
    """A concrete scalar argument of `arange`, as a host value."""
    if x.__class__ is int or x.__class__ is float or isinstance(x, Symbolic):
        return x
    try:
        host = np.asarray(x)
    except TracerArrayConversionError as error:
        reject_traced(x, f"arange: {argument}", error)
        raise
    if host.ndim:
        raise ValueError(f"arange takes scalars; got an array of shape {host.shape}.")
    return host.item()


def _range(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    whole = all([isinstance(n, int | Symbolic) for n in (start, stop, step)])
    size = -((start - stop) // step) if whole else math.ceil((stop - start) / step)
    size = size if size >= 0 else 0
    if start == 0 and step == 1:
        return count_up(size, dtype)
    if whole and is_integer(dtype):
        first, each = [np.asarray(v).astype(dtype)[()] for v in (start, step)]
        return _steps(first, each, size)
    narrow = is_float(dtype) and dtype.itemsize < 4
    kind: Any = np.dtype("float32") if narrow else dtype
    return eval_trace().new_array(np.arange(start, stop, step, dtype=kind).astype(dtype))


@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: Literal[False] = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike = None,
) -> Array: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    *,
    retstep: Literal[True],
    dtype: DTypeLike | None = None,
    axis: int = 0,
    device: DeviceLike = None,
) -> tuple[Array, Array]: ...
@overload
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike = None,
) -> Array | tuple[Array, Array]: ...
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike | None = None,
    axis: int = 0,
    *,
    device: DeviceLike = None,
) -> Array | tuple[Array, Array]:
    """`num` numbers from `start` to `stop`, evenly spaced along a new dimension `axis`.

    endpoint: whether the last one is `stop`.
    retstep:  whether to return the step as well.
    dtype:    a float if None.
    """
    count = _size(num, "linspace")
    wanted = None if dtype is None else dtype_of(dtype, "linspace")
    how = count, bool(endpoint), wanted, axis
    numbers = _linspace(as_operand(start), as_operand(stop), *how)
    if device is not None:
        numbers = eval_trace().place(numbers, device)
    return (numbers, _distance(start, stop, *how)) if retstep else numbers


def _size(num: Any, name: str) -> int:
    count = num if num.__class__ is int else as_integer(num, f"{name}: num")
    if count < 0:
        raise ValueError(f"{name}: num must not be negative; got {num}.")
    return count


@fused(arrays=2)
def _distance(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    low, high, parts = _ends(start, stop, num, endpoint, dtype)
    if parts > 0:
        return ew.div(ew.sub(high, low), constant(parts, low))
    return create.full(np.nan, type_of(low).shape, type_of(low).dtype)


def _ends(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any) -> tuple[Any, Any, int]:
    """Both ends, in the dtype to compute in, and the number of steps between them."""
    ends = promote_inexact(start, stop)
    inside = type_of(ends[0]).dtype if dtype is None else to_inexact(dtype)
    low, high = broadcast(*[cast(v, inside) for v in ends], checked=False)
    return low, high, num - 1 if endpoint else num


@fused(arrays=2)
def _linspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    low, high, parts = _ends(start, stop, num, endpoint, dtype)
    inside = type_of(low).dtype
    shape = max(type_of(low).shape, type_of(high).shape, key=len)
    low, high = [_new_dimension(v, num, shape) for v in (low, high)]
    numbers = low
    if parts > 0:
        count = create.iota(dtype=real_dtype(inside), shape=(num, *shape), dimension=0)
        at = cast(ew.div(count, constant(parts, count)), inside)
        numbers = ew.add(ew.mul(low, ew.sub(constant(1, at), at)), ew.mul(high, at))
        if endpoint:
            numbers = ew.where(ew.eq(count, constant(parts, count)), high, numbers)
    if dtype is not None and is_integer(dtype):
        numbers = ew.floor(numbers)
    numbers = cast(numbers, inside if dtype is None else dtype)
    return move_axis(numbers, 0, canonical_axis(axis, len(shape) + 1))


def _new_dimension(x: Any, size: int, shape: tuple) -> Any:
    x = broadcast_to(x, shape)
    return broadcast_in_dim(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """`base` raised to `linspace(start, stop, num)`."""
    wanted = None if dtype is None else dtype_of(dtype, "logspace")
    ends = as_operand(start), as_operand(stop)
    return _logspace(*ends, base, _size(num, "logspace"), bool(endpoint), wanted, axis)


@fused(arrays=3)
def _logspace(
    start: Any, stop: Any, base: Any, num: int, endpoint: bool, dtype: Any, axis: int
) -> Any:
    powers = body_of(_linspace)(start, stop, num, endpoint, None, axis)
    numbers = binary.power(base, powers)
    return cast(numbers, type_of(numbers).dtype if dtype is None else dtype)


def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike | None = None,
    axis: int = 0,
) -> Array:
    """`num` numbers from `start` to `stop`, with a constant ratio."""
    wanted = None if dtype is None else dtype_of(dtype, "geomspace")
    ends = as_operand(start), as_operand(stop)
    return _geomspace(*ends, _size(num, "geomspace"), bool(endpoint), wanted, axis)


@fused(arrays=2)
def _geomspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    if dtype is None:
        dtype = to_inexact(result_type(start, stop))
    inside = to_inexact(dtype)
    low, high = broadcast(*[cast(v, inside) for v in promote_inexact(start, stop)], checked=False)
    # Both ends are rotated by the direction of the first, so that their logarithms are real.
    turn = _direction(low)
    shape = max(type_of(low).shape, type_of(high).shape, key=len)
    logs = [ew.div(ew.log(ew.div(v, turn)), constant(math.log(10), v)) for v in (low, high)]
    powers = body_of(_linspace)(logs[0], logs[1], num, endpoint, inside, 0)
    numbers = ew.mul(ew.pow(constant(10, powers), powers), _new_dimension(turn, num, shape))
    count = create.iota(dtype=real_dtype(inside), shape=(num, *shape), dimension=0)
    first, last = [_new_dimension(v, num, shape) for v in (low, high)]
    numbers = ew.where(ew.eq(count, constant(0, count)), first, numbers)
    if endpoint and num > 1:
        numbers = ew.where(ew.eq(count, constant(num - 1, count)), last, numbers)
    return move_axis(cast(numbers, dtype), 0, canonical_axis(axis, len(shape) + 1))


def _direction(x: Any) -> Any:
    if is_complex(type_of(x).dtype):
        size = ew.abs(x)
        return ew.div(x, ew.complex(size, constant(0, size)))
    return ew.where(ew.lt(x, constant(0, x)), constant(-1, x), constant(1, x))


# -- grids --


def meshgrid(
    *xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Array]:
    """Coordinate arrays of the grid spanned by vectors.

    indexing: "xy", in which the second vector varies along the first dimension, or "ij".
    sparse:   dimensions in which an array does not vary have size 1.
    copy:     must be True: arrays have no views.
    """
    if not copy:
        raise ValueError("meshgrid: copy must be True, as arrays have no views. Leave it out.")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid takes indexing='xy' or 'ij'; got {indexing!r}.")
    vectors = [as_operand(x) for x in xi]
    for i, v in enumerate(vectors):
        if np.ndim(v) > 1:
            raise ValueError(f"meshgrid takes vectors; got shape {np.shape(v)} as argument {i}.")
    return list(_meshgrid(*vectors, sparse=bool(sparse), swap=indexing == "xy")) if xi else []


@fused(arrays=1)
def _meshgrid(*xi: Any, sparse: bool, swap: bool) -> tuple:
    places = list(range(len(xi)))
    if swap and len(xi) > 1:
        places[:2] = [1, 0]
    sizes = [math.prod(type_of(x).shape) for x in xi]
    shape = [0] * len(xi)
    for place_of, size in zip(places, sizes, strict=True):
        shape[place_of] = size
    grids = []
    for x, d, size in zip(xi, places, sizes, strict=True):
        own = [size if i == d else 1 for i in range(len(xi))] if sparse else shape
        vector = reshape(x, shape=(size,)) if type_of(x).ndim == 0 else x
        grids.append(broadcast_in_dim(vector, shape=tuple(own), dims=(d,)))
    return tuple(grids)


@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: Literal[False] = False
) -> Array: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, *, sparse: Literal[True]
) -> tuple[Array, ...]: ...
@overload
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]: ...
def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]:
    """The indices along each dimension of a grid, stacked; a tuple of arrays if `sparse`."""
    shape, wanted = shape_of(tuple(dimensions)), dtype_of(dtype, "indices", INT)
    return _indices(shape, wanted, True) if sparse else _indices(shape, wanted)


@fused(arrays=0)
def _indices(shape: tuple, dtype: Any, sparse: bool = False) -> Any:
    if sparse:
        return tuple(
            reshape(
                create.iota(dtype=dtype, shape=(n,), dimension=0),
                shape=tuple(n if i == d else 1 for i in range(len(shape))),
            )
            for d, n in enumerate(shape)
        )
    full = (len(shape), *shape)
    out = create.full(0, full, dtype)
    if shape:
        which = create.iota(dtype=np.dtype("int32"), shape=full, dimension=0)
        for d in range(len(shape)):
            own = create.iota(dtype=dtype, shape=full, dimension=d + 1)
            out = ew.where(ew.eq(which, constant(d, which)), own, out)
    return out
