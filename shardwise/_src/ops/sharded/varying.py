"""The state of values along manual axes: `pcast`, and making types agree.

Inside `shard_map`, the type of a value records the mesh axes along which it varies, is unreduced,
or is reduced (`core.manual_axes`). Every op takes operands that vary along different axes, and its
results vary along all of them. The consequence for derivatives is implemented once: the cotangent
of an operand that does not vary along an axis is the sum of the cotangents of all devices along it
(`_of_all` in `transforms/transpose.py`); that of a reduced operand is unreduced instead. So no op
needs a rule for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.formatting import join
from shardwise._src.ops.rules import batch_in_place, linear_dims, linear_jvp, same_value
from shardwise._src.types.array_type import ArrayType

# The states from which a value can be cast, without communication, to each state.
SOURCES = {
    "varying": ("invarying", "reduced"),
    "reduced": ("invarying",),
    "unreduced": ("varying",),
}


def state_along(t: ArrayType, name: Any) -> str:
    """The state of values of type `t` along a manual axis."""
    states = (("varying", t.varying), ("unreduced", t.unreduced), ("reduced", t.reduced))
    return next((state for state, names in states if name in names), "invarying")


def _checked(op: Op, x: ArrayType, *, names: tuple, to: str) -> ArrayType:
    for name in names:
        if (state := state_along(x, name)) not in SOURCES[to]:
            raise ValueError(
                f"[{op.name}] cannot cast {x.str_short(True)} from {state} to {to} along {name!r}: "
                f"only from {join(SOURCES[to], 'or')}."
            )
    return x


pcast = Op(
    "pcast",
    type_rule=_checked,
    dims=linear_dims((0,)),
    manual_axes=lambda op, axes, *, names, to: axes.cast(names, to),
    lower=same_value,
    jvp=linear_jvp,
    transpose=lambda op, ct, x, **p: [ct],  # cast when cotangents are accumulated: `_of_all`
    batch=batch_in_place,
    elements=Elements.MOVED,
    pointwise=True,
)


def casts(held: ArrayType, t: ArrayType) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The casts, as names and state, from one type to another as far as casts can get there."""
    rows = (
        ("varying", t.varying - held.varying - held.unreduced),
        ("reduced", t.reduced - held.varying - held.unreduced - held.reduced),
        ("unreduced", t.unreduced & held.varying),
    )
    for state, names in rows:
        if names:
            yield tuple(sorted(names, key=str)), state


def cast_like(x: Any, t: ArrayType) -> Any:
    """The value in the states of type `t`, as far as casts can change them."""
    for names, state in casts(type_of(x), t):
        x = pcast(x, names=names, to=state)
    return x


def pvary(x: Any, names: Any) -> Any:
    """The value as varying along these names."""
    more = tuple(sorted({*names} - type_of(x).varying, key=str))
    return pcast(x, names=more, to="varying") if more else x


def everywhere(x: Any) -> Any:
    """The value as varying along all axes in scope that types track."""
    return pvary(x, tracked_names())


def tracked_names() -> frozenset[Any]:
    return frozenset([axis.name for axis in current().axes if axis.tracked])
