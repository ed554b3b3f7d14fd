"""The body of a kernel in Triton's dialect: equations, control flow, and accesses of refs.

Refs in memory are threaded through the program as `Memory`, which loops and branches do not carry,
since a store has no value in Triton. Refs of scratch memory, and blocks of results that programs of
a grid share, are tensors: a store replaces elements of a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import without_dead_code
from shardwise._src.effects.callback import debug_callback, pure_callback
from shardwise._src.kernels.accesses import kernel_atomic_cas, kernel_load, kernel_store
from shardwise._src.kernels.composed_ops import around, composed
from shardwise._src.kernels.copying.copies import (
    kernel_copy,
    kernel_signal,
    kernel_wait,
    kernel_wait_copy,
)
from shardwise._src.kernels.on_gpu import gpu_refs
from shardwise._src.kernels.on_gpu.gpu_refs import Buffer, Memory, Region
from shardwise._src.kernels.on_gpu.ref_accesses import SCATTERED, accesses, versions
from shardwise._src.kernels.on_gpu.triton_elementwise import ELEMENTWISE, convert
from shardwise._src.kernels.on_gpu.triton_shapes import RULES, part, replaced
from shardwise._src.kernels.on_gpu.triton_text import (
    INT32,
    TritonText,
    Value,
    element,
    is_element,
    padded,
    type_text,
)
from shardwise._src.messages.source import note_line
from shardwise._src.ops.contract import DotAlgorithmPreset, Precision
from shardwise._src.ops.elementwise import lt
from shardwise._src.ops.families import add
from shardwise._src.ops.indexing.gather_scatter import gather
from shardwise._src.ops.sort import sort
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import is_bool, is_float

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


class Body(TritonText):
    """Writes programs as lines of one function.

    title:   the name of the kernel. library: of functions of floats: "libdevice" or "ocml".
    """

    def __init__(self, title: str, library: str, stages: int = 1):
        super().__init__()
        self.title = title
        self.shared = 0  # the least bytes of shared memory that its products need
        self._library, self._stages = library, stages
        self._loaded: set[str] = set()

    # -- what rules use --

    def unsupported(self, what: str, why: str) -> NotImplementedError:
        return NotImplementedError(
            f"kernel {self.title} cannot be compiled for GPUs: {what} {why}."
        )

    def unary(self, op: str, x: Value) -> Value:
        return self.let(f"{op} {x.name} : {x.type}", x.shape, x.dtype)

    def composed(self, f: Any, *xs: Value) -> Value:
        """A function of ops."""
        types = tuple([array_type(x.shape, x.dtype) for x in xs])
        return self.program(program_of(lambda *ys: [f(*ys)], types, f.__name__), xs)[0]

    def scalar_of(self, x: Value) -> Value:
        """The element of a tensor of one."""
        while x.shape:
            attribute, shape = "axis = 0 : i32", x.shape[1:]
            (x,) = self.combined("reduce", [x], attribute, shape, lambda a, b: [a])
        return x

    def library(self, function: str, dtype: Any, *xs: Value) -> Value:
        """A function of the platform's library, of 32 or 64 bits."""
        wide, floats = xs[0].dtype.itemsize == 8, is_float(xs[0].dtype)
        if self._library == "libdevice":
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
        copies = max(self._stages - 1, 1) if self.in_loop else 1
        loaded = [x for x in operands if x.name in self._loaded]
        size = sum(math.prod(x.sizes) * x.dtype.itemsize for x in loaded)
        self.shared = max(self.shared, copies * size)

    # -- programs --

    def program(
        self, program: Program, values: Sequence[Any], plain: Op | None = None
    ) -> list[Any]:
        """Writes a program's equations; values: of its inputs without the constants.

        plain: an op of which the instruction is meant (`composed_ops.around`).
        """
        env: dict[Any, Any] = dict(zip(program.invars, values, strict=True))
        for v, x in zip(program.constvars, program.consts, strict=True):
            if v.aval.shape:
                raise self.unsupported(
                    f"a constant of type {type_of(x).str_short(True)}",
                    "is not supported by Triton. Pass it as an argument of the kernel",
                )
            env[v] = self.constant(x, (), v.aval.dtype)
        gathered: set[Any] = set()  # versions of refs that were read at arrays of indices
        waiting: dict[int, Var] = {}  # loads that the store of an atomic access returns
        equations = without_dead_code(program.outvars, program.eqns)
        for i, eqn in enumerate(equations):
            try:
                store = None
                if eqn.op is kernel_load and isinstance(env.get(eqn.invars[0]), Memory):
                    store = _atomic_store(equations, i)
                if store is not None:
                    waiting[id(store)] = eqn.outvars[0]
                    if not store.params["masked"]:
                        continue
                ins = [self._atom(a, env) for a in eqn.invars]
                if eqn.op is gather:
                    gathered.add(eqn.invars[0])
                elif SCATTERED.get(eqn.op, "set") != "set" and eqn.invars[0] in gathered:
                    raise self.unsupported(
                        "an atomic access at an array of indices",
                        "does not return the elements from before on GPUs. Do not use them, or "
                        "access slices or single elements",
                    )
                if store is not None:
                    ins[0] = gpu_refs.bounded(self, ins[0])
                found = self._equation(eqn, ins, plain)
                if (old := waiting.pop(id(eqn), None)) is not None:
                    before = found.pop()
                    if old in env:  # those where the mask is False
                        mask = self.broadcast(ins[-1], before.shape)
                        before = self.select(mask, before, env[old])
                    env[old] = before
            except (NotImplementedError, ValueError) as error:
                note_line(error, eqn.site)
                raise
            env.update(zip(eqn.outvars, found, strict=False))
        return [self._atom(a, env) for a in program.outvars]

    def _atom(self, atom: Any, env: dict[Any, Any]) -> Any:
        if isinstance(atom, Literal):
            self._check_dtype(atom.aval)
            return self.constant(atom.value, (), atom.aval.dtype)
        return env[atom]

    def _check_dtype(self, t: Any) -> None:
        if not is_element(t.dtype):
            raise self.unsupported(
                f"a value of type {t.str_short(True)}",
                "is not supported by Triton. Convert to another dtype outside of the kernel",
            )

    def _check_size(self, t: Any, eqn: Equation) -> None:
        """Of values; refs in memory may have any size."""
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

    def _equation(self, eqn: Equation, ins: list[Any], plain: Op | None) -> list[Any]:
        op, name = eqn.op, eqn.op.name
        for v in eqn.outvars:
            self._check_dtype(v.aval)
            self._check_size(v.aval, eqn)
        if op is kernel_load:
            return [self._load(eqn, *ins)]
        if op is kernel_store:
            return self._store(eqn, *ins)
        if op is kernel_atomic_cas and isinstance(ins[0], Memory):
            self._check_atomic(ins[0], "cas")
            region = self._region(ins[0], ins[3:], eqn.params)
            return [ins[0], gpu_refs.compare_and_swap(self, ins[0], region, *ins[1:3])]
        if op in SCATTERED and isinstance(ins[0], Memory):
            return [self._scatter(eqn, *ins)]
        if op is gather and isinstance(ins[0], Memory) and self._reads_elements(eqn, ins[0]):
            return [gpu_refs.load_at(self, ins[0], self._columns(ins[1], len(ins[0].shape)))]
        control = {scan: self._scan, while_loop: self._while, cond: self._cond}.get(op)
        if control is not None:
            return control(eqn, ins)
        if op.programs == ("program",) and op.contains.binds is None and op not in _ADVICE:
            return self.program(eqn.params["program"], ins)
        ins = [self._all_of(x) if isinstance(x, Memory) else x for x in ins]
        out = eqn.outvars[0].aval if eqn.outvars else None
        types = [array_type(x.shape, x.dtype) for x in ins]
        made = around(op, types, ins[-1].known) if ins and op is not plain else None
        if made is not None:
            return self.program(made, ins, op)
        if name in ELEMENTWISE and out is not None:
            ins = [self.broadcast(x, out.shape) for x in ins]
            found = ELEMENTWISE[name](self, *ins, **eqn.params)
        elif name in RULES:
            found = RULES[name](self, *ins, out=out, **eqn.params)
        elif (made := composed(op, types, eqn.params)) is not None:
            found = self.program(made, ins)
        elif (found := self._of_other_ops(eqn, ins)) is None:
            advice = _ADVICE.get(op, "Compute it outside of the kernel, and pass the result")
            raise self.unsupported(
                f"the op {name}",
                f"is not supported by Triton. {advice}, or use another function on GPUs: "
                "`lax.platform_dependent`",
            )
        return found if isinstance(found, list) else [found]

    def _of_other_ops(self, eqn: Equation, ins: list[Value]) -> list[Value] | None:
        """The results of an op whose rule for StableHLO only runs other ops; else None."""
        outs = [v.aval for v in eqn.outvars]
        if eqn.op.lower is None or not outs or eqn.op in _ADVICE:
            return None
        types = [array_type(x.shape, x.dtype) for x in ins]
        try:
            found: Any = eqn.op.lower(eqn.op, OtherOps(self), types, outs, *ins, **eqn.params)
        except (AttributeError, TypeError):  # it writes instructions
            return None
        return found if isinstance(found, list) else [found]

    # -- refs --

    def _region(self, ref: Any, starts: Sequence[Value], p: dict[str, Any]) -> Region:
        return Region(
            tuple([convert(self, s, INT32) for s in starts]), p["sizes"], p["strides"], p["kept"]
        )

    def _all_of(self, ref: Memory) -> Value:
        """All elements of a ref, for ops that are not accesses."""
        return gpu_refs.load(self, ref, gpu_refs.everything(self, ref.shape))

    def _load(self, eqn: Equation, ref: Any, *rest: Value) -> Value:
        p, n = eqn.params, len(eqn.params["sizes"])
        region = self._region(ref, rest[:n], p)
        mask, other = rest[n:] if p["masked"] else (None, None)
        if isinstance(ref, Memory):
            found = gpu_refs.load(self, ref, region, mask, other)
            self._loaded.add(found.name)
            return found
        found = ref
        for d in range(n):
            found = part(self, found, d, region.starts[d], region.sizes[d], region.strides[d])
        if region.shape != found.shape:
            found = RULES["reshape"](self, found, out=eqn.outvars[0].aval)
        return found if mask is None or other is None else self.select(mask, found, other)

    def _store(self, eqn: Equation, ref: Any, value: Value, *rest: Value) -> list[Any]:
        p, n = eqn.params, len(eqn.params["sizes"])
        region = self._region(ref, rest[:n], p)
        mask = rest[n] if p["masked"] else None
        if 0 in region.sizes:
            return [ref]
        if isinstance(ref, Memory):
            if p["mode"] == "set":
                gpu_refs.store(self, ref, region, value, mask, eqn)
                return [ref]
            self._check_atomic(ref, p["mode"])
            return [ref, gpu_refs.atomic(self, ref, region, p["mode"], value, mask)]
        if region.is_all(ref.shape) and mask is None and p["mode"] == "set":
            return [value]
        value, *masks = [
            self.reshaped(self.broadcast(x, region.shape), region.sizes)
            for x in ((value,) if mask is None else (value, mask))
        ]
        new, own = replaced(self, ref, value, region.starts, region.strides)
        if masks:
            placed, _ = replaced(self, ref, masks[0], region.starts, region.strides)
            own = self.binary("arith.andi", own, placed)
        if p["mode"] not in ("set", "xchg"):
            new = ELEMENTWISE[p["mode"]](self, ref, self.broadcast(new, ref.shape))
        return [self.select(own, self.broadcast(new, ref.shape), ref), ref]

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
        mode = SCATTERED[eqn.op]
        if mode != "set":
            self._check_atomic(ref, mode)
        gpu_refs.store_at(self, ref, self._columns(indices, n), updates, mode)
        return ref

    def _reads_elements(self, eqn: Equation, ref: Memory) -> bool:
        """Whether a gather is of elements at valid indices, an array for each dimension."""
        p, every = eqn.params, tuple(range(len(ref.shape)))
        dims = p["dimension_numbers"]
        each = dims.collapsed_slice_dims == every == tuple(dims.start_index_map)
        return bool(every) and each and not dims.offset_dims and p.get("mode") != "fill"

    def _columns(self, indices: Value, n: int) -> list[Value]:
        """The indices along each of n dimensions, which are those of the last dimension."""
        axis = len(indices.shape) - 1
        rows = [part(self, indices, axis, self.integer(d), 1) for d in range(n)]
        return [self.reshaped(row, indices.shape[:-1]) for row in rows]

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

    # -- control flow --

    def _scan(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        own = ScanParams(**eqn.params)
        consts, carry, xs = own.parts(ins)
        xs = [self._all_of(x) if isinstance(x, Memory) else x for x in xs]
        ys = [self.constant(0, v.aval.shape, v.aval.dtype) for v in eqn.outvars[own.num_carry :]]
        live = [x for x in carry if not isinstance(x, Memory)]

        def iteration(i: Value, state: list[Value]) -> list[Value]:
            if own.reverse:
                i = self.binary("arith.subi", self.integer(own.length - 1), i)
            rows = [RULES["squeeze"](self, part(self, x, 0, i, 1)) for x in xs]
            found = self.program(own.body, [*consts, *_refilled(carry, state), *rows])
            stacked = []
            for y, row in zip(state[len(live) :], found[own.num_carry :], strict=True):
                starts = [i, *[self.integer(0)] * (len(y.shape) - 1)]
                row = self.reshaped(row, (1, *y.shape[1:]))
                new, mask = replaced(self, y, row, starts, [1] * len(y.shape))
                stacked.append(self.select(mask, self.broadcast(new, y.shape), y))
            return [*self.same(carry, found[: own.num_carry]), *stacked]

        self._enter(own.body, [*consts, *carry])
        found = self.loop(self.integer(0), self.integer(own.length), [*live, *ys], iteration)
        return [*_refilled(carry, found), *found[len(live) :]]

    def _while(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        own = WhileParams(**eqn.params)
        for_test, for_body, carry = own.parts(ins)
        live = [x for x in carry if not isinstance(x, Memory)]

        def iteration(state: Sequence[Value]) -> list[Value]:
            found = self.program(own.body, [*for_body, *_refilled(carry, state)])
            return self.same(carry, found)

        def test(state: Sequence[Value]) -> Value:
            return self.program(own.test, [*for_test, *_refilled(carry, state)])[0]

        self._enter(own.body, [*for_body, *carry])
        counter = _counter(own)
        if counter is None:
            return _refilled(carry, self.while_loop(live, test, iteration))
        low, bound = carry[counter], own.test.eqns[0].invars[1]
        high = self._atom(bound, dict(zip(own.test.invars, [*for_test, *carry], strict=True)))
        at = live.index(low)

        def counted(i: Value, state: list[Value]) -> list[Value]:
            found = iteration([*state[:at], i, *state[at:]])
            return [*found[:at], *found[at + 1 :]]

        found = self.loop(low, high, [*live[:at], *live[at + 1 :]], counted)
        end = self.binary("arith.maxsi", low, high)
        return _refilled(carry, [*found[:at], end, *found[at:]])

    def _cond(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        which, *operands = ins
        branches = eqn.params["branches"]
        if which.known is not None:
            at = min(max(int(which.known), 0), len(branches) - 1)
            return self.program(branches[at], operands)
        for x in operands:
            if isinstance(x, Memory):
                gpu_refs.ordered(self, x.buffer, "branch")
        return self._chosen(which, branches, operands)

    def _chosen(self, which: Value, branches: Sequence[Program], operands: list[Any]) -> list[Any]:
        """One of several branches; of each, refs in memory are written like those of all."""
        first, *rest = branches
        if not rest:
            return self.program(first, operands)
        flag = which
        if not is_bool(which.dtype):
            flag = self.compare("sgt", which, self.constant(0, (), which.dtype))
        refs = _passed_on(first, operands)
        pairs = zip(first.outvars, refs, strict=True)
        like = [Value("", v.aval.shape, v.aval.dtype) for v, ref in pairs if ref is None]
        buffers = [x.buffer for x in operands if isinstance(x, Memory)]
        ends: list[tuple[str, set[Any]]] = []

        def others() -> list[Value]:
            less = which
            if not is_bool(which.dtype):
                less = self.binary("arith.subi", which, self.constant(1, (), which.dtype))
            found = self.same(refs, self._chosen(less, rest, operands))
            ends.extend((b.written, b.read) for b in buffers)
            return found

        found = self.branch(
            flag, like, others, lambda: self.same(refs, self.program(first, operands))
        )
        for b, (written, read) in zip(buffers, ends, strict=True):
            b.written, b.by, b.read = b.written or written, None, b.read | read
        return _refilled([ref or x for ref, x in zip(refs, first.outvars, strict=True)], found)

    def same(self, refs: Sequence[Any], found: Sequence[Any]) -> list[Value]:
        """The values among results, where refs in memory must be passed on as they are."""
        for old, new in zip(refs, found, strict=True):
            ref = old if isinstance(old, Memory) else new
            if old is not new and isinstance(ref, Memory):
                raise self.unsupported(
                    f"the ref of {ref.buffer.what}",
                    "is replaced by other values. Write to it with `ref[...] = values`, at slices "
                    "or with a mask",
                )
        return [x for x in found if not isinstance(x, Memory)]

    def _enter(self, body: Program, operands: Sequence[Any]) -> None:
        """Before a loop: its stores are before the accesses of the next iteration."""
        for v, x in zip(body.invars, operands, strict=False):
            if isinstance(x, Memory):
                self.enter_loop(body, v, x.buffer)

    def enter_loop(self, body: Program, first: Var, buffer: Buffer) -> None:
        """Notes the stores to a ref in the body of a loop."""
        found, others = accesses(body, first)
        stores = [eqn for eqn in found if eqn.op is kernel_store]
        if any(eqn.op in SCATTERED for eqn in others):
            buffer.written, buffer.by = "store", None
        elif stores:
            only = all(eqn.op is kernel_store and eqn.params["mode"] != "set" for eqn in found)
            buffer.written = "atomic" if only and buffer.written != "store" else "store"
            buffer.by = stores[0] if len(found) == 1 else None


def _atomic_store(equations: Sequence[Equation], at: int) -> Equation | None:
    """The store of an atomic access that begins with this load: of the same elements, before any
    use of the load."""
    load = equations[at]
    for eqn in equations[at + 1 :]:
        if eqn.op is kernel_store and eqn.invars[0] is load.invars[0]:
            starts = eqn.invars[2 : 2 + len(eqn.params["sizes"])]
            pairs = zip(starts, load.invars[1:], strict=False)
            same = all(
                a is b or (isinstance(a, Literal) and isinstance(b, Literal) and a.value == b.value)
                for a, b in pairs
            )
            own = ("sizes", "strides", "kept")
            same = same and all(eqn.params[k] == load.params[k] for k in own)
            return eqn if same and eqn.params["mode"] != "set" else None
        if load.outvars[0] in eqn.invars:
            return None
    return None


def _counter(own: WhileParams) -> int | None:
    """The carry that counts the iterations of `while i < n`; None if the loop is different."""
    test, consts = own.test, own.num_test
    if len(test.eqns) != 1 or test.eqns[0].op is not lt or test.consts:
        return None
    i, bound = test.eqns[0].invars
    places: dict[Any, int] = {v: k - consts for k, v in enumerate(test.invars)}
    at, limit = places.get(i, -1), places.get(bound, -1)
    carried, outs = own.body.invars[own.num_body :], own.body.outvars
    if at < 0 or i.aval.dtype != INT32 or (limit >= 0 and outs[limit] is not carried[limit]):
        return None
    for eqn in own.body.eqns:
        if eqn.outvars[0] is outs[at] and eqn.op is add and carried[at] in eqn.invars:
            return at if any(getattr(a, "value", 0) == 1 for a in eqn.invars) else None
    return None


def _refilled(like: Sequence[Any], values: Sequence[Value]) -> list[Any]:
    """`like`, with values in place of those that are not refs in memory."""
    rest = iter(values)
    return [x if isinstance(x, Memory) else next(rest) for x in like]


def _passed_on(program: Program, operands: Sequence[Any]) -> list[Memory | None]:
    """For each result, the ref in memory that it is a version of; None for values."""
    refs: dict[Any, Memory] = {}
    for v, x in zip(program.invars, operands, strict=True):
        if isinstance(x, Memory):
            refs |= dict.fromkeys(versions(program, v), x)
    return [refs.get(a) if isinstance(a, Var) else None for a in program.outvars]
