"""Programs as text in MLIR, for the compilers of kernels: equations, loops and branches.

    class Function(Emission): …      # a target: rules for its ops, and its own values
    function.program(program, xs)    # writes the equations → the values of the results

Refs in memory are values of the class `InMemory`: a store is an operation on memory, and a loop or
branch that carries a version of a ref has no value for it. Regions return all other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.control.call import call
from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program
from shardwise._src.kernels.accesses import kernel_load, kernel_store
from shardwise._src.kernels.emitted.composed_ops import around, composed
from shardwise._src.kernels.emitted.emitted_ops import number_text
from shardwise._src.messages.source import Site, note_line
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.runtime.platforms import Platform
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_bool

I32 = np.dtype("int32")
INDEX = array_type((), I32)


class InMemory:
    """A ref in memory, of which all versions are the same value."""


class Region(NamedTuple):
    """An operation with blocks: the lines before each block, and the last one."""

    is_loop: bool
    heads: tuple[str, ...]
    blocks: tuple[list[Any], ...]
    tail: str


class EmittedText:
    """The lines of a function. Its constants come first, each once."""

    def __init__(self, depth: int) -> None:
        self.lines: list[Any] = []
        self.constants: dict[str, str] = {}
        self.depth = depth
        self.site: Site | None = None  # of the equation that is written
        self._count = 0

    @property
    def all_lines(self) -> list[str]:
        constants = [self.indented(f"{name} = {text}") for text, name in self.constants.items()]
        return [*constants, *flat(self.lines)]

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def indented(self, text: str) -> str:
        return "  " * self.depth + text

    def line(self, text: str) -> None:
        self.lines.append(self.indented(text))

    def results(self, count: int) -> tuple[str, list[str]]:
        """`%n = ` before an operation with `count` results, and their names."""
        if not count:
            return "", []
        name = self.fresh()
        if count == 1:
            return f"{name} = ", [name]
        return f"{name}:{count} = ", [f"{name}#{i}" for i in range(count)]

    def named_constant(self, text: str) -> str:
        return self.constants.setdefault(f"arith.constant {text}", f"%c{len(self.constants)}")

    def named_number(self, number: Any, dtype: Any, shape: Sequence[int], kind: str) -> str:
        """A number as a value of a dtype and shape. kind: its type, as text."""
        text = number_text(number, dtype)
        if shape:
            text = f"dense<{text}>"
        return self.named_constant(text if is_bool(dtype) and not shape else f"{text} : {kind}")

    @contextmanager
    def block(self) -> Iterator[list[Any]]:
        """Collects the lines that are added inside, as those of a region."""
        outer, self.lines = self.lines, []
        self.depth += 1
        try:
            yield self.lines
        finally:
            self.lines = outer
            self.depth -= 1

    def region(
        self, heads: Sequence[str], blocks: Sequence[list[Any]], count: int, is_loop: bool = True
    ) -> list[str]:
        """Adds an operation with blocks; returns the names of its results."""
        text, names = self.results(count)
        self.line("}")
        tail = self.lines.pop()
        heads = tuple([self.indented(head) for head in (text + heads[0], *heads[1:])])
        self.lines.append(Region(is_loop, heads, tuple(blocks), tail))
        return names


def flat(lines: Sequence[Any]) -> Iterator[str]:
    """The lines, with those in regions."""
    for line in lines:
        if isinstance(line, Region):
            for head, block in zip(line.heads, line.blocks, strict=True):
                yield head
                yield from flat(block)
            line = line.tail
        yield line


class Emission(EmittedText):
    """Writes programs; a target has these methods, and rules for ops."""

    platform: Platform
    advice: Mapping[Op, str] = {}  # for ops that the target does not support

    def number(self, value: Any, t: ArrayType) -> Any:
        """A value whose elements are a number."""
        raise NotImplementedError

    def known(self, x: Any) -> Any:
        """The number that the elements of a value are; None if it is not known."""
        raise NotImplementedError

    def register(self, x: Any, t: ArrayType) -> str:
        """The name of a value."""
        raise NotImplementedError

    def value(self, name: str, t: ArrayType) -> Any:
        raise NotImplementedError

    def kind(self, t: ArrayType) -> str:
        raise NotImplementedError

    def rule(self, eqn: Equation, ins: list[Any]) -> Any:
        """The results of an op that the target has a rule for; else None."""
        raise NotImplementedError

    def settle(self, x: Any, memory: Any, t: ArrayType) -> None:
        """Makes a value the last version of a ref in memory."""
        raise NotImplementedError

    def otherwise(self, eqn: Equation, ins: list[Any]) -> Any:
        """The results of an op without any rule; an error says that it is not supported."""
        raise NotImplementedError

    # -- equations --

    def program(self, program: Program, values: Sequence[Any], plain: Op | None = None) -> list:
        """Writes the equations of a program; returns the values of its results.

        plain: an op of which the instruction is meant (`composed_ops.around`).
        """
        rows = zip(program.consts, program.constvars, strict=True)
        consts = [self.number(x, v.aval) for x, v in rows]
        env: dict[Any, Any] = dict(zip(program.inputs, [*consts, *values], strict=True))

        def read(a: Any) -> Any:
            return self.number(a.value, a.aval) if isinstance(a, Literal) else env[a]

        for eqn in program.eqns:
            outer, self.site = self.site, eqn.site or self.site
            try:
                found = self.equation(eqn, [read(a) for a in eqn.invars], plain)
            except (NotImplementedError, ValueError) as error:
                note_line(error, self.site)
                raise
            self.site = outer
            env.update(zip(eqn.outvars, found, strict=True))
        return [read(a) for a in program.outvars]

    def composed(self, f: Callable[..., Any], types: Sequence[ArrayType], *xs: Any) -> Any:
        """A function of ops."""
        return self.program(program_of(lambda *ys: [f(*ys)], tuple(types), "ops"), xs)[0]

    def equation(self, eqn: Equation, ins: list[Any], plain: Op | None) -> Sequence[Any]:
        op, types = eqn.op, tuple([a.aval for a in eqn.invars])
        control = {scan: self._scan, while_loop: self._while, cond: self._cond}.get(op)
        if control is not None:
            return control(eqn, ins)
        if ins and op is not plain:
            made = around(op, types, self.known(ins[-1]))
            if made is not None:
                return self.program(made, ins, op)
        found = self.rule(eqn, ins)
        if found is None:
            made = composed(op, types, eqn.params)
            if made is None and op.expand is not None:
                made = op.expand(op, types, eqn.params, self.platform)
            is_call = op.programs == ("program",) and op.is_staged(eqn.params)
            if made is None and is_call and op.contains.binds is None and op not in self.advice:
                made = eqn.params["program"]
            found = self.otherwise(eqn, ins) if made is None else self.program(made, ins)
        return found if isinstance(found, list | tuple) else [found]

    # -- loops --

    def _scan(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        own, types = ScanParams(**eqn.params), [v.aval for v in eqn.outvars]
        consts, carry, xs = own.parts(ins)
        if xs or len(types) > own.num_carry:
            return self.over_arrays(eqn, own, ins)
        return self.repeated(own.body, consts, carry, types, own.length, own.unroll)

    def over_arrays(self, eqn: Equation, own: ScanParams, ins: list[Any]) -> list[Any]:
        """A scan with xs or ys, as one with constants and carries instead."""
        consts, carry, xs = own.parts(ins)
        ys = [v.aval for v in eqn.outvars[own.num_carry :]]
        types = [INDEX, *[v.aval for v in eqn.outvars]]
        start = [self.number(0, INDEX), *carry, *[self.number(0, t) for t in ys]]
        rows = [a.aval for a in own.parts(eqn.invars)[2]]
        body = _with_rows(own, rows, types)
        return self.repeated(body, [*consts, *xs], start, types, own.length, own.unroll)[1:]

    def repeated(
        self, body: Program, consts: Any, carry: Any, types: Any, length: int, unroll: int
    ) -> list[Any]:
        """A loop of a known number of iterations."""
        if length == 1 or unroll >= length > 0:
            for _ in range(length):
                carry = self.program(body, [*consts, *carry])
            return list(carry)
        n, first = len(consts), None
        for at, (v, x) in enumerate(zip(body.invars[n:], carry, strict=True)):
            if v.aval.dtype == I32 and _grows_by_one(body, v, body.outvars[at]):
                first = self.known(x)
            if first is not None:
                break
        else:
            at = -1
        ends = [self.number(int(first or 0) + k, INDEX) for k in (0, length)]
        return self._counted(body, consts, carry, types, at, ends[0], ends[1], ends[1])

    def _while(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        own, types = WhileParams(**eqn.params), [v.aval for v in eqn.outvars]
        for_test, for_body, carry = own.parts(ins)
        found = _limits(own)
        if found is not None:
            at, bound = found
            limit = own.test.replace(outvars=[bound], eqns=[])
            low, (high,) = carry[at], self.program(limit, [*for_test, *carry])
            end = self.composed(ew.max, (INDEX, INDEX), low, high)
            return self._counted(own.body, for_body, carry, types, at, low, high, end)
        starts, kinds, fill = self._carried(carry, types)
        heads, names = [[self.fresh() for _ in starts] for _ in range(2)]
        with self.block() as test:
            (flag,) = self.program(own.test, [*for_test, *fill(heads)])
            holds = self.register(flag, own.test.out_types[0])
            self.line(f"scf.condition({holds}) {_typed(heads, kinds)}".rstrip())
        with self.block() as body:
            self.ended(self.program(own.body, [*for_body, *fill(names)]), carry, types)
        shown = ", ".join(kinds)
        text = f"scf.while ({_pairs(heads, starts)}) : ({shown}) -> ({shown}) {{"
        block = ", ".join(f"{n}: {k}" for n, k in zip(names, kinds, strict=True))
        body = [self.indented(f"^bb0({block}):"), *body]
        return fill(self.region([text, "} do {"], [test, body], len(starts)))

    def _counted(
        self, body: Program, consts: Any, carry: Any, types: Any, at: int, low: Any, high: Any,
        end: Any,
    ) -> list[Any]:  # fmt: skip
        """A loop over integers from `low` to `high`. at: the carry that they are, or -1; end: its
        last value."""
        if at < 0:
            return self.loop(
                low, high, carry, types, lambda i, xs: self.program(body, [*consts, *xs])
            )
        types = [*types[:at], *types[at + 1 :]]

        def run(i: Any, xs: list[Any]) -> list[Any]:
            found = self.program(body, [*consts, *xs[:at], i, *xs[at:]])
            return [*found[:at], *found[at + 1 :]]

        found = self.loop(low, high, [*carry[:at], *carry[at + 1 :]], types, run)
        return [*found[:at], end, *found[at:]]

    def loop(
        self,
        low: Any,
        high: Any,
        carry: Sequence[Any],
        types: Sequence[ArrayType],
        body: Callable[[Any, list[Any]], Sequence[Any]],
    ) -> list[Any]:
        """A loop over integers. body: `(i, carry)` → the next carry."""
        starts, kinds, fill = self._carried(carry, types)
        index, inner = self.fresh(), [self.fresh() for _ in starts]
        with self.block() as lines:
            self.ended(body(self.value(index, INDEX), fill(inner)), carry, types)
        first, last, step = [self.register(x, INDEX) for x in (low, high, self.number(1, INDEX))]
        head = f"scf.for {index} = {first} to {last} step {step}"
        if starts:
            head += f" iter_args({_pairs(inner, starts)}) -> ({', '.join(kinds)})"
        return fill(self.region([f"{head} : i32 {{"], [lines], len(starts)))

    def _carried(self, carry: Sequence[Any], types: Sequence[ArrayType]) -> Any:
        """The names and kinds of the carries that are not in memory, and a function that replaces
        them by others."""
        rows = [(x, t) for x, t in zip(carry, types, strict=True) if not isinstance(x, InMemory)]

        def fill(names: Sequence[str]) -> list[Any]:
            rest = iter(names)
            return [
                x if isinstance(x, InMemory) else self.value(next(rest), t)
                for x, t in zip(carry, types, strict=True)
            ]

        return [self.register(*row) for row in rows], [self.kind(t) for _, t in rows], fill

    def ended(
        self, found: Sequence[Any], wanted: Sequence[Any], types: Sequence[ArrayType]
    ) -> None:
        """Ends a region: results in memory stay there, the others are returned.

        wanted: for each result, the memory that it is in, or anything else.
        """
        names = self.settled(found, wanted, types)
        rows = zip(wanted, types, strict=True)
        kinds = [self.kind(t) for memory, t in rows if not isinstance(memory, InMemory)]
        if names:
            self.line(f"scf.yield {_typed(names, kinds)}")

    def settled(
        self, found: Sequence[Any], wanted: Sequence[Any], types: Sequence[ArrayType]
    ) -> list[str]:
        """The names of the values that are not in memory, where the others stay."""
        names = []
        for x, memory, t in zip(found, wanted, types, strict=True):
            if not isinstance(memory, InMemory):
                names.append(self.register(x, t))
            elif x is not memory:
                self.settle(x, memory, t)
        return names

    # -- branches --

    def _cond(self, eqn: Equation, ins: list[Any]) -> list[Any]:
        (which, *xs), branches = ins, eqn.params["branches"]
        flag, types = eqn.invars[0].aval, [v.aval for v in eqn.outvars]
        number, last = self.known(which), len(branches) - 1
        if number is not None:
            return self.program(branches[min(max(int(number), 0), last)], xs)

        def choose(first: int) -> list[Any]:
            """The results of the branch with the index, which is at least `first`."""
            if first == last:
                return self.program(branches[first], xs)
            holds = which
            if not is_bool(flag.dtype):
                holds = self.composed(lambda i: ew.gt(i, lit(first, i)), (flag,), which)
            own = branches[first]
            return self.branch(
                holds, types, lambda: choose(first + 1), lambda: self.program(own, xs)
            )

        return choose(0)

    def branch(
        self,
        flag: Any,
        types: Sequence[ArrayType],
        yes: Callable[[], Sequence[Any]],
        no: Callable[[], Sequence[Any]] = tuple,
    ) -> list[Any]:
        """The results of one of two functions, by a boolean."""
        parts = []
        for write in (yes, no):
            with self.block() as lines:
                parts.append((lines, write()))
        rows = zip(*[found for _, found in parts], strict=True)
        wanted = [next((x for x in row if isinstance(x, InMemory)), None) for row in rows]
        for lines, found in parts:
            with self.block() as more:
                self.ended(found, wanted, types)
            lines += more
        kinds = [self.kind(t) for x, t in zip(wanted, types, strict=True) if x is None]
        returned = f" -> ({', '.join(kinds)})" if kinds else ""
        heads = [f"scf.if {self.register(flag, FLAG)}{returned} {{", "} else {"]
        blocks = [lines for lines, _ in parts][: 2 if parts[1][0] else 1]
        names = iter(self.region(heads[: len(blocks)], blocks, len(kinds), is_loop=False))
        rows = zip(wanted, types, strict=True)
        return [self.value(next(names), t) if x is None else x for x, t in rows]


FLAG = array_type((), np.dtype(bool))


def _pairs(names: Sequence[str], values: Sequence[str]) -> str:
    return ", ".join(f"{a} = {b}" for a, b in zip(names, values, strict=True))


def _typed(names: Sequence[str], kinds: Sequence[str]) -> str:
    return f"{', '.join(names)} : {', '.join(kinds)}" if names else ""


def _grows_by_one(body: Program, v: Any, out: Any) -> bool:
    """Whether a result of a loop's body is its input and 1."""
    eqn = next((eqn for eqn in body.eqns if out in eqn.outvars), None)
    if eqn is None or eqn.op is not ew.add or v not in eqn.invars:
        return False
    return any(isinstance(a, Literal) and a.value == 1 for a in eqn.invars)


