"""Converts user arguments to operands of ops: arrays of one shape and dtype."""

from __future__ import annotations

from typing import Any

from shardwise._src.base.config import numpy_rank_promotion
from shardwise._src.base.errors import (
    BroadcastError,
    ConcretizationTypeError,
    ShapeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardwise._src.base.warn import warn
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.messages.called import is_called_with, public_call
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import lit_of
from shardwise._src.types import symbolic
from shardwise._src.types.dtypes import canonicalize, constant_of, is_bool, to_inexact
from shardwise._src.types.promotion import lattice_join, scalar_type_of
from shardwise._src.types.symbolic import Symbolic, broadcast_shapes


def cast(x: Any, dtype: Any, weak: bool = False) -> Any:
    """`x` cast to `dtype`; scalars stay host values, so that they become literals."""
    t = type_of(x)
    if t.dtype == dtype and t.weak_type == weak:
        return x
    if isinstance(x, Symbolic):
        x = as_arraylike(x)
    if t.ndim == 0 and not is_array(x):
        if not weak and (x.__class__ is float or x.__class__ is int):
            return lit_of(x, dtype)
        if not weak:
            return constant_of(x, dtype)
        python = scalar_type_of(dtype)
        if canonicalize(python) == dtype:
            return python(x)
    return convert_element_type(x, dtype=dtype, weak=weak)


def constant(value: Any, like: Any) -> Any:
    """A Python scalar with the dtype and weak type of `like`."""
    t = type_of(like)
    return cast(value, t.dtype, t.weak_type)


def strip_weak_type(x: Any) -> Any:
    """`x` without its weak type."""
    return cast(x, type_of(x).dtype)


def joined(*args: Any) -> tuple[Any, bool]:
    """The promoted dtype of the arguments, and whether it is weak."""
    return _joined([type_of(a) for a in args])


def _joined(types: list[Any]) -> tuple[Any, bool]:
    return lattice_join(*[(t.dtype, t.weak_type) for t in types])


def _cast_all(args: Any, types: list[Any], dtype: Any, weak: bool) -> list[Any]:
    return [
        a if t.dtype is dtype and t.weak_type is weak else cast(a, dtype, weak)
        for a, t in zip(args, types, strict=True)
    ]


def promote(*args: Any) -> list[Any]:
    """The arguments cast to their common dtype."""
    types = [type_of(a) for a in args]
    return _cast_all(args, types, *_joined(types))


def promote_numeric(*args: Any) -> list[Any]:
    """The arguments cast to their common dtype; booleans become integers."""
    types = [type_of(a) for a in args]
    dtype, weak = _joined(types)
    if is_bool(dtype):
        dtype, weak = canonicalize(int), False
    return _cast_all(args, types, dtype, weak)


def promote_inexact(*args: Any) -> list[Any]:
    """The arguments cast to their common floating-point or complex dtype."""
    types = [type_of(a) for a in args]
    if len(types) == 1 and to_inexact(types[0].dtype) is types[0].dtype:
        return [*args]
    dtype, weak = _joined(types)
    return _cast_all(args, types, to_inexact(dtype), weak)


def inexact(x: Any) -> Any:
    """`x` as floating-point or complex numbers."""
    return promote_inexact(x)[0]


def broadcast(*args: Any, checked: bool = True) -> list[Any]:
    """The operands broadcast to their common shape; scalars are left to the ops.

    checked: whether the flag numpy_rank_promotion applies.
    """
    types = [type_of(a) for a in args]
    shapes = {t.shape for t in types if t.shape}
    if len(shapes) <= 1:
        return list(args)
    shape = (operand_shape if checked else common_shape)([t.shape for t in types])
    return [a if not t.shape else broadcast_to(a, shape) for a, t in zip(args, types, strict=True)]


def common_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that all shapes broadcast to."""
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        shown = " and ".join(str(s) for s in shapes)
        raise BroadcastError(
            f"shapes {shown} do not broadcast together: from the last dimension backwards, sizes "
            "must be equal or 1."
        ) from None


def operand_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """`common_shape` of operands, of which the flag numpy_rank_promotion may require one rank."""
    found = common_shape(shapes)
    if numpy_rank_promotion.value != "allow" and is_called_with(shapes):
        check_ranks([s for s in shapes if s])
    return found


def check_ranks(shapes: list[tuple[int, ...]]) -> None:
    """Respects the flag numpy_rank_promotion for shapes of operands, without those of scalars."""
    mode = numpy_rank_promotion.value
    if mode == "allow" or len(set(map(len, shapes))) < 2:
        return
    shown = " and ".join(str(s) for s in shapes)
    message = (
        f"operands of shapes {shown} have different ranks, and numpy_rank_promotion is {mode!r}. "
        "Add dimensions with expand_dims or reshape, or set the flag to 'allow'."
    )
    if mode == "raise":
        raise ValueError(message)
    warn(message)


def broadcast_to(x: Any, shape: tuple) -> Any:
    t = type_of(x)
    if t.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, dims=tuple(range(len(shape) - t.ndim, len(shape))))


def broadcast_values(values: Any, shape: tuple, what: str) -> Any:
    """Values broadcast to the shape of the target elements. what: for the error."""
    given = type_of(values).shape
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if len(given) > len(shape) or any(n not in (1, m) for n, m in pairs):
        raise ShapeError(
            f"{what}: `values` of shape {given} cannot be broadcast to the shape {shape} of the "
            "target elements."
        )
    return broadcast_to(values, shape)


def as_integer(x: Any, what: str) -> int:
    """Validates a size or count. what: the function and its argument, for the error."""
    try:
        return symbolic.as_integer(x)
    except TypeError as error:
        reject_traced(x, what, error, is_count=True)
        raise TypeError(f"{what} must be an integer; got {x!r}.") from None


def count_of(size: Any) -> int:
    """The argument `size` of functions whose result size depends on the data."""
    who = public_call()
    count = as_integer(size, f"{who}: size")
    if count < 0:
        raise ShapeError(f"{who}: size must be at least 0; got {count}.")
    return count


def reject_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(
            f"{name}: `out` is not supported, as arrays are immutable. Use the result."
        )


def reject_traced(x: Any, what: str, error: Exception, is_count: bool = False) -> None:
    """If `error` came from a traced value, raises an error that `what` must be concrete.

    is_count: whether it is a count or a position, not a shape; JAX raises another class for these.
    """
    if isinstance(error, UnexpectedTracerError):
        raise error
    if not hasattr(x, "needed_for_shape"):
        return
    if isinstance(error, TracerIntegerConversionError | TracerArrayConversionError):
        if x.concrete() is not None:  # the error says why its value may not be used
            raise error
        is_shape = isinstance(error, TracerIntegerConversionError) and not is_count
        kinds = (TracerIntegerConversionError,) if is_shape else ()
        raise x.needed_for_shape(what, *kinds) from None


def unknown_count(about: str, x: Any, argument: str) -> ConcretizationTypeError:
    """The error for a size that depends on the values of a traced array and is not specified."""
    why = f", {x.not_concrete()}" if hasattr(x, "not_concrete") else "."
    return ConcretizationTypeError(
        f"{about} depends on the values of a traced {type_of(x).str_short(True)}{why} Pass "
        f"`{argument}=`."
    )
