"""Casts: between dtypes, bitcasts, and reduced precision."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading
from shardwise._src.ops.families import FLOATING, check_domain, elementwise, linear_dims, unary
from shardwise._src.ops.rules import zero_jvp
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import is_bool, is_complex, is_inexact

# -- convert_element_type: to another dtype; complex to real drops the imaginary part --


def _convert_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, dtype: Any, weak: bool = False
) -> str:
    t, out = ins[0], outs[0]
    if t.dtype == dtype:
        return x
    if is_complex(t.dtype) and not (is_complex(dtype) or is_bool(dtype)):
        part = out.update(dtype=real_part_dtype(t.dtype))
        x = e.let(f"stablehlo.real {x} : ({e.ty(t)}) -> {e.ty(part)}")
        t = part
    if dtype.kind == "b":
        return e.compare("NE", x, e.constant(0, t), t)
    return e.cast(*e.convertible(x, t, dtype), dtype)


def real_part_dtype(dtype: Any) -> Any:
    return dtype.type(0).real.dtype


def _convert_jvp(op: Op, primals: Any, tangents: Any, *, dtype: Any, weak: bool = False) -> tuple:
    out = convert_element_type(primals[0], dtype=dtype, weak=weak)
    if not is_inexact(dtype):
        return out, None
    return out, convert_element_type(tangents[0], dtype=dtype, weak=False)


def _convert_transpose(op: Op, ct: Any, x: Any, *, dtype: Any, weak: bool = False) -> list[Any]:
    return [convert_element_type(ct, dtype=x.aval.dtype, weak=False)]


convert_element_type = elementwise(
    "convert_element_type",
    elements=Elements.CONVERTED,
    type_rule=lambda op, x, *, dtype, weak=False: array_type(x.shape, dtype, weak),
    dims=linear_dims((0,)),
    lower=_convert_lower,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    aliases={"new_dtype": "dtype", "weak_type": "weak"},
)


# -- bitcast_convert_type: the same bits as another dtype. If the widths differ, the parts of an
#    element are the last dimension, the least significant first --


def bit_width(dtype: Any) -> int:
    """Bits of an element; sub-byte types take a full byte on the host, but not on devices."""
    narrow: int | None = _NARROW.get(dtype.name)
    return dtype.itemsize * 8 if narrow is None else narrow


_NARROW = {"bool": 1, "int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4}


def _bitcast_type(op: Op, x: ArrayType, *, dtype: Any) -> ArrayType:
    old, new = bit_width(x.dtype), bit_width(dtype)
    if x.dtype != dtype and any(is_bool(d) or is_complex(d) for d in (x.dtype, dtype)):
        raise TypeError(
            f"[bitcast_convert_type] cannot reinterpret the bits of {x.str_short(True)} as "
            f"{dtype}: booleans and complex numbers convert only to themselves."
        )
    if old == new:
        return array_type(x.shape, dtype)
    if old > new:
        return array_type((*x.shape, old // new), dtype)
    if not x.shape or x.shape[-1] != new // old:
        raise ValueError(
            f"[bitcast_convert_type] {dtype} takes the bits of {new // old} elements, so the last "
            f"dimension of {x.str_short(True)} must have that size."
        )
    return array_type(x.shape[:-1], dtype)


def _bitcast_dims(op: Op, x: ArrayType, *, dtype: Any) -> Dims:
    names = letters(x.ndim)
    old, new = bit_width(x.dtype), bit_width(dtype)
    if old == new:
        return Dims((names,), (names,))
    if old > new:
        return Dims((names,), ((*names, None),))
    return Dims(((*names[:-1], None),), (names[:-1],))


def _bitcast_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, dtype: Any) -> str:
    return x if ins[0].dtype == dtype else e.bitcast(x, ins[0], outs[0])


bitcast_convert_type = Op(
    "bitcast_convert_type",
    elements=Elements.CONVERTED,
    type_rule=_bitcast_type,
    dims=_bitcast_dims,
    lower=_bitcast_lower,
    jvp=zero_jvp,
    batch=batch_leading,
)

# -- reduce_precision: rounds as if the dtype had fewer bits --


def _reduce_type(op: Op, x: ArrayType, *, exponent_bits: int, mantissa_bits: int) -> ArrayType:
    check_domain(op.name, FLOATING, (x,))
    if exponent_bits < 1 or mantissa_bits < 0:
        raise ValueError(
            "[reduce_precision] takes at least 1 exponent bit and 0 mantissa bits; got "
            f"{exponent_bits} and {mantissa_bits}."
        )
    return x


def _reduce_lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, exponent_bits: int, mantissa_bits: int
) -> str:
    bits = f"format = e{exponent_bits}m{mantissa_bits}"
    return e.let(f"stablehlo.reduce_precision {x}, {bits} : {e.ty(ins[0])}")


reduce_precision = unary(
    "reduce_precision",
    FLOATING,
    type_rule=_reduce_type,
    lower=_reduce_lower,
    jvp="linear",
    transpose=lambda ct, x, **p: reduce_precision(ct, **p),
)
