"""Finding and choosing elements by conditions: nonzero, where, select, choose, piecewise."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np

from shardwise._src.base.errors import ConcretizationTypeError, TracerArrayConversionError
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import body_of, eager_jit, fused
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.messages.called import public_call
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.numpy.ordering.sorting import place_in_order, take_from, write_to
from shardwise._src.numpy.shapes import no_lists, ravel
from shardwise._src.ops import basis
from shardwise._src.ops import logical as lg
from shardwise._src.ops import shape as ops
from shardwise._src.ops.create import full, iota
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.elementwise import add, div, mul, rem
from shardwise._src.ops.families import lit
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.sort import sort
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike, Ints
from shardwise._src.types.array_type import join_types
from shardwise._src.types.dtypes import (
    canonicalize,
    check_user_dtype,
    iinfo,
    is_bool,
    is_integer,
    is_unsigned,
)
from shardwise._src.types.symbolic import Symbolic, broadcast_shapes
from shardwise._src.values import binary
from shardwise._src.values.convert import (
    as_integer,
    broadcast,
    cast,
    count_of,
    joined,
    promote,
    strip_weak_type,
    unknown_count,
)
from shardwise._src.values.indexing import INT32, around, narrowed

BOOL = np.dtype(bool)


def truth(x: Any) -> Any:
    return x if is_bool(type_of(x).dtype) else cast(x, BOOL)


# -- nonzero --


@fused(arrays=1)
def _places(x: Any, size: int, fill: tuple[int, ...]) -> list[Any]:
    """The indices of the first `size` true elements, a vector for each dimension."""
    t = type_of(x)
    flat = basis.reshape(truth(x), shape=(t.size,))
    dtype = canonicalize(int)
    found = full(t.size, (size,), INT32)
    if t.size and size:
        to = lg.where(flat, ranks(flat), full(size, (t.size,), INT32))
        found = write_to(found, to, iota(dtype=INT32, shape=(t.size,), dimension=0))
    missing = lg.eq(found, lit(t.size, found))
    outs, stride = [], t.size
    for n, value in zip(t.shape, fill, strict=True):
        stride = stride // n if n else 1
        index = _remainder(_quotient(found, stride), n)
        outs.append(cast(lg.where(missing, lit(value, found), index), dtype))
    return outs


def ranks(mask: Any) -> Any:
    """For each element of a flat mask, the number of true elements before it."""
    count = cumsum(cast(mask, INT32), axis=0, reverse=False)
    return add(count, lit(-1, count))


def _quotient(x: Any, n: int) -> Any:
    return x if n == 1 else div(x, lit(n, x))


def _remainder(x: Any, n: int) -> Any:
    return rem(x, lit(max(n, 1), x))


def nonzero(
    a: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> tuple[Array, ...]:
    """The indices of the nonzero elements, as a vector for each dimension.

    size: the number of results, required if `a` is traced: excess ones are dropped, missing ones
        are `fill_value`, one number or one for each dimension (default 0).
    """
    no_lists("nonzero", a)
    t = type_of(a)
    if not t.ndim:
        raise ValueError("nonzero: a scalar has no indices; use atleast_1d on it first.")
    if size is None:
        found = np.nonzero(_value(a, "nonzero"))
        dtype: Any = canonicalize(int)
        return tuple(eval_trace().new_array(i.astype(dtype)) for i in found)
    fill: Any = fill_value if isinstance(fill_value, tuple | list) else (fill_value,) * t.ndim
    if len(fill) != t.ndim:
        raise ValueError(f"nonzero: fill_value must have {t.ndim} entries; got {fill_value}.")
    values = tuple(0 if v is None else as_integer(v, "nonzero: fill_value") for v in fill)
    return tuple(_places(a, count_of(size), values))


def _value(a: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(eval_trace().readable(as_arraylike(a)))
    except TracerArrayConversionError as error:
        about = f"{public_call() or name}: the number of elements"
        raise unknown_count(about, a, "size") from error


def flatnonzero(
    a: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> Array:
    """The indices of the nonzero elements in the flat array (see `nonzero`)."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(
    a: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The indices of the nonzero elements, one row of indices for each (see `nonzero`)."""
    t = type_of(a)
    if not t.ndim:
        count = count_of(size) if size is not None else int(bool(_value(a, "argwhere")))
        dtype: Any = canonicalize(int)
        return eval_trace().new_array(np.zeros((count, 0), dtype))
    columns = nonzero(a, size=size, fill_value=fill_value)
    return _columns(*columns)


@fused
def _columns(*columns: Any) -> Any:
    parts = [ops.expand_dims(c, (1,)) for c in columns]
    return ops.concatenate(*parts, dimension=1) if len(parts) > 1 else parts[0]


# -- where --


@fused(arrays=3)
def _where(condition: Any, x: Any, y: Any) -> Any:
    x, y = promote(x, y)
    t, u = type_of(x), type_of(y)
    condition, x, y = broadcast(truth(condition), x, y, checked=False)
    if not type_of(condition).shape and not t.shape and not u.shape and not is_array(x):
        x = basis.broadcast_in_dim(x, shape=(), dims=())
    return lg.where(condition, x, y)


@overload
def where(
    condition: ArrayLike,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> tuple[Array, ...]: ...
@overload
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Array: ...
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: ArrayLike | tuple[ArrayLike, ...] | None = None,
) -> Array | tuple[Array, ...]:
    """`x` where the condition is true, else `y`; with only the condition, its `nonzero`."""
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise TypeError("where takes a condition alone, or a condition with both x and y.")
    if size is not None or fill_value is not None:
        raise ValueError("where: size and fill_value are only supported without x and y.")
    no_lists("where", condition, x, y)
    return _where(condition, x, y)


# -- select, choose, piecewise --


@fused
def _select(*arrays: Any, count: int) -> Any:
    conditions, choices = arrays[:count], arrays[count:]
    *choices, out = promote(*choices)
    everything = broadcast(*[truth(c) for c in conditions], *choices, out, checked=False)
    conditions, (*choices, out) = everything[:count], everything[count:]
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        out = body_of(_where)(condition, choice, out)
    return out


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: ArrayLike = 0) -> Array:
    """For each element, the choice of the first condition that is true there, else `default`."""
    if len(condlist) != len(choicelist):
        raise ValueError(
            f"select needs as many conditions as choices; got {len(condlist)} and "
            f"{len(choicelist)}."
        )
    if not len(condlist):
        raise ValueError("select needs at least one condition.")
    no_lists("select", *condlist, *choicelist, default)
    return _select(*condlist, *choicelist, default, count=len(condlist))


@fused
def _choose(*arrays: Any, mode: str) -> Any:
    a, choices = arrays[0], promote(*arrays[1:])
    shapes = [type_of(c).shape for c in (a, *choices)]
    shape = tuple(broadcast_shapes(*shapes))
    n = len(choices)
    a = cast(around(a, n), INT32) if mode == "wrap" else narrowed(a, INT32)
    if mode == "clip":
        a = lg.clamp(lit(0, a), a, lit(n - 1, a))
    full = [_spread(c, shape) for c in choices]
    return strip_weak_type(lg.select_n(_spread(a, shape), *full) if n > 1 else full[0])


def _spread(x: Any, shape: tuple) -> Any:
    t = type_of(x)
    if t.shape == shape and is_array(x):
        return x
    places = tuple(range(len(shape) - t.ndim, len(shape)))
    return basis.broadcast_in_dim(x, shape=shape, dims=places)


def choose(
    a: ArrayLike, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise"
) -> Array:
    """For each element, the element of the choice whose number is in `a`.

    mode: for numbers out of bounds: "raise" (not if `a` is traced), "wrap" or "clip".
    """
    if out is not None:
        raise NotImplementedError("choose: arrays are immutable, so `out` must be None.")
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"choose: mode must be 'raise', 'wrap' or 'clip'; got {mode!r}.")
    if not is_integer(type_of(a).dtype):
        raise TypeError(f"choose: the indices must be integers; got {type_of(a).str_short(True)}.")
    all_choices: Any = choices
    each = list(all_choices)
    if mode == "raise":
        numbers = _known("choose", a)
        if np.any((numbers < 0) | (numbers >= len(each))):
            raise ValueError(f"choose: an index is out of bounds for {len(each)} choices.")
        mode = "clip"
    return _choose(a, *each, mode=mode)


def _known(name: str, indices: Any) -> np.ndarray:
    try:
        return np.asarray(indices)
    except TracerArrayConversionError as error:
        raise ConcretizationTypeError(
            f"{name}: with mode='raise' the indices must be concrete. Use 'wrap' or 'clip'."
        ) from error


@hides_frames
def piecewise(
    x: ArrayLike,
    condlist: ArrayLike | Sequence[ArrayLike],
    funclist: Sequence[Any],
    *args: Any,
    **kw: Any,
) -> Array:
    """For each element, the function or value of the last condition that is true there.

    An additional function or value at the end applies where no condition is true (default 0).
    """
    no_lists("piecewise", x)
    dtype = type_of(x).dtype
    conditions: Any = condlist
    if not isinstance(condlist, list | tuple):
        single = type_of(condlist).ndim <= type_of(x).ndim
        conditions = [condlist] if single else list(conditions)
    count = len(conditions)
    if len(funclist) not in (count, count + 1):
        raise ValueError(
            f"piecewise: {count} conditions need {count} or {count + 1} functions; got "
            f"{len(funclist)}."
        )
    pieces = list(funclist) if len(funclist) > count else [*funclist, 0]
    values = [cast(f(x, *args, **kw) if callable(f) else f, dtype) for f in pieces]
    return select(list(reversed(conditions)), list(reversed(values[:count])), values[count])


# -- flat and multiple indices --


@fused
def _unravel(indices: Any, *sizes: Any) -> list[Any]:
    t, (dtype, weak) = type_of(indices), joined(indices, *sizes)
    left = indices if t.dtype.itemsize >= 4 else cast(indices, INT32)
    outs = []
    for n in reversed(sizes):
        left, index = binary.divmod(left, n)
        outs.append(index)
    over, under = (
        lg.gt(left, lit(0, left)),
        lg.lt(left, lit(0 if is_unsigned(t.dtype) else -1, left)),
    )
    found = [
        where(over, n - 1, where(under, 0, i)) for n, i in zip(sizes, reversed(outs), strict=True)
    ]
    return [cast(i, dtype, weak) for i in found]


@eager_jit
def unravel_index(indices: ArrayLike, shape: Ints | ArrayLike) -> tuple[Array, ...]:
    """Indices into a flat array as indices into an array of `shape`; clamped to the bounds.

    shape: integers, or arrays of rank 0; an array is one for each of its elements.
    """
    sizes = tuple(shape) if isinstance(shape, Iterable) and getattr(shape, "ndim", 1) else (shape,)
    types = [type_of(x) for x in (indices, *sizes)]
    for t in types:
        if not is_integer(t.dtype):
            raise TypeError(f"unravel_index takes integers; got {t.str_short(True)}.")
    if any(t.ndim for t in types[1:]):
        raise ValueError(f"unravel_index: sizes must be of rank 0; got {join_types(types[1:])}.")
    return tuple(_unravel(indices, *sizes))


@fused
def _ravel(*indices: Any, dims: tuple, mode: str, order: str, dtype: Any) -> Any:
    parts = broadcast(*promote(*indices))
    if dtype is not None:
        parts = [cast(i, dtype) for i in parts]
    pairs = list(zip(parts, dims, strict=True))
    if order == "C":
        pairs = pairs[::-1]
    total, stride = None, 1
    for i, n in pairs:
        i = i if is_array(i) else _spread(i, ())
        if mode == "wrap":
            i = binary.remainder(i, n)
        elif mode == "clip":
            i = lg.clamp(lit(0, i), i, lit(n - 1, i))
        term = mul(i, lit(stride, i))
        total = term if total is None else add(total, term)
        stride *= n
    return total


def ravel_multi_index(
    multi_index: Sequence[Any],
    dims: Sequence[int],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Indices into an array of shape `dims` as indices into the flat array.

    mode: for indices out of bounds: "raise" (not if they are traced), "wrap" or "clip"; "ignore"
          computes with them unchanged.
    dtype: of the result, an integer type that can contain all indices; by default the promoted
           dtype of the indices.
    """
    wanted = None if dtype is None else check_user_dtype(dtype, "ravel_multi_index")
    sizes = tuple(operator.index(n) for n in dims)
    indices = list(map(as_arraylike, multi_index))
    if wanted is not None and (
        not is_integer(wanted) or math.prod(sizes) - 1 > int(iinfo(wanted).max)
    ):
        raise ValueError(
            f"ravel_multi_index: dtype must be an integer type for all indices of shape {sizes}; "
            f"got {wanted}."
        )
    if len(sizes) != len(indices):
        raise ValueError(f"ravel_multi_index: {len(indices)} indices do not match shape {sizes}.")
    if mode not in ("raise", "wrap", "clip", "ignore"):
        raise ValueError(
            f"ravel_multi_index: mode must be 'raise', 'wrap', 'clip' or 'ignore'; got {mode!r}."
        )
    if order not in ("C", "F"):
        raise ValueError(f"ravel_multi_index: order must be 'C' or 'F'; got {order!r}.")
    for i in indices:
        if not is_integer(type_of(i).dtype):
            raise TypeError(f"ravel_multi_index takes integers; got {type_of(i).str_short(True)}.")
    if mode == "raise":
        for i, n in zip(indices, sizes, strict=True):
            values = _known("ravel_multi_index", i)
            if np.any((values < 0) | (values >= n)):
                raise ValueError(f"ravel_multi_index: an index is out of bounds for size {n}.")
    return _ravel(*indices, dims=sizes, mode=mode, order=order, dtype=wanted)


