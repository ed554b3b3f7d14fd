"""Array creation: from Python and NumPy values, and filled with constants.

Eagerly, each constant array is one cached program without arguments. Ranges are in `ranges`,
structured matrices in `triangles`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from shardwise._src.base.config import enable_x64
from shardwise._src.base.context import current
from shardwise._src.base.errors import ShapeError
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import fused, record_of
from shardwise._src.core.infer import (
    HOST,
    as_arraylike,
    check_alive,
    is_array,
    reject_masked,
    type_of,
)
from shardwise._src.messages.called import by_name
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.numpy.shapes import shape_of as given_shape
from shardwise._src.ops import create
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.elementwise import copy as copy_op
from shardwise._src.ops.random.bits import random_wrap
from shardwise._src.ops.shape import concatenate
from shardwise._src.ops.sharded.sharding_ops import (
    fitted,
    own_place,
    own_sharding,
    placed,
    resharded,
    target,
    where_it_was,
)
from shardwise._src.types.annotations import (
    Array,
    ArrayLike,
    DeviceLike,
    DTypeLike,
    OutSharding,
    ShapeLike,
)
from shardwise._src.types.array_type import says_nothing
from shardwise._src.types.dtypes import canonicalize, check_user_dtype, float0
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.promotion import dtype_and_weak, lattice_join
from shardwise._src.values.convert import broadcast_to, cast, joined

FLOAT, INT = float, int  # the defaults; `canonicalize` may narrow them

# -- arguments --


def shape_of(shape: Any) -> tuple[int, ...]:
    """Normalizes a shape argument: a size, or a sequence of sizes; none may be negative."""
    sizes = given_shape(shape)
    if any([n < 0 for n in sizes]):
        raise ShapeError(by_name(f"the sizes of a shape must not be negative; got {sizes}."))
    return sizes


def dtype_of(dtype: Any, fun_name: str, default: Any = FLOAT) -> Any:
    """Normalizes a dtype argument; warns about 64-bit dtypes if they are disabled."""
    if dtype is None:
        return canonicalize(default)
    return check_user_dtype(dtype, fun_name)


# -- filled with a constant --


def _filled(value: Any, shape: tuple, dtype: Any, weak: bool = False) -> Any:
    """A scalar broadcast to `shape`; of keys, one key, or the value of all their integers."""
    if not isinstance(dtype, ExtendedDType):
        return create.full(value, shape, dtype, weak)
    if type_of(value).dtype == dtype:
        return broadcast_to(value, shape)
    words = create.full(value, (*shape, *dtype.physical_shape), dtype.physical_dtype)
    return random_wrap(words, dtype=dtype)


@fused(arrays=0)
def _zeros(shape: tuple, dtype: Any, weak: bool = False) -> Any:
    return _filled(0, shape, dtype, weak)


@fused(arrays=0)
def _ones(shape: tuple, dtype: Any, weak: bool = False) -> Any:
    return _filled(1, shape, dtype, weak)


@fused(arrays=1)
def _full(value: Any, shape: tuple, dtype: Any, weak: bool) -> Any:
    if type_of(value).ndim:
        return broadcast_to(cast(value, dtype), shape)
    return _filled(value, shape, dtype, weak)


def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array of zeros.

    shape:  a size, or a sequence of sizes.
    dtype:  float32 if None (float64 under enable_x64).
    device: a device or sharding for the result.
    out_sharding: how it is sharded over explicit mesh axes: a NamedSharding or a PartitionSpec.
    """
    if out_sharding is not None:
        return placed(zeros, out_sharding, shape, dtype)
    return _made(_zeros, device, shape_of(shape), dtype_of(dtype, "zeros"))


def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array of ones; see `zeros`."""
    if out_sharding is not None:
        return placed(ones, out_sharding, shape, dtype)
    return _made(_ones, device, shape_of(shape), dtype_of(dtype, "ones"))


def empty(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array of zeros: memory is never left uninitialized."""
    if out_sharding is not None:
        return placed(empty, out_sharding, shape, dtype)
    return _made(_zeros, device, shape_of(shape), dtype_of(dtype, "empty"))


def _as_filler(x: Any, dtype: Any) -> Any:
    """A Python integer beyond int32 as a value of the array's dtype, modulo its size."""
    if x.__class__ is int and not -(1 << 31) <= x < 1 << 31:
        return np.asarray(x).astype(dtype)[()]
    return x


