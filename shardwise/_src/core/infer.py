"""Infers result types from operand types: one generic rule around each op's `type_rule`.

The op's own rule determines shape and dtype. This module adds the rest, the same for every op: the
manual axes (`core.manual_axes`) and, over explicit mesh axes, the sharding
(`core.explicit_sharding`). Results are cached per op, operand types and parameters.
"""

from __future__ import annotations

from typing import Any, TypeGuard, cast

import numpy as np

from shardwise._src.base.caches import Table
from shardwise._src.base.context import current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.explicit_sharding import with_specs
from shardwise._src.core.manual_axes import has_manual_axes, of_results
from shardwise._src.core.op import INFERENCE_CACHE_SIZE, Elements, Op, Types
from shardwise._src.messages.called import public_call
from shardwise._src.types.annotations import Array
from shardwise._src.types.array_base import ArrayBase
from shardwise._src.types.array_type import ArrayType, array_type, inside_of_maps
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.promotion import dtype_and_weak


def type_of(x: Any) -> ArrayType:
    """The type of an array, a tracer, a NumPy array or scalar, or a Python scalar."""
    found = getattr(x, "aval", None)
    if found is not None and found.__class__ is ArrayType:  # jax's arrays have avals too
        return found if found.mesh is None else inside_of_maps(found)
    key = (x.__class__, current().key)
    found = _scalar_types.entries.get(key)
    if found is not None:
        return found
    if isinstance(x, np.ndarray):
        host = cast("np.ndarray[Any, Any]", x)
        if host.__class__ is not np.ndarray:
            reject_masked(host)
        return array_type(host.shape, canonicalize(host.dtype))
    converted = as_arraylike(x)
    if converted is not x:
        return type_of(converted)
    try:
        dtype, weak = dtype_and_weak(x)
    except TypeError as error:
        if name := public_call():
            raise TypeError(f"{name}: {error}") from None
        raise
    found = array_type((), dtype, weak)
    if isinstance(x, _SCALARS) and not isinstance(x, np.void):  # its class is not sufficient
        _scalar_types.put(key, found)
    return found


def reject_masked(x: Any) -> None:
    """Raises for a masked array of NumPy."""
    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "masked arrays of NumPy are not supported, as their masks would be ignored. Pass "
            "x.filled(...), or x.data and x.mask."
        )


SCALAR_TYPES = 1024
_SCALARS = (bool, int, float, complex, np.generic)
# By class, and flags.
_scalar_types: Table[ArrayType] = Table(__name__, "types of scalars", SCALAR_TYPES)


typeof = type_of  # its public name


# Classes that ops accept unchanged, or reject themselves.
_AS_IS: tuple[type[Any], ...] = (bool, int, float, complex, np.generic, np.ndarray, type)


def as_arraylike(x: Any) -> Any:
    """An operand in a form that ops accept: another library's object is converted, else `x`."""
    if is_array(x) or isinstance(x, _AS_IS):
        return x
    if hasattr(x, "__jax_array__"):
        return x.__jax_array__()
    exported = hasattr(x.__class__, "__dlpack__")
    if hasattr(x.__class__, "__array__"):
        try:
            return np.asarray(x)
        except TypeError:  # torch's bfloat16, and tensors on a GPU
            if not exported:
                raise
    if exported:  # copied: its owner may change it before an operand is read
        return eval_trace().from_dlpack(x, None, True)
    return x


def array_or_host(x: Any) -> Any:
    """An array, or what an object converts itself to, unchanged; anything else in NumPy's form."""
    x = as_arraylike(x)
    return x if is_array(x) else np.asarray(x)


def is_array(x: Any) -> TypeGuard[Array]:
    """Whether `x` is an array or a tracer of this library."""
    if isinstance(x, ArrayBase):
        return True
    # An object around an array may have all of its attributes, but not by its class.
    return getattr(x, "aval", None).__class__ is ArrayType and hasattr(x.__class__, "aval")


def check_alive(x: Any) -> Any:
    """The value, for a function that does not use it. Raises for deleted arrays."""
    held: Any = x
    return held._itself() if is_array(x) else x


def is_operand(x: Any) -> bool:
    """Whether ops accept `x` as an array: a scalar, a NumPy array, or an array of any library."""
    return hasattr(x.__class__, "aval") or isinstance(x, HOST)


HOST: tuple[type[Any], ...] = (bool, int, float, complex, np.generic, np.ndarray)


def infer(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> Any:
    """The type of the result, or the tuple of types if the op has several."""
    kept = op.inferred
    if kept is None:
        return _infer(op, types, params)
    try:
        key = (types, *params, *params.values()) if params else types
        found = kept.get(key)
        if found is not None:
            return found
    except TypeError:  # an unhashable parameter
        return _infer(op, types, params)
    result = _infer(op, types, params)
    if len(kept) >= INFERENCE_CACHE_SIZE:
        kept.clear()
    kept[key] = result
    return result


def _infer(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> Any:
    result = op.type_rule(op, *types, **params)
    if any(isinstance(t.dtype, ExtendedDType) for t in types):
        _check_opaque(op, types, result)
    manual = op.manual_axes is not None or any(has_manual_axes(t) for t in types)
    if not manual and all(t.mesh is None for t in types):
        return result
    if op.shardings or (op.dims is None and (op.programs or op.user_code)):
        return result  # its types carry names and shardings already
    outs = [*cast(Types, result)] if op.multiple else [cast(ArrayType, result)]
    if manual:
        own = of_results(op, types, params)
        names = {"varying": own.varying, "unreduced": own.unreduced, "reduced": own.reduced}
        outs = [t.update(**names) for t in outs]
    if any(t.mesh is not None for t in types):
        outs = with_specs(op, types, outs, params)
    return tuple(outs) if op.multiple else outs[0]


def _check_opaque(op: Op, types: tuple[ArrayType, ...], result: Any) -> None:
    """Rejects computing with elements of an extended dtype (keys); moving, comparing is allowed."""
    if op.elements in (Elements.KNOWN, Elements.EQUAL, Elements.UNEQUAL):
        return
    outs = result if op.multiple else (result,)
    given = {t.dtype for t in types}
    moved = any(isinstance(t.dtype, ExtendedDType) for t in outs)
    if op.elements is not Elements.MOVED or not moved or any(t.dtype not in given for t in outs):
        raise TypeError(opaque_message(op.name, types))


def opaque_message(name: str, types: tuple[ArrayType, ...]) -> str:
    shown = " and ".join(t.str_short(True) for t in types)
    return (
        f"[{name}] keys are not numbers: they can be moved and compared for equality, but not "
        f"computed with; got {shown}. `shardwise.random.key_data` gives the integers of a key."
    )
