"""Dtypes for which a platform's compiler lacks ops: it fails, or ends the process, or is wrong.

    Gap(("sort",), ("int4",), wide={"int4": "int8"})     # computed as int8
    Gap(("conv_general_dilated",), ("int32",), instead="float32", why="cuDNN has no …")   # rejected

Lowering computes an op in a wider dtype, or rejects it. The tables are of the compilers that
`tests.targets.survey` was run with: those of jaxlib 0.10 to 0.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Ops that a compiler lacks for some dtypes.

    ops:     by name; empty for all.
    wide:    the dtypes, and those in which programs compute instead, with equal results: values
             are converted, or their bits if both have equally many. An op whose rule derives
             values from the dtype needs the fact `own_values`.
    dtypes:  those with which an op is rejected.
    instead: the dtype that users may convert operands to; why: the reason, for the message.
    """

    ops: tuple[str, ...] = ()
    wide: Mapping[str, str] = field(default_factory=dict[str, str])
    dtypes: tuple[str, ...] = ()
    instead: str = ""
    why: str = ""


_TWO_BITS = {"int2": "int8", "uint2": "uint8"}
_FOUR_BITS = {"int4": "int8", "uint4": "uint8", "float4_e2m1fn": "bfloat16"}
_INTEGERS = ("int2", "uint2", "int4", "uint4", "uint8", "int16", "uint16", "int32", "uint32",
             "int64", "uint64")  # fmt: skip
# Those that NCCL, or cuDNN, has no types for; and XLA does not convert to others.
_NOT_NCCL = ("float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float8_e5m2fnuz", "float8_e4m3fnuz")
_NOT_CUDNN = (*_NOT_NCCL, "float8_e4m3b11fnuz", "float4_e2m1fn")

_AS_FLOAT32 = _TWO_BITS | dict.fromkeys(_NOT_NCCL, "float32")
_AS_BYTES = _TWO_BITS | dict.fromkeys(_NOT_NCCL, "uint8")

CUDA_GAPS = (
    Gap(ops=("sort",), wide=_FOUR_BITS | _AS_FLOAT32),
    Gap(ops=("argmax", "argmin"), wide=_TWO_BITS | _FOUR_BITS),
    Gap(
        ops=("conv_general_dilated",),
        wide=dict.fromkeys(_NOT_CUDNN, "float32"),
        dtypes=_INTEGERS,
        instead="float32",
        why="cuDNN convolves integers only from int8 to int8 or float32",
    ),
    Gap(ops=("psum", "reduce_scatter", "dot_general"), wide=_AS_FLOAT32),
    Gap(ops=("pmax", "pmin", "reduce_max", "reduce_min", "reduce_prod"), wide=_TWO_BITS),
    Gap(ops=("all_gather", "all_to_all", "ppermute", "pbroadcast", "gather"), wide=_AS_BYTES),
)

TPU_GAPS = (
    Gap(
        dtypes=tuple(_TWO_BITS),
        instead="int8",
        why="the compiler has few ops of integers with two bits, and others end the process",
    ),
    Gap(
        dtypes=("complex128",),
        instead="complex64",
        why="the compiler emulates few ops of them, and others end the process, such as division",
    ),
    Gap(
        ops=("dot_general", "conv_general_dilated"),
        dtypes=("int64", "uint64"),
        instead="int32",
        why="TPUs compute with 32 bits, and the compiler does not emulate products of 64 bits",
    ),
    Gap(
        ops=("nextafter", "reduce_precision"),
        dtypes=("float64",),
        instead="float32",
        why="TPUs compute with 32 bits, and the compiler does not emulate it",
    ),
    Gap(ops=("psum",), wide={"uint64": "int64"}),
    Gap(ops=("bitcast_convert_type",), wide={"int64": "uint64"}),
    Gap(
        ops=("pmax", "pmin"),
        dtypes=("int64", "uint64", "float64"),
        instead="float32",
        why="TPUs compute with 32 bits, and the compiler emulates only sums over devices",
    ),
    Gap(
        ops=("reduce_scatter",),
        dtypes=("uint64", "float64", "complex64"),
        instead="float32",
        why="the compiler does not emulate it, unlike `psum`",
    ),
)
