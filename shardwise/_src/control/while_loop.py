"""The `while_loop` op: a nested program applied repeatedly, while another one returns true.

    test:        (test constants…, carry…)  → bool[]
    body:        (body constants…, carry…)  → carry…
    while_loop:  (test constants…, body constants…, carry…) → carry…

Forward mode carries tangents along. Reverse mode is rejected: the number of iterations is not
known, nor the size of the residuals to be stored. Under `vmap`, if rows differ in whether to
continue, all continue until the last one is done, and finished rows keep their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.marks import given, merge, partition, picked, spread
from shardwise._src.control.call import call
from shardwise._src.control.cond import chosen, reject_exact
from shardwise._src.control.entering_rules import enter_while, eval_while
from shardwise._src.control.programs import WhileParams, fit, parts, read_inputs, with_inputs
from shardwise._src.control.row_checks import body_with_flag
from shardwise._src.control.scan import batched_body, either, jvp_body, live_body
from shardwise._src.control.scan_split import unknown_carries
from shardwise._src.core.op import Op, Programs
from shardwise._src.core.program import Equation, Program, Var
from shardwise._src.core.program_tools import derived, prunes, sites_in, without_sites
from shardwise._src.effects.ordering import CHECK
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.logical import bitwise_and, select_n
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.sharded.collective import pmax
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.transforms.batch import MappedAxis, axes_in, batch_program, to_dim
from shardwise._src.transforms.linearize import split_program
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type, in_parens, same_but_weak

Marks = tuple[bool, ...]

FLAG = array_type((), np.dtype(bool))


def _type(op: Op, *types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
    own = WhileParams(**params)
    test, body = own.test, own.body
    test_types, body_types, carry = own.parts(types)
    if not same_but_weak(test.in_types, (*test_types, *carry)):
        raise TypeError(
            f"[while_loop] the test takes {in_parens(test.in_types)}; got "
            f"{in_parens((*test_types, *carry))} (constants, carry)."
        )
    if [t.strong() for t in test.out_types] != [_flag_like(t) for t in test.out_types[:1]]:
        raise TypeError(
            "[while_loop] the test must return a boolean scalar; it returns "
            f"{in_parens(test.out_types)}."
        )
    if not same_but_weak(body.in_types, (*body_types, *carry)):
        raise TypeError(
            f"[while_loop] the body takes {in_parens(body.in_types)}; got "
            f"{in_parens((*body_types, *carry))} (constants, carry)."
        )
    if not same_but_weak(body.out_types, carry):
        raise TypeError(
            "[while_loop] the body must return the carry with its input types, "
            f"{in_parens(carry)}; it returns {in_parens(body.out_types)}."
        )
    return as_often(carry, test.out_types[0])


def as_often(carry: Sequence[ArrayType], flag: ArrayType) -> tuple[ArrayType, ...]:
    """The types of values that also vary along the axes along which the iteration count does."""
    names = flag.varying
    return tuple([t.vary(names) for t in carry] if names else carry)


def _flag_like(t: ArrayType) -> ArrayType:
    return FLAG.update(spec=t.spec, mesh=t.mesh, varying=t.varying)


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **params: Any) -> list[str]:
    own = WhileParams(**params)
    axes = axes_in(own.test) | axes_in(own.body)
    if e.may_differ(axes, own.test.out_types[0]):
        manual = tuple([(name, size) for name, size in axes.items() if name in e.manual.manual])
        some, turn = _together(own.body, own.test, own.num_test, own.num_body, manual)
        count = own.num_test + own.num_body
        first = e.inline(own.test, *xs[: own.num_test], *xs[count:], scope="while/cond")
        types = [*own.test.out_types, *ins[count:]]
        flagged = WhileParams(some, turn, 0, count)
        return _lower_alike(e, types, [*xs[:count], *first, *xs[count:]], flagged)[1:]
    return _lower_alike(e, outs, xs, own)


def _lower_alike(e: Any, outs: Any, xs: Sequence[str], own: WhileParams) -> list[str]:
    test_consts, body_consts, carry = own.parts(xs)
    names = [e.fresh() for _ in carry]
    types = ", ".join(map(e.ty, outs))

    def region(program: Program, consts: Sequence[str], result: str, part: str) -> str:
        def write() -> None:
            found = e.inline(program, *consts, *names, scope=f"while/{part}")
            e.lines.append(
                f"stablehlo.return {', '.join(found)} : {result}" if found else "stablehlo.return"
            )

        return e.region(write)

    pairs = ", ".join(f"{n} = {v}" for n, v in zip(names, carry, strict=True))
    condition = region(own.test, test_consts, e.ty(FLAG), "cond")
    turn = region(own.body, body_consts, types, "body")
    if not names:  # the short form cannot be parsed then
        text = f'"stablehlo.while"() ({{\n{condition}\n}}, {{\n{turn}\n}}) : () -> ()'
        return e.lets(text, 0)
    text = f"stablehlo.while({pairs}) : {types}\ncond {{\n{condition}\n}} do {{\n{turn}\n}}"
    return e.lets(text, len(names))


@derived
def _together(
    body: Program, test: Program, num_test: int, num_body: int, axes: tuple
) -> tuple[Program, Program]:
    """Test and body of a loop that continues while any device does, along these axes: all take
    part in the collectives, and finished devices keep their values.
    """
    names, sizes = zip(*axes, strict=True)
    flag, carry = test.out_types[0], test.in_types[num_test:]

    def some(go_on: Any, *carry: Any) -> list[Any]:
        return [pmax(go_on, names=names, sizes=sizes, groups=None)]

    def turn(*args: Any) -> list[Any]:
        test_consts, body_consts, (go_on, *held) = parts(args, num_test, num_body)
        after = body(*body_consts, *held)
        kept = [select_n(go_on, old, new) for old, new in zip(held, after, strict=True)]
        return [bitwise_and(go_on, *test(*test_consts, *kept)), *kept]

    consts = [*test.in_types[:num_test], *body.in_types[:num_body]]
    together = (program_of(some, [flag, *carry], test.name),
                program_of(turn, [*consts, flag, *carry], body.name))  # fmt: skip
    kept = sites_in(test, body)  # everything else in them has the loop's own line
    return without_sites(together[0], kept), without_sites(together[1], kept)


def _with_more(test: Program, types: Sequence[ArrayType]) -> Program:
    """The test with additional, unused arguments after its own."""
    return test.replace(inputs=[*test.inputs, *map(Var, types)])


# -- jvp --


@derived
def _jvp_programs(
    body: Program, test: Program, num_body: int, nonzero: Marks
) -> tuple[Program, Program, Marks]:
    """Body and test of values and tangents; which carries have tangents."""
    count = len(body.outvars)
    both, marks, _ = jvp_body(body, num_body, count, nonzero)
    return both, _with_more(test, both.in_types[len(both.in_types) - sum(marks) :]), marks


def _jvp(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[list, list]:
    own = WhileParams(**params)
    nonzero = tuple([t is not None for t in tangents[own.num_test :]])
    both, new_test, marks = _jvp_programs(own.body, own.test, own.num_body, nonzero)
    test_consts, consts, carry = own.parts(primals)
    _, const_ts, carry_ts = own.parts(tangents)
    started = [
        zeros(v.aval.strong()) if t is None else t
        for v, t, m in zip(own.body.invars[own.num_body :], carry_ts, marks, strict=True)
        if m
    ]
    body_args = [*consts, *given(const_ts), *carry, *started]
    new = WhileParams(new_test, both, own.num_test, own.num_body + len(given(const_ts)))
    outs = while_loop(*test_consts, *map(fit, body_args, both.in_types), **new._asdict())
    return outs[: len(carry)], spread(outs[len(carry) :], marks)


# -- partial evaluation --


def _split(op: Op, interpreter: Any, args: Any, params: dict) -> list[Any]:
    """Carries that depend on nothing unknown are computed now; the rest repeats the entire loop."""
    own = WhileParams(**params)
    unknown = tuple([interpreter.is_unknown(a) for a in args])
    test_marks, body_marks, carry_marks = own.parts(unknown)
    test, body = own.test, own.body
    carry = unknown_carries(body, own.num_body, len(body.outvars), (*body_marks, *carry_marks))
    if split_program(test, (*test_marks, *carry)).unknown_out[0] or all(carry):
        return interpreter.record(op, args, params)
    known_body, known_test, *rest = _known_part(body, test, body_marks, test_marks, carry)
    held, _ = partition(args, (*test_marks, *body_marks, *carry))
    known = WhileParams(known_test, known_body, test_marks.count(False), body_marks.count(False))
    outs = iter(interpreter.known(while_loop, held, known._asdict()))
    rows = interpreter.record(while_loop, args, {**params, "body": rest[0], "test": rest[1]})
    return [row if u else next(outs) for row, u in zip(rows, carry, strict=True)]


@derived
def _known_part(
    body: Program, test: Program, body_marks: Marks, test_marks: Marks, carry: Marks
) -> tuple[Program, ...]:
    """Body and test over the known values; and both in full, for the rest, without the effects of
    known values.
    """
    known = split_program(body, (*body_marks, *carry)).known
    known = known.replace(outvars=known.outvars[: carry.count(False)])
    known_test = split_program(test, (*test_marks, *carry)).known
    known_test = known_test.replace(outvars=known_test.outvars[:1])
    rest = _without_known_effects(body, (*body_marks, *carry))
    return known, known_test, rest, _without_known_effects(test, (*test_marks, *carry))


def _without_known_effects(program: Program, unknown: Marks) -> Program:
    if not program.effects:
        return program
    moving = {v for v, u in zip(program.invars, unknown, strict=True) if u}
    kept: list[Equation] = []
    for eqn in program.eqns:
        if not moving.isdisjoint(eqn.invars):
            moving.update(eqn.outvars)
        elif eqn.effects and not eqn.outvars:
            continue
        kept.append(eqn)
    return program.replace(eqns=kept)


def _transpose(op: Op, cts: Any, *args: Any, test: Program, body: Program, **p: Any) -> NoReturn:
    raise ValueError(
        "while_loop and fori_loop with traced bounds have no reverse-mode derivative (grad, vjp, "
        f"jacrev), here the loop of {body.name}: the number of iterations is not known before it "
        "runs, so residuals cannot be stored for the backward pass. Use `fori_loop` with Python "
        "integers as bounds or `scan`, whose number of iterations is known; forward mode (`jvp`, "
        "`jacfwd`); or define a rule for the function with the loop by `custom_vjp`."
    )


# -- batching --


def _batch(op: Op, mapped: MappedAxis, args: Any, dims: Any, **params: Any) -> tuple[list, list]:
    own, axis = WhileParams(**params), mapped.of(args, dims)
    test, body, num_test, num_body = own
    test_marks, body_marks, carry = own.parts([d is not None for d in dims])
    count = len(body.outvars)
    new, carry, _ = batched_body(body, axis, num_body, count, (*body_marks, *carry))
    new_test, (by_row,) = batch_program(test, axis, (*test_marks, *carry))
    types = new.in_types
    if by_row:
        reject_exact(
            (test, body), "while_loop", "a batched condition runs until the last row is done"
        )
        if CHECK in test.effects | body.effects:
            raise ValueError(
                "[while_loop] under vmap: a batched condition runs until the last row is done, so "
                "a `check` in the loop would also fail for rows that are done. Use "
                "`vmap(checkify(f))` instead of `checkify(vmap(f))`: it checks each row by itself."
            )
        fixed = _unchanged(body, num_body, own.parts(dims)[2])
        if any(fixed) and not all(fixed):
            return _batch_changing(op, mapped, args, dims, own, fixed)
        every, flagged = (True,) * count, body_with_flag(body, test.out_types[0])
        marks = (True, *body_marks, *every)
        new, carry, _ = batched_body(flagged, axis, 1 + num_body, count, marks)
        types = new.in_types[1:]
        new_test, _ = batch_program(test, axis, (*test_marks, *every))
    wanted = [*test_marks, *body_marks, *carry]
    rows = zip(args, dims, wanted, strict=True)
    moved = [to_dim(a, d, 0 if w else None, mapped.size) for a, d, w in rows]
    types = (*new_test.in_types[:num_test], *types)
    moved = [reshard_like(a, t) for a, t in zip(moved, types, strict=True)]
    wide = own._replace(test=new_test, body=new)
    if by_row:
        return _by_row(moved, wide), [0] * count
    outs = while_loop(*moved, **wide._asdict())
    return outs, [0 if m else None for m in carry]


def _unchanged(body: Program, num_body: int, dims: Sequence[Any]) -> Marks:
    """Which carries every turn returns unchanged, and are not batched."""
    rows = zip(body.outvars, body.invars[num_body:], dims, strict=True)
    return tuple([after is before and d is None for after, before, d in rows])


def _batch_changing(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, own: WhileParams, fixed: Marks
) -> tuple[list, list]:
    """The batched loop with unchanged carries as constants, which stay without a batch dimension:
    a carry whose rows end at different turns has one."""
    test = _constant(own.test, own.num_test, fixed, False)
    body = _constant(own.body, own.num_body, fixed, True)
    count = sum(fixed)
    new = WhileParams(test, body, own.num_test + count, own.num_body + count)

    def moved(values: Any) -> tuple[list, list]:
        of_test, of_body, carry = own.parts(values)
        changing, constant = partition(carry, fixed)
        return [*of_test, *constant, *of_body, *constant, *changing], constant

    (wide, kept), (wide_dims, kept_dims) = moved(args), moved(dims)
    outs, marks = _batch(op, mapped, wide, wide_dims, **new._asdict())
    return merge(fixed, kept, outs), merge(fixed, kept_dims, marks)


@derived
def _constant(program: Program, count: int, fixed: Marks, drops: bool) -> Program:
    """The program with the marked carries after its `count` constants. drops: their results."""
    changing, constant = partition(program.invars[count:], fixed)
    inputs = [*program.constvars, *program.invars[:count], *constant, *changing]
    results = partition(program.outvars, fixed)[0] if drops else program.outvars
    return program.replace(inputs=inputs, outvars=results)


def _by_row(args: list, own: WhileParams) -> list:
    """The loop over rows with separate tests, whose results are carried too, and passed to the body
    first."""
    test_consts, body_consts, carry = own.parts(args)
    (go_on,) = call(*test_consts, *carry, program=own.test)
    any_test, turn = _row_programs(own.body, own.test, own.num_test, own.num_body)
    consts = [*test_consts, *body_consts]
    go_on = reshard_like(go_on, any_test.in_types[0])
    carry = [fit(x, t) for x, t in zip(carry, any_test.in_types[1:], strict=True)]
    new = WhileParams(any_test, turn, 0, len(consts))
    return while_loop(*consts, go_on, *carry, **new._asdict())[1:]


@derived
def _row_programs(
    body: Program, test: Program, num_test: int, num_body: int
) -> tuple[Program, Program]:
    flags = test.out_types[0]

    def some(go_on: Any, *carry: Any) -> list[Any]:
        return [reduce_or(go_on, axes=(0,))]

    turn = _testing(body, test, num_test, num_body, True)
    carry = as_often(test.in_types[num_test:], flags)
    return program_of(some, [flags, *carry], test.name), turn


@derived
def flag_programs(
    body: Program, test: Program, num_test: int, num_body: int
) -> tuple[Program, Program]:
    """Test and body of a loop that carries the result of the test, which then has no effects.

    Effects of a test may be skipped: the compiler can derive some loops' trip counts without it.
    """
    types = [test.out_types[0], *test.in_types[num_test:]]
    asked = program_of(lambda go_on, *carry: [go_on], types, test.name)
    return asked, _testing(body, test, num_test, num_body, False)


def _testing(body: Program, test: Program, num_test: int, num_body: int, by_row: bool) -> Program:
    """The body with a test of its results, which comes first.

    by_row: a row whose test was false keeps its values; the body takes the test's result first.
    """
    consts = [*test.in_types[:num_test], *body.in_types[int(by_row) :][:num_body]]
    flag, carry = test.out_types[0], body.out_types
    carry = as_often(carry, flag) if by_row else carry

    def turn(*args: Any) -> list[Any]:
        test_consts, body_consts, (go_on, *held) = parts(args, num_test, num_body)
        after = body(*[go_on] * by_row, *body_consts, *held)
        if by_row:
            pairs = zip(held, after, strict=True)
            after = [reshard_like(chosen(go_on, p), t) for p, t in zip(pairs, carry, strict=True)]
        return [reshard_like(go_on, flag) for go_on in test(*test_consts, *after)] + after

    return program_of(turn, [*consts, flag, *carry], body.name)


# -- dead code --


@prunes
def _prune(eqn: Equation, needed: Marks) -> Equation:
    """The loop with the needed results only, the carries that they and the test need, and their
    operands."""
    own = WhileParams(**eqn.params)
    tested = read_inputs(own.test)
    first = either(needed, tested[own.num_test :])
    body, read, kept = live_body(own.body, own.num_body, len(needed), first)
    of_test, of_body = tested[: own.num_test], read[: own.num_body]
    test = with_inputs(own.test, (*of_test, *kept))
    new = WhileParams(test, body, sum(of_test), sum(of_body))
    return eqn.replace(
        invars=tuple(picked(eqn.invars, (*of_test, *of_body, *kept))),
        outvars=tuple(picked(eqn.outvars, kept)),
        params={**eqn.params, **new._asdict()},
    )


def _keys(op: Op, flow: Any, args: Any, **params: Any) -> list[Any]:
    """Two iterations: keys used in both are used in others, too."""
    own = WhileParams(**params)
    test_consts, body_consts, carry = own.parts(args)
    for _ in range(2):
        flow.through(own.test, [*test_consts, *carry])
        carry = flow.through(own.body, [*body_consts, *carry])
    return carry


while_loop = Op(
    "while_loop",
    type_rule=_type,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    partial_eval=_split,
    enter=enter_while,
    prune=_prune,
    multiple=True,
    contains=Programs(("test", "body"), eval=eval_while, key_reuse=_keys),
    aliases={
        "cond_jaxpr": "test",
        "body_jaxpr": "body",
        "cond_nconsts": "num_test",
        "body_nconsts": "num_body",
    },
)
