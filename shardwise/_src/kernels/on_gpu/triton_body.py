"""The body of a kernel in Triton's dialect: the rules of ops, and accesses of refs.

A ref in memory is `Memory`, which loops and branches do not carry. Refs of scratch memory, and
blocks of results that programs of a grid share, are tensors: a store replaces elements of a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from shardwise._src.control.programs import ScanParams
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import without_dead_code
from shardwise._src.effects.callback import debug_callback, pure_callback
from shardwise._src.kernels.accesses import kernel_atomic_cas, kernel_load, kernel_store
from shardwise._src.kernels.copying.copies import (
    kernel_copy,
    kernel_signal,
    kernel_wait,
    kernel_wait_copy,
)
from shardwise._src.kernels.emitted.emitted_programs import Emission
from shardwise._src.kernels.on_gpu import gpu_refs
from shardwise._src.kernels.on_gpu.gpu_refs import Elements, Memory
from shardwise._src.kernels.on_gpu.triton_elementwise import ELEMENTWISE, convert
from shardwise._src.kernels.on_gpu.triton_shapes import RULES, part, updated, window
from shardwise._src.kernels.on_gpu.triton_text import (
    INT32,
    TritonText,
    Value,
    element,
    is_element,
    padded,
    type_text,
)
from shardwise._src.ops.elementwise import select_n
from shardwise._src.ops.indexing.gather_scatter import (
    gather,
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
)
from shardwise._src.ops.precision import DotAlgorithmPreset, Precision
from shardwise._src.ops.sort import sort
from shardwise._src.runtime.platforms import Platform
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, is_float

# Writes at arrays of indices, and how they combine a value with the elements.
SCATTERED = {scatter: "set", scatter_add: "add", scatter_max: "max", scatter_min: "min"}
_PRECISIONS: dict[Any, str] = {  # of products of float32
    Precision.DEFAULT: "tf32",
    Precision.HIGH: "tf32x3",
    Precision.HIGHEST: "ieee",
    DotAlgorithmPreset.TF32_TF32_F32: "tf32",
    DotAlgorithmPreset.TF32_TF32_F32_X3: "tf32x3",
    DotAlgorithmPreset.BF16_BF16_F32_X3: "bf16x3",
    DotAlgorithmPreset.BF16_BF16_F32_X6: "bf16x6",
    DotAlgorithmPreset.F32_F32_F32: "ieee",
}
MOST_ELEMENTS = 1 << 20  # of a tensor
_ADVICE: dict[Op, str] = {
    sort: "Sort outside of the kernel",
    debug_callback: "Write the values to a result, and print that",
    **dict.fromkeys(SCATTERED, "Write slices, `ref[ds(i, n)] = values`, or elements in a loop"),
    pure_callback: "Call the host outside of the kernel",
    **dict.fromkeys(
        (kernel_copy, kernel_wait_copy, kernel_signal, kernel_wait),
        "Asynchronous copies and semaphores are for TPUs; read refs, which loads in loops prefetch",
    ),
}


class OtherOps:
    """What a lowering rule may use that runs other ops instead of writing instructions."""

    def __init__(self, body: Body):
        self.inline = self.call = lambda program, *xs: body.program(program, xs)

    def staged(self, f: Any, ins: Any, **p: Any) -> Program:
        def run(*xs: Any) -> list[Any]:
            found = f(*xs, **p)
            return [*found] if isinstance(found, tuple | list) else [found]

        return program_of(run, tuple(ins), f.__name__)

    def via(self, f: Any, ins: Any, *xs: Value, **p: Any) -> list[Value]:
        return self.inline(self.staged(f, ins, **p), *xs)


class Body(Emission, TritonText):
    """Writes programs as lines of one function.

    title:  the name of the kernel.
    stages: of the pipelines of its loops.
    """

    advice = _ADVICE

    def __init__(self, title: str, platform: Platform, stages: int = 1):
        super().__init__(depth=2)
        self.title, self.platform = title, platform
        self.shared = 0  # the least bytes of shared memory that its products need
        self._stages, self._in_loop = stages, False
        self._loaded: set[str] = set()

    # -- what rules use --

    def unsupported(self, what: str, why: str) -> NotImplementedError:
        return NotImplementedError(
            f"kernel {self.title} cannot be compiled for GPUs: {what} {why}."
        )

    def unary(self, op: str, x: Value) -> Value:
        return self.let(f"{op} {x.name} : {x.type}", x.shape, x.dtype)

    def library(self, function: str, dtype: Any, *xs: Value) -> Value:
        """A function of the platform's library, of 32 or 64 bits."""
        wide, floats = xs[0].dtype.itemsize == 8, is_float(xs[0].dtype)
        if self.platform.triton_library == "libdevice":
            name = f"__nv_{function}{'' if wide else 'f'}" if floats else f"__nv_{function}"
            name += "ll" if wide and not floats else ""
        else:
            function = {"popc": "popcount"}.get(function, function)
            name = f"__ocml_{function}_{'f' if floats else 'u'}{64 if wide else 32}"
        options = f'{{libname = "", libpath = "", pure = true, symbol = "{name}"}}'
        names, types = [", ".join(row) for row in zip(*[(x.name, x.type) for x in xs], strict=True)]
        text = f"tt.extern_elementwise {names} {options} : ({types}) -> "
        return self.let(text + type_text(xs[0].shape, element(dtype)), xs[0].shape, dtype)

    def precision_of(self, precision: Any) -> str:
        """How a product of float32 is computed."""
        if precision is None:
            precision = Precision.DEFAULT
        if isinstance(precision, tuple):
            precision = max(precision, key=lambda p: p.value)
        if precision not in _PRECISIONS:
            raise self.unsupported(
                "dot_general", f"with the algorithm {precision}. Use a Precision, such as HIGHEST"
            )
        return f", inputPrecision = {_PRECISIONS[precision]}"

    def note_product(self, *operands: Value) -> None:
        """Operands that are loaded are in shared memory, in loops several of them at a time."""
        copies = max(self._stages - 1, 1) if self._in_loop else 1
        loaded = [x for x in operands if x.name in self._loaded]
        size = sum(math.prod(x.sizes) * x.dtype.itemsize for x in loaded)
        self.shared = max(self.shared, copies * size)

    # -- programs --

    def program(
        self, program: Program, values: Sequence[Any], plain: Op | None = None
    ) -> list[Any]:
        return super().program(self._with_atomic_results(program), values, plain)

    def _with_atomic_results(self, program: Program) -> Program:
        """The program without dead code, in which stores of atomic accesses also return the
        elements from before, which loads returned."""
        equations = without_dead_code(program.outvars, program.eqns)
        gathered: set[Any] = set()  # versions of refs that are read at arrays of indices
        stores: dict[Equation, list[Equation]] = {}
        found: list[Equation] = []
        for at, eqn in enumerate(equations):
            if eqn.op is gather:
                gathered.add(eqn.invars[0])
            elif SCATTERED.get(eqn.op, "set") != "set" and eqn.invars[0] in gathered:
                raise self.unsupported(
                    "an atomic access at an array of indices",
                    "does not return the elements from before on GPUs. Do not use them, or "
                    "access slices or single elements",
                )
            store = _atomic_store(equations, at) if eqn.op is kernel_load else None
            if store is None:
                found += stores.get(eqn, [eqn])
                continue
            (old,) = eqn.outvars
            if not store.params["masked"]:
                stores[store] = [store.replace(outvars=[*store.outvars, old])]
                continue
            loaded, before = Var(old.aval), Var(old.aval)  # where the mask is False, and True
            operands = [store.invars[-1], loaded, before]
            found.append(eqn.replace(outvars=[loaded]))
            stores[store] = [
                store.replace(outvars=[*store.outvars, before]),
                Equation(select_n, operands, [old], {}, eqn.site),
            ]
        return program.replace(eqns=found)

    def equation(self, eqn: Equation, ins: list[Any], plain: Op | None) -> Sequence[Any]:
        for v in eqn.outvars:
            self._check_type(eqn, v.aval)
        return super().equation(eqn, ins, plain)

    def _check_type(self, eqn: Equation, t: Any) -> None:
        """Of values; refs in memory may have any size."""
        self._check_dtype(t)
        if 0 in t.shape:
            raise self.unsupported(
                f"the op {eqn.op.name}", f"has a result without elements, {t.str_short(True)}"
            )
        is_value = eqn.op is not kernel_store and not eqn.op.programs
        if is_value and math.prod(padded(t.shape)) > MOST_ELEMENTS:
            raise ValueError(
                f"kernel {self.title}: a value has type {t.str_short(True)}, and Triton's tensors "
                f"have at most {MOST_ELEMENTS:,} elements, with sizes rounded up to powers of two. "
                "Use smaller blocks, or slices in a loop: `ref[ds(i * n, n)]`."
            )

    def _check_dtype(self, t: Any) -> None:
        if not is_element(t.dtype):
            raise self.unsupported(
                f"a value of type {t.str_short(True)}",
                "is not supported by Triton. Convert to another dtype outside of the kernel",
            )

    def rule(self, eqn: Equation, ins: list[Any]) -> Any:
        op, name = eqn.op, eqn.op.name
        access = _ACCESSES.get(op)
        if access is not None and (isinstance(ins[0], Memory) or op in (kernel_load, kernel_store)):
            found = access(self, eqn, *ins)
            if found is not None:
                return found
        rule = ELEMENTWISE.get(name) or RULES.get(name)
        if rule is None:
            return None
        out = eqn.outvars[0].aval
        ins = [self._all_of(x) for x in ins]
        if name in ELEMENTWISE:
            return rule(self, *[self.broadcast(x, out.shape) for x in ins], **eqn.params)
        return rule(self, *ins, out=out, **eqn.params)

    def otherwise(self, eqn: Equation, ins: list[Any]) -> Any:
        """The results of an op whose rule for StableHLO only runs other ops."""
        op, outs = eqn.op, [v.aval for v in eqn.outvars]
        if op.lower is not None and outs and op not in _ADVICE:
            ins, types = [self._all_of(x) for x in ins], [a.aval for a in eqn.invars]
            try:
                return op.lower(op, OtherOps(self), types, outs, *ins, **eqn.params)
            except (AttributeError, TypeError):  # it writes instructions
                pass
        advice = _ADVICE.get(op, "Compute it outside of the kernel, and pass the result")
        raise self.unsupported(
            f"the op {op.name}",
            f"is not supported by Triton. {advice}, or use another function on GPUs: "
            "`lax.platform_dependent`",
        )

    # -- values --

    def number(self, value: Any, t: ArrayType) -> Value:
        self._check_dtype(t)
        if np.ndim(value):
            raise self.unsupported(
                f"a constant of type {t.str_short(True)}",
                "is not supported by Triton. Pass it as an argument of the kernel",
            )
        return self.constant(value, t.shape, t.dtype)

    def known(self, x: Any) -> Any:
        return None if isinstance(x, Memory) else x.known

    def register(self, x: Any, t: ArrayType) -> str:
        return self.settle(None, x, t) if isinstance(x, Memory) else x.name

    def value(self, name: str, t: ArrayType) -> Value:
        return Value(name, t.shape, t.dtype)

    def kind(self, t: ArrayType) -> str:
        return type_text(t.shape, element(t.dtype))

    def settle(self, x: Any, memory: Memory, t: ArrayType) -> NoReturn:
        raise self.unsupported(
            f"the ref of {memory.buffer.what}",
            "is replaced by other values. Write to it with `ref[...] = values`, at slices "
            "or with a mask",
        )

    def loop(self, low: Any, high: Any, carry: Any, types: Any, body: Any) -> list[Any]:
        outside, self._in_loop = self._in_loop, True
        found = super().loop(low, high, carry, types, body)
        self._in_loop = outside
        return found

    def over_arrays(self, eqn: Equation, own: ScanParams, ins: list[Any]) -> list[Any]:
        consts, carry, xs = own.parts(ins)
        return super().over_arrays(eqn, own, [*consts, *carry, *map(self._all_of, xs)])

    # -- refs --

    def _all_of(self, ref: Any) -> Value:
        """All elements of a ref, for ops that are not accesses."""
        if not isinstance(ref, Memory):
            return ref
        return gpu_refs.load(self, ref, gpu_refs.everything(self, ref))

    def _starts(self, starts: Sequence[Value]) -> list[Value]:
        return [convert(self, s, INT32) for s in starts]

    def _region(self, ref: Memory, starts: Sequence[Value], p: dict[str, Any]) -> Elements:
        static = p["sizes"], p["strides"], p["kept"]
        return gpu_refs.region(self, ref, self._starts(starts), *static)

    def _load(self, eqn: Equation, ref: Any, *rest: Value) -> Value:
        p, n = eqn.params, len(eqn.params["sizes"])
        mask, other = rest[n:] if p["masked"] else (None, None)
        if isinstance(ref, Memory):
            found = gpu_refs.load(self, ref, self._region(ref, rest[:n], p), mask, other)
            self._loaded.add(found.name)
            return found
        found = self._part(ref, rest[:n], p)
        return found if mask is None or other is None else self.select(mask, found, other)

    def _part(self, x: Value, starts: Sequence[Value], p: dict[str, Any]) -> Value:
        shape = [n for n, keep in zip(p["sizes"], p["kept"], strict=True) if keep]
        return self.reshaped(window(self, x, self._starts(starts), p["sizes"], p["strides"]), shape)

    def _store(self, eqn: Equation, ref: Any, value: Value, *rest: Value) -> list[Any]:
        p, n = eqn.params, len(eqn.params["sizes"])
        mode, mask = p["mode"], rest[n] if p["masked"] else None
        if 0 in p["sizes"]:
            return [ref]
        if isinstance(ref, Memory):
            at = self._region(ref, rest[:n], p)
            if mode == "set":
                gpu_refs.store(self, ref, at, value, mask, eqn)
                return [ref]
            self._check_atomic(ref, mode)
            return [ref, gpu_refs.atomic(self, ref, at, mode, value, mask)][: len(eqn.outvars)]
        old = value if mode == "set" and mask is None else self._part(ref, rest[:n], p)
        if mode not in ("set", "xchg"):
            value = ELEMENTWISE[mode](self, old, value)
        if mask is not None:
            value = self.select(mask, value, old)
        value, starts = self.reshaped(value, p["sizes"]), self._starts(rest[:n])
        return [updated(self, ref, value, starts, p["strides"]), old][: len(eqn.outvars)]

    def _swap(
        self, eqn: Equation, ref: Memory, compared: Value, value: Value, *starts: Value
    ) -> list[Any]:
        self._check_atomic(ref, "cas")
        at = self._region(ref, starts, eqn.params)
        return [ref, gpu_refs.compare_and_swap(self, ref, at, compared, value)]

    def _scatter(self, eqn: Equation, ref: Memory, indices: Any, updates: Any) -> Memory:
        """A write at arrays of indices, one for each dimension of the ref."""
        n, numbers = len(ref.shape), eqn.params["dimension_numbers"]
        every = tuple(range(n))
        each = not numbers.update_window_dims and numbers.inserted_window_dims == every
        if not each or tuple(numbers.scatter_dims_to_operand_dims) != every:
            raise self.unsupported(
                f"the op {eqn.op.name}",
                "is supported by Triton only at arrays of indices for every dimension of a ref. "
                "Use `ds` for the others, or loop over them",
            )
        mode, at = SCATTERED[eqn.op], self._columns(indices, n)
        if mode == "set":
            gpu_refs.store(self, ref, at, updates, None)
        else:
            self._check_atomic(ref, mode)
            gpu_refs.atomic(self, ref, at, mode, updates, None)
        return ref

    def _gather(self, eqn: Equation, ref: Memory, indices: Value) -> Value | None:
        """Elements at valid indices, an array for each dimension; else None."""
        p, every = eqn.params, tuple(range(len(ref.shape)))
        dims = p["dimension_numbers"]
        each = dims.collapsed_slice_dims == every == tuple(dims.start_index_map)
        if not every or not each or dims.offset_dims or p.get("mode") == "fill":
            return None
        return gpu_refs.load(self, ref, self._columns(indices, len(every)))

    def _columns(self, indices: Value, n: int) -> Elements:
        """The elements whose indices along each of n dimensions are those of the last dimension."""
        axis = len(indices.shape) - 1
        rows = [part(self, indices, axis, self.integer(d), 1) for d in range(n)]
        return gpu_refs.at_indices(self, [self.reshaped(row, indices.shape[:-1]) for row in rows])

    def _check_atomic(self, ref: Memory, mode: str) -> None:
        t = ref.buffer.type
        wide = t.dtype.itemsize >= 4 and not is_bool(t.dtype)
        if is_float(t.dtype) and mode != "xchg":
            fits = mode == "add" and (wide or t.dtype.name in ("float16", "bfloat16"))
        else:
            fits = wide
        if not fits:
            raise self.unsupported(
                f"atomic_{mode}",
                f"on {ref.buffer.what}, {t.str_short(True)}: GPUs have atomic operations on "
                "integers of 32 and 64 bits, and the sum of floats. Use such a dtype",
            )


_ACCESSES = {
    kernel_load: Body._load,
    kernel_store: Body._store,
    kernel_atomic_cas: Body._swap,
    gather: Body._gather,
    **dict.fromkeys(SCATTERED, Body._scatter),
}


def _place(eqn: Equation) -> list[Any]:
    """Equal for accesses of the same elements."""
    p, first = eqn.params, 1 if eqn.op is kernel_load else 2
    starts = eqn.invars[first : first + len(p["sizes"])]
    known = [a.value if isinstance(a, Literal) else a for a in starts]
    return [eqn.invars[0], *known, p["sizes"], p["strides"], p["kept"]]


def _atomic_store(equations: Sequence[Equation], at: int) -> Equation | None:
    """The store of an atomic access that begins with this load: of the same elements, before any
    use of the load."""
    load = equations[at]
    for eqn in equations[at + 1 :]:
        if eqn.op is kernel_store and eqn.invars[0] is load.invars[0]:
            return eqn if eqn.params["mode"] != "set" and _place(eqn) == _place(load) else None
        if load.outvars[0] in eqn.invars:
            return None
    return None
