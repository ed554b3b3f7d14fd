"""How kernels read and write refs: `ref[index]`, and the functions with masks.

An index of integers, slices and `ds` is a place, which ops access (kernels/accesses.py). An index
of arrays gathers from the value of the ref, or scatters to it. `ref.at[index]` is a view of a
place, which is used like a ref.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels.accesses import INT32, compare_and_swap, kernel_load, kernel_store
from shardwise._src.kernels.program_frames import simulation
from shardwise._src.kernels.simulation import check_region, infinite, read
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import BOOL, lit
from shardwise._src.refs.ref_parts import RefPart, check_kept
from shardwise._src.refs.refs import Ref, put, value_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import ArrayType
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
        return tuple([n for n, keep in zip(self.sizes, self.kept, strict=True) if keep])

    @property
    def is_known(self) -> bool:
        return all(isinstance(s, int | np.integer) for s in self.starts)

    @property
    def static(self) -> dict[str, Any]:
        return {"sizes": self.sizes, "strides": self.strides, "kept": self.kept}

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
    start, by = scalars((start, by))
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
    if not any(part is ... for part in parts):
        filled += [slice(None)] * rest
    rows = []
    for d, (part, n) in enumerate(zip(filled, ref.shape, strict=True)):
        row = _row(ref, d, part, n)
        if row is None:
            return None
        rows.append(row)
    columns = tuple(zip(*rows, strict=True)) if rows else ((), (), (), ())
    return Place(*columns)


def _row(ref: AnyRef, d: int, part: Any, n: int) -> tuple[Any, int, int, bool] | None:
    """(start, size, stride, whether the dimension stays) along dimension `d` of size `n`."""
    if isinstance(part, slice):
        if part == slice(None):
            return 0, n, 1, True
        if any(isinstance(x, Symbolic) for x in (n, part.start, part.stop)):
            return None
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
    if isinstance(part, Slice):
        if part.is_dynamic_size or part.stride < 1:
            raise IndexError(
                f"{ref.short}: the size of a slice is an integer, and its stride at least 1; got "
                f"{part}. Mask the elements beyond a traced size."
            )
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
    whole_ref(ref).space.check_accessible(ref)
    if simulation().skips_floats and is_inexact(ref.dtype):
        return infinite(type_of(_loaded(ref, index, mask, other)))
    return _loaded(ref, index, mask, other)


def _loaded(ref: AnyRef, index: Any, mask: Any, other: Any) -> Any:
    version, place = value_of(whole_ref(ref)), place_of(ref, index)
    if place is None:
        return _masked(getitem(_value(ref), index), mask, other)
    starts = scalars(place.starts)
    if mask is None:
        return load_elements(version, starts, place.static, place.is_known)
    given = lit(0, version) if other is None else _fitting(ref, other)
    more = [broadcast_to(x, place.shape) for x in (_as_mask(ref, mask), given)]
    return kernel_load(version, *starts, *more, **place.static, masked=True)


def load_elements(
    version: Any, starts: Sequence[Any], static: dict[str, Any], is_known: bool = False
) -> Any:
    """A `kernel_load`, of which the kernel's simulation checks what is outside.

    is_known: whether the starts are integers, which have been checked.
    """
    if is_known or simulation().outside == "moved":
        return kernel_load(version, *starts, **static, masked=False)
    found = read(version, starts, static["sizes"], static["strides"], simulation())
    kept = [n for n, keep in zip(static["sizes"], static["kept"], strict=True) if keep]
    return reshape(found, shape=tuple(kept))


def _value(ref: AnyRef) -> Any:
    return loaded(ref, ...) if isinstance(ref, RefView) else value_of(ref)


def _masked(value: Any, mask: Any, other: Any) -> Any:
    if mask is None:
        return value
    mask = broadcast_to(as_arraylike(mask), type_of(value).shape)
    return ew.where(mask, value, lit(0, value) if other is None else other)


def _fitting(ref: AnyRef, value: Any) -> Any:
    """A value with the ref's dtype, which must hold it."""
    value = as_arraylike(value)
    check_kept(ref, type_of(value))
    return cast(value, ref.dtype, False)


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
    _check_shape(ref, type_of(value), place)
    more = [broadcast_to(value, place.shape)]
    tail = [] if mask is None else [broadcast_to(_as_mask(ref, mask), place.shape)]
    starts = scalars(place.starts)
    if mask is None and not place.is_known and simulation().outside != "moved":
        check_region("write", version, starts, place.sizes, place.strides)
    put(
        whole,
        kernel_store(version, *more, *starts, *tail, **place.static, masked=bool(tail), mode=mode),
    )


def _scattered(ref: AnyRef, mode: str, version: Any, index: Any, value: Any, mask: Any) -> Any:
    """A version after a write to an index of arrays."""
    mode = "set" if mode == "xchg" else mode
    if mask is None:
        return write(mode, version, index, value)
    shape = type_of(getitem(version, index)).shape
    mask, value = [broadcast_to(x, shape) for x in (_as_mask(ref, mask), value)]
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


def _as_mask(ref: AnyRef, mask: Any) -> Any:
    mask = as_arraylike(mask)
    if type_of(mask).dtype != BOOL:
        raise TypeError(
            f"{ref.short}: a mask is an array of booleans; got {type_of(mask).str_short(True)}."
        )
    return mask


def scalars(starts: Sequence[Any]) -> list[Any]:
    return [
        np.int32(s) if isinstance(s, int | np.integer) else cast(as_arraylike(s), INT32)
        for s in starts
    ]


def _check_shape(ref: AnyRef, t: ArrayType, place: Place) -> None:
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

    update.__name__ = update.__qualname__ = f"atomic_{mode}"
    update.__doc__ = f"""Combines a value with the elements at an index by `{mode}`, atomically on
    hardware where several programs do so; returns the elements from before.

    mask: which elements; the others are 0 in the result."""
    return update


atomic_add, atomic_max, atomic_min = _atomic("add"), _atomic("max"), _atomic("min")
atomic_and, atomic_or, atomic_xor = _atomic("and"), _atomic("or"), _atomic("xor")
atomic_xchg = _atomic("xchg")


def atomic_cas(ref: Any, cmp: ArrayLike, val: ArrayLike) -> Array:
    """Writes `val` to the elements of a ref, or of a part `ref.at[index]`, that are equal to `cmp`,
    atomically on hardware; returns the elements from before."""
    part, index = _whole("atomic_cas", ref, ...)
    whole, place = whole_ref(part), place_of(part, index)
    if place is None:
        raise IndexError("atomic_cas: a part of a ref is indexed by integers, slices and `ds`.")
    whole.space.check_writable(part)
    whole.space.check_accessible(part)
    compared, value = _fitting(part, cmp), _fitting(part, val)
    for x in (compared, value):
        _check_shape(part, type_of(x), place)
    found = compare_and_swap(
        value_of(whole),
        broadcast_to(compared, place.shape),
        broadcast_to(value, place.shape),
        scalars(place.starts),
        place.static,
    )
    put(whole, found[0])
    return found[1]


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
