"""The `composite` op: a named operation, which a nested program computes.

Its decomposition is a function in the module; compilers may have a better implementation of the
name. Under `vmap` the decomposition is batched, because a batch dimension would change the op's
meaning.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise._src.control.call import enter_unless_lowered, opaque_call
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, **p: Any) -> list[str]:
    return e.composite(program, xs, **p)


def _no_derivative(op: Op, *given: Any, name: str, **p: Any) -> NoReturn:
    raise ValueError(
        f"composite {name!r} has no derivative: a compiler may compute it differently from "
        "its decomposition. Define one with `shardwise.custom_jvp`, or differentiate the "
        "decomposition."
    )


composite_op = opaque_call(
    "composite",
    lower=_lower,
    jvp=_no_derivative,
    transpose=_no_derivative,
    enter=enter_unless_lowered,
)
