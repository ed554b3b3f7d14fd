"""Products of vectors, matrices and tensors: matmul, dot, tensordot, outer, kron, cross, trace.

Each is planned once per combination of shapes, as a `dot_general` that a transpose may follow. A
batch dimension that only one operand has becomes a free dimension: nothing is broadcast.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.errors import ShapeError
from shardwise._src.core.fused import body_of, eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.products import einsum as einsums
from shardwise._src.numpy.statistics.reductions import add_up, checked_dtype, summed_dtype
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reshape, transpose
from shardwise._src.ops.contract import DimensionNumbers
from shardwise._src.ops.contract import dot as contracted
from shardwise._src.ops.create import iota
from shardwise._src.ops.precision import canonical_precision
from shardwise._src.ops.shape import canonical_axis, concatenate, slice_in_dim
from shardwise._src.ops.sharded.sharding_ops import placed
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, OutSharding, PrecisionLike
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import (
    broadcast,
    cast,
    joined,
    promote,
    reject_out,
    strip_weak_type,
)

Shape = tuple[int, ...]
INT32 = np.dtype(np.int32)


def product(
    a: Any, b: Any, numbers: DimensionNumbers, precision: Any = None, preferred: Any = None
) -> Any:
    """`dot_general` of operands in their common dtype, unless a preferred one is given."""
    s, t = type_of(a), type_of(b)
    if preferred is None and (s.dtype is not t.dtype or s.weak_type is not t.weak_type):
        a, b = promote(a, b)
    return contracted(a, b, numbers, precision, preferred)


def _check_summed(name: str, a: Shape, i: int, b: Shape, j: int) -> None:
    """Raises unless the contracted dimensions i and j are equal."""
    i, j, m, n = i % len(a), j % len(b), a[i], b[j]
    if m == n:
        return
    advice = ""
    if len(b) == 2 and b[1 - j] == m:
        advice = " The second operand fits if transposed (`.T`)."
    elif len(a) == 2 and a[1 - i] == n:
        advice = " The first operand fits if transposed (`.T`)."
    elif 1 in (m, n):
        advice = " Sizes of 1 broadcast only in the other dimensions."
    raise ShapeError(
        f"{name}: dimension {i} of the first operand, of shape {a}, and dimension {j} of the "
        f"second, of shape {b}, are summed over and must be equal: {m} ≠ {n}.{advice}"
    )


# -- matmul --

# Operands of a dot_general: their reshapes, its dimension numbers, and a final transpose.
Plan = tuple[Shape | None, Shape | None, DimensionNumbers, tuple[int, ...] | None]


@cached(4096)
def _matmul_plan(a: Shape, b: Shape) -> Plan:
    """`(…, n, k) @ (…, k, m)`; a vector lacks n or m."""
    if not a or not b:
        raise ValueError(
            f"matmul: operands must have at least one dimension; got shapes {a} and {b}. Multiply "
            "by scalars with *."
        )
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    contracted_b = b[-min(len(b), 2)]
    _check_summed("matmul", a, -1, b, -min(len(b), 2))
    left, right = a[:-2], b[:-2]
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if any(m != n and 1 not in (m, n) for m, n in zip(left, right, strict=True)):
        raise ValueError(f"matmul: the batch dimensions of shapes {a} and {b} do not broadcast.")
    # Where one of two sizes is 1, that 1 is dropped; of two sizes of 1, a single one remains.
    both = [i for i in range(rank) if left[i] == right[i] and left[i] != 1]
    only_left = [i for i in range(rank) if i not in both and (left[i] != 1 or right[i] == 1)]
    only_right = [i for i in range(rank) if i not in both and i not in only_left]
    own_left, own_right = sorted(both + only_left), sorted(both + only_right)
    shape_a = (*[left[i] for i in own_left], *rows, a[-1])
    shape_b = (*[right[i] for i in own_right], contracted_b, *columns)
    batch = tuple(own_left.index(i) for i in both), tuple(own_right.index(i) for i in both)
    numbers = ((len(shape_a) - 1,), (len(own_right),)), batch
    found = [*both, *only_left, *["row" for _ in rows], *only_right, *["column" for _ in columns]]
    wanted = [*range(rank), *["row" for _ in rows], *["column" for _ in columns]]
    perm = tuple(found.index(x) for x in wanted)
    return (
        None if shape_a == a else shape_a,
        None if shape_b == b else shape_b,
        numbers,
        None if perm == tuple(range(len(perm))) else perm,
    )


@fused(arrays=2)
def _matmul(a: Any, b: Any, precision: Any = None, preferred: Any = None) -> Any:
    shape_a, shape_b, numbers, perm = _matmul_plan(type_of(a).shape, type_of(b).shape)
    a = a if shape_a is None else reshape(a, shape=shape_a)
    b = b if shape_b is None else reshape(b, shape=shape_b)
    out = product(a, b, numbers, precision, preferred)
    return out if perm is None else transpose(out, perm=perm)


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Matrix product over the last two dimensions; batch dimensions broadcast.

    Args:
      a: (…, n, k), or a vector of size k.
      b: (…, k, m), or a vector of size k.
      precision: on devices that support several; a `Precision`, its name, or a pair for a and b.
      preferred_element_type: the dtype of the accumulator and the result.
      out_sharding: how the result is sharded over explicit mesh axes, where that is ambiguous.

    Raises:
      ValueError: for scalars, and for batch dimensions that do not broadcast.
      TypeError: if the contracted dimensions differ in size.
    """
    if precision is preferred_element_type is out_sharding is None:
        return _matmul(a, b)
    preferred = checked_dtype(preferred_element_type, "matmul")
    return placed(_matmul, out_sharding, a, b, precision, preferred)


