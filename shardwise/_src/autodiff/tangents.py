"""Tangents and cotangents: those from users are checked, those for users are materialized.

Internally, None means zero, and values of integer types have none; externally, these are zeros of
dtype `float0`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.values import as_input
from shardwise._src.arrays.array import Array, wrap
from shardwise._src.arrays.signature import signature
from shardwise._src.autodiff.eager_backward import backward
from shardwise._src.base.config import enable_x64
from shardwise._src.base.marks import picked
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import full
from shardwise._src.ops.sharded.sharding_ops import cotangent_spec, cotangent_type, zero_like
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.linearize import LinearFunction
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import float0, is_float, is_inexact
from shardwise._src.types.sharding import NamedSharding


def zeros(t: ArrayType) -> Any:
    """Zeros of a type; of an integer type, the trivial tangents (NumPy's `float0`)."""
    if not is_inexact(t.dtype):
        return np.zeros(t.shape, float0)
    return zero_like(full(0, t.shape, t.dtype, t.weak_type), t)


def one(t: ArrayType) -> Any:
    """1 as a cotangent of a scalar, which may be the result of a block under `enable_x64`."""
    found = t.dtype.type(1)
    if t.dtype.itemsize > 4 and type_of(found).dtype != t.dtype:
        with enable_x64(True):
            return full(1, (), t.dtype)
    return found


def pull_back(
    linear: LinearFunction,
    cotangents: Sequence[Any],
    places: Sequence[Any] = (),
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Cotangents of all inputs; zeros if the result does not depend on one.

    places: of the inputs. Cotangents that use no input, such as zeros, are sharded like these.
    wanted: which cotangents to compute, by default all; the others are zeros.
    """
    given = [ct for ct, on in zip(cotangents, linear.active_out, strict=False) if on]
    active_wanted = None if wanted is None else picked(wanted, linear.active_in)
    found = iter(backward(linear, given, active_wanted))
    grads = []
    for t, active in zip(linear.in_types, linear.active_in, strict=True):
        ct = next(found) if active else None
        own = cotangent_type(t).update(weak_type=t.weak_type) if ct is None else t
        grads.append(as_tangent(ct, own))
    return [*map(_split_as, grads, places)] if any(places) else grads


def places_of(values: Sequence[Any]) -> list[Any]:
    """The shardings of arrays over several devices; None for other values."""
    found = [x._sig.sharding if x.__class__ is Array else None for x in values]
    return [s if s is not None and len(s.devices) > 1 else None for s in found]


def _split_as(ct: Any, place: Any) -> Any:
    """A cotangent that is uncommitted or replicated, resharded like its primal."""
    if isinstance(place, NamedSharding):
        place = place.with_spec(cotangent_spec(place.spec))
    if place is None or ct.__class__ is not Array or ct._sig.sharding is place:
        return ct
    if ct._sig.committed and not ct._sig.sharding.is_fully_replicated:
        return ct
    return EAGER.place(ct, place)


def as_tangent(x: Any, t: ArrayType) -> Any:
    """A tangent or cotangent for type `t`, with its dtype and weak type; None for zero. Cotangents
    that rules of users return in another floating dtype keep it."""
    if x is None:
        return zeros(t)
    found = type_of(x)
    if found.dtype != t.dtype and is_float(found.dtype) and is_float(t.dtype):
        return x
    if found.dtype == t.dtype and x.__class__ is Array:
        if found.weak_type == t.weak_type:
            return x
        aval, layout = found.update(weak_type=t.weak_type), x._sig.layout
        weak = signature(aval, x.sharding, x.committed, layout)
        return wrap(x._live(), weak)
    if not is_array(x) or (found.dtype, found.weak_type) != (t.dtype, t.weak_type):
        return convert_element_type(x, dtype=t.dtype, weak=t.weak_type)
    return x


def checked_tangent(what: str, t: ArrayType, tangent: Any, path: Callable[[], str]) -> Any:
    """A tangent of a primal of type `t`; None (zero) if that is of integer type."""
    if getattr(tangent, "dtype", None) == float0:
        if is_inexact(t.dtype):
            raise TypeError(
                f"{what}: a tangent of dtype float0 is for integers; {path()} is of type "
                f"{t.str_short(True)}."
            )
        if tangent.shape != t.shape:
            raise ValueError(
                f"{what}: a tangent must have its primal's shape; got one of shape "
                f"{tangent.shape} for {path()} of type {t.str_short(True)}."
            )
        return None
    tangent = as_input(tangent, what, lambda: f"the tangent of {path()}")
    given = type_of(tangent)
    if not is_inexact(t.dtype):
        raise TypeError(
            f"{what}: the tangent of {path()}, which is of type {t.str_short(True)}, must be of "
            f"dtype float0; got {given.str_short(True)}. Make it with NumPy: np.zeros(shape, "
            "shardwise.float0)."
        )
    if (given.shape, given.dtype) != (t.shape, t.dtype):
        raise (TypeError if given.dtype != t.dtype else ValueError)(
            f"{what}: a tangent must have its primal's shape and dtype; got "
            f"{given.str_short(True)} for {path()} of type {t.str_short(True)}."
        )
    return tangent


def checked_cotangent(name: str, ct: Any, t: ArrayType, path: Callable[[], str]) -> Any:
    if getattr(ct, "dtype", None) == float0:
        if is_inexact(t.dtype):
            raise TypeError(
                f"vjp of {name}: a cotangent of dtype float0 is for integers; {path()} is for a "
                f"result of type {t.str_short(True)}."
            )
        if ct.shape != t.shape:
            raise ValueError(
                f"vjp of {name}: a cotangent must have its result's shape; {path()}, for a result "
                f"of type {t.str_short(True)}, is of shape {ct.shape}."
            )
        return None
    ct = as_input(ct, f"vjp of {name}", path)
    given = type_of(ct)
    if not is_inexact(t.dtype) and given.shape == t.shape:
        return None  # of any dtype, as in JAX; it has no effect
    if (given.shape, given.dtype) != (t.shape, t.dtype):
        raise ValueError(
            f"vjp of {name}: a cotangent must have its result's shape and dtype, "
            f"{t.str_short(True)}; {path()} is of type {given.str_short(True)}."
        )
    return ct
