"""Arrays out of nothing: `iota`, and constants as broadcast literals."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import is_array
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_bool, short_name

# -- iota: the index along `dimension`, as a number --


def _iota_type(op: Op, *, dtype: Any, shape: tuple, dimension: int) -> ArrayType:
    if is_bool(dtype):
        raise TypeError(f"[iota] makes numbers; got dtype {short_name(dtype)}.")
    if not 0 <= dimension < len(shape):
        raise ValueError(f"[iota] dimension must be one of shape {shape}; got {dimension}.")
    return array_type(shape, dtype)


def _iota_dims(op: Op, *, dtype: Any, shape: tuple, dimension: int) -> Dims:
    return Dims((), (letters(len(shape)),))


def _iota_lower(
    op: Op, e: Any, ins: Any, outs: Any, *, dtype: Any, shape: tuple, dimension: int
) -> str:
    return e.let(f"stablehlo.iota dim = {dimension} : {e.ty(outs[0])}")


iota = Op(
    "iota", type_rule=_iota_type, dims=_iota_dims, lower=_iota_lower,
    elements=Elements.CONVERTED,  # counted, that is: never NaN
)


def full(value: Any, shape: tuple[int, ...], dtype: Any, weak: bool = False) -> Any:
    """A scalar, host value or not, repeated over `shape`."""
    if not is_array(value):
        value = np.asarray(value).astype(dtype)[()]
    value = convert_element_type(value, dtype=dtype, weak=weak)
    return broadcast_in_dim(value, shape=shape, dims=())
