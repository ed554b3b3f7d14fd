"""Runs kernels for GPUs with NumPy: modules in Triton's dialect, one program of the grid at a time.

    triton_values(f, *args)          # a function with launches, each run as GPUs would

It shows that the text computes the right values, without a GPU. Elements beyond an array's end that
a mask does not exclude are an error, with the line of the text that accesses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

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
from tests.helpers.mlir_numpy import BINARY, UNARY, Blocks, garbage, integer, kind


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
    outs = [garbage(tile.type.shape, tile.type.dtype) for tile in eqn.params["launch"].outs]
    for i, j in eqn.params["aliases"]:
        outs[j] = arrays[i]
    run(kernel.text, kernel.grid, [*arrays, *outs])
    return outs


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


LIBRARY = UNARY | {
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "cbrt": np.cbrt, "expm1": np.expm1, "erfc": scipy.special.erfc,
    "erfinv": scipy.special.erfinv, "nextafter": np.nextafter, "lgamma": scipy.special.gammaln,
    "rint": np.rint, "pow": np.power, "popc": UNARY["ctpop"], "clz": UNARY["ctlz"],
}  # fmt: skip


class Program(Blocks):
    """One program of a grid, at a place of it."""

    def __init__(self, place: Sequence[int]):
        self.place = place

    def other(self, op: Any, env: dict[Any, Any], *ins: Any) -> list[Any]:
        if op.name in ("tt.return", "gpu.barrier"):
            return []
        found = getattr(self, op.name.replace(".", "_"))(op, env, *ins)
        found = found if isinstance(found, list) else [found]
        pairs = zip(op.results, found, strict=True)
        return [x if isinstance(x, Pointers) else self.fit(v, x) for v, x in pairs]

    def tt_fp_to_fp(self, op: Any, env: Any, x: Any) -> Any:
        return x

    def tt_get_program_id(self, op: Any, env: Any) -> Any:
        return np.int32(self.place[integer(op.attributes["axis"])])

    def tt_make_range(self, op: Any, env: Any) -> Any:
        return np.arange(*[integer(op.attributes[k]) for k in ("start", "end")])

    def tt_splat(self, op: Any, env: Any, x: Any) -> Any:
        shape, _ = kind(op.results[0])
        if isinstance(x, Pointers):
            return Pointers(x.buffer, np.full(shape, x.at))
        return np.full(shape, x, x.dtype)

    def tt_expand_dims(self, op: Any, env: Any, x: Any) -> Any:
        return np.expand_dims(x, integer(op.attributes["axis"]))

    def tt_broadcast(self, op: Any, env: Any, x: Any) -> Any:
        return np.broadcast_to(x, kind(op.results[0])[0])

    def tt_reshape(self, op: Any, env: Any, x: Any) -> Any:
        return x.reshape(kind(op.results[0])[0])

    def tt_trans(self, op: Any, env: Any, x: Any) -> Any:
        return x.transpose([int(d) for d in ir.DenseI32ArrayAttr(op.attributes["order"])])

    def tt_bitcast(self, op: Any, env: Any, x: Any) -> Any:
        return np.ascontiguousarray(x).view(kind(op.results[0])[1]).reshape(x.shape)

    def tt_gather(self, op: Any, env: Any, x: Any, at: Any) -> Any:
        return np.take_along_axis(x, at, integer(op.attributes["axis"]))

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
        number = integer(op.attributes["atomic_rmw_op"])
        combine = {
            1: np.bitwise_and, 2: np.bitwise_or, 3: np.bitwise_xor, 4: np.add, 5: np.add,
            6: np.maximum, 7: np.minimum, 8: BINARY["maxui"], 9: BINARY["minui"],
        }[number]  # fmt: skip
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
            return plain.reduce(xs[0], axis=integer(op.attributes["axis"]))
        return [row[-1] for row in self._folded(op, env, xs)]

    def tt_scan(self, op: Any, env: Any, *xs: Any) -> Any:
        axis = integer(op.attributes["axis"])
        back = ir.BoolAttr(op.attributes["reverse"]).value
        xs = tuple([np.flip(x, axis) if back else x for x in xs])
        rows = [np.stack(row, axis) for row in self._folded(op, env, xs)]
        return [np.flip(x, axis) if back else x for x in rows]

    def _folded(self, op: Any, env: Any, xs: Sequence[Any]) -> list[list[Any]]:
        axis, block = integer(op.attributes["axis"]), op.regions[0].blocks[0]
        turns = [[np.take(x, i, axis) for x in xs] for i in range(xs[0].shape[axis])]
        found = [turns[0]]
        for row in turns[1:]:
            inner = Elements(self.place)
            found.append(inner.block(block, [*found[-1], *row], dict(env)))
        return [list(row) for row in zip(*found, strict=True)]


class Elements(Program):
    """The region of a reduction, for many elements at once."""

    def fit(self, value: Any, x: Any) -> Any:
        _, dtype = kind(value)
        x = np.asarray(x)
        return x.view(dtype) if x.dtype.kind == "u" else x.astype(dtype)
