"""Calls, branches and loops with a state passed through their programs: the `enter` rules.

    enter(op, inside, state, args, **params) → (results, state)

`inside` is what a transform does in the programs (`transforms.entering.Inside`). This module also
has the `eval` rules, which run programs one by one to find the origin of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.control.programs import parts
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.transforms.entering import Inside, ignoring
from shardwise._src.transforms.stage import program_of

Entered = tuple[list[Any], list[Any]]


# -- calls --


def enter_call(
    op: Op, inside: Inside, state: list[Any], args: list[Any], *, program: Program, **p: Any
) -> Entered:
    """For all ops that call their parameter `program`."""
    outs = op(*state, *args, program=inside.program(program), **p)
    return outs[len(state) :], outs[: len(state)]


def eval_call(
    op: Op, run: Callable[..., Any], args: list[Any], *, program: Program, **p: Any
) -> None:
    run(program, args)


# -- scan --


def enter_scan(
    op: Op,
    inside: Inside,
    state: list[Any],
    args: list[Any],
    *,
    body: Program,
    num_consts: int,
    num_carry: int,
    **p: Any,
) -> Entered:
    """The state is carried first."""
    consts, rest = args[:num_consts], args[num_consts:]
    count, new = len(state), inside.program(body, num_consts)
    outs = op(
        *consts, *state, *rest, body=new, num_consts=num_consts, num_carry=num_carry + count, **p
    )
    return outs[count:], outs[:count]


def eval_scan(
    op: Op,
    run: Callable[..., Any],
    args: list[Any],
    *,
    body: Program,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool,
    **p: Any,
) -> None:
    consts, carry, xs = parts(args, num_consts, num_carry)
    for i in reversed(range(length)) if reverse else range(length):
        slices = [x[i] for x in eval_trace().arrays(xs)]
        carry = run(body, [*consts, *carry, *slices])[:num_carry]


# -- while --


def enter_while(
    op: Op,
    inside: Inside,
    state: list[Any],
    args: list[Any],
    *,
    test: Program,
    body: Program,
    num_test: int,
    num_body: int,
) -> Entered:
    """The state is carried first. A test that changes it runs before the loop, and in the body."""
    tests, bodies, carry = parts(args, num_test, num_body)
    count, types = len(state), inside.types_here()
    if not inside.has(test):
        outs = op(
            *tests,
            *bodies,
            *state,
            *carry,
            test=ignoring(test, types, num_test),
            body=inside.program(body, num_body),
            num_test=num_test,
            num_body=num_body,
        )
        return outs[count:], outs[:count]
    tested = inside.program(test, num_test, 1)
    go_on, turn = _tested_in_body(tested, inside.program(body, num_body), num_test, num_body, count)
    first = tested(*tests, *state, *carry)
    outs = op(
        *tests,
        *bodies,
        *first,
        *carry,
        test=go_on,
        body=turn,
        num_test=0,
        num_body=num_test + num_body,
    )
    return outs[1 + count :], outs[1 : 1 + count]


@derived
def _tested_in_body(
    tested: Program, body: Program, num_test: int, num_body: int, count: int
) -> tuple[Program, Program]:
    """Test and body of a loop that carries the test's result, then the state of `count` values.

    tested: returns the test's result and the state.
    """
    consts, state = tested.in_types[:num_test], tested.in_types[num_test : num_test + count]
    carry = tested.in_types[num_test + count :]
    carried = [*tested.out_types[:1], *state, *carry]

    def turn(*args: Any) -> list[Any]:
        tests, bodies, (_, *rest) = parts(args, num_test, num_body)
        outs = body(*bodies, *rest)
        return [*tested(*tests, *outs), *outs[count:]]

    bodies = body.in_types[:num_body]
    return (
        program_of(lambda *args: [args[0]], carried, tested.name),
        program_of(turn, [*consts, *bodies, *carried], body.name),
    )


def eval_while(
    op: Op,
    run: Callable[..., Any],
    args: list[Any],
    *,
    test: Program,
    body: Program,
    num_test: int,
    num_body: int,
) -> None:
    tests, bodies, carry = parts(args, num_test, num_body)
    while bool(run(test, [*tests, *carry])[0]):
        carry = run(body, [*bodies, *carry])


# -- cond --


def enter_cond(
    op: Op, inside: Inside, state: list[Any], args: list[Any], *, branches: tuple[Program, ...]
) -> Entered:
    new = tuple([inside.program(branch) for branch in branches])
    outs = op(args[0], *state, *args[1:], branches=new)
    return outs[len(state) :], outs[: len(state)]


def eval_cond(
    op: Op, run: Callable[..., Any], args: list[Any], *, branches: tuple[Program, ...]
) -> None:
    run(branches[min(max(int(args[0]), 0), len(branches) - 1)], args[1:])
