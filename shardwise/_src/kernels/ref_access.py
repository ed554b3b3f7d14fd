"""How kernels read and write refs: `ref[index]`, and the functions with masks.

An index of integers, slices and `ds` is a place, which ops access (kernels/accesses.py). An index
of arrays gathers from the value of the ref, or scatters to it. `ref.at[index]` is a view of a
place, which is used like a ref.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.accesses import INT32, MODES, Region, as_int32, compare_and_swap
from shardwise._src.kernels.program_frames import simulation
from shardwise._src.kernels.simulation import check_region, infinite
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.refs.ref_parts import RefPart, check_kept
from shardwise._src.refs.refs import Ref, put, value_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_inexact, is_integer
from shardwise._src.types.symbolic import Symbolic
from shardwise._src.values.at import write
from shardwise._src.values.convert import broadcast_to, cast
from shardwise._src.values.dslice import Slice
from shardwise._src.values.indexing import getitem

MASKED = np.int32(2**31 - 1)  # an index at which nothing is written


class Place(NamedTuple):
    """Elements of a ref: along each dimension from a start, `size` elements `stride` apart. The
    dimensions that are not `kept` have one element, and are dropped."""

    starts: tuple[Any, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    kept: tuple[bool, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.region.shape

    @property
    def is_known(self) -> bool:
        return all(isinstance(s, int | np.integer) for s in self.starts)

    @property
    def region(self) -> Region:
        return Region(self.sizes, self.strides, self.kept)

    def within(self, inner: Place) -> Place:
        """A place in the elements of this one, as a place in the ref."""
        rows = iter(zip(*inner, strict=True))
        found = []
        for start, size, stride, keep in zip(*self, strict=True):
            if keep:
                at, size, step, keep = next(rows)
                start, stride = _moved(start, at, stride), stride * step
            found.append((start, size, stride, keep))
        return Place(*zip(*found, strict=True)) if found else self


def _moved(start: Any, by: Any, stride: int) -> Any:
    if isinstance(start, int) and isinstance(by, int):
        return start + by * stride
    start, by = as_int32(start), as_int32(by)
    return ew.add(start, by if stride == 1 else ew.mul(by, np.int32(stride)))


class RefView(RefPart):
    """A part of a kernel's ref, which is read and written like a ref: `ref.at[ds(i, 8)]`."""

    __slots__ = ("place",)

    def __init__(self, ref: Ref, place: Place):
        super().__init__(ref, ...)
        self.place = place

    type = property(lambda self: self.ref.type.update(shape=self.place.shape))

    def __repr__(self) -> str:
        return self.short

    def get(self, idx: Any = ...) -> Any:
        return loaded(self, idx)

    def _write(self, method: str, idx: Any, value: Any) -> None:
        written(self, method, idx, value)

    def part(self, index: Any) -> RefPart:
        return part_of(self, index)


AnyRef = Ref | RefView


def part_of(ref: AnyRef, index: Any) -> RefPart:
    """`ref.at[index]`: a view, unless the index has arrays."""
    place = place_of(ref, index)
    if place is not None:
        return RefView(whole_ref(ref), place)
    return RefPart(ref, index)


def whole_ref(ref: AnyRef) -> Ref:
    return ref.ref if isinstance(ref, RefView) else ref


def place_of(ref: AnyRef, index: Any) -> Place | None:
    """The elements of the whole ref that an index of numbers and slices selects; None if it has
    arrays."""
    inner = _place_in(ref, index)
    if inner is None or not isinstance(ref, RefView):
        return inner
    return ref.place.within(inner)


def _place_in(ref: AnyRef, index: Any) -> Place | None:
    parts = index if index.__class__ is tuple else (... if index is None else index,)
    dots = [i for i, part in enumerate(parts) if part is ...] or [len(parts)]
    rest = ref.ndim - sum(part is not ... for part in parts)
    if rest < 0 or len(dots) > 1:
        raise IndexError(
            f"{ref.short} has {ref.ndim} dimensions; the index has {len(parts)} entries."
        )
    filled = *parts[: dots[0]], *[slice(None)] * rest, *parts[dots[0] + 1 :]
    rows = []
    for d, (part, n) in enumerate(zip(filled, ref.shape, strict=True)):
        row = _row(ref, d, part, n)
        if row is None:
            return None
        rows.append(row)
    return Place(*zip(*rows, strict=True)) if rows else Place((), (), (), ())