def _limits(own: WhileParams) -> tuple[int, Any] | None:
    """Of `while i < n: …; i += 1`, the carry that i is, and n; None if the loop is different."""
    test = own.test
    if len(test.eqns) != 1 or test.eqns[0].op is not ew.lt or test.consts:
        return None
    i, bound = test.eqns[0].invars
    carried, of_test = own.body.invars[own.num_body :], test.invars[own.num_test :]
    if i not in of_test or i.aval.dtype != I32:
        return None
    at = of_test.index(i)
    is_fixed = bound not in of_test or own.body.outvars[k := of_test.index(bound)] is carried[k]
    counts = _grows_by_one(own.body, carried[at], own.body.outvars[at])
    return (at, bound) if is_fixed and counts else None


def _with_rows(own: ScanParams, xs: Sequence[ArrayType], types: Sequence[ArrayType]) -> Program:
    """The body of a scan over arrays: (constants…, xs…, i, carry…, ys…) → (i + 1, carry…, ys…)."""
    consts, n = own.body.in_types[: own.num_consts], own.num_carry
    last = np.int32(own.length - 1)

    def place(t: ArrayType) -> dict[str, Any]:
        kept = (False, *[True] * (t.ndim - 1))
        return {"sizes": (1, *t.shape[1:]), "strides": (1,) * t.ndim, "kept": kept, "masked": False}

    def starts(i: Any, t: ArrayType) -> list[Any]:
        return [ew.sub(last, i) if own.reverse else i, *[np.int32(0)] * (t.ndim - 1)]

    def step(*values: Any) -> list[Any]:
        rest = iter(values)
        given, arrays = [next(rest) for _ in consts], [next(rest) for _ in xs]
        i, carry, ys = next(rest), [next(rest) for _ in range(n)], [*rest]
        rows = [kernel_load(x, *starts(i, t), **place(t)) for x, t in zip(arrays, xs, strict=True)]
        found = call(*given, *carry, *rows, program=own.body)
        stacked = [
            kernel_store(y, row, *starts(i, t), **place(t), mode="set")
            for y, row, t in zip(ys, found[n:], types[1 + n :], strict=True)
        ]
        return [ew.add(i, np.int32(1)), *found[:n], *stacked]

    return program_of(step, (*consts, *xs, *types), "scan")