# -- dot, vdot, inner, outer --


@fused(arrays=2)
def _dot(a: Any, b: Any, precision: Any, preferred: Any) -> Any:
    s, t = type_of(a), type_of(b)
    if not s.shape or not t.shape:
        return einsums.cast_to(ew.mul(*promote(a, b)), preferred)
    axis = max(t.ndim - 2, 0)
    _check_summed("dot", s.shape, -1, t.shape, axis)
    return product(a, b, (((s.ndim - 1,), (axis,)), ((), ())), precision, preferred)


@eager_jit(arrays=2)
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sum over the last dimension of `a` and the second last (or only) of `b`; see `numpy.dot`."""
    preferred = checked_dtype(preferred_element_type, "dot")
    return placed(_dot, out_sharding, a, b, precision, preferred)


@fused(arrays=2)
def _vdot(a: Any, b: Any, precision: Any, preferred: Any) -> Any:
    s, t = type_of(a), type_of(b)
    if s.size != t.size:
        raise TypeError(
            f"vdot: the operands, of shapes {s.shape} and {t.shape}, must have the same number of "
            f"elements: {s.size} ≠ {t.size}."
        )
    a = _conjugate(a)
    a, b = reshape(a, shape=(s.size,)), reshape(b, shape=(s.size,))
    return product(a, b, (((0,), (0,)), ((), ())), precision, preferred)


def _conjugate(x: Any) -> Any:
    return ew.conj(x) if is_complex(type_of(x).dtype) else x


@eager_jit(arrays=2)
def vdot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Inner product of all elements, with `a` conjugated."""
    return _vdot(a, b, precision, checked_dtype(preferred_element_type, "vdot"))


@fused(arrays=2)
def _inner(a: Any, b: Any, precision: Any, preferred: Any) -> Any:
    s, t = type_of(a), type_of(b)
    if not s.shape or not t.shape:
        return einsums.cast_to(ew.mul(*promote(a, b)), preferred)
    _check_summed("inner", s.shape, -1, t.shape, -1)
    return product(a, b, (((s.ndim - 1,), (t.ndim - 1,)), ((), ())), precision, preferred)


