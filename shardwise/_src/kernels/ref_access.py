"""How kernels read and write refs: `ref[index]`, and the functions with masks.

An index of integers, slices and `ds` is a place, which ops access (kernels/accesses.py). An index
of
arrays gathers from the value of the ref, or scatters to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.accesses import INT32, kernel_load, kernel_store
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.refs.refs import Ref, RefPart, put, value_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_integer
from shardwise._src.values.at import write
from shardwise._src.values.convert import broadcast_to, cast
from shardwise._src.values.indexing import getitem


@dataclass(frozen=True)
class ds:
    """A slice of `size` elements from `start`, which may be traced: `ref[ds(i * 8, 8)]`.

    stride: the distance between elements.
    """

    start: Any
    size: int
    stride: int = 1


dslice = ds  # another of JAX's names


class Place(NamedTuple):
    """Elements of a ref: along each dimension from a start, `size` elements `stride` apart. The
    dimensions that are not `kept` have one element, and are dropped."""

    starts: tuple[Any, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[bool, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([n for n, keep in zip(self.sizes, self.kept, strict=True) if keep])

    @property
    def static(self) -> dict[str, Any]:
        return {"sizes": self.sizes, "strides": self.strides, "kept": self.kept}


def place_of(ref: Ref, index: Any) -> Place | None:
    """The elements that an index of numbers and slices selects; None if it has arrays."""
    parts = index if index.__class__ is tuple else (index,)
    if index is None or index is ...:
        parts = ()
    rest = ref.ndim - sum(part is not ... for part in parts)
    if rest < 0 or sum(part is ... for part in parts) > 1:
        raise IndexError(
            f"{ref.short} has {ref.ndim} dimensions; the index has {len(parts)} entries."
        )
    filled: list[Any] = []
    for part in parts:
        filled += [slice(None)] * rest if part is ... else [part]
    if ... not in parts:
        filled += [slice(None)] * rest
    rows = []
    for d, (part, n) in enumerate(zip(filled, ref.shape, strict=True)):
        row = _row(ref, d, part, n)
        if row is None:
            return None
        rows.append(row)
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), (), ())
    return Place(*columns)


def _row(ref: Ref, d: int, part: Any, n: int) -> tuple[Any, int, int, bool] | None:
    """(start, size, stride, whether the dimension stays) along dimension `d` of size `n`."""
    if isinstance(part, slice):
        if all(
            x is None or isinstance(x, int | np.integer) for x in (part.start, part.stop, part.step)
        ):
            start, stop, step = part.indices(n)
            if step < 1:
                raise IndexError(f"{ref.short}: slices of kernel refs go forward; got {part}.")
            return start, max(-(-(stop - start) // step), 0), step, True
        raise IndexError(
            f"{ref.short}: the bounds of a slice are traced, so that its size is unknown. Use "
            "`ds(start, size)`."
        )
    if isinstance(part, ds):
        _check_inside(ref, d, part.start, part.size, part.stride, n)
        return part.start, part.size, part.stride, True
    if isinstance(part, bool | np.bool_) or part is None:
        raise IndexError(
            f"{ref.short}: kernel refs are indexed by integers, slices, `ds` and arrays of "
            f"integers; got {short_repr(part)}."
        )
    if isinstance(part, int | np.integer):
        at = int(part) + n if part < 0 else int(part)
        _check_inside(ref, d, at, 1, 1, n)
        return at, 1, 1, False
    t = type_of(as_arraylike(part))
    if not is_integer(t.dtype):
        raise IndexError(
            f"{ref.short}: kernel refs are indexed by integers, slices, `ds` and arrays of "
            f"integers; got {t.str_short(True)}. Select with `where` instead."
        )
    return None if t.shape else (part, 1, 1, False)


def _check_inside(ref: Ref, d: int, start: Any, size: int, stride: int, n: int) -> None:
    known = isinstance(start, int | np.integer)
    last = (int(start) if known else 0) + (size - 1) * stride
    if (known and start < 0) or (size > 0 and last >= n):
        raise IndexError(
            f"{ref.short}: elements {start} to {last} along dimension {d} are outside of its size "
            f"{n}."
        )


def loaded(ref: Ref, index: Any, mask: Any = None, other: Any = None) -> Any:
    """The elements at an index. mask: which are read; the others are `other`, 0 by default."""
    version, place = value_of(ref), place_of(ref, index)
    if place is None:
        return _masked(getitem(version, index), mask, other)
    starts = _scalars(place.starts)
    if mask is None:
        return kernel_load(version, *starts, **place.static, masked=False)
    given = lit(0, version) if other is None else cast(as_arraylike(other), ref.dtype, False)
    more = [broadcast_to(x, place.shape) for x in (_as_mask(ref, mask), given)]
    return kernel_load(version, *starts, *more, **place.static, masked=True)


def _masked(value: Any, mask: Any, other: Any) -> Any:
    if mask is None:
        return value
    return ew.where(mask, value, lit(0, value) if other is None else other)


def written(ref: Ref, mode: str, index: Any, value: Any, mask: Any = None) -> None:
    """Writes to the elements at an index, or combines them with a value."""
    version, place = value_of(ref), place_of(ref, index)
    value = cast(as_arraylike(value), ref.dtype, False)
    if place is None:
        if mask is not None:  # the others are combined with a value that changes nothing
            old = getitem(version, index)
            same = lit(0, version) if mode in ("add", "xor") else old
            more = [broadcast_to(x, type_of(old).shape) for x in (_as_mask(ref, mask), value, same)]
            value = ew.where(*more)
        put(ref, write(mode, version, index, value))
        return
    _check_shape(ref, type_of(value), place)
    more = [broadcast_to(value, place.shape)]
    tail = [] if mask is None else [broadcast_to(_as_mask(ref, mask), place.shape)]
    starts = _scalars(place.starts)
    put(
        ref,
        kernel_store(version, *more, *starts, *tail, **place.static, masked=bool(tail), mode=mode),
    )


def _as_mask(ref: Ref, mask: Any) -> Any:
    mask = as_arraylike(mask)
    if type_of(mask).dtype != BOOL:
        raise TypeError(
            f"{ref.short}: a mask is an array of booleans; got {type_of(mask).str_short(True)}."
        )
    return mask


def _scalars(starts: Sequence[Any]) -> list[Any]:
    return [
        np.int32(s) if isinstance(s, int | np.integer) else cast(as_arraylike(s), INT32)
        for s in starts
    ]


def _check_shape(ref: Ref, t: ArrayType, place: Place) -> None:
    pairs = zip(reversed(t.shape), reversed(place.shape), strict=False)
    if t.ndim > len(place.shape) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(
            f"{ref.short}: a value of type {t.str_short(True)} cannot be broadcast to the "
            f"{list(place.shape)} elements that the index selects."
        )


def load(ref: Any, index: Any = ..., *, mask: Any = None, other: Any = None) -> Array:
    """The elements of a ref at an index.

    mask: booleans that broadcast to them: which are read. The rest is `other`, 0 by default.
    """
    whole, index = _whole("load", ref, index)
    return loaded(whole, index, mask, other)


def store(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> None:
    """Writes a value to the elements at an index, or to those of them for which `mask` is True."""
    whole, index = _whole("store", ref, index)
    whole.space.check_writable(whole)
    written(whole, "set", index, value, mask)


def swap(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> Array:
    """Like `store`; returns the elements from before."""
    old = load(ref, index)
    store(ref, index, value, mask=mask)
    return old


def _atomic(mode: str) -> Any:
    def update(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> Array:
        whole, index = _whole(f"atomic_{mode}", ref, index)
        whole.space.check_writable(whole)
        old = loaded(whole, index)
        written(whole, mode, index, value, mask)
        return old

    update.__name__ = update.__qualname__ = f"atomic_{mode}"
    update.__doc__ = f"""Combines a value with the elements at an index by `{mode}`, atomically on
    hardware where several programs do so; returns the elements from before.

    mask: which elements."""
    return update


atomic_add, atomic_max, atomic_min = _atomic("add"), _atomic("max"), _atomic("min")
atomic_and, atomic_or, atomic_xor = _atomic("and"), _atomic("or"), _atomic("xor")


def _whole(who: str, ref: Any, index: Any) -> tuple[Ref, Any]:
    """The ref, and the index in it, if only a part was passed: `ref.at[i]`."""
    if isinstance(ref, RefPart) and (index is ... or index is None):
        ref, index = ref.ref, ref.index
    if not isinstance(ref, Ref) or ref.space is None:
        raise TypeError(
            f"{who}: expected a ref of a kernel; got {short_repr(ref)}. Other refs are read and "
            "written by `ref[index]`."
        )
    return ref, index
