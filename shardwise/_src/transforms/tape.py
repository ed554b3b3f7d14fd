"""Eager reverse mode: reuses the linear part of ops from earlier calls.

Under an eager `grad` every op would run its `jvp` rule again: values computed one by one, the
linear part staged op by op. The result of the rule depends on types only, so it is computed once
per op (or fused function) and types: a *known* program that returns the result and the residuals in
one launch, and a *linear* program, whose equations are copied to the tape.

Ops that run user functions, contain programs, have effects or types with meshes use the slow path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.base.caches import SIGNED, Table
from shardwise._src.base.context import current
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.fused import Fused, form_of
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_tools import single
from shardwise._src.messages.source import Site, user_site
from shardwise._src.transforms.jvp import JVP, JVPTracer, jvp_program
from shardwise._src.transforms.linearize import Linearize, split_program
from shardwise._src.transforms.stage import Stage, StageTracer, stage_fused

CACHE_SIZE = 8192


class Local:
    """An op, or a fused function, at given types: its results and its linear part.

    known:     returns the results, then the residuals that are not results or operands.
    residuals: their positions among the operands and what `known` returns.
    rows:      the linear equations: op, operands, result types, parameters. Operands are numbers
               (residuals, then tangents, then results in their order) or literals.
    types:     of the linear equations' results.
    tangents:  per result, its tangent among these numbers; None if it is zero.
    alone:     whether `known` consists only of the op itself.
    tree:      the pytree of the results; None for one array.
    """

    __slots__ = ("known", "residuals", "count", "rows", "types", "tangents", "alone", "tree")

    def __init__(self, program: Program, active: tuple[bool, ...], tree: Any):
        both, nonzero = jvp_program(program, active)
        unknown = (False,) * len(active) + (True,) * sum(active)
        split = split_program(both, unknown)
        self.known, places = split.distinct()
        self.count = len(program.outvars)
        found = iter(places)
        self.residuals = [len(active) + next(found) if i is None else i for i in split.forwarded]
        self.tree = tree
        self.alone = len(split.known.eqns) <= 1 and len(self.known.outvars) == self.count
        number: dict[Any, int] = {v: i for i, v in enumerate(split.rest.inputs)}
        self.rows = []
        for eqn in split.rest.eqns:
            ins = [a if a.__class__ is Literal else number[a] for a in eqn.invars]
            for v in eqn.outvars:
                number[v] = len(number)
            self.rows.append((eqn.op, ins, [v.aval for v in eqn.outvars], eqn.params))
        self.types = [t for row in self.rows for t in row[2]]
        linear = iter(split.rest.outvars)
        self.tangents = [number[next(linear)] if has else None for has in nonzero]


class Tape(JVP):
    """Forward mode over a `Linearize` interpreter whose parent is the eager one."""

    __slots__ = ()

    def __init__(self, parent: Linearize, transform: str, function: str, site: Site | None = None):
        super().__init__(parent, transform, function, site)
        parent.steps = Steps(parent.inputs)

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        if op.eager is None and not op.programs and not op.effects and not op.user_code:
            taken = self._split_tangents(args)
            if taken is not None:
                local = _local_op(op, taken, params)
                if local is not None:
                    return self._record(local, taken, op, params)
        return JVP.process(self, op, args, params)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        n = fused.arrays
        if len(args) >= n or n > 1 << 20:
            given = [a if a.__class__ is JVPTracer else as_arraylike(a) for a in args[:n]]
            taken = self._split_tangents(given)
            if taken is not None:
                local = self._local_call(fused, taken, args[n:], static)
                if local is not None:
                    return self._record(local, taken, None, static)
        return JVP.call(self, fused, args, static)

    def _split_tangents(self, args: Sequence[Any]) -> tuple[list[Any], ...] | None:
        """Values, types, marks of values with a tangent, and tangents; None for the slow path."""
        values, types, marks, tangents = [], [], [], []
        for a in args:
            if a.__class__ is JVPTracer and a.interpreter is self:
                tangent = a.tangent
                if tangent.__class__ is not StageTracer:
                    return None
                tangents.append(tangent)
                t, a = a.aval, a.primal
                marks.append(True)
            else:
                t = type_of(a)
                marks.append(False)
            if t.mesh is not None:
                return None
            values.append(a)
            types.append(t)
        if not tangents:
            return None
        return values, types, marks, tangents

    def _local_call(
        self,
        fused: Fused,
        taken: tuple[list[Any], ...],
        rest: Sequence[Any],
        static: dict[str, Any],
    ) -> Local | None:
        _, types, marks, _ = taken
        try:
            form = form_of(fused, rest, static) if rest or static else fused
            key = (form, current().key, *types, *marks)
            found = _locals.entries.get(key)
        except TypeError:
            return None
        if found is None:
            program, tree = stage_fused(fused, types, rest, static, self.parent.parent)
            found = _locals.put(key, Local(program, tuple(marks), tree))
        return found

    def _record(
        self, local: Local, taken: tuple[list[Any], ...], op: Op | None, params: dict[str, Any]
    ) -> Any:
        values, _, _, tangents = taken
        linearize = self.parent
        site = user_site(3)
        if local.alone and op is not None:
            found = linearize.parent.process(op, values, params)
            found = [*found] if op.multiple else [found]
        else:
            found = eval_trace().run(local.known, values)
        every = [*values, *found]
        residuals = [every[i] for i in local.residuals]
        made = linearize.steps.add(local, residuals, tangents, site)
        outs = []
        for value, var in zip(found, made, strict=False):
            if var is None:
                outs.append(value)
            else:
                tangent = StageTracer(linearize, var.aval, var)
                outs.append(JVPTracer(self, value, tangent, site))
        if op is not None:
            return outs if op.multiple else outs[0]
        return outs[0] if local.tree is None else local.tree.unflatten(outs)


class Steps:
    """The steps that a tape has recorded, and a key that is equal for equal steps.

    A program is built from them only if none is cached for the key.

    rows:   per step: the op's `Local`, its residuals, variables of tangents, and the source line.
    key:    per step: the op's `Local`, and the numbers of residuals and tangents.
    values: the residuals. places: by address, their numbers.
    number: of the variables of tangents.
    """

    __slots__ = ("rows", "key", "values", "places", "number")

    def __init__(self, inputs: Sequence[Var]):
        self.rows: list[tuple[Any, ...]] = []
        self.key: list[Any] = []
        self.values: list[Any] = []
        self.places: dict[int, int] = {}
        self.number: dict[Var, int] = {v: i for i, v in enumerate(inputs)}

    def add(
        self,
        local: Local,
        residuals: Sequence[Any],
        tangents: Sequence[StageTracer],
        site: Site | None,
    ) -> list[Var | None]:
        """Records a step; returns the variables of its results' tangents."""
        key, values, places, number = self.key, self.values, self.places, self.number
        key.append(local)
        for x in residuals:
            place = places.setdefault(id(x), len(values))
            if place == len(values):
                values.append(x)
            key.append(place)
        given = [t.variable for t in tangents]
        for v in given:
            key.append(number.setdefault(v, len(number)))
        first = len(residuals) + len(given)
        made: list[Var | None] = []
        new: dict[int, Var] = {}
        for i in local.tangents:
            if i is None or i < first:
                made.append(None if i is None else given[i - len(residuals)])
                continue
            var = new.get(i)
            if var is None:
                var = new[i] = Var(local.types[i - first])
                number[var] = len(number)
            made.append(var)
        self.rows.append((local, residuals, given, new, site))
        return made

    def write(self, linearize: Linearize) -> None:
        """Writes the steps as equations, and starts again."""
        for local, residuals, given, new, site in self.rows:
            env = [*map(linearize.capture, residuals), *given]
            for op, ins, types, params in local.rows:
                outs = [new.get(len(env) + k) or Var(t) for k, t in enumerate(types)]
                atoms = [env[i] if i.__class__ is int else i for i in ins]
                linearize.eqns.append(Equation(op, atoms, outs, params, site))
                env += outs
        self.rows = []

    def program(
        self, linearize: Linearize, outputs: Sequence[StageTracer]
    ) -> tuple[Program, list[Any]]:
        """The program of the steps, if there are no other equations, and its residuals."""
        types = [v.aval for v in linearize.inputs]
        ends = [self.number[t.variable] for t in outputs]
        key = (current().key, linearize.function, *types, *self.key, *ends)
        found = _programs.find(key)
        if found is None:
            self.write(linearize)
            program, captured = Stage.finish(linearize, outputs)
            found = _programs.put(key, (program, [self.places[id(x)] for x in captured]))
        program, kept = found
        return program, [self.values[i] for i in kept]


KEPT = 1024
_programs: Table[tuple[Program, list[int]]] = Table(__name__, "eager gradients", KEPT)
_locals: Table[Local] = Table(__name__, "linear parts of ops", CACHE_SIZE)


def _local_op(op: Op, taken: tuple[list[Any], ...], params: dict[str, Any]) -> Local | None:
    _, types, marks, _ = taken
    if op.jvp is None or not SIGNED.isdisjoint(map(type, params.values())):
        return None
    key = (op, current().key, *types, *marks, *params, *params.values())
    try:
        found = _locals.entries.get(key)
    except TypeError:
        return None
    if found is None:
        program = single(op, tuple(types), params)
        found = _locals.put(key, Local(program, tuple(marks), None))
    return found