@eager_jit(arrays=2)
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """For each element, whether it is among the test elements.

    Args:
      assume_unique: has no effect.
      invert: whether to test for absence instead.
      method: "compare_all" compares all pairs; "sort" and "binary_search" sort the test elements
        and use binary search. "auto" uses the first for up to 512 of them.
    """
    no_lists("isin", element, test_elements)
    if method not in _METHODS:
        raise ValueError(f"isin: method must be one of {_METHODS}; got {method!r}.")
    size: Any = type_of(test_elements).size
    many = not isinstance(size, Symbolic) and size > _FEW
    each = method == "compare_all" or (method == "auto" and not many)
    return (_isin if each else _isin_sorted)(element, test_elements, bool(invert))


_METHODS = ("auto", "compare_all", "binary_search", "sort")
_FEW = 512  # maximum number of test elements for "compare_all"


@fused(arrays=2)
def _isin_sorted(x: Any, tests: Any, invert: bool) -> Any:
    x, tests = promote(x, tests)
    n = type_of(tests).size
    if not n:
        return body_of(_isin)(x, tests, invert)
    ordered = sort(basis.reshape(tests, shape=(n,)), dimension=0)[0]
    place = place_in_order(ordered, x, "left")
    place = lg.clamp(lit(0, place), place, lit(n - 1, place))
    found = lg.eq(take_from(ordered, place), x)
    return lg.bitwise_not(found) if invert else found


@fused(arrays=2)
def _isin(x: Any, tests: Any, invert: bool) -> Any:
    x, tests = promote(x, tests)
    shape, count = type_of(x).shape, type_of(tests).size
    wide = (*shape, count)
    every = basis.broadcast_in_dim(x, shape=wide, dims=tuple(range(len(shape))))
    flat = basis.reshape(_spread(tests, type_of(tests).shape), shape=(count,))
    same = lg.eq(every, basis.broadcast_in_dim(flat, shape=wide, dims=(len(shape),)))
    found = reduce_or(same, axes=(len(shape),))
    return lg.bitwise_not(found) if invert else found


def in1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, invert: bool = False
) -> Array:
    """For each element of the flat array, whether it is in the other array."""
    return isin(ravel(ar1), ar2, assume_unique, invert)
