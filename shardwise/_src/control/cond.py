"""The `cond` op: one of several nested programs, chosen by a scalar.

    cond(which, *operands, branches=(f, g, …))

`which` is an int32, clamped to the number of branches, or a boolean: then the first of two branches
is the one for False. All branches take the same operands and return results of the same types.

Each transform builds a `cond` of transformed branches. If a transform produces some results in one
branch only (a tangent, a cotangent, a residual), the other branches return zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.marks import given, merge, partition, picked, spread
from shardwise._src.control.call import known_first
from shardwise._src.control.entering_rules import enter_cond, eval_cond
from shardwise._src.control.programs import (
    Extension,
    any_of,
    fit,
    read_inputs,
    with_inputs,
    with_results,
)
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, Programs, is_linear
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import derived, pruned, prunes
from shardwise._src.effects.ordering import IO, ORDERED
from shardwise._src.ops.basis import broadcast_in_dim, zeros
from shardwise._src.ops.families import add, lit
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.sharded.collective import pmax
from shardwise._src.ops.sharded.sharding_ops import cotangent_type, reshard_like
from shardwise._src.transforms.batch import Axis, MappedAxis, axes_in, batch_program, moved_into
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.linearize import Split, split_program
from shardwise._src.transforms.stage import program_of
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.array_type import ArrayType, in_parens, same_but_weak

Marks = tuple[bool, ...]
Branches = tuple[Program, ...]

BOOL, INDEX = np.dtype(bool), np.dtype("int32")


def _type(op: Op, which: ArrayType, *types: ArrayType, branches: Branches) -> tuple[ArrayType, ...]:
    if which.shape or which.dtype not in (BOOL, INDEX):
        raise TypeError(
            f"[cond] selects by a boolean or int32 scalar; got {which.str_short(True)}."
        )
    if which.dtype == BOOL and len(branches) != 2:
        raise TypeError(f"[cond] a boolean selects between 2 branches; got {len(branches)}.")
    outs = branches[0].out_types
    for number, branch in enumerate(branches):
        if not same_but_weak(branch.in_types, types):
            raise TypeError(
                f"[cond] branch {number} takes {in_parens(branch.in_types)}; got "
                f"{in_parens(types)}."
            )
        if branch.out_types != outs:
            raise TypeError(
                f"[cond] branch {number} returns {in_parens(branch.out_types)}, but branch 0 "
                f"returns {in_parens(outs)}."
            )
    names = which.varying
    if not names:
        return outs
    if bad := next((t for t in types if names & (t.unreduced | t.reduced)), None):
        raise NotImplementedError(
            f"[cond] devices take different branches, as the predicate is {which.str_short(True)}, "
            f"so an operand cannot be {bad.str_short(True)}: a partial sum would be of values of "
            "different functions. Make it varying first, `shardwise.lax.pcast(x, axis_name, "
            "to='varying')`, or take the sum, `shardwise.lax.psum`."
        )
    return tuple([t.vary(names) for t in outs])


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, which: str, *xs: str, branches: Branches
) -> list[str]:
    if e.may_differ({name for b in branches for name in axes_in(b)}, ins[0]):
        return _lower_together(e, ins[0], outs, which, xs, branches)
    index, types = e.ty(ins[0].update(dtype=INDEX)), ", ".join(map(e.ty, outs))
    if ins[0].dtype == BOOL:
        which = e.let(f"stablehlo.convert {which} : ({e.ty(ins[0])}) -> {index}")
    else:  # an index that is too large already selects the last branch
        which = e.let(f"stablehlo.maximum {which}, {e.scalar(0, INDEX)} : {index}")

    def write(number: int, branch: Program) -> None:
        results = e.inline(branch, *xs, scope=_scope(number))
        e.lines.append(
            f"stablehlo.return {', '.join(results)} : {types}" if results else "stablehlo.return"
        )

    regions = [f"{{\n{e.region(lambda row=row: write(*row))}\n}}" for row in enumerate(branches)]
    text = f'"stablehlo.case"({which}) ({", ".join(regions)}) : ({index}) -> ({types})'
    return e.lets(text, len(outs))


def _scope(number: int) -> str:
    return f"cond/branch_{number}_fun"


def _lower_together(
    e: Any,
    t: ArrayType,
    outs: Sequence[ArrayType],
    which: str,
    xs: Sequence[str],
    branches: Branches,
) -> list[str]:
    """Runs all branches, as devices choose different ones, but all take part in collectives."""
    found, *others = [e.inline(b, *xs, scope=_scope(i)) for i, b in enumerate(branches)]
    flag = e.ty(t.update(dtype=BOOL))
    for number, results in enumerate(others, 1):
        here = which
        if t.dtype != BOOL:
            least = e.scalar(number, INDEX)
            here = e.let(
                f"stablehlo.compare GE, {which}, {least} : ({e.ty(t)}, {e.ty(t)}) -> {flag}"
            )
        found = [
            e.let(f"stablehlo.select {here}, {new}, {old} : {flag}, {e.ty(out)}")
            for new, old, out in zip(results, found, outs, strict=True)
        ]
    return found


# -- jvp --


@derived
def _jvp_branches(first: Program, branches: Branches, nonzero: Marks) -> tuple[Branches, Marks]:
    count, types = len(first.outvars), [t.strong() for t in first.out_types]
    pairs = [jvp_program(b, nonzero) for b in branches]
    wanted = any_of([marks for _, marks in pairs])
    return tuple([with_results(b, count, m, wanted, types) for b, m in pairs]), wanted


def _jvp(op: Op, primals: Any, tangents: Any, *, branches: Branches) -> tuple[list, list]:
    nonzero = tuple([t is not None for t in tangents[1:]])
    both, marks = _jvp_branches(branches[0], branches, nonzero)
    which, *args = [*primals, *given(tangents)]
    results = cond(which, *map(fit, args, both[0].in_types), branches=both)
    count = len(branches[0].outvars)
    return results[:count], spread(results[count:], marks)


# -- partial evaluation --


class CondSplit:
    """A cond with a known predicate, split in two: the known part, and the rest.

    known:  branches over the known operands: the known results, then residuals.
    rest:   branches over residuals, and the unknown operands.
    passed: positions of the known operands that are also residuals; these come first.
    unknown_out: which results are unknown.

    Residuals of one type from different branches share a slot.
    """

    def __init__(self, first: Program, branches: Branches, unknown: Marks):
        split = [split_program(b, unknown) for b in branches]
        self.unknown_out = any_of([s.unknown_out for s in split])
        parts = [_with_unknown(s, self.unknown_out) for s in split]
        self.passed = sorted({i for p in parts for i in p.forwarded if i is not None})
        known_types, _ = partition(first.in_types, unknown)
        self._passed_types = [known_types[i] for i in self.passed]
        self._places: list[ArrayType] = []  # types of the residuals that are computed
        taken = [self._take(p) for p in parts]
        pairs = list(zip(parts, taken, strict=True))
        self.known = tuple([self._known(p, places) for p, places in pairs])
        self.rest = tuple([self._rest(p, places) for p, places in pairs])

    def _take(self, part: Split) -> list[int]:
        """Slots for the computed residuals of a branch."""
        taken: list[int] = []
        for var, i in zip(part.rest.invars, part.forwarded, strict=False):
            if i is not None:
                continue
            free = [n for n, t in enumerate(self._places) if t is var.aval and n not in taken]
            if not free:
                self._places.append(var.aval)
                free = [len(self._places) - 1]
            taken.append(free[0])
        return taken

    def _known(self, part: Split, taken: list[int]) -> Program:
        new = Extension(part.known.eqns)
        count = self.unknown_out.count(False)
        found = dict(zip(taken, part.known.outvars[count:], strict=True))
        residuals = [found[n] if n in found else new.zeros(t) for n, t in enumerate(self._places)]
        outputs = [*part.known.outvars[:count], *residuals]
        return part.known.replace(outvars=outputs, eqns=new.eqns)

    def _rest(self, part: Split, taken: list[int]) -> Program:
        count = len(part.forwarded)
        residuals = part.rest.invars[:count]
        pairs = list(zip(residuals, part.forwarded, strict=True))
        by_position = {i: v for v, i in pairs if i is not None}
        by_place = dict(zip(taken, [v for v, i in pairs if i is None], strict=True))
        passed = [
            by_position.get(i) or Var(t)
            for i, t in zip(self.passed, self._passed_types, strict=True)
        ]
        computed = [by_place.get(n) or Var(t) for n, t in enumerate(self._places)]
        p = part.rest
        inputs = [*p.constvars, *passed, *computed, *p.invars[count:]]
        return p.replace(inputs=inputs)


def _with_unknown(part: Split, wanted: Marks) -> Split:
    """A split with more results unknown: these become residuals that the rest returns."""
    if part.unknown_out == wanted:
        return part
    known, rest = part.known, part.rest
    count = part.unknown_out.count(False)
    found, own = iter(known.outvars[:count]), iter(rest.outvars)
    kept, moved, outputs = [], [], []
    for u, w in zip(part.unknown_out, wanted, strict=True):
        atom = next(own) if u else next(found)
        if not w:
            kept.append(atom)
        elif u:
            outputs.append(atom)
        else:
            moved.append(atom)
            outputs.append(Var(atom.aval))
    extra, _ = partition(outputs, picked(part.unknown_out, wanted))
    n = len(rest.consts) + len(part.forwarded)
    inputs = [*rest.inputs[:n], *extra, *rest.inputs[n:]]
    return Split(
        known.replace(outvars=[*kept, *known.outvars[count:], *moved]),
        rest.replace(inputs=inputs, outvars=outputs),
        wanted,
        (*part.forwarded, *[None] * len(moved)),
    )


split_branches = derived(CondSplit)


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    """With a known predicate, the known part runs now; the rest is staged, with residuals."""
    which, *operands = args
    if interpreter.is_unknown(which):
        return interpreter.record(op, args, params)
    unknown = tuple([interpreter.is_unknown(a) for a in operands])
    branches = params["branches"]
    if any(map(axes_in, branches)):
        return _split_whole(interpreter, args, branches, unknown)
    plan = split_branches(branches[0], branches, unknown)
    known_args, rest_args = partition(operands, unknown)
    outs = []
    if plan.known[0].outvars or any(b.effects for b in plan.known):
        outs = interpreter.known(cond, [which, *known_args], {"branches": plan.known})
    count = plan.unknown_out.count(False)
    residuals = [*[known_args[i] for i in plan.passed], *outs[count:]]
    rest = interpreter.record(cond, (which, *residuals, *rest_args), {"branches": plan.rest})
    return merge(plan.unknown_out, rest, outs[:count])


def _split_whole(interpreter: Any, args: Any, branches: Branches, unknown: Marks) -> list[Any]:
    """The rest takes the known operands, and computes residuals itself.

    Under `vmap`, all rows may run all branches, and take part in their collectives: then a row
    needs the residuals of branches that it does not choose.
    """
    plan = split_branches(branches[0], branches, unknown)
    count = plan.unknown_out.count(False)
    first = tuple([_leading(b, count) for b in plan.known])
    known_args = [a for a in args if not interpreter.is_unknown(a)]
    found = iter(interpreter.known(cond, known_args, {"branches": first}) if count else ())
    rows = interpreter.record(cond, args, {"branches": branches})
    return [row if u else next(found) for row, u in zip(rows, plan.unknown_out, strict=True)]


@derived
def _leading(program: Program, count: int) -> Program:
    """The program with its first results only."""
    return pruned(program, program.outvars[:count])


# -- dead code --


@prunes
def _prune(eqn: Equation, needed: Marks) -> Equation:
    """The cond with the needed results only, and their operands."""
    if any(map(axes_in, eqn.params["branches"])):
        return eqn
    branches = tuple([_with_some(b, needed) for b in eqn.params["branches"]])
    read = any_of([read_inputs(b) for b in branches])
    which, *operands = eqn.invars
    return eqn.replace(
        invars=(which, *picked(operands, read)),
        outvars=tuple(picked(eqn.outvars, needed)),
        params={"branches": tuple([with_inputs(b, read) for b in branches])},
    )


@derived
def _with_some(program: Program, kept: Marks) -> Program:
    return pruned(program, picked(program.outvars, kept))


# -- transpose --


@derived
def _transposed_branches(
    first: Program, branches: Branches, linear: Marks, nonzero: Marks
) -> tuple[Branches, Marks]:
    known = linear.count(False)
    types = [cotangent_type(t) for t in picked(first.in_types, linear)]
    pairs = [
        (_transposed_rest if axes_in(b) else transpose_program)(
            known_first(b, linear), known, nonzero
        )
        for b in branches
    ]
    wanted = any_of([marks for _, marks in pairs])
    return tuple([with_results(b, 0, m, wanted, types) for b, m in pairs]), wanted


@derived
def _transposed_rest(program: Program, known: int, nonzero: Marks) -> tuple[Program, Marks]:
    """The transpose of a branch that first computes its residuals itself."""
    parts = split_program(program, tuple([i >= known for i in range(len(program.invars))]))
    unknown = parts.unknown_out
    wanted = tuple(picked(nonzero, unknown))
    back, marks = transpose_program(parts.rest, len(parts.forwarded), wanted)
    moving = picked(unknown, nonzero)

    def fun(*args: Any) -> list[Any]:
        values, cts = args[:known], args[known:]
        found = parts.known(*values)[unknown.count(False) :]
        residuals = parts.residuals(values, found)
        return back(*residuals, *picked(cts, moving))

    types = [*program.in_types[:known], *map(cotangent_type, picked(program.out_types, nonzero))]
    return program_of(fun, types, program.name, "transpose"), marks


def _summed(
    which: Any, args: Sequence[Any], cts: Sequence[Any], backward: Branches, axes: dict
) -> list[Any]:
    """The transposes of all branches that any index along the axes of their collectives chose.

    Under `vmap` a row may contribute to collectives in a branch that it did not choose. Its
    own cotangents are zeros there.
    """
    total: list[Any] = []
    p = {"names": tuple(axes), "sizes": tuple(axes.values()), "groups": None}
    numbers = range(len(backward))
    for number, branch in enumerate(backward):
        own = select_n(which, *[np.bool_(i == number) for i in numbers])
        masked = [select_n(own, lit(0, ct), ct) for ct in cts]
        values = map(fit, [*args, *masked], branch.in_types)
        found = cond(pmax(own, **p), *values, branches=(_zeros(branch), branch))
        total = [add(a, b) for a, b in zip(total, found, strict=True)] if total else found
    return total


@derived
def _zeros(branch: Program) -> Program:
    return program_of(lambda *_: map(zeros, branch.out_types), branch.in_types, branch.name)


def _transpose(op: Op, cts: Any, which: Any, *args: Any, branches: Branches) -> list[Any]:
    linear = tuple([is_linear(a) for a in args])
    nonzero = tuple([ct is not None for ct in cts])
    backward, marks = _transposed_branches(branches[0], branches, linear, nonzero)
    (known, _), moving = partition(args, linear), given(cts)
    if axes := {n: size for b in backward for n, size in axes_in(b).items()}:
        results = _summed(which, known, moving, backward, axes)
    else:
        values = map(fit, [*known, *moving], backward[0].in_types)
        results = cond(which, *values, branches=backward)
    return [None, *spread(spread(results, marks), linear)]


# -- batching --


@derived
def _batched_branches(
    first: Program, branches: Branches, axis: Axis, batched: Marks, every: bool
) -> tuple[Branches, Marks]:
    """The branches over values with a batch dimension. every: all results must have one."""
    wanted = (every,) * len(first.outvars)
    if not every:
        wanted = any_of([batch_program(b, axis, batched, wanted)[1] for b in branches])
    return tuple([batch_program(b, axis, batched, wanted)[0] for b in branches]), wanted


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, branches: Branches
) -> tuple[list, list]:
    batched = tuple([d is not None for d in dims[1:]])
    chosen_by_row = dims[0] is not None
    new, marks = _batched_branches(
        branches[0], branches, mapped.of(args, dims), batched, chosen_by_row
    )
    operands = moved_into(new[0], args[1:], dims[1:])
    if not chosen_by_row:
        outs = cond(args[0], *operands, branches=new)
        return outs, [0 if m else None for m in marks]
    reject_exact(branches, "cond", "a batched predicate runs every branch")
    outs, out_dims = [], []
    cases = zip(*[b(*operands) for b in new], strict=True)
    for row, passed in zip(cases, _passed_on(branches), strict=True):
        if passed is not None and dims[1 + passed] is None:
            outs.append(args[1 + passed])
            out_dims.append(None)
        else:
            outs.append(chosen(args[0], row))
            out_dims.append(0)
    return outs, out_dims


def _passed_on(branches: Branches) -> list[int | None]:
    """For each result, the operand that all branches return."""
    places = [{v: i for i, v in enumerate(b.invars)} for b in branches]
    found = []
    for row in zip(*[b.outvars for b in branches], strict=True):
        of_row = {at.get(v) for at, v in zip(places, row, strict=True)}
        found.append(of_row.pop() if len(of_row) == 1 else None)
    return found


def chosen(which: Any, cases: Sequence[Any]) -> Any:
    """Selects one case for each row. which: a vector, of booleans or int32."""
    t = type_of(cases[0])
    if t.ndim > 1:
        which = broadcast_in_dim(which, shape=t.shape, dims=(0,))
    return select_n(reshard_like(which, t), *cases)


def reject_exact(programs: Sequence[Program], name: str, why: str) -> None:
    """Other effects, such as prints, happen for all rows, as they do in jax."""
    found = frozenset().union(*[p.effects for p in programs])
    if IO in found or ORDERED in found:
        which = "effects of `io_callback`" if IO in found else "ordered effects"
        raise NotImplementedError(
            f"[{name}] under vmap: {why}, so {which} would also happen for rows "
            "that did not request them. Select the inputs of the effect, with "
            "`shardwise.lax.select` or `shardwise.numpy.where`, and move it outside."
        )


def _remat(
    op: Op, inside: Callable[..., Any], eqn: Equation
) -> tuple[Equation, list[Var], Equation]:
    """Each branch returns its own saved values, and zeros for those of the others."""
    pairs = [inside(b) for b in eqn.params["branches"]]
    saved = [v for parts, _ in pairs for v in parts.saved]
    if not saved:
        return eqn, [], eqn
    first, second = [], []
    for parts, branch in pairs:
        new = Extension(parts.first)
        slots = [v if v in parts.saved else new.zeros(v.aval) for v in saved]
        outputs = [*branch.outvars, *slots]
        first.append(branch.replace(outvars=outputs, eqns=new.eqns))
        slots = [v if v in parts.saved else Var(v.aval) for v in saved]
        second.append(branch.replace(inputs=[*branch.inputs, *slots], eqns=parts.second))
    outs = [Var(v.aval) for v in saved]
    return (
        eqn.replace(params={"branches": tuple(first)}, outvars=[*eqn.outvars, *outs]),
        outs,
        eqn.replace(params={"branches": tuple(second)}, invars=[*eqn.invars, *outs]),
    )


cond = Op(
    "cond",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    prune=_prune,
    enter=enter_cond,
    multiple=True,
    contains=Programs(
        ("branches",),
        eval=eval_cond,
        key_reuse=lambda op, flow, args, *, branches: flow.either(branches, args[1:]),
        remat=_remat,
    ),
)
