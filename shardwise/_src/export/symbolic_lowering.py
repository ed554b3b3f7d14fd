"""Lowers programs with symbolic dimensions: sizes become values in the module.

    emitter = SymbolicEmitter()
    emitter.bind(types, names)     # defines the variables, from the sizes of the arguments

Types have `?` for a symbolic size. Operations that need result sizes (broadcast, reshape, iota,
slice, gather, pad) are written in StableHLO's dynamic form, with the sizes as operands. When a
module is called, the sizes become constants again (`calling`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from shardwise._src.core.program import Program
from shardwise._src.export.symbolic_dims import Dim, Unwritten, unwritten
from shardwise._src.export.versions import WHERE
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.lowering.text import quoted, tensor_text
from shardwise._src.ops.basis import ints
from shardwise._src.ops.indexing.gather_rules import attribute, flag
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.symbolic import Symbolic

SIZE = array_type((), np.dtype("int32"))
_ONE = array_type((1,), np.dtype("int32"))


def is_symbolic(*types: ArrayType) -> bool:
    """Whether a type has a symbolic size."""
    return any(isinstance(n, Symbolic) for t in types for n in t.shape)


class SymbolicEmitter(Emitter):
    """Writes a program as one function whose sizes become known when it is called."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.sizes: dict[str, str] = {}  # variable → its SSA value

    def for_platform(self, platform: Platform) -> SymbolicEmitter:
        new = super().for_platform(platform)
        assert isinstance(new, SymbolicEmitter)
        new.sizes, new.count = self.sizes, self.count
        return new

    # -- sizes --

    def bind(self, types: Sequence[ArrayType], names: Sequence[str], what: str) -> None:
        """Defines the variables' values, and asserts that all arguments have matching sizes."""
        rows = [
            (n, i, d)
            for i, t in enumerate(types)
            for d, n in enumerate(t.shape)
            if isinstance(n, Dim)
        ]
        while self._bind_one(rows, types, names):
            pass
        left = set().union(*[n.variables() for n, *_ in rows]) - {*self.sizes}
        if left:
            raise ValueError(
                f"{WHERE}.export: {what}: no argument has a dimension that determines "
                f"{' and '.join(sorted(left))}, such as {min(left)} or 2*{min(left)} + 1."
            )
        for n, i, d in rows:
            found = self._size_of(types[i], names[i], d)
            self._assert("EQ", found, self.size(n), f"dimension {d} of argument {i} must be {n}")
        scope = rows[0][0].scope
        for name, value in self.sizes.items():
            self._assert("GE", value, self.scalar(1, SIZE.dtype), f"{name} must be at least 1")
        for c in scope.positive:
            if c.variables() <= {*self.sizes}:
                zero = self.scalar(0, SIZE.dtype)
                self._assert("GE", self.size(c), zero, f"the constraint {c} >= 0 must hold")
        for a, b in scope.equations:
            if a.variables() | getattr(b, "variables", set)() <= {*self.sizes}:
                self._assert("EQ", self.size(a), self.size(b), f"{a} == {b} must hold")

    def _bind_one(
        self, rows: Sequence[tuple[Dim, int, int]], types: Sequence[ArrayType], names: Sequence[str]
    ) -> bool:
        """Solves for a variable that is the only unknown in some dimension."""
        for n, i, d in rows:
            left = n.variables() - {*self.sizes}
            terms = dict(n.terms)
            name = min(left, default="")
            coefficient = terms.pop(((name, 1),), 0)
            rest = Dim(terms, n.scope) if any(terms) else terms.get((), 0)
            if len(left) != 1 or coefficient < 1 or name in getattr(rest, "variables", set)():
                continue
            value = self._of_two("subtract", self._size_of(types[i], names[i], d), self.size(rest))
            self.sizes[name] = self._of_two("divide", value, self.scalar(coefficient, SIZE.dtype))
            return True
        return False

    def _size_of(self, t: ArrayType, name: str, d: int) -> str:
        ty = self.ty(SIZE)
        return self.let(f"stablehlo.get_dimension_size {name}, dim = {d} : ({self.ty(t)}) -> {ty}")

    def _assert(self, kind: str, x: str, y: str, message: str) -> None:
        ty, text = self.ty(SIZE), quoted(f"{message}; it is {{0}}.")
        ok = self.let(f"stablehlo.compare {kind}, {x}, {y}, SIGNED : ({ty}, {ty}) -> tensor<i1>")
        self.lines.append(
            f"stablehlo.custom_call @shape_assertion({ok}, {x}) {{api_version = 2 : i32, "
            f"error_message = {text}, has_side_effect = true}} : (tensor<i1>, {ty}) -> ()"
        )

    def _of_two(self, name: str, x: str, y: str) -> str:
        return self.let(f"stablehlo.{name} {x}, {y} : {self.ty(SIZE)}")

    def size(self, n: Any) -> str:
        """The SSA value of a size."""
        if not isinstance(n, Dim):
            return super().constant(n, SIZE)
        total = ""
        for factors, count in n.terms:
            parts = [self._factor(f) for f, power in factors for _ in range(power)]
            if count != 1 or not parts:
                parts.append(super().constant(count, SIZE))
            value = parts[0]
            for part in parts[1:]:
                value = self._of_two("multiply", value, part)
            total = self._of_two("add", total, value) if total else value
        return total

    def _factor(self, factor: Any) -> str:
        if isinstance(factor, str):
            return self.sizes[factor]
        name, left, right = factor
        x, y = self.size(left), self.size(right)
        if name in ("max", "min"):
            return self._of_two({"max": "maximum", "min": "minimum"}[name], x, y)
        # StableHLO's remainder has the sign of the dividend, Python's the sign of the divisor.
        rest = self._of_two("remainder", x, y)
        rest = self._of_two("remainder", self._of_two("add", rest, y), y)
        if name == "mod":
            return rest
        return self._of_two("divide", self._of_two("subtract", x, rest), y)

    def result_sizes(self, outs: Sequence[ArrayType]) -> list[tuple[str, ArrayType]]:
        if not is_symbolic(*outs):
            return []
        return [(self.shape(t.shape)[0], array_type((t.ndim,), SIZE.dtype)) for t in outs]

    def shape(self, sizes: Sequence[Any]) -> tuple[str, str]:
        """Sizes as a vector value, and its type."""
        return self._vector(map(self.size, sizes))

    def _vector(self, names: Iterable[str]) -> tuple[str, str]:
        """The values of sizes as a vector value, and its type."""
        one = self.ty(_ONE)
        rows = [self.let(f"stablehlo.reshape {n} : ({self.ty(SIZE)}) -> {one}") for n in names]
        t = self.ty(array_type((len(rows),), SIZE.dtype))
        if not rows:
            return self.let(f"stablehlo.constant dense<> : {t}"), t
        if len(rows) == 1:
            return rows[0], t
        types = ", ".join([one] * len(rows))
        joined = f"stablehlo.concatenate {', '.join(rows)}, dim = 0 : ({types}) -> {t}"
        return self.let(joined), t

    def _converted(self, x: str, t: ArrayType, out: ArrayType) -> str:
        if t.dtype == out.dtype:
            return x
        return self.let(f"stablehlo.convert {x} : ({self.ty(t)}) -> {self.ty(out)}")

    def dim(self, n: Any, out: ArrayType) -> str:
        return self._converted(self.size(n), SIZE, out)

    # -- programs --

    def _called(self, program: Program, names: Sequence[str], form: Callable) -> list[str]:
        return self.inline(program, *names)  # a separate function would not have the sizes in scope

    def _equation(self, eqn: Any, env: dict[Any, str]) -> None:
        scopes = {
            n.scope for v in (*eqn.invars, *eqn.outvars) for n in v.aval.shape if isinstance(n, Dim)
        }
        if not scopes:
            return super()._equation(eqn, env)
        try:
            with unwritten(scopes):
                return super()._equation(eqn, env)
        except Unwritten:
            _reject(eqn)

    # -- instructions --

    def constant(self, value: Any, aval: ArrayType) -> str:
        if isinstance(value, Symbolic):
            return self.dim(value, aval)
        if not is_symbolic(aval):
            return super().constant(value, aval)
        scalar = array_type((), aval.dtype)
        return self.broadcast(super().constant(value, scalar), scalar, aval, ())

    def broadcast(self, x: str, t: ArrayType, out: ArrayType, dims: Sequence[int]) -> str:
        if not is_symbolic(out):
            return super().broadcast(x, t, out, dims)
        return self._dynamic("broadcast_in_dim", (x, t), out, f", dims = {ints(dims)}")

    def _dynamic(
        self, name: str, operand: tuple[str, ArrayType] | None, out: ArrayType, more: str = ""
    ) -> str:
        """An instruction in its dynamic form, whose last operand is the shape of its result."""
        x, t = (f"{operand[0]}, ", f"{self.ty(operand[1])}, ") if operand else ("", "")
        sizes, kind = self.shape(out.shape)
        text = f"stablehlo.dynamic_{name} {x}{sizes}{more} : ({t}{kind}) -> {self.ty(out)}"
        return self.let(text)

    def plain_reshape(self, x: str, t: ArrayType, out: ArrayType) -> str:
        if not is_symbolic(out):
            return super().plain_reshape(x, t, out)
        return self._dynamic("reshape", (x, t), out)

    def iota(self, out: ArrayType, dimension: int) -> str:
        if not is_symbolic(out):
            return super().iota(out, dimension)
        return self._dynamic("iota", None, out, f", dim = {dimension}")

    def slice(
        self,
        x: str,
        t: ArrayType,
        starts: Sequence[Any],
        limits: Sequence[Any],
        strides: Sequence[int] | None = None,
    ) -> str:
        steps = strides or (1,) * t.ndim
        rows = zip(starts, limits, steps, strict=True)
        out = array_type(tuple([-((a - b) // s) for a, b, s in rows]), t.dtype)
        vectors = [self.shape(row) for row in (starts, limits, steps)]
        return self._sliced(x, t, out, vectors)

    def _sliced(
        self, x: str, t: ArrayType, out: ArrayType, vectors: Sequence[tuple[str, str]]
    ) -> str:
        names, kinds = zip(*vectors, strict=True)
        return self.let(
            f"stablehlo.real_dynamic_slice {x}, {', '.join(names)} : "
            f"({self.ty(t)}, {', '.join(kinds)}) -> {self.ty(out)}"
        )

    def dynamic_slice(
        self, x: str, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[Any]
    ) -> str:
        return self.window(x, self.inside(starts, ins, sizes), ins, sizes)

    def window(
        self, x: str, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[Any]
    ) -> str:
        if not any(isinstance(n, Symbolic) for n in sizes):
            return super().window(x, starts, ins, sizes)
        begin = [self._converted(a, t, SIZE) for a, t in zip(starts, ins[1:], strict=True)]
        first, kind = self._vector(begin)  # jaxlib's refinement infers the size from this sum
        last = self.let(f"stablehlo.add {first}, {self.shape(sizes)[0]} : {kind}")
        steps = self.shape((1,) * len(sizes))
        out = array_type(tuple(sizes), ins[0].dtype)
        return self._sliced(x, ins[0], out, [(first, kind), (last, kind), steps])

    def inside(
        self, starts: Sequence[str], ins: Sequence[ArrayType], sizes: Sequence[Any]
    ) -> list[str]:
        found = []
        for start, t, n, size in zip(starts, ins[1:], ins[0].shape, sizes, strict=True):
            low, high = self.scalar(0, t.dtype), self.dim(n - size, t)
            found.append(self.let(f"stablehlo.clamp {low}, {start}, {high} : {self.ty(t)}"))
        return found

    def gather(
        self,
        x: str,
        indices: str,
        ins: Sequence[ArrayType],
        out: ArrayType,
        dims: Any,
        sizes: Sequence[Any],
        *,
        indices_are_sorted: bool,
        clip: bool,
    ) -> str:
        if not any(isinstance(n, Symbolic) for n in sizes):
            return super().gather(
                x, indices, ins, out, dims, sizes, clip=False, indices_are_sorted=indices_are_sorted
            )
        numbers = attribute(
            "gather",
            {
                "offset_dims": dims.offset_dims,
                "collapsed_slice_dims": dims.collapsed_slice_dims,
                "operand_batching_dims": dims.operand_batching_dims,
                "start_indices_batching_dims": dims.start_indices_batching_dims,
                "start_index_map": dims.start_index_map,
            },
            ins[1].ndim - 1,
        )
        given, kind = self.shape(sizes)
        types = ", ".join([*map(self.ty, ins), kind])
        return self.let(
            f'"stablehlo.dynamic_gather"({x}, {indices}, {given}) <{{dimension_numbers = '
            f"{numbers}, indices_are_sorted = {flag(indices_are_sorted)}}}> : ({types}) -> "
            f"{self.ty(out)}"
        )

    def pad(self, x: str, value: str, t: ArrayType, config: Sequence[tuple]) -> str:
        if not any(isinstance(n, Symbolic) for row in config for n in row):
            return super().pad(x, value, t, config)
        vectors = [self.shape(row) for row in zip(*config, strict=True)]
        shape = [
            lo + hi + n + (n - 1) * inner
            for n, (lo, hi, inner) in zip(t.shape, config, strict=True)
        ]
        names, kinds = zip(*vectors, strict=True)
        out, scalar = array_type(tuple(shape), t.dtype), tensor_text(array_type((), t.dtype))
        return self.let(
            f"stablehlo.dynamic_pad {x}, {value}, {', '.join(names)} : "
            f"({self.ty(t)}, {scalar}, {', '.join(kinds)}) -> {self.ty(out)}"
        )

    # -- prefixes --

    def reduce_window(
        self,
        body: Callable,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        identities: Sequence,
        window: Any,
    ) -> list[str]:
        """Prefix reductions, with windows as long as a dimension, by recursive doubling."""
        axis = next((d for d, n in enumerate(window.sizes) if isinstance(n, Symbolic)), None)
        if axis is None:
            return super().reduce_window(body, xs, ins, identities, window)
        n, reverse = window.sizes[axis], window.padding[axis][0] == 0
        inits = [
            v if isinstance(v, str) else self.scalar(v, t.dtype)
            for v, t in zip(identities, ins, strict=True)
        ]
        beyond = [
            self.broadcast(v, array_type((), t.dtype), t, ())
            for v, t in zip(inits, ins, strict=True)
        ]
        types = [SIZE, *ins]
        names = [self.fresh() for _ in types]
        start = [self.scalar(1, SIZE.dtype), *xs]
        pairs = ", ".join(f"{a} = {b}" for a, b in zip(names, start, strict=True))
        shown = ", ".join(map(self.ty, types))

        def doubled() -> None:
            """Combines each element with the one at the distance that its partial result covers."""
            by, *held = names
            moved = []
            for x, t, none in zip(held, ins, beyond, strict=True):
                wide = array_type((*t.shape[:axis], 2 * n, *t.shape[axis + 1 :]), t.dtype)
                parts = [x, none] if reverse else [none, x]
                both = self.concatenate(parts, [t, t], wide, axis)
                zero = self.scalar(0, SIZE.dtype)
                at = by if reverse else self._of_two("subtract", self.size(n), by)
                starts = [at if d == axis else zero for d in range(t.ndim)]
                moved.append(self.window(both, starts, [wide, *[SIZE] * t.ndim], t.shape))
            folds = body(self, ins, *moved, *held)
            # Not by + by: jaxlib's trip-count analysis would treat that as by + a constant.
            twice = self._of_two("multiply", by, self.scalar(2, SIZE.dtype))
            self.lines.append(f"stablehlo.return {', '.join([twice, *folds])} : {shown}")

        condition = self.region(lambda: self._less(names[0], n))
        turn = self.region(doubled)
        text = f"stablehlo.while({pairs}) : {shown}\ncond {{\n{condition}\n}} do {{\n{turn}\n}}"
        return self.lets(text, len(types))[1:]

    def _less(self, x: str, n: Any) -> None:
        ty = self.ty(SIZE)
        less = self.let(
            f"stablehlo.compare LT, {x}, {self.size(n)}, SIGNED : ({ty}, {ty}) -> tensor<i1>"
        )
        self.lines.append(f"stablehlo.return {less} : tensor<i1>")


def _reject(eqn: Any) -> NoReturn:
    types = ", ".join(v.aval.str_short(True) for v in (*eqn.invars, *eqn.outvars))
    raise NotImplementedError(
        f"{WHERE}.export: {eqn.op.name} of types {types} requires concrete sizes when it is "
        "compiled, so it cannot be exported with symbolic dimensions there. Export it for concrete "
        "sizes."
    ) from None
