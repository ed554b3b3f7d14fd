"""Varying types: which values differ along named axes; `pcast`, and making types agree.

Inside `shard_map`, the type of a value records the mesh axes along which it varies. Every op takes
operands that vary along different axes, and its results vary along all of them. The consequence for
derivatives is implemented once: the cotangent of an operand that does not vary along an axis is the
sum of the cotangents of all devices along it (`_of_all` in `transforms/transpose.py`), so that no
op needs a rule for it.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.rules import batch_in_place, linear_dims, linear_jvp, same_value

pcast = Op(
    "pcast",
    type_rule=lambda op, x, *, names: x.update(varying=x.varying.union(names)),
    dims=linear_dims((0,)),
    lower=same_value,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [ct],  # summed when cotangents are accumulated: `_of_all`
    batch=batch_in_place,
    elements=Elements.MOVED,
    pointwise=True,
)


def pvary(x: Any, names: Any) -> Any:
    """The value as varying along these names."""
    more = tuple(sorted({*names} - type_of(x).varying, key=str))
    return pcast(x, names=more) if more else x


def everywhere(x: Any) -> Any:
    """The value as varying along all axes in scope that types track."""
    return pvary(x, tracked_names())


def tracked_names() -> frozenset[Any]:
    return frozenset([axis.name for axis in current().axes if axis.tracked])
