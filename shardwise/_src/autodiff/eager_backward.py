"""Pulling cotangents back through a linear function.

A short one is transposed and compiled as one program on first use. It is cached by its structure,
so that an eager `grad` in a loop launches one program for the backward pass. Longer ones run op by
op: compiling them again for each structure would cost more than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.base.caches import Table
from shardwise._src.base.context import current
from shardwise._src.base.marks import spread
from shardwise._src.core.program import Program
from shardwise._src.core.structure import structure_of
from shardwise._src.ops.sharded.sharding_ops import cotangent_type, reshard_like
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.linearize import LinearFunction
from shardwise._src.transforms.transpose import transpose, transpose_program, transposes_inline
from shardwise._src.types.array_type import ArrayType

SHORT = 32  # equations
KEPT = 1024
_transposed: Table[tuple[Program, tuple[bool, ...]]] = Table(__name__, "transposes", KEPT)


def backward(
    linear: LinearFunction, cotangents: Sequence[Any], wanted: Sequence[bool] | None = None
) -> list[Any]:
    """Cotangents of the active inputs, from cotangents of the active results; None is zero.

    wanted: which of them to compute, by default all.
    """
    program, here = linear.program, current()
    if wanted is not None or transposes_inline(program):
        return transpose(program, linear.captured, cotangents, wanted)
    nonzero = tuple([ct is not None for ct in cotangents])
    own = (backward, here.key, nonzero)
    found = program.derived.get(own) if here.interpreter is EAGER else None
    if found is None:
        structure = None
        if here.interpreter is EAGER and _is_short(program):
            structure = structure_of(program)
        if structure is None:
            return transpose(program, linear.captured, cotangents)
        found = _transposed.find((*own, structure))
        if found is None:
            found = transpose_program(program, len(linear.captured), nonzero, exact=False)
            _transposed.put((*own, structure), found)
        program.derived[own] = found
    back, marks = found
    pairs = zip(cotangents, program.out_types, strict=True)
    cts = [_as_partial_sum(ct, t) for ct, t in pairs if ct is not None]
    values = [*linear.captured, *cts]
    return spread(EAGER.run(back, values) if any(marks) else (), marks)


def _as_partial_sum(ct: Any, t: ArrayType) -> Any:
    """The cotangent of a reduced value, which is unreduced: the program takes it in that form."""
    is_reduced = t.spec is not None and t.spec.reduced
    return reshard_like(ct, cotangent_type(t)) if is_reduced else ct


def _is_short(program: Program) -> bool:
    """Whether to compile it: few ops, none of which runs a user function or moves data.

    It must have no constants: its structure has only their addresses, which keep nothing alive.
    """
    equations = program.eqns
    return (
        1 < len(equations) <= SHORT
        and not program.consts
        and all(e.op.eager is None and not e.op.effects and not e.op.user_code for e in equations)
    )
