"""Tools for programs: functions that run, traverse, rewrite and cache them.

    program(*args)                      # runs it: `program.eval_program`, which accepts a function
                                        # for each equation
    program.replace(outvars=…)          # the same with some fields replaced
    for eqn in walk(program): …         # all equations, including those of nested programs
    programs_in(program)                # the program and all nested programs
    without_dead_code, pruned           # what outputs need
    Rewriting()                         # builds a program from equations of others and new ones
    inlined(program, called)            # with nested programs in place of their calls
    single(op, types, params)           # the program of one op
    consts_to_args(program)             # constants as arguments
    @derived                            # caches values derived from a program

To make a program of a function, see `transforms.stage`; for equal programs, `core.structure`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.base.marks import picked
from shardwise._src.core.infer import infer
from shardwise._src.core.op import Op, PruneRule
from shardwise._src.core.program import Atom, Equation, Program, Var
from shardwise._src.messages.source import scope_of, under, user_site
from shardwise._src.types.array_type import ArrayType

# -- traversal --


def walk(program: Program) -> Iterator[Equation]:
    """All equations, each before those of its nested programs; each program is visited once."""
    return _equations(program, {program})


def _equations(program: Program, seen: set[Program]) -> Iterator[Equation]:
    for eqn in program.eqns:
        yield eqn
        if eqn.op.programs:
            for held in eqn.programs():
                if held not in seen:
                    seen.add(held)
                    yield from _equations(held, seen)


def programs_in(program: Program) -> list[Program]:
    """The program and all nested programs, each once and before the programs it contains."""
    found = {program: None}
    found.update((p, None) for eqn in walk(program) if eqn.op.programs for p in eqn.programs())
    return [*found]


def used(program: Program) -> set[Atom]:
    """The atoms that equations of the program use, or that are its results."""
    return {a for eqn in program.eqns for a in eqn.invars}.union(program.outvars)


def equation_count(program: Program) -> int:
    """The number of equations, counting each occurrence of a nested program."""
    inner = sum(equation_count(p) for eqn in program.eqns for p in eqn.programs())
    return len(program.eqns) + inner


# -- rewriting --


def without_dead_code(outputs: Sequence[Atom], equations: Sequence[Equation]) -> list[Equation]:
    """The equations that outputs or effects need, each with only the results that they need, if
    its op has a `prune` rule."""
    needed = {a for a in outputs if a.__class__ is Var}
    kept: list[Equation] = []
    for eqn in reversed(equations):
        op = eqn.op
        if op.prune is not None:
            eqn = op.prune(op, eqn, [v in needed for v in eqn.outvars])
            if eqn is None:
                continue
        elif (
            needed.isdisjoint(eqn.outvars) and not op.effects and not (op.programs and eqn.effects)
        ):
            continue
        kept.append(eqn)
        for a in eqn.invars:
            if a.__class__ is Var:
                needed.add(a)
    kept.reverse()
    return kept


def pruned(program: Program, outputs: Sequence[Atom]) -> Program:
    """The program with these of its values as results, and the equations they need."""
    return program.replace(outvars=outputs, eqns=without_dead_code(outputs, program.eqns))


def without_sites(program: Program, kept: frozenset[int] = frozenset()) -> Program:
    """The program without source lines, as it is cached for all its users.

    kept: ids of sites from elsewhere that it retains, such as those of programs that ran in it.
    """

    def bare(held: Program | tuple[Program, ...]) -> Program | tuple[Program, ...]:
        if isinstance(held, Program):
            return without_sites(held, kept)
        return tuple([without_sites(one, kept) for one in held])

    equations = [
        eqn.replace(
            site=eqn.site if id(eqn.site) in kept else None,
            params=eqn.params | {n: bare(p) for n in eqn.op.programs if (p := eqn.params.get(n))},
        )
        for eqn in program.eqns
    ]
    return program.replace(eqns=equations)


def sites_in(*programs: Program) -> frozenset[int]:
    """The ids of all sites of these programs."""
    return frozenset([id(eqn.site) for program in programs for eqn in walk(program)])


def consts_to_args(program: Program) -> tuple[Program, list[Any]]:
    """The program with its constants as its first arguments, and their values."""
    if not program.consts:
        return program, []
    return program.replace(consts=()), list(program.consts)


def _same_type(var: Var) -> Var:
    return Var(var.aval)


class Rewriting:
    """Equations of a program that is being built from others.

    equations: initially, those that are taken over unchanged, with their variables.
    constants: of the programs that were added, by the variables that represent them here.
    fresh:     makes the variables that represent those of other programs here.
    """

    def __init__(
        self, equations: Iterable[Equation] = (), fresh: Callable[[Var], Var] = _same_type
    ):
        self.eqns = list(equations)
        self.constants: dict[Var, Any] = {}
        self.fresh = fresh

    def bind(self, op: Op, *atoms: Atom, **params: Any) -> Var:
        """Adds an equation with one result."""
        out = Var(infer(op, tuple([a.aval for a in atoms]), params))
        self.eqns.append(Equation(op, atoms, (out,), params, user_site(2)))
        return out

    def add(
        self,
        program: Program,
        args: Sequence[Atom],
        called: Callable[[Equation], Program | None] | None = None,
        scope: str = "",
    ) -> list[Atom]:
        """Adds a program's equations, with new variables; returns its results.

        called: the program that replaces an equation, or None.
        scope: names that are in scope around all of its equations.
        """
        own = [self.fresh(v) for v in program.constvars]
        self.constants.update(zip(own, program.consts, strict=True))
        env: dict[Atom, Atom] = dict(zip(program.inputs, (*own, *args), strict=True))
        for eqn in program.eqns:
            inputs = [env.get(a, a) for a in eqn.invars]
            held = None if called is None else called(eqn)
            if held is not None:
                outs = self.add(held, inputs, called, scope_of(under(scope, eqn.site)))
            else:
                outs = [self.fresh(v) for v in eqn.outvars]
                site = under(scope, eqn.site)
                self.eqns.append(eqn.replace(invars=inputs, outvars=outs, site=site))
            env.update(zip(eqn.outvars, outs, strict=True))
        return [env.get(a, a) for a in program.outvars]


def single(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> Program:
    """The program of one op, for operands of these types."""
    ins, found = [Var(t) for t in types], infer(op, types, params)
    outs = [Var(t) for t in (found if op.multiple else (found,))]
    return Program(ins, outs, [Equation(op, ins, outs, params, None)], name=op.name)


def inlined(program: Program, called: Callable[[Equation], Program | None]) -> Program:
    """The program with some calls of nested programs inlined.

    called: the program that replaces an equation, or None.
    """
    new = Rewriting()
    outputs = new.add(program, program.invars, called)
    return program.replace(
        inputs=[*new.constants, *program.invars],
        outvars=outputs,
        eqns=new.eqns,
        consts=new.constants.values(),
    )


# -- caching --


def derived(make: Callable[..., Any]) -> Callable[..., Any]:
    """Caches on the program what a function computes from it and from hashable parameters.

    `@derived def jvp_program(program, nonzero)`: the result is cached for the program's lifetime.
    User rules may run in the process and read the scope, so their results depend on the
    context in which they were computed.
    """

    @functools.wraps(make)
    def found(program: Program, *parameters: Any, **named: Any) -> Any:
        key = (make, current().trace_key, *parameters, *named.items())
        held = program.derived.get(key)
        if held is None:
            held = program.derived[key] = make(program, *parameters, **named)
        return held

    return found


@derived
def reduced_to(program: Program, needed: tuple[bool, ...]) -> tuple[Program, tuple[bool, ...]]:
    """The program with some of its results and what they need; which arguments these are."""
    new = pruned(program, picked(program.outvars, needed))
    atoms = used(new)
    read = tuple([v in atoms for v in new.invars])
    held = [v in atoms for v in new.constvars]
    inputs = [*picked(new.constvars, held), *picked(new.invars, read)]
    return new.replace(inputs=inputs, consts=picked(new.consts, held)), read


def prunes(rule: Callable[[Equation, tuple[bool, ...]], Equation]) -> PruneRule:
    """The `prune` rule that removes equations without effects if no result is used.

    rule: an equation some results of which are not used → the equation without them.
    """

    @functools.wraps(rule)
    def prune(op: Op, eqn: Equation, needed: list[bool]) -> Equation | None:
        if not any(needed) and not eqn.effects:
            return None
        return eqn if all(needed) else rule(eqn, tuple(needed))

    return prune


def reduced_call(eqn: Equation, needed: tuple[bool, ...]) -> tuple[Equation, tuple[bool, ...]]:
    """A call of a program with some of its results, and which of its operands remain."""
    (name,) = eqn.op.programs
    program, read = reduced_to(eqn.params[name], needed)
    new = eqn.replace(
        invars=tuple(picked(eqn.invars, read)),
        outvars=tuple(picked(eqn.outvars, needed)),
        params={**eqn.params, name: program},
    )
    return new, read


@prunes
def prune_call(eqn: Equation, needed: tuple[bool, ...]) -> Equation:
    """The call of a program with the needed results only, and their operands."""
    return reduced_call(eqn, needed)[0]
