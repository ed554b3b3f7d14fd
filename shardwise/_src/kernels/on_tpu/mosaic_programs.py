"""Programs in Mosaic's dialect: equation by equation, with loops and branches.

The versions of a ref are all its memory: a store is an operation on it, and a loop or branch that
carries a version has no value for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.op import Op
from shardwise._src.core.program import Literal, Program
from shardwise._src.kernels.composed_ops import around, composed
from shardwise._src.kernels.on_tpu.mosaic_elementwise import ELEMENTWISE, kind_of
from shardwise._src.kernels.on_tpu.mosaic_memory import MEMORY_RULES, load_all, store_all
from shardwise._src.kernels.on_tpu.mosaic_shapes import SHAPES
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Splat, Text, Value
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.messages.source import note_line
from shardwise._src.ops.families import add
from shardwise._src.ops.indexing.gather_scatter import (
    dynamic_update_slice,
    gather,
    scatter,
    scatter_add,
)
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool

I32 = np.dtype("int32")


class Function(Text):
    """A function that is written from a program.

    kernel: its name, for messages. places: the memory with the position along mesh axes.
    scoped: the memory that the program allocates.
    """

    def __init__(self, kernel: str, platform: Platform, places: Mapping[Any, Memory]):
        super().__init__()
        self.kernel, self.platform, self.places = kernel, platform, places
        self.scoped: list[tuple[Memory, Scratch]] = []

    def program(
        self, program: Program, values: Sequence[Value], plain: Op | None = None
    ) -> list[Value]:
        """Writes the equations of a program; returns the values of its results.

        plain: an op of which the instruction is meant (`composed_ops.around`).
        """
        consts = [Splat(np.asarray(x)[()]) for x in program.consts]
        env: dict[Any, Value] = dict(zip(program.inputs, [*consts, *values], strict=True))
        for eqn in program.eqns:
            xs = [Splat(a.value) if isinstance(a, Literal) else env[a] for a in eqn.invars]
            outer, self.site = self.site, eqn.site or self.site
            try:
                found = self._equation(eqn, xs, plain)
            except NotImplementedError as error:
                raise self._located(error) from None
            self.site = outer
            env.update(zip(eqn.outvars, found, strict=True))
        return [Splat(a.value) if isinstance(a, Literal) else env[a] for a in program.outvars]

    def _located(self, error: NotImplementedError) -> NotImplementedError:
        """The error with the kernel's name and the user's line."""
        if not str(error).startswith("kernel "):
            error = NotImplementedError(f"kernel {self.kernel}: {error}")
        note_line(error, self.site)
        return error

    def _equation(self, eqn: Any, xs: list[Value], plain: Op | None) -> Sequence[Value]:
        op: Op = eqn.op
        types = tuple([a.aval for a in eqn.invars])
        if op is not plain:
            known = xs[-1].number if xs and isinstance(xs[-1], Splat) else None
            made = around(op, types, known)
            if made is not None:
                return self.program(made, xs, op)
        rule = _RULES.get(op)
        if rule is not None:
            found = rule(self, eqn, *xs, **eqn.params)
            return found if op.multiple else [found]
        made = composed(op, types, eqn.params)
        if made is None and op.expand is not None:
            made = op.expand(op, types, eqn.params, self.platform)
        if made is not None:
            return self.program(made, xs)
        if op.programs == ("program",) and op.is_staged(eqn.params):
            return self.program(eqn.params["program"], xs)
        raise self.unsupported(eqn)

    def unsupported(self, eqn: Any, how: str = "", advice: str = "") -> NotImplementedError:
        """The error for an equation that Mosaic does not support."""
        advice = advice or _ADVICE.get(eqn.op, _OUTSIDE)
        return NotImplementedError(
            f"kernel {self.kernel}: [{eqn.op.name}]{how and ' ' + how} is not supported "
            f"by Mosaic, the compiler of kernels for TPUs. {advice}"
        )

    def load_all(self, memory: Memory, t: ArrayType) -> str:
        return load_all(self, memory, t)

    # -- values that regions return --

    def settle(self, value: Value, wanted: Value | None, t: ArrayType) -> Value:
        """A result of a region: in the memory of the ref that it is a version of, if it is one."""
        if not isinstance(wanted, Memory):
            return self.name(value, t)
        if value is not wanted:
            store_all(self, wanted, value, t)
        return wanted

    def ended(self, lines: list[str], word: str, names: Sequence[Value], kinds: str) -> str:
        """The lines of a region with its last one, which returns these values."""
        found = [n for n in names if isinstance(n, str)]
        if found:
            lines.append("  " * (self.depth + 1) + f"{word} {', '.join(found)} : {kinds}")
        return "\n".join(lines)


def _merged(values: Sequence[Value], results: list[str]) -> list[Value]:
    """The results of a region: its memories, and the registers that it returns."""
    rest = iter(results)
    return [v if isinstance(v, Memory) else next(rest) for v in values]


def _kinds(values: Sequence[Value], types: Sequence[ArrayType]) -> str:
    pairs = zip(values, types, strict=True)
    return ", ".join([kind_of(t) for v, t in pairs if not isinstance(v, Memory)])


def _cond(w: Function, eqn: Any, which: Value, *xs: Value, branches: Any) -> list[Value]:
    flag, types = eqn.invars[0].aval, [v.aval for v in eqn.outvars]
    if isinstance(which, Splat):
        return w.program(branches[min(max(int(which.number), 0), len(branches) - 1)], xs)

    def choose(first: int) -> list[Value]:
        """The results of the branch with the index, which is at least `first`."""
        if first == len(branches) - 1:
            return w.program(branches[first], xs)
        holds = w.name(which, flag)
        if not is_bool(flag.dtype):
            holds = w.let(f"arith.cmpi sgt, {holds}, {w.constant(first, flag.dtype)} : i32")
        return _if(
            w, holds, lambda: choose(first + 1), lambda: w.program(branches[first], xs), types
        )

    return choose(0)


def _if(
    w: Function, holds: str, yes: Callable[[], list[Value]], no: Callable[[], list[Value]],
    types: Sequence[ArrayType],
) -> list[Value]:  # fmt: skip
    """The results of one of two branches, which are written by functions."""
    parts = []
    for write in (yes, no):
        with w.block() as lines:
            parts.append((lines, write()))
    rows = zip(*[found for _, found in parts], strict=True)
    wanted = [next((v for v in row if isinstance(v, Memory)), None) for row in rows]
    texts: list[str] = []
    settled: list[Value] = []
    for lines, found in parts:
        with w.block() as own:
            row = zip(found, wanted, types, strict=True)
            settled = [w.settle(v, memory, t) for v, memory, t in row]
        texts.append(w.ended([*lines, *own], "scf.yield", settled, _kinds(settled, types)))
    count = sum(not isinstance(v, Memory) for v in settled)
    kinds, indent = f" -> ({_kinds(settled, types)})" if count else "", "  " * w.depth
    otherwise = f" else {{\n{texts[1]}\n{indent}}}" if texts[1] else ""
    text = f"scf.if {holds}{kinds} {{\n{texts[0]}\n{indent}}}{otherwise}"
    return _merged(settled, w.lets(text, count))


def _scan(w: Function, eqn: Any, *xs: Value, **params: Any) -> list[Value]:
    p = ScanParams(**params)
    consts, carry = xs[: p.num_consts], list(xs[p.num_consts : p.num_consts + p.num_carry])
    if len(xs) > p.num_consts + p.num_carry or len(eqn.outvars) > p.num_carry:
        raise w.unsupported(
            eqn, "over arrays", "Use `fori_loop`, and index refs: `ref[i]`, `ref[ds(i * 8, 8)]`."
        )
    if p.length == 1 or p.unroll >= p.length > 0:
        for _ in range(p.length):
            carry = w.program(p.body, [*consts, *carry])
        return carry
    counter = _counter(p.body, p.num_consts, carry)
    types = [v.aval for v in eqn.outvars]
    is_value = [not isinstance(v, Memory) and i != counter for i, v in enumerate(carry)]
    starts = [w.name(v, t) for v, t, is_in in zip(carry, types, is_value, strict=True) if is_in]
    kinds = [kind_of(t) for t, is_in in zip(types, is_value, strict=True) if is_in]
    first = int(carry[counter].number) if counter is not None else 0  # type: ignore[union-attr]
    index, inner = w.fresh(), [w.fresh() for _ in starts]
    with w.block() as lines:
        names = iter(inner)
        given: list[Value] = [
            index if i == counter else next(names) if is_in else v
            for i, (v, is_in) in enumerate(zip(carry, is_value, strict=True))
        ]
        found = w.program(p.body, [*consts, *given])
        rows = zip(found, given, types, is_value, strict=True)
        ends = [
            w.settle(v, None if is_in else old, t)
            for i, (v, old, t, is_in) in enumerate(rows)
            if i != counter
        ]
    text = w.ended(lines, "scf.yield", ends, ", ".join(kinds))
    indent = "  " * w.depth
    pairs = ", ".join(f"{a} = {b}" for a, b in zip(inner, starts, strict=True))
    carried = f" iter_args({pairs}) -> ({', '.join(kinds)})" if starts else ""
    low, high = w.constant(first, I32), w.constant(first + p.length, I32)
    results = iter(w.lets(
        f"scf.for {index} = {low} to {high} step {w.constant(1, I32)}{carried} : i32 "
        f"{{\n{text}\n{indent}}}", len(starts),
    ))  # fmt: skip
    return [
        Splat(first + p.length) if i == counter else next(results) if is_in else v
        for i, (v, is_in) in enumerate(zip(carry, is_value, strict=True))
    ]


def _counter(body: Program, consts: int, carry: Sequence[Value]) -> int | None:
    """The carry that begins with a number and grows by one, if any: the index of a loop."""
    made = {v: eqn for eqn in body.eqns if eqn.op is add for v in eqn.outvars}
    for i, (v, out) in enumerate(zip(body.invars[consts:], body.outvars, strict=False)):
        eqn = made.get(out)  # type: ignore[arg-type]
        if eqn is None or not isinstance(carry[i], Splat) or v.aval.dtype != I32 or v.aval.shape:
            continue
        a, b = eqn.invars
        if a is v and isinstance(b, Literal) and b.value == 1:
            return i
    return None


def _while(w: Function, eqn: Any, *xs: Value, **params: Any) -> list[Value]:
    p = WhileParams(**params)
    test, body, carry = p.parts(xs)
    types = [v.aval for v in eqn.outvars]
    is_value = [not isinstance(v, Memory) for v in carry]
    starts = [w.name(v, t) for v, t in zip(carry, types, strict=True) if not isinstance(v, Memory)]
    kinds = ", ".join([kind_of(t) for t, is_in in zip(types, is_value, strict=True) if is_in])

    def region(program: Program, consts: Any) -> tuple[list[str], list[str], list[Value], Any]:
        names = [w.fresh() for _ in starts]
        with w.block() as lines:
            given = _merged([v if isinstance(v, Memory) else "" for v in carry], names)
            found = w.program(program, [*consts, *given])
        return lines, names, found, given

    indent = "  " * w.depth
    lines, heads, (flag,), _ = region(p.test, test)
    with w.block() as own:
        holds = w.name(flag, p.test.out_types[0])
        w.line(f"scf.condition({holds}) {', '.join(heads)}{' : ' if heads else ''}{kinds}")
    first = "\n".join([*lines, *own])
    lines, names, found, given = region(p.body, body)
    with w.block() as own:
        rows = zip(found, given, types, strict=True)
        ends = [w.settle(v, old if isinstance(old, Memory) else None, t) for v, old, t in rows]
    last = w.ended([*lines, *own], "scf.yield", ends, kinds)
    pairs = ", ".join(f"{a} = {b}" for a, b in zip(heads, starts, strict=True))
    block = ", ".join(
        f"{n}: {k}"
        for n, k in zip(names, [kind_of(t) for t, v in zip(types, is_value, strict=True) if v],
                        strict=True)
    )  # fmt: skip
    head = f"{indent}^bb0({block}):\n" if names else ""
    text = (
        f"scf.while ({pairs}) : ({kinds}) -> ({kinds}) {{\n{first}\n{indent}}} do {{\n"
        f"{head}{last}\n{indent}}}"
    )
    return _merged(list(carry), w.lets(text, len(starts)))


_OUTSIDE = "Compute it outside of the kernel and pass the result as an argument."
_BY_ARRAYS = (
    "Index refs by integers, slices and `ds`; blocks may be chosen by prefetched indices: "
    "`Block(shape, lambda i, rows: (rows[i], 0))`."
)
_ADVICE = {
    dynamic_update_slice: "Write to a ref instead: `ref[ds(start, size)] = value`.",
    **dict.fromkeys((gather, scatter, scatter_add), _BY_ARRAYS),
}
_CONTROL: dict[Op, Callable[..., Any]] = {cond: _cond, scan: _scan, while_loop: _while}
_RULES = ELEMENTWISE | SHAPES | MEMORY_RULES | _CONTROL
