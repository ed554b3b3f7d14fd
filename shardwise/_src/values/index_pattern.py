"""The structure of an index expression, separate from its values.

`parse` splits `x[idx]` into a hashable *pattern* and *operands*: `x[5, :, rows]` is the pattern
`("at", "all", "array")` with operands `5` and `rows`. One program serves all indices with the same
pattern, so that a loop over `x[i]` compiles once. Under a trace, integers stay in the pattern
(`("int", 5)`), since constants produce better code.

The entries, one for each item and for each dimension that an ellipsis expands to:

    "new"                       a new dimension
    "all"                     the full dimension
    ("slice", start, size, step)   a slice; the last element is start + (size - 1) * step
    ("window", size)            a slice of step 1, such as from `ds`; operand: its start
    ("int", i)                  an integer within bounds
    "at"                        an integer within bounds; operand
    "scalar"                    an array of rank 0; operand, may be negative or out of bounds
    "array"                     an array of integers; operand, may be negative or out of bounds
    "host"                      like "array", with concrete values that are already wrapped
    ("truth", n)                a scalar boolean: a new dimension of size n, 0 or 1
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from shardwise._src.base.config import check_static_indices
from shardwise._src.base.errors import (
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    UnexpectedTracerError,
)
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.ops.shape import concatenate
from shardwise._src.types.dtypes import canonicalize, is_bool, is_integer
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.values.convert import broadcast_to, cast, promote
from shardwise._src.values.dslice import Slice, entry

NEW, ALL, AT, SCALAR, ARRAY, HOST = "new", "all", "at", "scalar", "array", "host"
ADVANCED = (ARRAY, HOST)


class Index(NamedTuple):
    """A parsed index expression. `outside`: a concrete integer is out of bounds (see `clip`)."""

    pattern: tuple
    operands: list[Any]
    outside: bool


def parse(
    idx: Any,
    shape: tuple[int, ...],
    *,
    moving: bool = False,
    windows: bool = False,
    clip: bool = True,
    wrap: bool = True,
    trusted: bool = True,
) -> Index:
    """Splits an index expression for an array of `shape`.

    moving:  integers become operands; otherwise they stay in the pattern.
    windows: the starts of slices of step 1 also become operands.
    clip:    integers out of bounds are clamped; otherwise they are reported as `outside`.
    wrap:    negative integers count from the end.
    trusted: integers are assumed to be within bounds; `check_static_indices` checks them.
    """
    items = idx if idx.__class__ is tuple else _items(idx)
    pattern: list[Any] = []
    operands: list[Any] = []
    outside = False
    ndim, d = len(shape), 0
    for position, item in enumerate(items):
        kind = item.__class__
        if kind is slice or kind is Slice:
            if d >= ndim:
                _too_many(items, ndim)
            pattern.append(
                _slice_entry(item, shape[d], position, operands, windows)
                if kind is slice
                else entry(item, shape[d], operands, windows)
            )
            d += 1
        elif item is None:
            pattern.append(NEW)
        elif item is Ellipsis:
            rest = ndim - d - consumed(items[position + 1 :])
            if rest < 0:
                _too_many(items, ndim)
            pattern += [ALL] * rest
            d += rest
        else:
            if kind is not int:
                item = _plain(item)
            if item.__class__ is int:
                if d >= ndim:
                    _too_many(items, ndim)
                n = shape[d]
                i = item + n if item < 0 and wrap else item
                within = 0 <= i < n
                if not within:
                    if trusted and check_static_indices.value:
                        raise _out_of_bounds(item, d, n)
                    i, outside = _beyond(i, d, n), outside or (moving and not clip)
                if within and not moving:
                    pattern.append(("int", i))
                else:  # out-of-bounds integers stay in the program for `checkify`
                    pattern.append(AT if moving else SCALAR)
                    operands.append(i if moving else np.int32(item))
                d += 1
            elif item.__class__ is bool:
                pattern.append(("truth", int(item)))
            else:
                used = _array_entry(item, shape, d, wrap, position, pattern, operands)
                if used < 0:
                    _too_many(items, ndim)
                d += used
    pattern += [ALL] * (ndim - d)
    return Index(tuple(pattern), operands, outside)


def _items(idx: Any) -> tuple:
    if isinstance(idx, tuple):  # a named tuple
        return tuple(idx)
    if isinstance(idx, str):
        raise TypeError(f"arrays cannot be indexed by strings; got {idx!r}.")
    if not hasattr(idx, "dtype") and isinstance(idx, Sequence):
        raise TypeError(
            f"arrays cannot be indexed by a {type(idx).__name__}; use x[array(sequence)] to pick "
            "elements of one dimension, or x[tuple(sequence)] for an index per dimension."
        )
    return (idx,)


def consumed(items: Sequence[Any]) -> int:
    """The number of dimensions that the items after an ellipsis consume."""
    count = 0
    for item in items:
        if item is Ellipsis:
            raise IndexError("an index can only have a single ellipsis ('...')")
        if item is None or isinstance(item, bool | np.bool_):
            continue
        if isinstance(item, int | slice | Slice):
            count += 1
        else:
            item = _plain(item)
            typed = hasattr(item, "dtype")
            count += type_of(item).ndim if typed and is_bool(type_of(item).dtype) else 1
            count -= item.__class__ is bool
    return count


def _plain(item: Any) -> Any:
    """An index that is neither slice nor int, as a bool, an int, or an array."""
    if isinstance(item, bool):
        return item
    if isinstance(item, int):  # a subclass
        return int(item)
    if isinstance(item, list | tuple):
        item = _listed(item) if len(item) else np.zeros(0, np.int32)
    if hasattr(item, "__jax_array__"):
        item = item.__jax_array__()
    if hasattr(item, "dtype"):
        item = as_arraylike(item)
        dtype, ndim = item.dtype, np.ndim(item) if isinstance(item, np.generic) else item.ndim
        if not (is_bool(dtype) or is_integer(dtype)):
            raise TypeError(f"an index must be of integer or boolean type; got {_shown(item)}.")
        if ndim == 0 and (is_bool(dtype) or not is_array(item)):
            return np.asarray(item)[()].item()
        return item
    if hasattr(item, "__index__"):
        return operator.index(item)
    if isinstance(item, float | complex | str):
        raise TypeError(f"an index must be of integer or boolean type; got {item!r}.")
    raise IndexError(
        "an index must consist of integers, slices, ..., None and arrays of integers or booleans; "
        f"got {item!r}."
    )


def _listed(items: Sequence[Any]) -> Any:
    """A nested sequence as an array: on the host, unless an element is traced."""
    try:
        return np.asarray(items)
    except TracerArrayConversionError:
        parts = [_listed(x) if isinstance(x, list | tuple) else x for x in items]
        wide = canonicalize(int)  # otherwise a number would wrap in the narrow dtype of another
        parts = promote(*[cast(x, wide) if is_integer(type_of(x).dtype) else x for x in parts])
        rows = [broadcast_to(x, (1, *type_of(x).shape)) for x in parts]
        return concatenate(*rows, dimension=0)


def _shown(x: Any) -> str:
    return type_of(x).str_short(True)


def _too_many(items: Sequence[Any], ndim: int) -> NoReturn:
    count = consumed([i for i in items if i is not Ellipsis])
    raise IndexError(f"too many indices: the array is {ndim}-dimensional, but {count} were given.")


def _beyond(i: int, d: int, n: int) -> int:
    """The nearest index within bounds."""
    if n == 0:
        raise _out_of_bounds(i, d, n)
    return 0 if i < 0 else n - 1


def _out_of_bounds(i: int, d: int, n: int) -> IndexError:
    return IndexError(f"index {i} is out of bounds for dimension {d} with size {n}.")


def _slice_entry(s: slice, n: int, position: int, operands: list, windows: bool) -> Any:
    size = None
    try:
        start, stop, step = s.indices(n)
    except (TypeError, IndexError):
        symbolic = [x for x in (n, s.start, s.stop, s.step) if isinstance(x, Symbolic)]
        if symbolic:
            start, size, step = symbolic[0].cut(s, n)
            stop = start + size * step
        else:
            start, stop, step = _static_slice(s, position).indices(n)
    if step == 1:
        if size is None:
            size = stop - start if stop > start else 0
        if size == n:
            return ALL
        if windows:
            operands.append(start if isinstance(size, Symbolic) or size else 0)
            return ("window", size)
    elif size is None:
        size = len(range(start, stop, step))
    return ("slice", start if isinstance(size, Symbolic) or size else 0, size, step)


def _static_slice(s: slice, position: int) -> slice:
    """The slice with its start, stop and step, which may be rank-0 arrays, as Python integers."""
    try:
        return slice(
            *[None if part is None else operator.index(part) for part in (s.start, s.stop, s.step)]
        )
    except UnexpectedTracerError:
        raise
    except TypeError as error:
        if not any(is_array(part) for part in (s.start, s.stop, s.step)):
            raise TypeError(
                f"the parts of a slice must be integers or None; got {s} at position {position}."
            ) from None
        traced: Any = next(p for p in (s.start, s.stop, s.step) if is_array(p))
        why = f", {traced.not_concrete()}" if hasattr(traced, "not_concrete") else "."
        raise IndexError(
            f"the parts of a slice must be concrete integers; got {s} at position {position}{why} "
            "Use `shardwise.lax.dynamic_slice(x, starts, sizes)` for a window of static size at a "
            "traced position, and `shardwise.numpy.where` with `arange` for one of traced size."
        ) from error


def _array_entry(
    item: Any, shape: tuple, d: int, wrap: bool, position: int, pattern: list, operands: list
) -> int:
    """Adds the entries of an array; returns the number of dimensions it indexes, -1: too many."""
    if is_bool(item.dtype):
        ndim = item.ndim
        if d + ndim > len(shape):
            return -1
        if item.shape != shape[d : d + ndim]:
            raise IndexError(
                f"a boolean index must have the shape of what it indexes; got {_shown(item)} at "
                f"position {position} for dimensions of sizes {shape[d : d + ndim]}."
            )
        for places in np.nonzero(_known_mask(item)):
            pattern.append(HOST)
            operands.append(places.astype(np.int32))
        return ndim
    if d >= len(shape):
        return -1
    if is_array(item):
        pattern.append(ARRAY if item.ndim else SCALAR)
        operands.append(item)
    else:
        n = shape[d]
        item = np.asarray(item, np.int64)
        item = np.where(item < 0, item + n, item) if wrap else item
        bound = np.iinfo(np.int32)
        pattern.append(HOST)
        operands.append(np.clip(item, -1, bound.max).astype(np.int32) if n <= bound.max else item)
    return 1


def _known_mask(mask: Any) -> np.ndarray:
    try:
        return np.asarray(eval_trace().readable(mask))
    except TracerArrayConversionError as error:
        raise NonConcreteBooleanIndexError(
            "a boolean index must be concrete, since the result's shape depends on it; got a "
            f"traced {_shown(mask)}, {mask.not_concrete()} Use `shardwise.numpy.where(mask, x, "
            "other)` to keep the shape, or `shardwise.numpy.nonzero(mask, size=n)` for a fixed "
            "number of indices."
        ) from error
