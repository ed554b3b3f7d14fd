"""Casts: `convert_element_type` and its like."""

from __future__ import annotations

from typing import Any

from shardwise.core.infer import type_of
from shardwise.core.op import Op
from shardwise.ops.families import elementwise_batch, elementwise_dims
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dtypes import is_complex, is_inexact

# -- convert_element_type: to another dtype; complex to real drops the imaginary part --


def _convert_type(x: ArrayType, *, dtype: Any, weak: bool = False) -> ArrayType:
    return array_type(x.shape, dtype, weak)


def _convert_lower(e: Any, ins: Any, outs: Any, x: str, *, dtype: Any, weak: bool = False) -> str:
    t, out = ins[0], outs[0]
    if t.dtype == dtype:
        return x
    if is_complex(t.dtype) and not is_complex(dtype):
        part = out.update(dtype=real_part_dtype(t.dtype))
        x = e.let(f"stablehlo.real {x} : ({e.ty(t)}) -> {e.ty(part)}")
        t = part
    if dtype.kind == "b":
        zero = e.constant(0, t)
        return e.let(f"stablehlo.compare NE, {x}, {zero} : ({e.ty(t)}, {e.ty(t)}) -> {e.ty(out)}")
    return e.let(f"stablehlo.convert {x} : ({e.ty(t)}) -> {e.ty(out)}")


def real_part_dtype(dtype: Any) -> Any:
    return dtype.type(0).real.dtype


def _convert_jvp(primals: Any, tangents: Any, *, dtype: Any, weak: bool = False) -> tuple:
    out = convert_element_type(primals[0], dtype=dtype, weak=weak)
    if not is_inexact(dtype):
        return out, None
    return out, convert_element_type(tangents[0], dtype=dtype, weak=False)


def _convert_transpose(ct: Any, x: Any, *, dtype: Any, weak: bool = False) -> list[Any]:
    return [convert_element_type(ct, dtype=x.aval.dtype, weak=False)]


convert_element_type = Op(
    "convert_element_type",
    family="elementwise",
    type_rule=_convert_type,
    dims=elementwise_dims,
    lower=_convert_lower,
    jvp=_convert_jvp,
    transpose=_convert_transpose,
)
convert_element_type.batch = elementwise_batch(convert_element_type)
__all__ = ["convert_element_type", "type_of"]
