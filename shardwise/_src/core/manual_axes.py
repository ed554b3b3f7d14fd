"""Manual axes in types: along which axes results vary, are unreduced, or are reduced.

Inside `shard_map`, a value is in one of four states along each manual axis that types track:
varying (each device has another value), unreduced (their sum is the value), reduced (all have the
same value, and its cotangent is unreduced), or, in none of these sets, invarying (all have the same
value, and the same cotangent). Results of every op are

- varying along the axes of all operands: an operand in the state invarying or reduced counts as
  varying where another operand varies;
- unreduced as the operands in which the op is linear, by its `dims` rule;
- reduced as all operands, or as the other factors of an unreduced one, which then stays unreduced.

Scalars and integers that are the same on all devices are compatible with everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.op import Op
from shardwise._src.messages.formatting import join
from shardwise._src.types.abstract import ManualAxisType
from shardwise._src.types.array_type import NO_NAMES, ArrayType, in_row
from shardwise._src.types.dtypes import is_inexact


def has_manual_axes(t: ArrayType) -> bool:
    """Whether a type has any of the three sets."""
    return bool(t.varying or t.unreduced or t.reduced)


def of_results(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> ManualAxisType:
    """The state of an op's results, from that of its operands."""
    varying = NO_NAMES.union(*[t.varying for t in types])
    unreduced = reduced = NO_NAMES
    if any(t.unreduced or t.reduced for t in types):
        unreduced = _unreduced(op, types, params)
        reduced = _reduced(op, types, varying) - unreduced
    found = ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced)
    return found if op.manual_axes is None else op.manual_axes(op, found, **params)


def _unreduced(op: Op, types: tuple[ArrayType, ...], params: dict[str, Any]) -> frozenset[Any]:
    held = {i for i, t in enumerate(types) if t.unreduced}
    if not held:
        return NO_NAMES
    names = types[min(held)].unreduced
    linear = () if op.dims is None else op.dims(op, *types, **params).linear
    groups = [{*group} for group in linear]
    others = [t for i, t in enumerate(types) if i not in held and t.ndim]
    if not any(group >= held for group in groups):
        raise NotImplementedError(
            f"[{op.name}] operands {in_row(types)}: an operand is unreduced along {_row(names)}, "
            "and the op is not linear in it, so there is no unreduced rule for "
            f"{op.name}. {_SUM}"
        )
    if op.contraction or held not in groups or any(types[i].unreduced != names for i in held):
        raise ShardingTypeError(
            f"[{op.name}] operands {in_row(types)} are not unreduced along the same axes, and the "
            f"op would add partial sums to full values. {_SUM}"
        )
    if any(not names <= t.reduced for t in others):
        raise ShardingTypeError(
            f"[{op.name}] operands {in_row(types)}: one is unreduced along {_row(names)}, along "
            "which the others must be reduced. Cast them: `shardwise.lax.pcast(x, axis_name, "
            "to='reduced')`."
        )
    return names


def _reduced(op: Op, types: tuple[ArrayType, ...], varying: frozenset[Any]) -> frozenset[Any]:
    kinds = {t.reduced - varying for t in types} - {NO_NAMES}
    if not kinds or op.contraction:
        return NO_NAMES
    names = kinds.pop()
    others = [t for t in types if not t.reduced - varying and not t.unreduced]
    if kinds or any(t.ndim and is_inexact(t.dtype) for t in others):
        raise ShardingTypeError(
            f"[{op.name}] operands {in_row(types)} are not reduced along the same axes, so their "
            "cotangents would be summed differently. Cast those that are the same on all devices: "
            "`shardwise.lax.pcast(x, axis_name, to='reduced')`."
        )
    return names


_SUM = "Take the sum first: `shardwise.lax.psum(x, axis_name)`."


def _row(names: Iterable[Any]) -> str:
    return join(sorted(names, key=str))
