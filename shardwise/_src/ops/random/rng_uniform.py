"""`rng_uniform`: XLA's generator with internal state, which does not use keys."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters

# Other dtypes would end the process: XLA does not check them.
TAKES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32", "uint64")


def _type(op: Op, a: ArrayType, b: ArrayType, *, shape: tuple[int, ...]) -> ArrayType:
    if a.shape or b.shape or a.dtype != b.dtype or str(a.dtype) not in TAKES:
        raise TypeError(
            "[rng_uniform] takes two scalars of the same dtype, floating-point or a 32-bit or "
            f"64-bit integer type; got {join_types((a, b))}."
        )
    return array_type(shape, a.dtype, a.weak_type and b.weak_type)


def _dims(op: Op, a: ArrayType, b: ArrayType, *, shape: tuple[int, ...]) -> Dims:
    return Dims(((), ()), (letters(len(shape)),))


def _lower(op: Op, e: Any, ins: Any, outs: Any, a: str, b: str, *, shape: tuple[int, ...]) -> str:
    ty, out = e.ty(ins[0]), e.ty(outs[0])
    sizes = f"tensor<{len(shape)}xi64>"
    dense = f"dense<[{', '.join(map(str, shape))}]>".replace("<[]>", "<>")
    size = e.let(f"stablehlo.constant {dense} : {sizes}")
    return e.let(
        f"stablehlo.rng {a}, {b}, {size}, distribution = UNIFORM : ({ty}, {ty}, {sizes}) -> {out}"
    )


rng_uniform = Op("rng_uniform", type_rule=_type, dims=_dims, lower=_lower)
