"""Taylor mode: values travel with the coefficients of a power series in one variable.

    x(s) = x0 + x1 s + x2 s² + …      y = f(x)      y' = J(x) x'

Ops need no separate rule: an op's `jvp` rule defines J, so that the coefficients of y follow from
those of y', which the rule computes from the series x and x'. Coefficients are computed lazily, one
by one, and series are cached by op and operands, so that the rule of `exp`, which uses its own
result, finds it. So an order of n takes about n² products. Three kinds of ops are faster: those
that are linear in the active operands, those that are linear in each of two operands, and
quotients.

Ops with nested programs or user functions run their rule on series of one order less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.caches import Table
from shardwise._src.base.context import CURRENT, current
from shardwise._src.base.marks import given, spread
from shardwise._src.core.infer import type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Program, eval_program, held_in
from shardwise._src.core.program_tools import pruned, single
from shardwise._src.messages.leaks import reject_leaks
from shardwise._src.messages.source import Site, user_site
from shardwise._src.ops.create import full
from shardwise._src.ops.elementwise import div, mul, neg, sub
from shardwise._src.ops.families import add, lit
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType

CACHE_SIZE = 4096
Pattern = tuple[bool, ...]


class Series(Tracer):
    """A power series up to s to the `order`. `later(k)` returns its coefficient k; None is zero."""

    __slots__ = ("order", "terms", "later", "_site")

    def __init__(self, interpreter: Jet, order: int, primal: Any, later: Callable[[int], Any]):
        self.interpreter = interpreter
        self.aval = type_of(primal)
        self.order = order
        self.terms = [primal]
        self.later = later
        self._site = user_site(4)

    def made_at(self) -> Site | None:
        return self._site

    def term(self, k: int) -> Any:
        while len(self.terms) <= k:
            found = self.later(len(self.terms))
            if found is not None and self.aval.mesh is not None:
                found = reshard_like(found, self.aval)
            self.terms.append(found)
        return self.terms[k]

    def concrete(self) -> Any:
        primal = self.terms[0]
        return primal.concrete() if isinstance(primal, Tracer) else primal

    def hider(self) -> Tracer:
        primal = self.terms[0]
        return primal.hider() if isinstance(primal, Tracer) else self


class Jet(Interpreter):
    """Applies ops to series, with the parent as interpreter.

    made:  results by op and operands, with the operands, while an op of the function runs.
    depth: how many op rules are running: their series are computed where they are needed.
    """

    __slots__ = ("made", "depth")

    def __init__(self, parent: Interpreter, transform: str, function: str):
        super().__init__(parent, transform, function)
        self.made: dict[tuple[Any, ...], Any] = {}
        self.depth = 0

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        order = min([a.order for a in args if self._owns(a)], default=0)
        if not order:
            return self.parent.process(op, args, params)
        rule = jet_rules.get(op.foreign or op) if jet_rules else None
        if rule is not None:
            outs = self._by_own_rule(rule, op, args, params, order)
            return outs if op.multiple else outs[0]
        if op.contains.is_call:
            outs = eval_program(next(held_in(op, params)), args, self._bind)
            return outs if op.multiple else outs[0]
        if op.jvp is None:
            raise op.missing("jvp", self.transform)
        token = CURRENT.set(self.parent_context())
        try:
            outs = self._applied(op, args, params, order)
            if not self.depth:
                for out in outs:
                    if self._owns(out):
                        out.term(order)
                self.made.clear()
        finally:
            CURRENT.reset(token)
        return outs if op.multiple else outs[0]

    def _owns(self, x: Any) -> bool:
        return x.__class__ is Series and x.interpreter is self

    def _bind(self, eqn: Equation, values: list[Any]) -> Sequence[Any]:
        found = self.process(eqn.op, tuple(values), eqn.params)
        return found if eqn.op.multiple else (found,)

    def _applied(self, op: Op, args: tuple, params: dict[str, Any], order: int) -> list[Any]:
        if op.inferred is None:
            return self._by_rule(op, args, params, order)
        key = (op, *map(id, args), *params.items())
        held = self.made.get(key)
        if held is None:
            held = self.made[key] = self._of_op(op, args, params, order), args
        return held[0]

    def _of_op(self, op: Op, args: tuple, params: dict[str, Any], order: int) -> list[Any]:
        values = [a.terms[0] if self._owns(a) else a for a in args]
        active = tuple([self._owns(a) for a in args])
        types = tuple([type_of(x) for x in values])
        program, marks, linear = tangent_program(op, types, active, params)
        found = op(*values, **params)
        found = found if op.multiple else [found]
        if op.divisor is not None and active[op.divisor] and op.transpose is not None:
            later = [self._quotient(op, args, params, found[0])]
        elif linear:
            later = self._linear(op, args, params, values, len(marks))
        elif (
            sum(active) == 2
            and not op.multiple
            and all(
                tangent_program(op, types, tuple([i == j for j in range(len(args))]), params)[2]
                for i, moves in enumerate(active)
                if moves
            )
        ):
            later = [self._bilinear(op, args, params)]
        else:
            later = self._integrated(lambda: self._tangents(program, marks, args), marks)
        return [
            Series(self, order, out, get) if moves else out
            for out, get, moves in zip(found, later, marks, strict=True)
        ]

    # -- coefficients of results, by kinds of ops --

    def _linear(
        self, op: Op, args: tuple, params: dict[str, Any], values: list[Any], count: int
    ) -> list[Callable]:
        """Each coefficient of the results is the op applied to that of the operands."""
        types = tuple([type_of(x) for x in values])
        done: dict[int, list[Any]] = {}

        def at(k: int) -> list[Any]:
            if k not in done:
                terms = [a.term(k) if self._owns(a) else None for a in args]
                pattern = tuple([t is not None for t in terms])
                if not any(pattern):
                    return [None] * count
                program, marks, _ = tangent_program(op, types, pattern, params)
                done[k] = spread(program(*values, *given(terms)), marks)
            return done[k]

        return [lambda k, i=i: at(k)[i] for i in range(count)]

    def _bilinear(self, op: Op, args: tuple, params: dict[str, Any]) -> Callable:
        def at(k: int) -> Any:
            i, j = [i for i, a in enumerate(args) if self._owns(a)]

            def product(x: Any, y: Any) -> Any:
                given = [*args]
                given[i], given[j] = x, y
                return op(*given, **params)

            pairs = [(args[i].term(m), args[j].term(k - m)) for m in range(k + 1)]
            return total([product(x, y) for x, y in pairs if x is not None and y is not None])

        return at

    def _quotient(self, op: Op, args: tuple, params: dict[str, Any], out: Any) -> Callable:
        """v w = u: v_k is the remainder of u_k divided by w_0."""
        u, w = args
        v = [out]

        def at(k: int) -> Any:
            below = [(v[m], w.term(k - m)) for m in range(k)]
            known = total([mul(a, b) for a, b in below if a is not None and b is not None])
            rest = u.term(k) if self._owns(u) else None
            if known is not None:
                rest = neg(known) if rest is None else sub(rest, known)
            v.append(None if rest is None else op(rest, w.term(0), **params))
            return v[k]

        return at

    def _integrated(self, tangents: Callable[[], list[Any]], marks: Pattern) -> list[Callable]:
        """Coefficients from those of derivatives, which are computed when the first is needed."""
        kept: list[list[Any]] = []

        def at(i: int, k: int) -> Any:
            if not kept:
                kept.append(tangents())
            t = kept[0][i]
            t = t.term(k - 1) if self._owns(t) else t if k == 1 else None
            return t if t is None or k == 1 else div(t, lit(k, t))

        return [lambda k, i=i: at(i, k) for i in range(len(marks))]

    def _tangents(self, program: Program, marks: Pattern, args: tuple) -> list[Any]:
        """The series of derivatives of the results of an op."""
        values = [*args, *[self._derivative(a) for a in args if self._owns(a)]]
        self.depth += 1
        try:
            return spread(eval_program(program, values, self._bind), marks)
        finally:
            self.depth -= 1

    def _by_rule(self, op: Op, args: tuple, params: dict[str, Any], order: int) -> list[Any]:
        """Results of an op with a user rule or with nested programs."""
        short = [self._cut(a, order - 1) for a in args]
        moving = [self._derivative(a) if self._owns(a) else None for a in args]
        rule: Any = op.jvp
        self.depth += 1
        token = CURRENT.set(current().under(self))
        try:
            found, tangents = rule(op, short, moving, **params)
        finally:
            CURRENT.reset(token)
            self.depth -= 1
        if not op.multiple:
            found, tangents = [found], [tangents]
        marks = tuple([t is not None for t in tangents])
        later = self._integrated(lambda: tangents, marks)
        values = [x.terms[0] if self._owns(x) else x for x in found]
        return [
            Series(self, order, x, get) if m else x
            for x, get, m in zip(values, later, marks, strict=True)
        ]

    def _by_own_rule(
        self, rule: Callable[..., Any], op: Op, args: tuple, params: dict[str, Any], order: int
    ) -> list[Any]:
        """Results of an op with a rule in `jet_rules`, from the coefficients of its operands."""
        values = [a.terms[0] if self._owns(a) else a for a in args]
        with self.parent_context().entered():
            blanks = [full(0, type_of(x).shape, type_of(x).dtype) for x in values]
            rows = [
                [a.term(k) if self._owns(a) else None for k in range(1, order + 1)] for a in args
            ]
            series = [
                [blank if x is None else x for x in row]
                for row, blank in zip(rows, blanks, strict=True)
            ]
            found, later = rule(values, series, **params)
        if not op.multiple:
            found, later = [found], [later]
        elif later is zero_series:
            later = [later] * len(found)
        return [
            x
            if terms is zero_series
            else Series(
                self,
                order,
                x,
                lambda k, terms=terms: None if terms[k - 1] is zero_term else terms[k - 1],
            )
            for x, terms in zip(found, later, strict=True)
        ]

    # -- series of series --

    def _cut(self, x: Any, order: int) -> Any:
        if not self._owns(x):
            return x
        return Series(self, order, x.terms[0], x.term) if order else x.terms[0]

    def _derivative(self, x: Series) -> Any:
        def at(k: int) -> Any:
            term = x.term(k + 1)
            return term if term is None or not k else mul(term, lit(k + 1, term))

        first = at(0)
        if first is None:
            t = x.aval
            first = reshard_like(full(0, t.shape, t.dtype), t.strong())
        return Series(self, x.order - 1, first, at) if x.order > 1 else first


class ZeroTerm:
    """A coefficient that is zero."""

    def __repr__(self) -> str:
        return "ZeroTerm()"


class ZeroSeries:
    """Coefficients that are all zero."""

    def __repr__(self) -> str:
        return "ZeroSeries()"


zero_term, zero_series = ZeroTerm(), ZeroSeries()
# User rules, by primitive or op: `(primals, series, **params) → result, its coefficients`,
# each a list where there are several. `series` has the coefficients 1 to n of each operand.
jet_rules: dict[Any, Callable[..., Any]] = {}


def total(terms: Sequence[Any]) -> Any:
    """The sum; None if empty."""
    out = None
    for x in terms:
        out = x if out is None else add(out, x)
    return out


_programs: Table[tuple[Program, Pattern, bool]] = Table(__name__, "derivatives", CACHE_SIZE)


def tangent_program(
    op: Op, types: tuple[ArrayType, ...], active: Pattern, params: dict[str, Any]
) -> tuple[Program, Pattern, bool]:
    """The derivative of an op, as a program from operands and active tangents to result tangents.

    Also returns which results have a tangent, and whether the active operands are not needed for
    them, so that the op is linear in these.
    """
    key = (op, types, active, current().trace_key, *params.items())
    found = _programs.find(key)
    if found is None:
        both, marks = jvp_program(single(op, types, params), active)
        program = pruned(both, both.outvars[len(marks) :])
        used = {a for eqn in program.eqns for a in eqn.invars} | {*program.outvars}
        primals = program.invars[: len(active)]
        linear = not any(v in used for v, moves in zip(primals, active, strict=True) if moves)
        found = _programs.put(key, (program, marks, linear))
    return found


def push_series(
    fun: Callable,
    primals: Sequence[Any],
    terms: Sequence[Sequence[Any]],
    order: int,
    parent: Interpreter,
    name: str,
) -> tuple[list[Any], list[list[Any]]]:
    """Runs `fun(*primals) → list` and the coefficients 1 to `order` of its results; None is zero.

    terms: of each primal, its coefficients.
    """
    jet = Jet(parent, "jet", name)
    with jet.entered():
        given = [
            Series(jet, order, x, lambda k, ts=ts: ts[k - 1]) if order and ts else x
            for x, ts in zip(primals, terms, strict=True)
        ]
        outs = fun(*given)
        token = CURRENT.set(jet.parent_context())
        try:
            pairs = [
                (x.terms[0], [x.term(k) for k in range(1, order + 1)])
                if jet._owns(x)
                else (x, [None] * order)
                for x in outs
            ]
        finally:
            CURRENT.reset(token)
    reject_leaks(jet)
    return [x for x, _ in pairs], [ts for _, ts in pairs]
