"""Reductions: sum, prod, max, min, ptp, any, all, count_nonzero, argmax, argmin.

    sum(x, axis=0)      prod(x, axis=(0, -1), keepdims=True)      max(x, where=mask, initial=0)

Small integers and booleans are summed as the default integer; float16 and bfloat16 are summed in
float32. A call without `where` and `initial` is one kernel with static arguments; otherwise, it
goes through `_masked`, with these two as additional arrays. The functions have the names of Python
builtins, which this module does not use.

`axis` also accepts names of axes in scope, alone or among dimensions
(`numpy.statistics.named_reductions`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.base.named import alias, named
from shardwise._src.core.fused import eager_jit, fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.numpy.statistics.named_reductions import Axes, dimensions, folded, reduced_axes
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape
from shardwise._src.ops.reduce import argmax as argmax_op
from shardwise._src.ops.reduce import argmin as argmin_op
from shardwise._src.ops.reduce import reduce_and, reduce_max, reduce_min, reduce_or, reduce_prod
from shardwise._src.ops.shape import canonical_axis, expand_dims
from shardwise._src.types.annotations import AnyAxis, Array, ArrayLike, Axis, DTypeLike
from shardwise._src.types.dtypes import (
    canonicalize,
    check_user_dtype,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_unsigned,
)
from shardwise._src.values.convert import broadcast, cast, reject_out

BOOL = np.dtype(bool)
FLOAT32, UINT8 = np.dtype(np.float32), np.dtype(np.uint8)

# -- axes and dtypes --


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The dimensions that `axis` refers to, non-negative; None means all."""
    if axis is None:
        return tuple(range(ndim))
    if axis.__class__ is int:
        return (canonical_axis(axis, ndim),)
    if isinstance(axis, tuple | list):
        found = tuple([canonical_axis(a, ndim) for a in axis])
        if len(set(found)) != len(found):
            raise ValueError(f"duplicate value in 'axis': {tuple(axis)}")
        return found
    return (canonical_axis(axis, ndim),)


def kept(out: Any, axes: Axes, keepdims: bool) -> Any:
    """A reduced value, with dimensions of size 1 for `axes` if `keepdims` is true."""
    return expand_dims(out, dimensions(axes)) if keepdims else out


def summed_dtype(dtype: Any, promote_integers: bool = True) -> Any:
    """The dtype of a sum: the default integer for booleans and small integers."""
    if is_inexact(dtype) or not (promote_integers or is_bool(dtype)):
        return dtype
    default = canonicalize(np.uint64 if is_unsigned(dtype) else int)
    wide = is_integer(dtype) and dtype.itemsize >= default.itemsize
    return dtype if wide else default


def accumulated_dtype(dtype: Any) -> Any:
    """The dtype to compute sums in: float32 for smaller floats."""
    return FLOAT32 if is_float(dtype) and dtype.itemsize < 4 else dtype


def checked_dtype(dtype: Any, name: str) -> Any:
    return None if dtype is None else check_user_dtype(dtype, name)


# -- sums and products --


def add_up(x: Any, axes: Axes, dtype: Any, keepdims: bool = False) -> Any:
    """The sum as `dtype`, accumulated in at least float32."""
    wide = accumulated_dtype(dtype)
    out = folded(reduce_sum, cast(x, wide), axes)
    return kept(cast(out, dtype), axes, keepdims)


def multiply_up(x: Any, axes: Axes, dtype: Any, keepdims: bool = False) -> Any:
    wide = accumulated_dtype(dtype)
    op = reduce_and if is_bool(dtype) else reduce_prod
    out = folded(op, cast(x, wide), axes)
    return kept(cast(out, dtype), axes, keepdims)


# -- the reductions, by name --

# For each reduction its identity (if any), the function that combines two values, and its op.
_REDUCTIONS: dict[str, tuple[Any, Callable[..., Any], Op]] = {
    "sum": (0, ew.add, reduce_sum),
    "prod": (1, ew.mul, reduce_prod),
    "max": (None, ew.max, reduce_max),
    "min": (None, ew.min, reduce_min),
    "any": (False, ew.bitwise_or, reduce_or),
    "all": (True, ew.bitwise_and, reduce_and),
}


