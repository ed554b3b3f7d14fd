"""Eager reverse mode: ops whose linear part is known from earlier calls.

Under an eager `grad` every op would run its `jvp` rule again: values computed one by one, the
linear part staged op by op. What the rule does depends on the types only, so it is worked out once
per op (or fused function) and types: a *known* program that gives the result and the residuals in
one launch, and a *linear* program, whose equations are copied to the tape.

What runs users' functions, holds programs, has effects or types with meshes takes the long way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.caches import make_room
from shardwise.base.context import current
from shardwise.core.fused import Fused, form_of
from shardwise.core.infer import infer, known, type_of
from shardwise.core.op import Op
from shardwise.core.program import Equation, Literal, Program, Var
from shardwise.core.source import Site, user_site
from shardwise.runtime.pytree import flatten
from shardwise.transforms.jvp import JVP, JVPTracer, jvp_program
from shardwise.transforms.linearize import split_program
from shardwise.transforms.stage import StageTracer, stage

CACHE_SIZE = 8192


class Local:
    """An op, or a fused function, at given types: its results and its linear part.

    known:     gives the results, then the residuals that `forwarded` does not mark.
    forwarded: per residual, the position of the operand that it is, or None.
    rows:      the linear equations: op, operands, result types, parameters. Operands are numbers
               (residuals, then tangents, then results in their order) or literals.
    tangents:  per result, its tangent among these numbers; None where it is zero.
    alone:     whether running the op itself is all that is left of `known`.
    tree:      of the results; None for one array.
    """

    __slots__ = ("known", "count", "forwarded", "rows", "tangents", "alone", "tree")

    def __init__(self, program: Program, active: tuple[bool, ...], tree: Any):
        both, nonzero = jvp_program(program, active)
        unknown = (False,) * len(active) + (True,) * sum(active)
        split = split_program(both, unknown)
        self.known = split.known
        self.count = len(program.outputs)
        self.forwarded = split.forwarded
        self.tree = tree
        self.alone = len(split.known.equations) <= 1 and len(split.known.outputs) == self.count
        number: dict[Any, int] = {v: i for i, v in enumerate(split.rest.inputs)}
        self.rows = []
        for eqn in split.rest.equations:
            ins = [a if a.__class__ is Literal else number[a] for a in eqn.inputs]
            for v in eqn.outputs:
                number[v] = len(number)
            self.rows.append((eqn.op, ins, [v.aval for v in eqn.outputs], eqn.params))
        linear = iter(split.rest.outputs)
        self.tangents = [number[next(linear)] if has else None for has in nonzero]


class Tape(JVP):
    """Forward mode over a `Linearize` interpreter that has the eager one as parent."""

    __slots__ = ()

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        if op.eager is None and not op.programs and not op.effects and op.family != "custom":
            taken = self._taken(args)
            if taken is not None:
                local = _local_op(op, taken, params)
                if local is not None:
                    return self._record(local, taken, op, params)
        return JVP.process(self, op, args, params)

    def call(self, fused: Fused, args: tuple[Any, ...], static: dict[str, Any]) -> Any:
        n = fused.arrays
        if len(args) >= n or n > 1 << 20:
            taken = self._taken([a if a.__class__ is JVPTracer else known(a) for a in args[:n]])
            if taken is not None:
                local = self._local_call(fused, taken, args[n:], static)
                if local is not None:
                    return self._record(local, taken, None, static)
        return JVP.call(self, fused, args, static)

    def _taken(self, args: Sequence[Any]) -> tuple[list[Any], ...] | None:
        """Values, types, marks of what has a tangent, and tangents; None for the long way."""
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
        self, fused: Fused, taken: tuple[list[Any], ...], rest: Sequence[Any],
        static: dict[str, Any],
    ) -> Local | None:
        _, types, marks, _ = taken
        try:
            key = (form_of(fused, rest, static), current().key, *types, *marks)
            found = _locals.get(key)
        except TypeError:
            return None
        if found is None:
            tree: list[Any] = []

            def flat(*tracers: Any) -> list[Any]:
                leaves, treedef = flatten(fused.fun(*tracers, *rest, **static))
                tree.append(treedef)
                return leaves

            program, _ = stage(flat, types, name=fused.name, parent=self.parent.parent)
            one = tree[0].num_nodes == 1 and tree[0].num_leaves == 1
            found = _kept(key, Local(program, tuple(marks), None if one else tree[0]))
        return found

    def _record(
        self, local: Local, taken: tuple[list[Any], ...], op: Op | None, params: dict[str, Any]
    ) -> Any:
        values, _, _, tangents = taken
        eager, site = self.parent.parent, user_site(3)
        if local.alone and op is not None:
            found = eager.process(op, values, params)
            found = [*found] if op.multiple else [found]
        else:
            found = eager.run(local.known, values)
        env = self._linear(local, values, found[local.count :], tangents, site)
        outs = []
        for value, i in zip(found, local.tangents, strict=False):
            if i is None:
                outs.append(value)
                continue
            atom = env[i]
            outs.append(JVPTracer(self, value, StageTracer(self.parent, atom.aval, atom), site))
        if op is not None:
            return outs if op.multiple else outs[0]
        return outs[0] if local.tree is None else local.tree.unflatten(outs)

    def _linear(
        self, local: Local, values: Sequence[Any], computed: Sequence[Any],
        tangents: Sequence[Any], site: Site | None,
    ) -> list[Any]:
        """Copies the linear equations; gives the atoms by number."""
        linearize = self.parent
        rest = iter(computed)
        env = [
            linearize.capture(next(rest) if i is None else values[i]) for i in local.forwarded
        ]
        env += [t.variable for t in tangents]
        equations = linearize.equations
        for op, ins, types, params in local.rows:
            outs = [Var(t) for t in types]
            atoms = [env[i] if i.__class__ is int else i for i in ins]
            equations.append(Equation(op, atoms, outs, params, site))
            env += outs
        return env


_locals: dict[tuple[Any, ...], Local] = {}


def _local_op(op: Op, taken: tuple[list[Any], ...], params: dict[str, Any]) -> Local | None:
    _, types, marks, _ = taken
    if op.jvp is None or float in map(type, params.values()):  # 0.0 equals -0.0
        return None
    key = (op, current().key, *types, *marks, *params, *params.values())
    try:
        found = _locals.get(key)
    except TypeError:
        return None
    if found is None:
        ins = [Var(t) for t in types]
        result = infer(op, tuple(types), params)
        outs = [Var(t) for t in (result if op.multiple else (result,))]
        program = Program(ins, outs, [Equation(op, ins, outs, params, None)], name=op.name)
        found = _kept(key, Local(program, tuple(marks), None))
    return found


def forget() -> None:
    """Forgets what is known of all ops."""
    _locals.clear()


def _kept(key: tuple[Any, ...], local: Local) -> Local:
    make_room(_locals, CACHE_SIZE)
    _locals[key] = local
    return local
