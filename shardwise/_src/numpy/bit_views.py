"""The bits of arrays as other dtypes: `view`, `byteswap`."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import check_alive, type_of
from shardwise._src.numpy.creation import as_operand, dtype_of
from shardwise._src.ops import elementwise
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.cast import bit_width, bitcast_convert_type
from shardwise._src.ops.shape import concatenate, rev
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import is_bool, is_complex, real_dtype
from shardwise._src.values.convert import cast


@fused(arrays=1)
def _view(x: Any, dtype: Any) -> Any:
    t = type_of(x)
    if t.dtype == dtype:
        return x
    old, new = [8 if is_bool(d) else bit_width(d) for d in (t.dtype, dtype)]
    if t.shape[-1] * old % new if t.ndim else old != new:
        raise ValueError(
            f"view: the last dimension of {t.str_short(True)} is not a whole number of elements of "
            f"{new} bits, as {dtype} has."
        )
    if is_bool(t.dtype):
        return _view(cast(x, np.dtype(np.uint8)), dtype)
    if is_bool(dtype):
        return cast(_view(x, np.dtype(np.uint8)), dtype)
    if not t.ndim:
        return reshape(_view(reshape(x, shape=(1,)), dtype), shape=())
    *batch, size = t.shape
    if is_complex(t.dtype):
        parts = [
            reshape(part(x), shape=(*t.shape, 1)) for part in (elementwise.real, elementwise.imag)
        ]
        return _view(
            reshape(concatenate(*parts, dimension=t.ndim), shape=(*batch, 2 * size)), dtype
        )
    if is_complex(dtype):
        parts = _view(x, real_dtype(dtype))
        return elementwise.complex(parts[..., 0::2], parts[..., 1::2])
    if new > old:
        x = reshape(x, shape=(*batch, size * old // new, new // old))
    out = bitcast_convert_type(x, dtype=dtype)
    return reshape(out, shape=(*batch, size * old // new))


def view(a: ArrayLike, dtype: DTypeLike | None = None) -> Array:
    """The same bits viewed as another dtype, with more or fewer elements in the last dimension."""
    found = as_operand(a)
    if dtype is None:
        return check_alive(found)
    return _view(found, dtype_of(dtype, "view"))


@fused(arrays=1)
def byteswap(x: Any) -> Any:
    """The elements with their bytes reversed; for complex numbers, in each part separately."""
    t = type_of(x)
    if is_complex(t.dtype):
        return elementwise.complex(byteswap(elementwise.real(x)), byteswap(elementwise.imag(x)))
    if t.dtype.itemsize == 1:
        return x
    octets = bitcast_convert_type(x, dtype=np.dtype(np.uint8))
    return bitcast_convert_type(rev(octets, dimensions=(t.ndim,)), dtype=t.dtype)
