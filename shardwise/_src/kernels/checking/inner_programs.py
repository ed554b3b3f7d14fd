"""Runs operations that contain programs by running these: loops, branches and calls.

It does not know what values are: the check of memory has pairs of arrays and versions of refs, in
steps between which other devices run; `checked` has lists of the arrays of all devices.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from shardwise._src.control.cond import cond
from shardwise._src.control.programs import ScanParams, WhileParams
from shardwise._src.control.scan import scan
from shardwise._src.control.while_loop import while_loop
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program

Steps = Generator[bool, None, list[Any]]  # until other devices go on, whether this one is polling


def run_inner(
    op: Op,
    params: dict[str, Any],
    args: Sequence[Any],
    run: Callable[[Program, Sequence[Any]], Steps],
    condition: Callable[[Any], Any],
    apply: Callable[..., Any],
) -> Steps:
    """The results of an operation that contains programs.

    run: runs one of its programs. condition: the array of a value that decides what runs. apply:
    the value of a function of arrays.
    """
    if op is while_loop:
        own = WhileParams(**params)
        tests, bodies, carry = own.parts(args)
        while condition((yield from run(own.test, [*tests, *carry]))[0]):
            carry = yield from run(own.body, [*bodies, *carry])
        return list(carry)
    if op is scan:
        return (yield from _scanned(ScanParams(**params), args, run, apply))
    if op.contains.eval is None:
        raise NotImplementedError(
            f"checked: a kernel is launched inside of {op.name}, which cannot be checked. Check "
            "the function inside of it."
        )
    called, values = [], [condition(args[0]), *args[1:]] if op is cond else [*args]
    op.contains.eval(op, lambda *call: called.append(call), values, **params)
    ((program, inputs),) = called  # it calls one program, or runs a branch
    return (yield from run(program, inputs))


def _scanned(own: ScanParams, args: Sequence[Any], run: Any, apply: Callable[..., Any]) -> Steps:
    consts, carry, xs = own.parts(args)
    rows: list[list[Any]] = []
    for i in sorted(range(own.length), reverse=own.reverse):
        slices = [apply(lambda x, i=i: np.asarray(x)[i], x) for x in xs]
        outs = yield from run(own.body, [*consts, *carry, *slices])
        carry = outs[: own.num_carry]
        rows.append(outs[own.num_carry :])
    if own.reverse:
        rows.reverse()

    def stacked(j: int, t: Any) -> Any:
        def stack(*parts: Any) -> np.ndarray:
            return np.asarray([*map(np.asarray, parts)], t.dtype).reshape(own.length, *t.shape)

        return apply(stack, *[row[j] for row in rows])

    return [*carry, *[stacked(j, t) for j, t in enumerate(own.body.out_types[own.num_carry :])]]


def finished(steps: Steps) -> list[Any]:
    """The results of steps that do not wait for other devices."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("these steps wait for other devices")
