"""Checks in calls, branches and loops: the `checkify` rules of ops that contain programs.

A rule receives `checks` (debug/checked_programs.py), which builds the programs with checks in them:

    checks.program(p) → (new, places)     `new` returns the results of `p`, then a *code* (0, or the
                                          number of the place that failed first), then the values
                                          for the messages of all places
    checks.merge(places, code, values)    adds the findings of a program's places
    checks.call                           the op that calls a program

A branch or iteration passes code and values on; the first failure persists. This module also has
the `eval` rules, which run programs one by one to find the origin of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.control.programs import parts
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.families import add
from shardwise._src.ops.logical import eq, ne, select_n
from shardwise._src.ops.sharded.varying import tracked_names
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType, array_type

CODE = array_type((), np.dtype("int32"))
Types = tuple[ArrayType, ...]
NONE = np.int32(0)


def state_types(places: Sequence[Any]) -> Types:
    """The types of a code and of all values of places."""
    return (CODE.update(varying=tracked_names()), *[t for p in places for t in p.types])


def shifted(code: Any, count: int) -> Any:
    """A code among places that follow `count` others."""
    return select_n(eq(code, NONE), add(code, np.int32(count)), code)


def _first(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """The code and values of the first failure."""
    failed = ne(before[0], NONE)
    return [select_n(failed, new, old) for old, new in zip(before, after, strict=True)]


# -- calls --


def checkify_call(
    op: Op, checks: Any, args: list[Any], *, program: Program, **p: Any
) -> list[Any]:
    """For all ops that call their parameter `program`."""
    new, places = checks.program(program)
    outs, count = checks.call(*args, program=new), len(program.outputs)
    checks.merge(places, outs[count], outs[count + 1 :])
    return outs[:count]


def eval_call(
    op: Op, run: Callable[..., Any], args: list[Any], *, program: Program, **p: Any
) -> None:
    run(program, args)


# -- scan --


@derived
def _scan_body(new: Program, state: Types, count: int, num_consts: int) -> Program:
    """The body that carries a code and values before its own carry. count: of its own results."""

    def step(*args: Any) -> list[Any]:
        consts, before, rest = parts(args, num_consts, len(state))
        outs = new(*consts, *rest)
        return [*_first(before, outs[count:]), *outs[:count]]

    types = new.in_types
    return program_of(step, [*types[:num_consts], *state, *types[num_consts:]], new.name)


def checkify_scan(
    op: Op, checks: Any, args: list[Any], *, body: Program, num_consts: int, num_carry: int,
    **p: Any,
) -> list[Any]:
    new, places = checks.program(body)
    state = state_types(places)
    whole = _scan_body(new, state, len(body.outputs), num_consts)
    given = [*args[:num_consts], *map(zeros, state), *args[num_consts:]]
    count = len(state)
    outs = op(*given, body=whole, num_consts=num_consts, num_carry=num_carry + count, **p)
    checks.merge(places, outs[0], outs[1:count])
    return outs[count:]


def eval_scan(
    op: Op, run: Callable[..., Any], args: list[Any], *, body: Program, num_consts: int,
    num_carry: int, length: int, reverse: bool, **p: Any,
) -> None:
    consts, carry, xs = parts(args, num_consts, num_carry)
    for i in reversed(range(length)) if reverse else range(length):
        slices = [x[i] for x in eval_trace().arrays(xs)]
        carry = run(body, [*consts, *carry, *slices])[:num_carry]


# -- while --


@derived
def _while_programs(
    new: Program, new_test: Program, state: Types, tests: int, num_test: int, num_body: int
) -> tuple[Program, Program]:
    """Test and body that carry a code and values first; the body takes the constants of both.

    tests: how many places the test has, which precede those of the body.
    """
    count = len(new.in_types) - num_body

    def turn(*args: Any) -> list[Any]:
        consts, before, carry = parts(args, num_test + num_body, len(state))
        outs = new(*consts[num_test:], *carry)
        tested = new_test(*consts[:num_test], *outs[:count])
        code = select_n(eq(outs[count], NONE), add(outs[count], np.int32(tests)), tested[1])
        return [*_first(before, [code, *tested[2:], *outs[count + 1 :]]), *outs[:count]]

    def go_on(*args: Any) -> list[Any]:
        consts, _, carry = parts(args, num_test, len(state))
        return new_test(*consts, *carry)[:1]

    consts, bodies, carry = parts(
        (*new_test.in_types[:num_test], *new.in_types), num_test, num_body
    )
    return (
        program_of(go_on, [*consts, *state, *carry], new_test.name),
        program_of(turn, [*consts, *bodies, *state, *carry], new.name),
    )


def checkify_while(
    op: Op, checks: Any, args: list[Any], *, test: Program, body: Program, num_test: int,
    num_body: int,
) -> list[Any]:
    (new_test, test_places), (new, own_places) = checks.program(test), checks.program(body)
    places = (*test_places, *own_places)
    types = state_types(places)
    programs = _while_programs(new, new_test, types, len(test_places), num_test, num_body)
    tests, bodies, carry = parts(args, num_test, num_body)
    _, *state = checks.call(*tests, *carry, program=new_test)
    state += map(zeros, types[len(state) :])
    outs = op(
        *tests, *tests, *bodies, *state, *carry, test=programs[0], body=programs[1],
        num_test=num_test, num_body=num_test + num_body,
    )
    checks.merge(places, outs[0], outs[1 : len(state)])
    return outs[len(state) :]


def eval_while(
    op: Op, run: Callable[..., Any], args: list[Any], *, test: Program, body: Program,
    num_test: int, num_body: int,
) -> None:
    tests, bodies, carry = parts(args, num_test, num_body)
    while bool(run(test, [*tests, *carry])[0]):
        carry = run(body, [*bodies, *carry])


# -- cond --


@derived
def _branch(new: Program, before: Types, after: Types, count: int, offset: int) -> Program:
    """A branch that returns a code, and values for all branches; zeros for other branches."""

    def run(*args: Any) -> list[Any]:
        outs = new(*args)
        code, own = shifted(outs[count], offset), outs[count + 1 :]
        return [*outs[:count], code, *map(zeros, before), *own, *map(zeros, after)]

    return program_of(run, new.in_types, new.name)


def checkify_cond(
    op: Op, checks: Any, args: list[Any], *, branches: tuple[Program, ...]
) -> list[Any]:
    pairs = [checks.program(b) for b in branches]
    places = [p for _, own in pairs for p in own]
    types, count = state_types(places)[1:], len(branches[0].outputs)
    made, start, offset = [], 0, 0
    for new, own in pairs:
        stop = start + len(state_types(own)) - 1
        made.append(_branch(new, types[:start], types[stop:], count, offset))
        start, offset = stop, offset + len(own)
    outs = op(*args, branches=tuple(made))
    checks.merge(places, outs[count], outs[count + 1 :])
    return outs[:count]


def eval_cond(
    op: Op, run: Callable[..., Any], args: list[Any], *, branches: tuple[Program, ...]
) -> None:
    run(branches[min(max(int(args[0]), 0), len(branches) - 1)], args[1:])
