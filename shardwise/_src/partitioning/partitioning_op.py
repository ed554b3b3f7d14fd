"""The op of `custom_partitioning`: a function with user-defined per-device code.

The op holds the function's program, which defines its meaning: on one device it is inlined. Its
`rule` partitions it; see `partitioning_rule`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise._src.control.call import enter_unless_lowered, opaque_call
from shardwise._src.core.op import Op
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared
from shardwise._src.ops.basis import move_axis
from shardwise._src.partitioning.partitioned_calls import partitioned_call
from shardwise._src.partitioning.partitioning_rule import MappedRule, PartitioningRule
from shardwise._src.transforms.batch import Axis, MappedAxis, axes_in, batch_program, moved_into
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims


def _dims(op: Op, *types: ArrayType, program: Program, rule: PartitioningRule) -> Dims:
    mesh = next((t.mesh for t in types if t.mesh is not None), None)
    return rule.dims(mesh, types, program.out_types)


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, program: Program, rule: PartitioningRule
) -> list[str]:
    return partitioned_call(e, rule, program, xs, ins, outs)


def _no_derivative(op: Op, *given: Any, rule: PartitioningRule, **p: Any) -> NoReturn:
    raise NotImplementedError(
        f"custom_partitioning function {rule.name} has no derivative: nothing specifies how it "
        "would be partitioned. Define one with `shardwise.custom_vjp` or `shardwise.custom_jvp`, "
        "around a function that calls it."
    )


def _batch(
    op: Op, mapped: MappedAxis, args: Any, dims: Any, *, program: Program, rule: PartitioningRule
) -> tuple[list[Any], list[int]]:
    name = mapped.axis.name
    if name is not None and name in axes_in(program):
        raise NotImplementedError(
            f"custom_partitioning function {rule.name} has collectives along {name!r}, the axis "
            "of a `vmap` around it, which its `partition` cannot see. Call them outside of "
            "the function."
        )
    marks = tuple([d is not None for d in dims])
    axis = Axis(mapped.size) if rule.sets_result_shardings else mapped.of(args, dims)
    wide, _ = batch_program(program, axis, marks, (True,) * len(program.outvars))
    given = [a if d is None else move_axis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    given = given if rule.sets_result_shardings else moved_into(wide, args, dims)
    outs = op(*given, program=shared(wide), rule=MappedRule(rule, mapped.size, marks))
    return outs, [0] * len(outs)


custom_partitioning_call = opaque_call(
    "custom_partitioning",
    dims=_dims,
    lower=_lower,
    jvp=_no_derivative,
    transpose=_no_derivative,
    batch=_batch,
    enter=enter_unless_lowered,
    has_partitioner_callback=True,
    aliases={"call": "program"},
)