def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array of `fill_value`, a scalar or an array that broadcasts to `shape`.

    dtype: the dtype of the value if None; a Python scalar then makes the result weakly typed.
    """
    if out_sharding is not None:
        return placed(full, out_sharding, shape, fill_value, dtype)
    kind = None if dtype is None else dtype_of(dtype, "full")
    if kind is not None and kind != canonicalize(kind):  # explicit_x64_dtypes: allow
        with enable_x64(True):
            return full(shape, fill_value, kind, device=device)
    value = as_operand(fill_value)
    if kind is not None:
        value = _as_filler(value, kind)
    t = type_of(value)
    weak = dtype is None and t.weak_type
    return _made(_full, device, value, shape_of(shape), dtype_of(dtype, "full", t.dtype), weak)


def _made(make: Callable, device: Any, *args: Any) -> Any:
    """`make(*args)` on a device or sharding; if None, the default location.

    args: they end with the shape, the dtype, and possibly whether it is weak.
    """
    if args[-1] is float0 or args[-2] is float0:  # has no data, so its arrays are NumPy's
        return np.zeros(args[-2] if args[-1] is float0 else args[-3], float0)
    if device is None:
        return make(*args)
    if current().interpreter.eager:
        return eval_trace().run_fused_on(record_of(make), args, device)
    return eval_trace().place(make(*args), device)


def full_at(value: Any, shape: tuple, dtype: Any, weak: bool, device: Any) -> Any:
    """A constant array of a canonical dtype, on a device or sharding."""
    return _made(_full, device, value, shape, dtype, weak)


def zeros_like(
    a: Any,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Zeros with the shape, dtype and device of `a`, unless overridden.

    a: an array, or any object with a shape and a dtype. The result is committed where `a` is, with
      the same sharding if the shapes are equal. For tracers, only the type matters (Explicit axes).
    device: a device or sharding. out_sharding: see `zeros`.
    """
    args = _like(a, dtype, shape, "zeros_like")
    return _filled_like(a, _zeros, args, device, out_sharding)


