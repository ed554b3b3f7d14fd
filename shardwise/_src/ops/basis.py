"""The ops that the families' rules need: broadcast, transpose, reshape and sum.

They are written out in full, and so also show what an op record contains without a family.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.config import allow_f16_reductions
from shardwise._src.base.errors import ShapeError, ShardingTypeError
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.rules import linear_jvp
from shardwise._src.ops.sharded.sharding_ops import zero_like
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import kind_of


def ints(values: Any) -> str:
    """`[0, 2]`: a list in StableHLO's syntax."""
    return "[" + ", ".join(map(str, values)) + "]"


def zeros(t: ArrayType) -> Any:
    """An array of zeros: a tangent or cotangent that a rule must materialize."""
    return zero_like(broadcast_in_dim(np.zeros((), t.dtype)[()], shape=t.shape, dims=()), t)


# -- broadcast_in_dim: operand dimension i becomes result dimension dims[i]; sizes 1 are repeated --


def _broadcast_type(op: Op, x: ArrayType, *, shape: tuple, dims: tuple) -> ArrayType:
    fits = len(dims) == x.ndim and all(
        0 <= d < len(shape) and n in (1, shape[d]) for n, d in zip(x.shape, dims, strict=False)
    )
    if not fits or list(dims) != sorted(set(dims)):
        raise ShapeError(
            f"[broadcast_in_dim] cannot broadcast {x.str_short(True)} to shape {shape} with its "
            f"dimensions at {dims}: each size must be 1 or equal, and the positions must increase."
        )
    return array_type(shape, x.dtype, x.weak_type)


def _broadcast_dims(op: Op, x: ArrayType, *, shape: tuple, dims: tuple) -> Dims:
    out = letters(len(shape))
    given = tuple(out[d] if n == shape[d] else None for n, d in zip(x.shape, dims, strict=True))
    return Dims((given,), (out,), linear=((0,),))


def _broadcast_transpose(op: Op, ct: Any, x: Any, *, shape: tuple, dims: tuple) -> list[Any]:
    aval = x.aval
    repeated = {d for n, d in zip(aval.shape, dims, strict=True) if n != shape[d]}
    new = [d for d in range(len(shape)) if d not in dims or d in repeated]
    summed = reduce_sum(ct, axes=tuple(new)) if new else ct
    return [reshape(summed, shape=aval.shape) if repeated else summed]


def _broadcast_batch(
    op: Op, mapped: Any, args: Any, ds: Any, *, shape: tuple, dims: tuple
) -> tuple:
    x = move_axis(args[0], ds[0], 0)
    shifted = (0, *[d + 1 for d in dims])
    return broadcast_in_dim(x, shape=(mapped.size, *shape), dims=shifted), 0


broadcast_in_dim = Op(
    "broadcast_in_dim",
    elements=Elements.MOVED,
    type_rule=_broadcast_type,
    dims=_broadcast_dims,
    lower=lambda op, e, ins, outs, x, *, shape, dims: e.broadcast(x, ins[0], outs[0], dims),
    jvp=linear_jvp,
    transpose=_broadcast_transpose,
    batch=_broadcast_batch,
)


# -- transpose: result dimension i is operand dimension perm[i] --


def _transpose_type(op: Op, x: ArrayType, *, perm: tuple) -> ArrayType:
    if sorted(perm) != list(range(x.ndim)):
        raise TypeError(
            f"[transpose] perm must be a permutation of the {x.ndim} dimensions of "
            f"{x.str_short(True)}; got {perm}."
        )
    return array_type(tuple(x.shape[i] for i in perm), x.dtype, x.weak_type)


def _transpose_dims(op: Op, x: ArrayType, *, perm: tuple) -> Dims:
    names = letters(x.ndim)
    return Dims((names,), (tuple(names[i] for i in perm),), linear=((0,),))


def _transpose_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, perm: tuple) -> str:
    ty, out = e.ty(ins[0]), e.ty(outs[0])
    return e.let(f"stablehlo.transpose {x}, dims = {ints(perm)} : ({ty}) -> {out}")


def _transpose_transpose(op: Op, ct: Any, x: Any, *, perm: tuple) -> list[Any]:
    inverse = sorted(range(len(perm)), key=perm.__getitem__)
    return [transpose(ct, perm=tuple(inverse))]


def _transpose_batch(op: Op, mapped: Any, args: Any, ds: Any, *, perm: tuple) -> tuple[Any, int]:
    (d,) = ds
    rest = tuple(i + (i >= d) for i in perm)
    return transpose(args[0], perm=(d, *rest)), 0


transpose = Op(
    "transpose",
    elements=Elements.MOVED,
    type_rule=_transpose_type,
    dims=_transpose_dims,
    lower=_transpose_lower,
    jvp=linear_jvp,
    transpose=_transpose_transpose,
    batch=_transpose_batch,
)


