"""Instructions of MLIR for elementwise ops, which compilers for GPUs and TPUs share."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops import logical
from shardwise._src.types.dtypes import is_bool, is_inexact, is_unsigned

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
