"""Runs operations of MLIR with NumPy: arithmetic, conversions, loops and branches."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special
from jaxlib.mlir import ir

DTYPES = {
    "i1": bool,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "index": "int64",
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
    **dict.fromkeys(("!tpu.semaphore", "!tpu.dma_semaphore"), "int32"),
}
TYPE = re.compile(r"(?:(?:tensor|vector|memref)<)?((?:\d+x)*)([^<>,]*(?:<.*>)?)")


@functools.cache
def _kind_of(text: str) -> tuple[tuple[int, ...], Any]:
    found = TYPE.match(text)
    assert found is not None
    dtype = np.dtype(DTYPES[found[2]]) if found[2] in DTYPES else None
    return tuple(map(int, found[1].split("x")[:-1])), dtype


def kind(value: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the dtype of an MLIR value; None for pointers."""
    return _kind_of(str(value.type))


def garbage(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Values that are not specified."""
    fill = np.nan if np.dtype(dtype).kind in "fV" else 77
    return np.full(shape, fill).astype(dtype)


def integer(attribute: Any) -> int:
    return ir.IntegerAttr(attribute).value


def unsigned(x: Any) -> Any:
    x = np.asarray(x)
    if x.dtype == bool:
        return x.astype(np.uint8)
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _truncated(x: Any, y: Any) -> Any:
    down = np.floor_divide(x, y)
    return down + ((down < 0) & (down * y != x)).astype(x.dtype)


def _of_unsigned(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: f(*map(unsigned, xs))


BINARY = {
    "addf": np.add, "addi": np.add, "subf": np.subtract, "subi": np.subtract,
    "mulf": np.multiply, "muli": np.multiply, "divf": np.divide, "divsi": _truncated,
    "remf": np.fmod, "remsi": np.fmod, "maximumf": np.maximum, "maxsi": np.maximum,
    "minimumf": np.minimum, "minsi": np.minimum, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "shli": np.left_shift, "shrsi": np.right_shift,
    **{f"{text}ui": _of_unsigned(f) for text, f in {
        "shr": np.right_shift, "div": np.floor_divide, "rem": np.fmod,
        "max": np.maximum, "min": np.minimum,
    }.items()},
}  # fmt: skip
_ones = np.vectorize(lambda n: int(n).bit_count())
_length = np.vectorize(lambda n: int(n).bit_length())
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "erf": scipy.special.erf, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "floor": np.floor, "ceil": np.ceil, "absf": np.abs,
    "absi": np.abs, "roundeven": np.round, "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "ctpop": _of_unsigned(_ones), "ctlz": lambda x: 8 * x.dtype.itemsize - _length(unsigned(x)),
}  # fmt: skip


def _constant(op: Any) -> Any:
    shape, dtype = kind(op.results[0])
    value = op.attributes["value"]
    if shape:
        value = ir.DenseElementsAttr(value).get_splat_value()
    return np.full(shape, value.value).astype(dtype)


def _compared(op: Any, x: Any, y: Any) -> Any:
    number = integer(op.attributes["predicate"])
    if op.name == "arith.cmpf":
        nans = np.isnan(x) | np.isnan(y)
        ordered = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal}
        if number in ordered:
            return ordered[number](x, y) & ~nans
        return {13: (x != y) | nans, 14: nans}[number]
    if number > 5:
        x, y, number = unsigned(x), unsigned(y), number - 4
    names = np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal
    return names[number](x, y)


def _to_integer(op: Any, x: Any) -> Any:
    _, dtype = kind(op.results[0])
    if op.name == "arith.fptoui":
        dtype = np.dtype(f"u{dtype.itemsize}")
    limits, wide = np.iinfo(dtype), np.asarray(x).astype("float64")
    clipped = np.clip(np.nan_to_num(wide, nan=0.0), limits.min, limits.max)
    return clipped.astype(dtype)


def _plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, *xs: f(*xs)


OPS: dict[str, Callable[..., Any]] = {
    "arith.constant": _constant,
    **dict.fromkeys(("arith.cmpi", "arith.cmpf"), _compared),
    "arith.select": _plain(np.where),
    **{f"arith.{name}": _plain(f) for name, f in BINARY.items()},
    **{f"math.{name}": _plain(f) for name, f in UNARY.items()},
    "math.powf": _plain(np.power),
    **dict.fromkeys(("arith.extui", "arith.uitofp"), _plain(unsigned)),
    **{
        f"arith.{name}": _plain(lambda x: x)
        for name in ("extsi", "trunci", "extf", "truncf", "sitofp", "index_cast")
    },
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _to_integer),
}
ENDS = "scf.yield", "scf.condition", "func.return", "tt.reduce.return", "tt.scan.return"


def fitted(value: Any, x: Any) -> np.ndarray:
    """The result of an operation, with the dtype of its value."""
    shape, dtype = kind(value)
    x = np.asarray(x)
    assert x.shape == shape, (str(value), x.shape)
    if x.dtype.kind == "u" and dtype.kind == "i" and x.dtype.itemsize == dtype.itemsize:
        return x.view(dtype)
    return x if x.dtype == dtype else x.astype(dtype)


class Blocks:
    """Runs the operations of blocks."""

    def other(self, op: Any, env: dict[Any, Any], *xs: Any) -> list[Any]:
        """The results of an operation of a target's dialect."""
        raise NotImplementedError

    def fit(self, value: Any, x: Any) -> Any:
        return fitted(value, x)

    def block(self, block: Any, arguments: Sequence[Any], env: dict[Any, Any]) -> list[Any]:
        """Runs the operations of a block; returns the operands of the last."""
        env.update(zip(block.arguments, arguments, strict=True))
        for view in block.operations:
            op = view.operation
            ins = [env[x] for x in op.operands]
            if op.name in ENDS:
                return ins
            if op.name in OPS:
                found = [self.fit(op.results[0], OPS[op.name](op, *ins))]
            elif op.name.startswith("scf."):
                blocks = [r.blocks[0] if len(r.blocks) else None for r in op.regions]
                found = self.control(op.name, blocks, ins, env)
            else:
                found = self.other(op, env, *ins)
            env.update(zip(op.results, found, strict=True))
        return []

    def control(self, name: str, blocks: Any, ins: list[Any], env: dict[Any, Any]) -> list[Any]:
        if name == "scf.if":
            taken = blocks[0 if ins[0] else 1]
            return [] if taken is None else self.block(taken, [], env)
        if name == "scf.for":
            low, high, step, *state = ins
            for i in range(int(low), int(high), int(step)):
                state = self.block(blocks[0], [np.asarray(i, low.dtype), *state], env)
            return state
        state = ins
        while True:
            flag, *state = self.block(blocks[0], state, env)
            if not flag:
                return state
            state = self.block(blocks[1], state, env)