def move_axis(x: Any, source: int, destination: int) -> Any:
    """`x` with dimension `source` moved to `destination`; both non-negative."""
    if source == destination:
        return x
    perm = [i for i in range(type_of(x).ndim) if i != source]
    perm.insert(destination, source)
    return transpose(x, perm=tuple(perm))


def batch_first(size: int, x: Any, dim: int | None) -> Any:
    """`x` with its batch dimension first, repeated `size` times if absent."""
    if dim is not None:
        return move_axis(x, dim, 0)
    shape = type_of(x).shape
    return broadcast_in_dim(x, shape=(size, *shape), dims=tuple(range(1, len(shape) + 1)))


def batch_leading(op: Op, mapped: Any, args: Any, ds: Any, **params: Any) -> tuple[Any, Any]:
    """The batch rule of an op whose leading dimensions are batch dimensions already."""
    out = op(*[batch_first(mapped.size, x, d) for x, d in zip(args, ds, strict=True)], **params)
    return out, [0] * len(out) if op.multiple else 0


def batch_leading_with(name: str, change: Callable[[Any], Any]) -> Callable[..., Any]:
    """The batch rule of an op with a new leading dimension, which changes a parameter."""

    def rule(op: Op, mapped: Any, args: Any, ds: Any, **params: Any) -> tuple[Any, Any]:
        params[name] = change(params[name])
        return batch_leading(op, mapped, args, ds, **params)

    return rule


def batch_dimension(name: str) -> Callable[..., Any]:
    """The batch rule of an op along the dimensions of a parameter, which it keeps: an int or a
    tuple.
    """

    def rule(op: Op, mapped: Any, args: Any, ds: Any, **params: Any) -> tuple[Any, Any]:
        (d,), own = ds, params[name]
        shifted = tuple(i + (i >= d) for i in own) if isinstance(own, tuple) else own + (own >= d)
        out = op(*args, **params | {name: shifted})
        return out, [d] * len(out) if op.multiple else d

    return rule


# -- reshape: the elements in row-major order, in another shape --


def _reshape_type(op: Op, x: ArrayType, *, shape: tuple) -> ArrayType:
    if math.prod(shape) != x.size or any(n < 0 for n in shape):
        raise ShapeError(
            f"[reshape] cannot reshape {x.str_short(True)} ({x.size} elements) to shape {shape} "
            f"({math.prod(shape)} elements)."
        )
    return array_type(shape, x.dtype, x.weak_type)


def _reshape_dims(op: Op, x: ArrayType, *, shape: tuple) -> Dims:
    """Groups of dimensions with equal products correspond, major factor first."""
    ins: list[Any] = []
    outs: list[Any] = []
    fresh = iter(letters(x.ndim + len(shape) + 2))
    groups = _reshape_groups(x.shape, shape)
    for (i, i_end), (j, j_end) in groups:
        name = next(fresh)
        ins += _group_factors(x.shape[i:i_end], shape[j:j_end], name)
        outs += _group_factors(shape[j:j_end], x.shape[i:i_end], name)
    specs = None if x.spec is None else (_reshape_spec(x, shape, groups),)
    return Dims((tuple(ins),), (tuple(outs),), linear=((0,),), specs=specs)