@eager_jit(arrays=2)
def inner(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Inner product over the last dimensions; the result has the other dimensions, `a`'s first."""
    return _inner(a, b, precision, checked_dtype(preferred_element_type, "inner"))


@fused(arrays=2)
def _outer(a: Any, b: Any) -> Any:
    a, b = promote(a, b)
    m, n = type_of(a).size, type_of(b).size
    left = broadcast_in_dim(reshape(a, shape=(m,)), shape=(m, n), dims=(0,))
    return ew.mul(left, broadcast_in_dim(reshape(b, shape=(n,)), shape=(m, n), dims=(1,)))


@eager_jit(arrays=2)
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Product of each element of `a` with each element of `b`, as a matrix."""
    reject_out("outer", out)
    return _outer(a, b)


# -- along an axis --


@fused(arrays=2)
def _by_labels(
    a: Any, b: Any, subscripts: str, conjugate: bool, precision: Any, preferred: Any, name: str
) -> Any:
    s, t = type_of(a), type_of(b)
    try:
        steps = einsums.plan(subscripts, (s.shape, t.shape), "auto")
    except ValueError as error:
        raise TypeError(f"{name}: {str(error).removeprefix('einsum: ')}") from None
    dtype, weak = joined(a, b)
    a = _conjugate(a) if conjugate else a
    operands = [cast(a, dtype, weak), cast(b, dtype, weak)]
    return einsums.run(steps, operands, canonical_precision(precision), preferred)


@eager_jit(arrays=2)
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Inner products of the vectors along `axis`, with `x1` conjugated."""
    preferred = checked_dtype(preferred_element_type, "vecdot")
    return _vecdot(x1, x2, axis, precision, preferred)


@fused(arrays=2)
def _vecdot(a: Any, b: Any, axis: int, precision: Any, preferred: Any) -> Any:
    s, t = type_of(a), type_of(b)
    if not s.shape or not t.shape:
        raise ValueError(
            f"vecdot: operands must have at least one dimension; got shapes {s.shape} and "
            f"{t.shape}."
        )
    i, j = canonical_axis(axis, s.ndim), canonical_axis(axis, t.ndim)
    _check_summed("vecdot", s.shape, i, t.shape, j)
    a, b = move_axis(a, i, s.ndim - 1), move_axis(b, j, t.ndim - 1)
    return body_of(_by_labels)(a, b, "...k,...k->...", True, precision, preferred, "vecdot")


@eager_jit(arrays=2)
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of the matrices (…, n, k) with the vectors (…, k)."""
    a, b = type_of(x1).shape, type_of(x2).shape
    if a and b:
        _check_summed("matvec", a, -1, b, -1)
    return _by_labels(x1, x2, "...nk,...k->...n", False, None, None, "matvec")


@eager_jit(arrays=2)
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Products of the vectors (…, k), conjugated, with the matrices (…, k, m)."""
    a, b = type_of(x1).shape, type_of(x2).shape
    if a and len(b) > 1:
        _check_summed("vecmat", a, -1, b, -2)
    return _by_labels(x1, x2, "...k,...km->...m", True, None, None, "vecmat")


# -- tensordot --


@cached(4096)
def _tensordot_numbers(a: Shape, b: Shape, axes: Any) -> DimensionNumbers:
    if not isinstance(axes, tuple):
        n = operator.index(axes)
        if not 0 <= n <= min(len(a), len(b)):
            raise TypeError(
                f"tensordot: axes={n} must not be negative or exceed the number of dimensions of "
                f"shapes {a} and {b}."
            )
        left, right = tuple(range(len(a) - n, len(a))), tuple(range(n))
    else:
        pair = [x if isinstance(x, tuple) else (x,) for x in axes]
        if len(pair) != 2 or len(pair[0]) != len(pair[1]):
            raise TypeError(
                f"tensordot: axes must be an integer, or two sequences of equal length; got {axes}."
            )
        left = tuple(canonical_axis(x, len(a)) for x in pair[0])
        right = tuple(canonical_axis(x, len(b)) for x in pair[1])
    sizes = tuple([a[i] for i in left]), tuple([b[i] for i in right])
    if sizes[0] != sizes[1]:
        raise TypeError(
            f"tensordot: the sizes of shape {a} at {left} and of shape {b} at {right} must be "
            f"equal: {sizes[0]} ≠ {sizes[1]}."
        )
    return (left, right), ((), ())


@fused(arrays=2)
def _tensordot(a: Any, b: Any, axes: Any, precision: Any, preferred: Any) -> Any:
    numbers = _tensordot_numbers(type_of(a).shape, type_of(b).shape, axes)
    return product(a, b, numbers, precision, preferred)


@eager_jit(arrays=2)
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Sum of products over pairs of dimensions; the result has the others, `a`'s first.

    Args:
      axes: n for the last n of `a` and the first n of `b`; or a list for `a` and a list for `b`.
    """
    pairs: Any = axes
    if isinstance(axes, list | tuple):
        pairs = tuple([tuple(x) if isinstance(x, list | tuple | np.ndarray) else x for x in axes])
    preferred = checked_dtype(preferred_element_type, "tensordot")
    return placed(_tensordot, out_sharding, a, b, pairs, precision, preferred)


# -- kron, cross, trace --


@fused(arrays=2)
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Kronecker product: each element of `a` times all of `b`."""
    a, b = promote(a, b)
    rank = max(type_of(a).ndim, type_of(b).ndim)
    m, n = [(1,) * (rank - type_of(x).ndim) + type_of(x).shape for x in (a, b)]
    wide = tuple(size for pair in zip(m, n, strict=True) for size in pair)
    left = broadcast_in_dim(reshape(a, shape=m), shape=wide, dims=tuple(range(0, 2 * rank, 2)))
    right = broadcast_in_dim(reshape(b, shape=n), shape=wide, dims=tuple(range(1, 2 * rank, 2)))
    out = tuple(i * j for i, j in zip(m, n, strict=True))
    return reshape(ew.mul(left, right), shape=out)


@fused(arrays=2)
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Array:
    """Cross product of vectors with 3 components, or with 2, where the third is 0.

    Args:
      axisa, axisb, axisc: the axes of the components in `a`, `b` and the result.
      axis: overrides all three.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promote(a, b)
    a = move_axis(a, canonical_axis(axisa, type_of(a).ndim), type_of(a).ndim - 1)
    b = move_axis(b, canonical_axis(axisb, type_of(b).ndim), type_of(b).ndim - 1)
    sizes = type_of(a).shape[-1], type_of(b).shape[-1]
    if not set(sizes) <= {2, 3}:
        raise ValueError(
            f"cross: the vectors must have 2 or 3 components; got {sizes[0]} and {sizes[1]}."
        )
    x, y = _components(a), _components(b)

    def minor(i: int, j: int) -> Any:
        terms = [
            ew.mul(*broadcast(p, q))
            for p, q in ((x[i], y[j]), (x[j], y[i]))
            if p is not None and q is not None
        ]
        if len(terms) == 2:
            return ew.sub(*terms)
        first = x[i] is not None and y[j] is not None
        return terms[0] if first else ew.neg(terms[0])

    if sizes == (2, 2):
        return minor(0, 1)
    parts = [minor(1, 2), minor(2, 0), minor(0, 1)]
    # XLA writes contiguous parts faster than interleaved ones, even if it transposes them later.
    shape = (1, *type_of(parts[0]).shape)
    out = concatenate(*[reshape(p, shape=shape) for p in parts], dimension=0)
    return strip_weak_type(move_axis(out, 0, canonical_axis(axisc, len(shape))))


def _components(x: Any) -> list[Any]:
    """The three components; None for the third of a vector in the plane."""
    shape = type_of(x).shape
    parts = [
        reshape(slice_in_dim(x, i, i + 1, len(shape) - 1), shape=shape[:-1])
        for i in range(shape[-1])
    ]
    return parts if len(parts) == 3 else [*parts, None]


@fused(arrays=1)
def _trace(a: Any, offset: int, axis1: int, axis2: int, dtype: Any) -> Any:
    t = type_of(a)
    if t.ndim < 2:
        raise ValueError(f"trace needs at least 2 dimensions; got {t.str_short(True)}.")
    i, j = canonical_axis(axis1, t.ndim), canonical_axis(axis2, t.ndim)
    if i == j:
        raise ValueError(f"trace: axis1 and axis2 must differ; got {axis1} and {axis2}.")
    rows = iota(dtype=INT32, shape=t.shape, dimension=i)
    columns = iota(dtype=INT32, shape=t.shape, dimension=j)
    on = ew.eq(ew.add(rows, np.int32(offset)), columns)
    wanted = summed_dtype(t.dtype) if dtype is None else dtype
    return add_up(ew.where(on, a, np.zeros((), t.dtype)[()]), (i, j), wanted)


@eager_jit
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Array:
    """Sum along the diagonal of two dimensions; `offset` counts diagonals above the main one."""
    reject_out("trace", out)
    return _trace(a, operator.index(offset), axis1, axis2, checked_dtype(dtype, "trace"))