def _row(ref: AnyRef, d: int, part: Any, n: int) -> tuple[Any, int, int, bool] | None:
    """(start, size, stride, whether the dimension stays) along dimension `d` of size `n`."""
    if isinstance(part, slice):
        bounds = part.start, part.stop, part.step
        if part == slice(None):
            return 0, n, 1, True
        if any(isinstance(x, Symbolic) for x in (n, *bounds)):
            return None
        if not all(isinstance(x, int | np.integer | None) for x in bounds):
            raise IndexError(
                f"{ref.short}: the bounds of a slice are traced, so that its size is unknown. Use "
                "`ds(start, size)`."
            )
        start, stop, step = part.indices(n)
        if step < 1:
            raise IndexError(f"{ref.short}: slices of kernel refs go forward; got {part}.")
        return start, max(-(-(stop - start) // step), 0), step, True
    if isinstance(part, Slice):
        if part.is_dynamic_size or part.stride < 1:
            raise IndexError(
                f"{ref.short}: the size of a slice is an integer, and its stride at least 1; got "
                f"{part}. Mask the elements beyond a traced size."
            )
        _check_inside(ref, d, part.start, part.size, part.stride, n)
        return part.start, part.size, part.stride, True
    is_bool = isinstance(part, bool | np.bool_)
    if isinstance(part, int | np.integer) and not is_bool:
        at = int(part) + n if part < 0 else int(part)
        _check_inside(ref, d, at, 1, 1, n)
        return at, 1, 1, False
    t = None if part is None or is_bool else type_of(as_arraylike(part))
    if t is None or not is_integer(t.dtype):
        got = f"{t.str_short(True)}. Select with `where` instead" if t else short_repr(part)
        raise IndexError(
            f"{ref.short}: kernel refs are indexed by integers, slices, `ds` and arrays of "
            f"integers; got {got}."
        )
    return None if t.shape else (part, 1, 1, False)


def _check_inside(ref: AnyRef, d: int, start: Any, size: int, stride: int, n: int) -> None:
    known = isinstance(start, int | np.integer)
    last = (int(start) if known else 0) + (size - 1) * stride
    if (known and start < 0) or (size > 0 and last >= n):
        raise IndexError(
            f"{ref.short}: elements {start} to {last} along dimension {d} are outside of its size "
            f"{n}."
        )


def loaded(ref: AnyRef, index: Any, mask: Any = None, other: Any = None) -> Any:
    """The elements at an index. mask: which are read; the others are `other`, 0 by default."""
    whole = whole_ref(ref)
    whole.space.check_accessible(ref)
    version, place = value_of(whole), place_of(ref, index)
    given = lit(0, version) if mask is None or other is None else _fitting(ref, other)
    if place is None:
        found = getitem(_value(ref), index)
        if mask is not None:
            found = ew.where(_as_mask(ref, mask, type_of(found).shape), found, given)
    else:
        starts, masked = [*map(as_int32, place.starts)], ()
        if mask is not None:
            masked = _as_mask(ref, mask, place.shape), broadcast_to(given, place.shape)
        found = place.region.load(version, starts, place.is_known, *masked)
    if simulation().skips_floats and is_inexact(ref.dtype):
        return infinite(type_of(found))
    return found


def _value(ref: AnyRef) -> Any:
    return loaded(ref, ...) if isinstance(ref, RefView) else value_of(ref)


def _fitting(ref: AnyRef, value: Any) -> Any:
    """A value with the ref's dtype, which must hold it."""
    value = as_arraylike(value)
    check_kept(ref, type_of(value))
    return cast(value, ref.dtype, False)


def _filling(ref: AnyRef, value: Any, shape: tuple[int, ...]) -> Any:
    """A value of the ref's dtype, broadcast to the elements that an index selects."""
    t = type_of(value)
    pairs = zip(reversed(t.shape), reversed(shape), strict=False)
    if t.ndim > len(shape) or any(n not in (1, m) for n, m in pairs):
        raise ValueError(
            f"{ref.short}: a value of type {t.str_short(True)} cannot be broadcast to the "
            f"{list(shape)} elements that the index selects."
        )
    return broadcast_to(value, shape)


def written(ref: AnyRef, mode: str, index: Any, value: Any, mask: Any = None) -> None:
    """Writes to the elements at an index, or combines them with a value."""
    whole, place = whole_ref(ref), place_of(ref, index)
    whole.space.check_writable(ref)
    whole.space.check_accessible(ref)
    version, value = value_of(whole), _fitting(ref, value)
    if simulation().skips_floats and is_inexact(ref.dtype):
        value = infinite(type_of(value))
    if place is None:
        found = _scattered(ref, mode, _value(ref), index, value, mask)
        if isinstance(ref, RefView):
            written(ref, "set", ..., found)
        else:
            put(ref, found)
        return
    value, starts = _filling(ref, value, place.shape), [*map(as_int32, place.starts)]
    if mask is not None:
        mask = _as_mask(ref, mask, place.shape)
    elif not place.is_known and simulation().outside != "moved":
        check_region("write", version, starts, place.sizes, place.strides)
    put(whole, place.region.store(version, value, starts, mode, mask))


def _scattered(ref: AnyRef, mode: str, version: Any, index: Any, value: Any, mask: Any) -> Any:
    """A version after a write to an index of arrays."""
    mode = "set" if mode == "xchg" else mode
    if mask is None:
        return write(mode, version, index, value)
    shape = type_of(getitem(version, index)).shape
    mask, value = _as_mask(ref, mask, shape), broadcast_to(value, shape)
    if mode != "set":  # the others are combined with a value that changes nothing
        old = getitem(version, index)
        same = lit(0, version) if mode in ("add", "xor") else old
        return write(mode, version, index, ew.where(mask, value, broadcast_to(same, shape)))
    parts = index if isinstance(index, tuple) else (index,)
    if len(parts) != ref.ndim or not all(isinstance(p, int) or hasattr(p, "dtype") for p in parts):
        t = type_of(version)  # an array of positions along each dimension
        numbers = [iota(shape=t.shape, dtype=INT32, dimension=d) for d in range(t.ndim)]
        parts = tuple([getitem(n, index) for n in numbers])
    first = ew.where(mask, cast(broadcast_to(as_arraylike(parts[0]), shape), INT32, False), MASKED)
    return write("set", version, (first, *parts[1:]), value, mode="drop")


def _as_mask(ref: AnyRef, mask: Any, shape: tuple[int, ...]) -> Any:
    mask = as_arraylike(mask)
    if type_of(mask).dtype != BOOL:
        raise TypeError(
            f"{ref.short}: a mask is an array of booleans; got {type_of(mask).str_short(True)}."
        )
    return broadcast_to(mask, shape)


def load(ref: Any, index: Any = ..., *, mask: Any = None, other: Any = None) -> Array:
    """The elements of a ref at an index.

    mask: booleans that broadcast to them: which are read. The rest is `other`, 0 by default.
    """
    whole, index = _whole("load", ref, index)
    return loaded(whole, index, mask, other)


def store(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> None:
    """Writes a value to the elements at an index, or to those of them for which `mask` is True."""
    whole, index = _whole("store", ref, index)
    written(whole, "set", index, value, mask)


def swap(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> Array:
    """Like `store`; returns the elements from before."""
    old = load(ref, index)
    store(ref, index, value, mask=mask)
    return old


def _atomic(mode: str) -> Any:
    def update(ref: Any, index: Any, value: ArrayLike, *, mask: Any = None) -> Array:
        whole, index = _whole(f"atomic_{mode}", ref, index)
        whole_ref(whole).space.check_writable(whole)
        old = loaded(whole, index, mask)
        written(whole, mode, index, value, mask)
        return old

    doc = f"""Combines a value with the elements at an index by `{mode}`, atomically on
    hardware where several programs do so; returns the elements from before.

    mask: which elements; the others are 0 in the result."""
    return named(update, f"atomic_{mode}", doc)


atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg = map(
    _atomic, MODES
)


def atomic_cas(ref: Any, cmp: ArrayLike, val: ArrayLike) -> Array:
    """Writes `val` to the elements of a ref, or of a part `ref.at[index]`, that are equal to `cmp`,
    atomically on hardware; returns the elements from before."""
    part, index = _whole("atomic_cas", ref, ...)
    whole, place = whole_ref(part), place_of(part, index)
    if place is None:
        raise IndexError("atomic_cas: a part of a ref is indexed by integers, slices and `ds`.")
    whole.space.check_writable(part)
    whole.space.check_accessible(part)
    compared, value = [_filling(part, _fitting(part, x), place.shape) for x in (cmp, val)]
    starts = [*map(as_int32, place.starts)]
    version, old = compare_and_swap(value_of(whole), compared, value, starts, place.region)
    put(whole, version)
    return old


def _whole(who: str, ref: Any, index: Any) -> tuple[AnyRef, Any]:
    """The ref, and the index in it, if only a part was passed: `ref.at[i]`."""
    if isinstance(ref, RefView):
        return ref, index
    if isinstance(ref, RefPart) and (index is ... or index is None):
        ref, index = ref.ref, ref.index
    if not isinstance(ref, Ref) or ref.space is None:
        raise TypeError(
            f"{who}: expected a ref of a kernel; got {short_repr(ref)}. Other refs are read and "
            "written by `ref[index]`."
        )
    return ref, index