def _reshape_groups(own: tuple, other: tuple) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of dimensions before and after, as short as possible, with equal products."""
    if 0 in own:  # products carry no information
        return [((0, len(own)), (0, len(other)))]
    groups: list[Any] = []
    i = j = 0
    while i < len(own) or j < len(other):
        first_in, first_out = i, j
        left = right = 1
        while True:
            if left <= right and i < len(own) and (left < right or i == first_in):
                left *= own[i]
                i += 1
            elif j < len(other) and (right < left or j == first_out):
                right *= other[j]
                j += 1
            if left == right:
                break
        groups.append(((first_in, i), (first_out, j)))
    return groups


def _group_factors(own: tuple, other: tuple, name: str) -> list[Any]:
    """The factors of one group: the major dimension is shared unless its size is 1."""
    if not own or not other or 0 in own:
        return [None] * len(own)
    if len(own) == 1 and len(other) == 1:
        return [name]
    real = [k for k, n in enumerate(own) if n != 1]
    lead = real[0] if real else 0
    several = len([n for n in other if n != 1]) > 1 or len(real) > 1
    return [
        ((name, name + "'") if several else name) if k == lead else None for k in range(len(own))
    ]


def _reshape_spec(x: ArrayType, shape: tuple, groups: Any) -> tuple:
    """The mesh axes of each new dimension, from its old group, starting at the major dimension."""
    axes_of: Any = x.spec and x.spec.dims(x.ndim)
    if shape == x.shape:
        return axes_of
    found: list[Any] = []
    for (i, i_end), (j, j_end) in groups:
        before = [(n, axes_of[d]) for d, n in enumerate(x.shape) if i <= d < i_end and n != 1]
        after = shape[j:j_end]
        new = _carried(before, after, x.mesh)
        if new is None:
            raise ShardingTypeError(
                f"[reshape] cannot carry the sharding of {x.str_short(True)} over to shape "
                f"{shape}: the shards of a dimension would not be shards of a single new dimension."
            )
        found += new
    return tuple(found)


def _carried(before: list[tuple[int, tuple]], after: tuple, mesh: Any) -> list[tuple] | None:
    """The axes of the dimensions that one group becomes; None if they do not carry over."""
    real = [n for n in after if n != 1]
    if len(before) == len(real) == 1:
        return [before[0][1] if n != 1 else () for n in after]
    axes_of = [axes for _, axes in before]
    while axes_of and not axes_of[-1]:
        axes_of.pop()
    if not axes_of:
        return [()] * len(after)
    if not all(axes_of) or 0 in after:
        return None
    axes = [axis for some in axes_of for axis in some]
    if len(before) > 1 and len(real) > 1:  # only blocks of complete major rows stay blocks
        parts = math.prod(map(mesh.axis_size, axes))
        if len(axes_of) > 1 or before[0][0] % parts or real[0] % parts:
            return None
        first = after.index(real[0])
        return [tuple(axes) if j == first else () for j in range(len(after))]
    found: list[tuple] = []
    for n in after:
        own: list[Any] = []
        while n > 1 and axes:
            n, rest = divmod(n, mesh.axis_size(axes[0]))
            if rest:
                return None
            own.append(axes.pop(0))
        found.append(tuple(own))
    return None if axes else found


def _reshape_batch(op: Op, mapped: Any, args: Any, ds: Any, *, shape: tuple) -> tuple[Any, int]:
    return reshape(move_axis(args[0], ds[0], 0), shape=(mapped.size, *shape)), 0


reshape = Op(
    "reshape",
    elements=Elements.MOVED,
    type_rule=_reshape_type,
    dims=_reshape_dims,
    lower=lambda op, e, ins, outs, x, *, shape: e.reshape(x, ins[0], outs[0]),
    jvp=linear_jvp,
    transpose=lambda op, ct, x, *, shape: [op(ct, shape=x.aval.shape)],
    batch=_reshape_batch,
)


# -- reduce_sum: over the dimensions `axes`, which are removed --


def check_axes(name: str, x: ArrayType, axes: tuple) -> None:
    if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise ShapeError(
            f"[{name}] axes must be distinct and within the {x.ndim} dimensions of "
            f"{x.str_short(True)}; got {axes}."
        )


def reduced(x: ArrayType, axes: tuple) -> tuple[int, ...]:
    """The shape without `axes`."""
    return tuple(n for i, n in enumerate(x.shape) if i not in axes)


def reduce_dims(combine: Any) -> Any:
    def dims(op: Op, x: ArrayType, *, axes: tuple, **params: Any) -> Dims:
        names = letters(x.ndim)
        out = tuple(n for i, n in enumerate(names) if i not in axes)
        return Dims((names,), (out,), combine, linear=((0,),) if combine == "add" else ())

    return dims


def batch_axes(
    op: Op, mapped: Any, args: Any, ds: Any, *, axes: tuple, **params: Any
) -> tuple[Any, int]:
    """The batch rule of an op that removes the dimensions of its parameter `axes`."""
    (d,) = ds
    out = op(args[0], axes=tuple(a + (a >= d) for a in axes), **params)
    return out, d - sum(a < d for a in axes)


def _sum_type(op: Op, x: ArrayType, *, axes: tuple) -> ArrayType:
    check_axes("reduce_sum", x, axes)
    half = kind_of(x.dtype) == "float" and x.dtype.itemsize == 2
    if half and not allow_f16_reductions.value and any(x.shape[i] != 1 for i in axes):
        raise ValueError(
            f"[reduce_sum] sums of {x.str_short(True)} are not allowed while "
            "allow_f16_reductions is False: they add up rounding errors. Cast the operand to "
            "float32 first."
        )
    return array_type(reduced(x, axes), x.dtype, x.weak_type)


def _sum_transpose(op: Op, ct: Any, x: Any, *, axes: tuple) -> list[Any]:
    kept = tuple(i for i in range(x.aval.ndim) if i not in axes)
    return [broadcast_in_dim(ct, shape=x.aval.shape, dims=kept)]


reduce_sum = Op(
    "reduce_sum",
    type_rule=_sum_type,
    dims=reduce_dims("add"),
    lower=lambda op, e, ins, outs, x, *, axes: e.reduce(x, ins[0], axes, "add", 0),
    jvp=linear_jvp,
    transpose=_sum_transpose,
    batch=batch_axes,
)


class _NotStored(dict[Any, Any]):
    """Inferred types of an op whose type rule depends on a flag."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _check_each_sum(allowed: bool) -> None:
    """Has the type rule called for each sum from now on if `allow_f16_reductions` is turned off."""
    if not allowed:
        object.__setattr__(reduce_sum, "inferred", _NotStored())


allow_f16_reductions.guard = _check_each_sum
_check_each_sum(allow_f16_reductions.value)
