"""Ops without operands: `iota`, broadcast literals, a platform's number, types without values."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from shardwise._src.core.infer import is_array
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import canonicalize, constant_of, is_bool, short_name
from shardwise._src.types.symbolic import Symbolic

# -- iota: the index along `dimension`, as a number --


def _iota_type(op: Op, *, dtype: Any, shape: tuple, dimension: int) -> ArrayType:
    if is_bool(dtype):
        raise TypeError(f"[iota] dtype must be numeric; got {short_name(dtype)}.")
    if not 0 <= dimension < len(shape):
        raise ValueError(f"[iota] dimension must be one of shape {shape}; got {dimension}.")
    return array_type(shape, dtype)


iota = Op(
    "iota",
    type_rule=_iota_type,
    dims=lambda op, *, shape, **p: Dims((), (letters(len(shape)),)),
    lower=lambda op, e, ins, outs, *, dimension, **p: e.iota(outs[0], dimension),
    elements=Elements.CONVERTED,  # integers, so never NaN
)


# -- platform_number: which of several platforms a program is lowered for --


def number_of(platform: Platform, numbers: tuple[tuple[str, int], ...]) -> int:
    """The number of a platform."""
    found = dict(numbers)
    if platform.name not in found:
        raise NotImplementedError(
            f"platform_dependent: there is no function for {platform.name!r}, on which this runs, "
            f"and no default; got {', '.join(found)}."
        )
    return found[platform.name]


platform_number = Op(  # numbers: pairs of the name of a platform and a number
    "platform_number",
    type_rule=lambda op, numbers: array_type((), np.dtype("int32")),
    dims=lambda op, numbers: Dims((), ((),)),
    lower=lambda op, e, ins, outs, *, numbers: e.constant(number_of(e.platform, numbers), outs[0]),
    elements=Elements.CONVERTED,
)


# -- no_value: represents an array of which only the type is known --


def _no_value_lower(op: Op, e: Any, ins: Any, outs: Any, *, type: ArrayType, what: str) -> NoReturn:
    raise TypeError(
        f"{what} is a ShapeDtypeStruct of type {type.str_short(True)}, which has no value. Only "
        "`shardwise.eval_shape` and `shardwise.make_jaxpr` accept it in place of an array."
    )


no_value = Op(
    "no_value",
    type_rule=lambda op, *, type, what: type,
    lower=_no_value_lower,
    dims=lambda op, *, type, what: Dims((), (letters(type.ndim),)),
    elements=Elements.KNOWN,
)


# -- dim_value: the value of a symbolic dimension --

dim_value = Op(
    "dim_value",
    type_rule=lambda op, *, dim: array_type((), canonicalize(int), True),
    lower=lambda op, e, ins, outs, *, dim: e.dim(dim, outs[0]),
    dims=lambda op, *, dim: Dims((), ((),)),
    elements=Elements.CONVERTED,
)


def full(value: Any, shape: tuple[int, ...], dtype: Any, weak: bool = False) -> Any:
    """A scalar, host value or not, broadcast to `shape`."""
    if isinstance(value, Symbolic):
        value = value.as_array(dtype)
    if not is_array(value):
        value = constant_of(value, dtype)
    value = convert_element_type(value, dtype=dtype, weak=weak)
    return broadcast_in_dim(value, shape=shape, dims=())