def ones_like(
    a: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """Ones with the shape, dtype and device of `a`, unless overridden."""
    args = _like(a, dtype, shape, "ones_like")
    return _filled_like(a, _ones, args, device, out_sharding)


def empty_like(
    prototype: Any,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """`zeros_like`: memory is never left uninitialized."""
    args = _like(prototype, dtype, shape, "empty_like")
    return _filled_like(prototype, _zeros, args, device, out_sharding)


def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """`fill_value` with the shape, dtype and device of `a`, unless overridden."""
    like = _like(a, dtype, shape, "full_like")
    size, kind, _ = like
    if kind != canonicalize(kind):  # explicit_x64_dtypes: allow
        with enable_x64(True):
            return full_like(a, fill_value, kind, size, device=device, out_sharding=out_sharding)
    args = _as_filler(as_operand(fill_value), like[1]), *like
    return _filled_like(a, _full, args, device, out_sharding)


def _filled_like(a: Any, make: Callable, args: tuple, device: Any, out_sharding: Any) -> Any:
    """Creates the array where `a` is, unless another location is requested."""
    if out_sharding is None and device is None:
        device = own_place(a, args[-3])
        out_sharding = own_sharding(a, args[-3]) if device is None else None
    if out_sharding is not None:
        return placed(make, out_sharding, *args)
    return _made(make, device, *args)


def _like(a: Any, dtype: Any, shape: Any, fun_name: str) -> tuple[tuple, Any, bool]:
    if not (is_array(a) or isinstance(getattr(a, "dtype", None), np.dtype | type)):
        a = as_arraylike(a)  # from a library with its own dtypes
    held = a if hasattr(a, "shape") and hasattr(a, "dtype") else type_of(as_operand(a))
    weak = dtype is None and dtype_and_weak(a)[1] if held is a else dtype is None and held.weak_type
    size = tuple(held.shape) if shape is None else shape_of(shape)
    own = type_of(held).dtype if is_array(held) else canonicalize(held.dtype)
    return size, own if dtype is None else check_user_dtype(dtype, fun_name), weak


# -- from values --


def array(
    object: Any,
    dtype: DTypeLike | None = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array with the given value.

    object: a number, an array of any library, or nested sequences of these, including tracers.
    dtype:  if None, the common dtype of all elements; a Python number makes it weakly typed.
    copy:   whether to copy an array of this library.
    order:  has no effect: the element order is always row-major.
    ndmin:  the minimum rank; leading dimensions of size 1 are added to reach it.
    device: a device or sharding for the result.
    """
    if order not in (None, "K", "A", "C", "F"):
        raise ValueError(f"order must be 'K', 'A', 'C' or 'F'; got {order!r}.")
    nowhere = out_sharding is None or says_nothing(out_sharding)
    goal = None if nowhere else target(out_sharding, "array: out_sharding")
    wanted = None if dtype is None else dtype_of(dtype, "array")
    if wanted is float0:  # has no data, so its arrays are NumPy's
        trivial: Any = np.asarray(object, float0)
        return trivial
    wide = wanted is not None and wanted != canonicalize(wanted)  # explicit_x64_dtypes: allow
    try:
        made = _wide_array(object, wanted) if wide else _array(object, wanted)
    except Exception as error:
        pass_on(error)
        raise
    if made is object:
        made = _copy(made) if copy else check_alive(made)
    if made.ndim < ndmin:
        made = reshape(made, shape=(1,) * (ndmin - made.ndim) + made.shape)
    if goal is not None:
        return resharded(made, fitted(goal, made.ndim))
    return made if device is None else eval_trace().place(made, device)


def _wide_array(object: Any, dtype: Any) -> Any:
    """`_array` of a dtype of 64 bits, which is kept."""
    with enable_x64(True):
        return _array(object, dtype)


def asarray(
    a: Any,
    dtype: DTypeLike | None = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: DeviceLike = None,
    out_sharding: OutSharding = None,
) -> Array:
    """An array with the given value; an array of this library is returned unchanged.

    copy: True for separate memory. False for no copy: the result is `a` or shares its memory by
      DLPack; otherwise, raises `ValueError`.
    """
    if a.__class__ is np.ma.MaskedArray:  # `array` makes arrays of the data
        reject_masked(a)
    if copy is False:
        wanted = None if dtype is None else dtype_of(dtype, "asarray")
        return _shared(a, wanted, device, out_sharding)
    plain = order is None and not copy and device is None and out_sharding is None and is_array(a)
    if plain and (dtype is None or _has_dtype(a, dtype_of(dtype, "asarray"))):
        return check_alive(a)
    return array(a, dtype, bool(copy), order, device=device, out_sharding=out_sharding)


def _shared(x: Any, dtype: Any, device: Any, out_sharding: Any) -> Any:
    """`x` as an array without a copy."""
    made = check_alive(x) if is_array(x) else None
    if made is None and hasattr(x, "__dlpack__"):
        with suppress(BufferError):
            made = eval_trace().from_dlpack(x, device, False)
    if made is not None and (dtype is None or _has_dtype(made, dtype)) and out_sharding is None:
        placed = made if device is None else eval_trace().place(made, device)
        if placed is made or placed.sharding == made.sharding:
            return placed
    raise ValueError(
        f"asarray: copy=False is not possible for {short_repr(x)}, which must be copied. Leave "
        "copy out."
    )


def _has_dtype(x: Any, dtype: Any) -> bool:
    return x.dtype is dtype and not x.aval.weak_type


def _array(x: Any, dtype: Any) -> Any:
    """`x` as an array; in its own dtype if None."""
    if is_array(x):
        return x if dtype is None else cast(x, dtype)
    if isinstance(x, np.ndarray | np.generic) and x.dtype != object:
        return eval_trace().new_array(_host(x, dtype or canonicalize(x.dtype)))
    if isinstance(x, bool | int | float | complex):
        return eval_trace().new_array(x if dtype is None else _host(x, dtype))
    if isinstance(x, list | tuple | range):
        return _from_sequence(x, dtype)
    return _from_foreign(x, dtype)


def _host(x: Any, dtype: Any) -> np.ndarray:
    """A host array of a dtype. Python integers must fit; NumPy integers wrap around."""
    if isinstance(x, np.ndarray | np.generic):
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype, copy=False)
    if isinstance(x, float) and not np.issubdtype(dtype, np.inexact):
        return np.asarray(np.asarray(x).astype(dtype))
    return np.asarray(x, dtype)


def _from_foreign(x: Any, dtype: Any) -> Any:
    """Converts another library's object by the first protocol that it supports."""
    if isinstance(x, memoryview | bytearray):
        return _from_numpy(np.asarray(x), dtype)
    found = as_arraylike(x)
    if found is not x:
        host = isinstance(found, np.ndarray | np.generic)
        return _from_numpy(np.asarray(found), dtype) if host else _array(found, dtype)
    if x is None or type(x).__name__ in ("NAType", "NaTType"):  # the latter two are from pandas
        raise ValueError(f"{x} cannot be an element of an array. Use nan for a missing number.")
    if isinstance(x, Sequence) and not isinstance(x, str | bytes):
        return _from_sequence(list(x), dtype)
    advice = " Encode strings as integers first." if isinstance(x, str) else ""
    raise TypeError(
        by_name(f"array elements must be numbers or booleans; got {short_repr(x)}.{advice}")
    )


def _from_numpy(x: np.ndarray, dtype: Any) -> Any:
    if x.dtype == object:
        return _from_sequence(x.tolist(), dtype)
    return eval_trace().new_array(_host(x, dtype or canonicalize(x.dtype)))


def _from_sequence(rows: Sequence[Any], dtype: Any) -> Any:
    leaves: list[Any] = []
    kinds: set[type] = set()
    _collect(rows, leaves, kinds)
    if not kinds <= _PLAIN:
        return _from_mixed(rows, leaves, dtype)
    if dtype is None:
        dtype = canonicalize(FLOAT)
        if kinds:
            dtype = lattice_join(*[dtype_and_weak(k(0)) for k in kinds])[0]
    if float in kinds and not np.issubdtype(dtype, np.inexact):
        return eval_trace().new_array(_even(rows, None).astype(dtype))
    return eval_trace().new_array(_even(rows, dtype))


def _even(rows: Sequence[Any], dtype: Any) -> np.ndarray:
    try:
        return np.asarray(rows, dtype)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
    message = "rows of a nested sequence must have equal lengths. Pad the shorter ones."
    raise ValueError(by_name(message))


_PLAIN = {bool, int, float, complex}


def _collect(x: Any, leaves: list[Any], kinds: set[type]) -> None:
    for item in x:
        if item.__class__ not in _PLAIN and isinstance(item, list | tuple):  # includes named tuples
            _collect(item, leaves, kinds)
        else:
            kinds.add(item.__class__)
            leaves.append(item)


def _from_mixed(rows: Sequence[Any], leaves: Sequence[Any], dtype: Any) -> Any:
    """Sequences that contain arrays: on the host if all are NumPy arrays, else stacked."""
    values = [as_operand(v) for v in leaves]
    if dtype is None:
        dtype = joined(*values)[0]
    if any(is_array(v) for v in values):
        return _stacked(rows, values, dtype)
    if all(np.ndim(v) == 0 for v in values):
        return eval_trace().new_array(np.asarray(rows).astype(dtype))
    return eval_trace().new_array(np.asarray(_nested(rows, lambda v: np.asarray(v)), dtype))


def _nested(x: Any, fun: Callable) -> Any:
    return [_nested(v, fun) for v in x] if isinstance(x, list | tuple) else fun(x)


def _stacked(rows: Sequence[Any], leaves: Sequence[Any], dtype: Any) -> Any:
    shapes = {np.shape(v) for v in leaves}
    if len(shapes) > 1:
        found = " and ".join(sorted(map(str, shapes)))
        raise ValueError(
            by_name(f"the arrays in a sequence must have the same shape; got {found}.")
        )
    return _stack(*leaves, shape=_nesting(rows), dtype=dtype)


@fused(arrays=1)
def _stack(*xs: Any, shape: tuple, dtype: Any) -> Any:
    inner = type_of(xs[0]).shape
    rows = [broadcast_to(cast(x, dtype), (1, *inner)) for x in xs]
    return reshape(concatenate(*rows, dimension=0), shape=(*shape, *inner))


def _nesting(x: Any) -> tuple[int, ...]:
    """The lengths of nested sequences, which must be regular."""
    if not isinstance(x, list | tuple):
        return ()
    inner = {_nesting(v) for v in x}
    if len(inner) != 1:
        raise ValueError(
            f"nested sequences must have rows of equal length; got lengths {sorted(inner)}."
        )
    return (len(x), *inner.pop())


def as_operand(x: Any) -> Any:
    """An operand of a function: arrays and scalars unchanged, other libraries' converted."""
    if is_array(x) or isinstance(x, HOST):
        return x
    if isinstance(x, list | tuple):
        type_of(x)  # raises
    return _from_foreign(x, None)


def _copy(x: Any) -> Any:
    return where_it_was(x, _copied(x))


@fused(arrays=1)
def _copied(x: Any) -> Any:
    return copy_op(x)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """A copy of the array in separate memory."""
    return array(a, copy=True, order=order)


_astype = fused(cast)


def astype(
    x: ArrayLike, dtype: DTypeLike | None, /, *, copy: bool = False, device: DeviceLike = None
) -> Array:
    """`x` cast to another dtype; complex numbers lose their imaginary part."""
    wanted = dtype_of(dtype, "astype")
    if is_array(x) and _has_dtype(x, wanted):
        made = _copy(x) if copy else check_alive(x)
    else:
        made = where_it_was(x, _astype(as_operand(x), wanted))
    return made if device is None else eval_trace().place(made, device)
