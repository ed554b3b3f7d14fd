"""Calls, branches and loops with a state passed through their programs: the `enter` rules.

    enter(op, inside, state, args, **params) → (results, state)

`inside` is what a transform does in the programs (`transforms.entering.Inside`). This module also
has the `eval` rules, which run programs one by one to find the origin of a NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.control.programs import ScanParams, WhileParams, parts
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.op import Entered, Op
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import derived
from shardwise._src.transforms.entering import Inside, ignoring
from shardwise._src.transforms.stage import program_of

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


def enter_scan(op: Op, inside: Inside, state: list[Any], args: list[Any], **params: Any) -> Entered:
    """The state is carried first."""
    own, count = ScanParams(**params), len(state)
    consts, carry, xs = own.parts(args)
    body = inside.program(own.body, own.num_consts)
    new = own._replace(body=body, num_carry=own.num_carry + count)
    outs = op(*consts, *state, *carry, *xs, **new._asdict())
    return outs[count:], outs[:count]


def eval_scan(op: Op, run: Callable[..., Any], args: list[Any], **params: Any) -> None:
    own = ScanParams(**params)
    consts, carry, xs = own.parts(args)
    steps = range(own.length)
    for i in reversed(steps) if own.reverse else steps:
        slices = [x[i] for x in eval_trace().arrays(xs)]
        carry = run(own.body, [*consts, *carry, *slices])[: own.num_carry]


# -- while --


def enter_while(
    op: Op, inside: Inside, state: list[Any], args: list[Any], **params: Any
) -> Entered:
    """The state is carried first. A test that changes it runs before the loop, and in the body."""
    own, count = WhileParams(**params), len(state)
    tests, bodies, carry = own.parts(args)
    body = inside.program(own.body, own.num_body)
    if not inside.has(own.test):
        test = ignoring(own.test, inside.types_here(), own.num_test)
        new = own._replace(test=test, body=body)
        outs = op(*tests, *bodies, *state, *carry, **new._asdict())
        return outs[count:], outs[:count]
    tested = inside.program(own.test, own.num_test, 1)
    go_on, turn = _tested_in_body(tested, body, own.num_test, own.num_body, count)
    first = tested(*tests, *state, *carry)
    new = WhileParams(go_on, turn, 0, own.num_test + own.num_body)
    outs = op(*tests, *bodies, *first, *carry, **new._asdict())
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


def eval_while(op: Op, run: Callable[..., Any], args: list[Any], **params: Any) -> None:
    own = WhileParams(**params)
    tests, bodies, carry = own.parts(args)
    while bool(run(own.test, [*tests, *carry])[0]):
        carry = run(own.body, [*bodies, *carry])


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
