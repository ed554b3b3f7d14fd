"""Runs kernels for GPUs with NumPy: modules in Triton's dialect, one program of the grid at a time.

    triton_values(f, *args)          # a function with launches, each run as GPUs would

It shows that the text computes the right values, without a GPU. Elements beyond an array's end that
a mask does not exclude are an error, with the line of the text that accesses them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special
from jaxlib.mlir import ir

import shardwise as sw
from shardwise._src.control.expand import expanded
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import eval_program
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.launches import kernel_call
from shardwise._src.kernels.on_gpu.triton_call import gpu_program, triton_call
from shardwise._src.kernels.on_gpu.triton_launch import TritonKernel, triton_kernel
from shardwise._src.runtime.compiler.triton_modules import parsed_triton
from shardwise._src.runtime.platforms import CUDA, Platform

DTYPES = {
    "i1": bool,
    "bf16": ml_dtypes.bfloat16,
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"f{n}": f"float{n}" for n in (16, 32, 64)},
}


class OutsideError(Exception):
    """An access of elements that do not exist."""


class Pointers:
    """Elements of a buffer, by number."""

    def __init__(self, buffer: np.ndarray, at: Any):
        self.buffer, self.at = buffer, at


def triton_values(f: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """The results of a function whose launches run as kernels for GPUs."""
    program = sw.make_jaxpr(f)(*args)

    def bind(eqn: Any, values: list[Any]) -> Sequence[Any]:
        if eqn.op is kernel_call:
            return launched(values, **eqn.params)
        if eqn.op.programs == ("program",):  # calls
            return eval_program(eqn.params["program"], values, bind)
        found = eqn.op(*values, **eqn.params)
        return found if eqn.op.multiple else [found]

    leaves = sw.tree.leaves(args)
    return [np.asarray(x) for x in eval_program(program, leaves, bind)]


def launched(operands: Sequence[Any], body: Any, maps: Any, launch: Any) -> list[np.ndarray]:
    """The results of one launch."""
    call = gpu_program(body, maps, launch, [type_of(x) for x in operands])
    return eval_program(call, operands, _bind_call)


def kernel_of(f: Callable[..., Any], *args: Any, platform: Platform = CUDA) -> TritonKernel:
    """The kernel of the only launch of a function."""
    program = expanded(sw.make_jaxpr(f)(*args), platform)
    (eqn,) = [e for e in walk(program) if e.op is triton_call]
    return _kernel(eqn.params, [a.aval for a in eqn.invars], platform)


def _kernel(p: dict[str, Any], types: Sequence[Any], platform: Platform = CUDA) -> TritonKernel:
    return triton_kernel(p["body"], p["maps"], p["launch"], p["parallel"], types, platform)


def _bind_call(eqn: Any, values: list[Any]) -> Any:
    if eqn.op is not triton_call:
        found = eqn.op(*values, **eqn.params)
        return found if eqn.op.multiple else [found]
    arrays = [np.array(x) for x in values]
    kernel = _kernel(eqn.params, [type_of(x) for x in values])
    outs = [_poisoned(tile.type) for tile in eqn.params["launch"].outs]
    for i, j in eqn.params["aliases"]:
        outs[j] = arrays[i]
    run(kernel.text, kernel.grid, [*arrays, *outs])
    return outs


def _poisoned(t: Any) -> np.ndarray:
    fill = np.nan if np.dtype(t.dtype).kind in "fV" else 77
    return np.full(t.shape, fill).astype(t.dtype)


def run(text: str, grid: Sequence[int], buffers: Sequence[np.ndarray]) -> None:
    """Runs a module's function on buffers, in place, for each program of a grid."""
    module = parsed_triton(text)
    with module.context:
        (function,) = module.body.operations
        block = function.operation.regions[0].blocks[0]
        flat = [b.reshape(-1).view("int8" if b.dtype == bool else b.dtype) for b in buffers]
        for place in itertools.product(*map(range, grid)):
            with np.errstate(all="ignore"):
                Program(place).block(block, [Pointers(b, np.int64(0)) for b in flat], {})