def reduced(
    a: Any,
    initial: Any,
    where: Any,
    name: str,
    axis: AnyAxis,
    dtype: Any,
    keepdims: bool,
    promote_integers: bool = True,
) -> Any:
    """The reduction `name`; see its public function for the arguments."""
    identity, combine, op = _REDUCTIONS[name]
    if initial is not None and type_of(initial).shape:
        raise ValueError(
            f"{name}: initial must be a scalar; got {type_of(initial).str_short(True)}."
        )
    if where is not None:
        if identity is None and initial is None:
            raise ValueError(
                f"reduction operation {name} does not have an identity, so to use a where mask "
                "one has to specify 'initial'"
            )
        a = masked(a, where, initial if identity is None else identity, name)
    t = type_of(a)
    axes = reduced_axes(axis, t.ndim)
    if name in ("any", "all"):
        return kept(folded(op, cast(a, BOOL), axes), axes, keepdims)
    if name in ("sum", "prod"):
        wanted = summed_dtype(t.dtype, promote_integers) if dtype is None else dtype
        out = (add_up if name == "sum" else multiply_up)(a, axes, wanted, keepdims)
    else:
        if initial is None:
            _require_elements(t.shape, axes, name)
        out = kept(cast(folded(op, a, axes), t.dtype), axes, keepdims)
    return out if initial is None else combine(out, cast(initial, type_of(out).dtype))


def _require_elements(shape: tuple, axes: Axes, name: str) -> None:
    if 0 in [shape[i] for i in dimensions(axes)]:
        raise ValueError(f"zero-size array to reduction operation {name} which has no identity")


def masked(a: Any, where: Any, filler: Any, name: str) -> Any:
    """`a` with `filler` where `where`, which broadcasts with it, is false."""
    t = type_of(where)
    if not is_bool(t.dtype):
        raise ValueError(f"{name}: where must be boolean; got {t.str_short(True)}.")
    a, where = broadcast(a, where, checked=False)
    return ew.where(where, a, cast(filler, type_of(a).dtype))


@fused_optional
def _masked(a: Any, initial: Any = None, where: Any = None, **how: Any) -> Any:
    return reduced(a, initial, where, **how)


def _kernel(name: str) -> Callable[..., Any]:
    def fun(
        a: Any,
        axis: AnyAxis = None,
        dtype: Any = None,
        keepdims: bool = False,
        promote_integers: bool = True,
    ) -> Any:
        return reduced(a, None, None, name, axis, dtype, keepdims, promote_integers)

    return fused(named(fun, name))


_KERNELS = {name: _kernel(name) for name in _REDUCTIONS}


def _reduce(
    name: str,
    a: Any,
    axis: AnyAxis,
    dtype: Any,
    out: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
    promote_integers: bool = True,
) -> Any:
    """A reduction; without `initial` and `where`, it is one kernel with static arguments."""
    if dtype is not None:
        dtype = check_user_dtype(dtype, name)
    if initial is None and where is None and out is None:
        if dtype is None and not keepdims and promote_integers:
            return _KERNELS[name](a) if axis is None else _KERNELS[name](a, axis)
        return _KERNELS[name](a, axis, dtype, keepdims, promote_integers)
    reject_out(name, out)
    how = {"axis": axis, "dtype": dtype, "keepdims": keepdims, "promote_integers": promote_integers}
    return _masked(a, initial, where, name=name, **how)


# -- sums and products --


