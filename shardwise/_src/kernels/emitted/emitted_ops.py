"""Instructions and numbers of MLIR that compilers of kernels for GPUs and TPUs share."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical
from shardwise._src.types.dtypes import is_bool, is_inexact, is_integer, is_unsigned, itemsize_bits

_ELEMENTS = {
    "bool": "i1",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
}
# Of the dialect `arith`, for floats, signed and unsigned integers, and booleans.
ARITHMETIC: dict[Op, tuple[str, ...]] = {
    ew.add: ("addf", "addi", "addi", "ori"),
    ew.sub: ("subf", "subi", "subi", "xori"),
    ew.mul: ("mulf", "muli", "muli", "andi"),
    ew.div: ("divf", "divsi", "divui", ""),
    ew.rem: ("remf", "remsi", "remui", ""),
    ew.max: ("maximumf", "maxsi", "maxui", "ori"),
    ew.min: ("minimumf", "minsi", "minui", "andi"),
    logical.bitwise_and: ("", "andi", "andi", "andi"),
    logical.bitwise_or: ("", "ori", "ori", "ori"),
    logical.bitwise_xor: ("", "xori", "xori", "xori"),
    logical.shift_left: ("", "shli", "shli", ""),
    logical.shift_right_logical: ("", "shrui", "shrui", ""),
    logical.shift_right_arithmetic: ("", "shrsi", "shrsi", ""),
}
# The kinds of `arith.cmpf` and `arith.cmpi`, for the same.
COMPARISONS: dict[Op, tuple[str, ...]] = {
    logical.eq: ("oeq", "eq", "eq", "eq"),
    logical.ne: ("une", "ne", "ne", "ne"),
    logical.lt: ("olt", "slt", "ult", "ult"),
    logical.le: ("ole", "sle", "ule", "ule"),
    logical.gt: ("ogt", "sgt", "ugt", "ugt"),
    logical.ge: ("oge", "sge", "uge", "uge"),
}


def kind_number(dtype: Any) -> int:
    """The position of a dtype's kind in these rows."""
    return 0 if is_inexact(dtype) else 3 if is_bool(dtype) else 2 if is_unsigned(dtype) else 1


def conversion(old: Any, new: Any) -> str:
    """The instruction that converts numbers, to a dtype that is not of booleans."""
    if is_inexact(old) and is_inexact(new):
        return "arith.extf" if new.itemsize > old.itemsize else "arith.truncf"
    without_sign = is_unsigned(new if is_inexact(old) else old) or is_bool(old)
    if is_inexact(old):
        return "arith.fptoui" if without_sign else "arith.fptosi"
    if is_inexact(new):
        return "arith.uitofp" if without_sign else "arith.sitofp"
    if new.itemsize > old.itemsize or is_bool(old) or "4" in old.name:
        return "arith.extui" if without_sign else "arith.extsi"
    return "arith.trunci"


def element_text(dtype: Any) -> str | None:
    """`f32`, `i8`: the type of elements, where integers have no sign; None for other dtypes."""
    if is_integer(dtype):
        return f"i{itemsize_bits(dtype)}"
    return _ELEMENTS.get(dtype.name)


def number_text(number: Any, dtype: Any) -> str:
    """A constant of a dtype, bit-exact."""
    scalar = np.asarray(number).astype(dtype)[()]
    if is_bool(dtype):
        return "true" if scalar else "false"
    if is_integer(dtype):
        n, bits = int(scalar), itemsize_bits(dtype)
        return str(n - 2**bits if n >= 2 ** (bits - 1) else n)
    wide = float(scalar)
    if np.isfinite(wide):
        return f"{wide:e}" if float(f"{wide:e}") == wide else f"{wide:.17e}"
    return f"0x{np.asarray(scalar).view(f'u{dtype.itemsize}').item():0{dtype.itemsize * 2}X}"