def _kind(value: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the dtype of an MLIR value."""
    return _kind_of(str(value.type))


@functools.cache
def _kind_of(text: str) -> tuple[tuple[int, ...], Any]:
    *sizes, of = re.fullmatch(r"(?:tensor<)?((?:\d+x)*[^<>]*(?:<.*>)?)>?", text)[1].split("x")  # type: ignore[index]
    return tuple(map(int, sizes)), np.dtype(DTYPES[of]) if of in DTYPES else None


def _integer(attribute: Any) -> int:
    return ir.IntegerAttr(attribute).value


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "i" else x


def _truncated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    down = np.floor_divide(x, y)
    return down + ((down < 0) & (down * y != x)).astype(x.dtype)


BINARY = {
    **dict.fromkeys(("addf", "addi"), np.add),
    **dict.fromkeys(("subf", "subi"), np.subtract),
    **dict.fromkeys(("mulf", "muli"), np.multiply),
    "divf": np.divide,
    "remf": np.fmod,
    "divsi": _truncated,
    "divui": lambda x, y: np.floor_divide(_unsigned(x), _unsigned(y)),
    "remsi": np.fmod,
    "remui": lambda x, y: np.fmod(_unsigned(x), _unsigned(y)),
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxsi": np.maximum,
    "minsi": np.minimum,
    "maxui": lambda x, y: np.maximum(_unsigned(x), _unsigned(y)),
    "minui": lambda x, y: np.minimum(_unsigned(x), _unsigned(y)),
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "shli": np.left_shift,
    "shrsi": np.right_shift,
    "shrui": lambda x, y: np.right_shift(_unsigned(x), _unsigned(y)),
}
UNARY = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "sin": np.sin, "cos": np.cos,
    "erf": scipy.special.erf, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "floor": np.floor, "ceil": np.ceil, "absf": np.abs, "absi": np.abs,
}  # fmt: skip
LIBRARY = {
    "tanh": np.tanh, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "cbrt": np.cbrt, "expm1": np.expm1,
    "log1p": np.log1p, "erfc": scipy.special.erfc, "erfinv": scipy.special.erfinv,
    "nextafter": np.nextafter, "lgamma": scipy.special.gammaln, "rint": np.rint, "pow": np.power, "exp": np.exp, "log": np.log,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)), "sin": np.sin, "cos": np.cos,
    "erf": scipy.special.erf, "exp2": np.exp2,
    "popc": lambda x: np.array([bin(int(v)).count("1") for v in _unsigned(x).ravel()]).reshape(x.shape),
    "clz": lambda x: np.array([8 * x.dtype.itemsize - int(v).bit_length() for v in _unsigned(x).ravel()]).reshape(x.shape),
}  # fmt: skip
ORDERED = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal}
INTEGER = [
    *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    *(np.less, np.less_equal, np.greater, np.greater_equal),
]


class Program:
    """One program of a grid, at a place of it."""

    def __init__(self, place: Sequence[int]):
        self.place = place

    def block(self, block: Any, arguments: Sequence[Any], env: dict[Any, Any]) -> list[Any]:
        """Runs the operations of a block; returns the operands of the last."""
        env.update(zip(block.arguments, arguments, strict=True))
        for view in block.operations:
            op = view.operation
            ins = [env[x] for x in op.operands]
            name = op.name.replace(".", "_")
            if op.name in ("scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return"):
                return ins
            if op.name in ("tt.return", "gpu.barrier"):
                continue
            dialect, _, short = op.name.partition(".")
            if dialect == "arith" and short in BINARY:
                found = BINARY[short](*ins)
            elif dialect == "math":
                found = UNARY[short](*ins)
            else:
                found = getattr(self, name)(op, env, *ins)
            results = found if isinstance(found, list) else [found]
            for value, x in zip(op.results, results, strict=False):
                env[value] = x if isinstance(x, Pointers) else self._fit(value, x)
        return []

    def _fit(self, value: Any, x: Any) -> Any:
        shape, dtype = _kind(value)
        x = np.asarray(x)
        assert x.shape == shape, (str(value), x.shape)
        if dtype is None or x.dtype == dtype:
            return x
        if x.dtype.kind == "u" and dtype.kind == "i" and x.dtype.itemsize == dtype.itemsize:
            return x.view(dtype)
        return x.astype(dtype)

    # -- arith --

    def arith_constant(self, op: Any, env: Any) -> Any:
        shape, dtype = _kind(op.results[0])
        value = op.attributes["value"]
        if shape:
            value = ir.DenseElementsAttr(value).get_splat_value()
        number = value.value
        return np.full(shape, number).astype(dtype)

    def arith_cmpf(self, op: Any, env: Any, x: Any, y: Any) -> Any:
        kind = _integer(op.attributes["predicate"])
        nans = np.isnan(x) | np.isnan(y)
        if kind in ORDERED:
            return ORDERED[kind](x, y) & ~nans
        return {13: (x != y) | nans, 14: nans}[kind]

    def arith_cmpi(self, op: Any, env: Any, x: Any, y: Any) -> Any:
        kind = _integer(op.attributes["predicate"])
        if kind > 5:
            x, y = _unsigned(x), _unsigned(y)
        return INTEGER[kind](x, y)

    def arith_select(self, op: Any, env: Any, mask: Any, x: Any, y: Any) -> Any:
        return np.where(mask, x, y)

    def arith_extui(self, op: Any, env: Any, x: Any) -> Any:
        return _unsigned(x)

    def arith_uitofp(self, op: Any, env: Any, x: Any) -> Any:
        return _unsigned(x)

    def _converted(self, op: Any, env: Any, x: Any) -> Any:
        return x

    arith_extsi = arith_trunci = arith_extf = arith_truncf = arith_sitofp = _converted
    tt_fp_to_fp = _converted

    def arith_fptosi(self, op: Any, env: Any, x: Any) -> Any:
        _, dtype = _kind(op.results[0])
        limits = np.iinfo(dtype)
        clipped = np.clip(np.nan_to_num(x.astype("float64"), nan=0.0), limits.min, limits.max)
        return clipped.astype("float64").astype(dtype)

    def arith_fptoui(self, op: Any, env: Any, x: Any) -> Any:
        _, dtype = _kind(op.results[0])
        return np.clip(np.nan_to_num(x), 0, None).astype(f"u{dtype.itemsize}")

    # -- tt --

    def tt_get_program_id(self, op: Any, env: Any) -> Any:
        return np.int32(self.place[_integer(op.attributes["axis"])])

    def tt_make_range(self, op: Any, env: Any) -> Any:
        return np.arange(*[_integer(op.attributes[k]) for k in ("start", "end")])

    def tt_splat(self, op: Any, env: Any, x: Any) -> Any:
        shape, _ = _kind(op.results[0])
        if isinstance(x, Pointers):
            return Pointers(x.buffer, np.full(shape, x.at))
        return np.full(shape, x, x.dtype)

    def tt_expand_dims(self, op: Any, env: Any, x: Any) -> Any:
        return np.expand_dims(x, _integer(op.attributes["axis"]))

    def tt_broadcast(self, op: Any, env: Any, x: Any) -> Any:
        return np.broadcast_to(x, _kind(op.results[0])[0])

    def tt_reshape(self, op: Any, env: Any, x: Any) -> Any:
        return x.reshape(_kind(op.results[0])[0])

    def tt_trans(self, op: Any, env: Any, x: Any) -> Any:
        return x.transpose([int(d) for d in ir.DenseI32ArrayAttr(op.attributes["order"])])

    def tt_bitcast(self, op: Any, env: Any, x: Any) -> Any:
        return np.ascontiguousarray(x).view(_kind(op.results[0])[1]).reshape(x.shape)

    def tt_gather(self, op: Any, env: Any, x: Any, at: Any) -> Any:
        return np.take_along_axis(x, at, _integer(op.attributes["axis"]))

    def tt_extern_elementwise(self, op: Any, env: Any, *xs: Any) -> Any:
        name = ir.StringAttr(op.attributes["symbol"]).value.removeprefix("__nv_")
        wide = xs[0].dtype.itemsize == 8
        short = name.removesuffix("ll") if xs[0].dtype.kind in "iu" else name
        short = short if wide or xs[0].dtype.kind in "iu" else name.removesuffix("f")
        return LIBRARY[short](*xs)

    def tt_dot(self, op: Any, env: Any, x: Any, y: Any, z: Any) -> Any:
        return x.astype(z.dtype) @ y.astype(z.dtype) + z

    def tt_addptr(self, op: Any, env: Any, x: Pointers, offset: Any) -> Pointers:
        return Pointers(x.buffer, x.at + offset)

    def _checked(self, op: Any, x: Pointers, mask: Any) -> tuple[Any, Any]:
        at, mask = np.broadcast_arrays(np.asarray(x.at), True if mask is None else mask)
        outside = mask & ((at < 0) | (at >= x.buffer.size))
        if outside.any():
            raise OutsideError(
                f"program {self.place} accesses element {at[outside][0]} of {x.buffer.size}: {op}"
            )
        return at, mask

    def tt_load(self, op: Any, env: Any, x: Pointers, mask: Any = None, other: Any = None) -> Any:
        at, mask = self._checked(op, x, mask)
        found = x.buffer[np.where(mask, at, 0)]
        return found if other is None else np.where(mask, found, other)

    def tt_store(self, op: Any, env: Any, x: Pointers, value: Any, mask: Any = None) -> Any:
        at, mask = self._checked(op, x, mask)
        x.buffer[at[mask]] = np.broadcast_to(value, at.shape)[mask]
        return []

    def tt_atomic_rmw(self, op: Any, env: Any, x: Pointers, value: Any, mask: Any) -> Any:
        at, mask = self._checked(op, x, mask)
        kind = _integer(op.attributes["atomic_rmw_op"])
        combine = {
            1: np.bitwise_and, 2: np.bitwise_or, 3: np.bitwise_xor, 4: np.add, 5: np.add,
            6: np.maximum, 7: np.minimum, 8: BINARY["maxui"], 9: BINARY["minui"],
        }[kind]  # fmt: skip
        old = np.zeros(at.shape, x.buffer.dtype)
        for place in np.ndindex(at.shape):
            if mask[place]:
                old[place] = x.buffer[at[place]]
                new = combine(old[place], np.asarray(value)[place])
                x.buffer[at[place]] = np.asarray(new).astype(x.buffer.dtype)
        return old

    def tt_reduce(self, op: Any, env: Any, *xs: Any) -> Any:
        names = [o.operation.name for o in op.regions[0].blocks[0].operations]
        plain = BINARY.get(names[0].removeprefix("arith."))
        if len(names) == 2 and isinstance(plain, np.ufunc):
            return plain.reduce(xs[0], axis=_integer(op.attributes["axis"]))
        return [row[-1] for row in self._folded(op, env, xs)]

    def tt_scan(self, op: Any, env: Any, *xs: Any) -> Any:
        axis = _integer(op.attributes["axis"])
        back = ir.BoolAttr(op.attributes["reverse"]).value
        xs = tuple([np.flip(x, axis) if back else x for x in xs])
        rows = [np.stack(row, axis) for row in self._folded(op, env, xs)]
        return [np.flip(x, axis) if back else x for x in rows]

    def _folded(self, op: Any, env: Any, xs: Sequence[Any]) -> list[list[Any]]:
        axis, block = _integer(op.attributes["axis"]), op.regions[0].blocks[0]
        turns = [[np.take(x, i, axis) for x in xs] for i in range(xs[0].shape[axis])]
        found = [turns[0]]
        for row in turns[1:]:
            inner = Elements(self.place)
            found.append(inner.block(block, [*found[-1], *row], dict(env)))
        return [list(row) for row in zip(*found, strict=True)]

    # -- scf --

    def scf_for(self, op: Any, env: Any, low: Any, high: Any, step: Any, *carried: Any) -> Any:
        block, state = op.regions[0].blocks[0], list(carried)
        for i in range(int(low), int(high), int(step)):
            state = self.block(block, [np.asarray(i, low.dtype), *state], env)
        return state

    def scf_if(self, op: Any, env: Any, flag: Any) -> Any:
        blocks = op.regions[0 if flag else 1].blocks
        return self.block(blocks[0], [], env) if len(blocks) else []

    def scf_while(self, op: Any, env: Any, *carried: Any) -> Any:
        state: list[Any] = list(carried)
        for _ in itertools.count():
            flag, *state = self.block(op.regions[0].blocks[0], state, env)
            if not flag:
                return state
            state = self.block(op.regions[1].blocks[0], state, env)
        return state


class Elements(Program):
    """The region of a reduction, for many elements at once."""

    def _fit(self, value: Any, x: Any) -> Any:
        _, dtype = _kind(value)
        x = np.asarray(x)
        return x.view(dtype) if x.dtype.kind == "u" else x.astype(dtype)