def sum(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Sum of the elements over `axis` (all by default).

    Args:
      dtype: of the result; by default the dtype of `a`, at least the default integer.
      initial: a scalar that the sum starts from.
      where: booleans; elements where it is false are skipped.
      promote_integers: whether small integers are summed as the default integer.
    """
    return _reduce("sum", a, axis, dtype, out, keepdims, initial, where, promote_integers)


def prod(
    a: ArrayLike,
    axis: AnyAxis = None,
    dtype: DTypeLike | None = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """Product of the elements over `axis` (all by default); arguments as for `sum`."""
    return _reduce("prod", a, axis, dtype, out, keepdims, initial, where, promote_integers)


# -- extremes --


def max(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Largest element over `axis` (all by default); NaN if any element is NaN.

    Args:
      initial: a scalar lower bound of the result; required with `where`.
      where: booleans; elements where it is false are skipped.
    """
    return _reduce("max", a, axis, None, out, keepdims, initial, where)


def min(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """Smallest element over `axis` (all by default); arguments as for `max`."""
    return _reduce("min", a, axis, None, out, keepdims, initial, where)


amax = alias(max, "amax")
amin = alias(min, "amin")


def minmax(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    where: ArrayLike | None = None,
) -> tuple[Array, Array]:
    """`min` and `max` over `axis`; `initial` may be a pair, with one for each."""
    reject_out("minmax", out)
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    if low is high is where is None:
        return _minmax(a, axis, keepdims)
    return min(a, axis, None, keepdims, low, where), max(a, axis, None, keepdims, high, where)


@fused(arrays=1)
def _minmax(a: Any, axis: AnyAxis, keepdims: bool) -> tuple[Any, Any]:
    _require_elements(type_of(a).shape, reduced_axes(axis, type_of(a).ndim), "minmax")
    low, high = [reduced(a, None, None, name, axis, None, keepdims) for name in ("min", "max")]
    return low, high


@fused(arrays=1)
def _ptp(a: Any, axis: AnyAxis, keepdims: bool) -> Any:
    high, low = [reduced(a, None, None, name, axis, None, keepdims) for name in ("max", "min")]
    return ew.sub(high, low)


@eager_jit
def ptp(a: ArrayLike, axis: AnyAxis = None, out: None = None, keepdims: bool = False) -> Array:
    """Difference between the largest and the smallest element over `axis`."""
    reject_out("ptp", out)
    return _ptp(a, axis, keepdims)


# -- logic --


def any(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether any element over `axis` is true, among those where `where` is true."""
    return _reduce("any", a, axis, None, out, keepdims, None, where)


def all(
    a: ArrayLike,
    axis: AnyAxis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether all elements over `axis` are true, among those where `where` is true."""
    return _reduce("all", a, axis, None, out, keepdims, None, where)


@fused(arrays=1)
def count_nonzero(a: ArrayLike, axis: AnyAxis = None, keepdims: bool = False) -> Array:
    """Number of nonzero elements over `axis`."""
    axes = reduced_axes(axis, type_of(a).ndim)
    return add_up(cast(a, BOOL), axes, canonicalize(int), keepdims)


# -- argmax and argmin --


def place(a: Any, axis: int | None, keepdims: bool, op: Any) -> Any:
    """The index along `axis`, or into the flat array, that `argmax` or `argmin` finds."""
    t = type_of(a)
    axes = axes_of(axis, t.ndim)
    if axis is None:
        a = reshape(a, shape=(t.size,)) if t.ndim != 1 else a
    elif len(axes) != 1:
        raise TypeError(f"{op.name}: axis must be an integer or None; got {axis!r}.")
    along = 0 if axis is None else axes[0]
    if type_of(a).shape[along] == 0:
        raise ValueError(f"attempt to get {op.name} of an empty sequence")
    return kept(place_along(a, along, canonicalize(int), op), axes, keepdims)


def place_along(a: Any, axis: int, dtype: Any, op: Any) -> Any:
    """`argmax` or `argmin` along one dimension; complex numbers compare by real part first."""
    if is_complex(type_of(a).dtype):
        shape = type_of(a).shape
        best = (reduce_max if op is argmax_op else reduce_min)(a, axes=(axis,))
        others = tuple(i for i in range(len(shape)) if i != axis)
        best = broadcast_in_dim(best, shape=shape, dims=others)
        found = cast(ew.eq(a, best), UINT8)
        a, op = ew.where(ew.ne(a, a), np.uint8(2), found), argmax_op  # the first NaN, if any
    return op(a, axes=(axis,), index_dtype=dtype)


_place = fused(place)


def argmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Index of the first largest element along `axis`, or into the flat array; NaN is largest."""
    reject_out("argmax", out)
    return _place(a, axis, bool(keepdims), argmax_op)


def argmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool | None = None
) -> Array:
    """Index of the first smallest element along `axis`, or into the flat array; NaN is smallest."""
    reject_out("argmin", out)
    return _place(a, axis, bool(keepdims), argmin_op)
