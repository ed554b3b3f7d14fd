"""Values shared by all indices of a named axis, and the sum of their cotangents over the axis.

    w = share(w, w, names=("i",), sizes=(4,), units=(0,))    # w; its cotangent is summed over i

Whether a value is the same along an axis is known when the batch interpreter removes the axis: the
operand `primal` has a batch dimension for it, or not. A value that varies has a cotangent for each
index, which is unchanged.

units: a number for each name; names with the same number represent one user axis, of which the
       batch interpreter removes the last name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading
from shardwise._src.ops.rules import linear_dims, linear_in_first, same_value
from shardwise._src.ops.sharded.collective import psum


def _batch(
    op: Op, mapped: Any, args: Any, dims: Any, *, sums: bool, **p: Any
) -> tuple[Any, int | None]:
    """sums: whether to sum over the axis if `primal` does not vary along it."""
    (x, primal), (d, held), name = args, dims, mapped.axis.name
    names, sizes, units = p["names"], p["sizes"], p["units"]
    if name is not None and name in names:
        unit = units[names.index(name)]
        own = [i for i, u in enumerate(units) if u == unit]
        if sums and held is None:
            along = {"names": _at(names, own), "sizes": _at(sizes, own), "groups": None}
            x, d = psum.batch(psum, mapped, (x,), (d,), **along)  # type: ignore[misc]
        rest = [i for i in range(len(names)) if i not in own]
        if not rest:
            return x, d
        p = {key: _at(row, rest) for key, row in p.items()}
    if d is None and held is None:
        return op(x, primal, **p), None
    return batch_leading(op, mapped, (x, primal), (d, held), **p)


def _at(row: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple([row[i] for i in places])


def _unknown(
    op: Op, e: Any, ins: Any, outs: Any, x: str, primal: str, *, names: tuple, **p: Any
) -> NoReturn:
    e.check_bound(op.name, names)
    axes = " and ".join(map(repr, names))
    raise NotImplementedError(
        f"[{op.name}] whether an argument is invarying along {axes} is unknown inside a shard_map "
        "with check_vma=False or a pmap. Leave check_vma on, so that derivatives with respect to "
        "invarying values are already summed; or leave out axis_name, and sum with "
        "`shardwise.lax.psum`."
    )


share = Op(
    "share",
    type_rule=lambda op, x, primal, **p: x,
    dims=linear_dims((0,)),
    lower=same_value,
    jvp=linear_in_first,
    transpose=lambda op, ct, x, primal, **p: [shared_sum(ct, primal, **p), None],
    batch=partial(_batch, sums=False),
    elements=Elements.MOVED,
    named_axes=("names", "sizes"),
)
shared_sum = Op(
    "shared_sum",
    type_rule=lambda op, x, primal, **p: x,
    dims=linear_dims((0,)),
    lower=_unknown,
    jvp=linear_in_first,
    transpose=lambda op, ct, x, primal, **p: [op(ct, primal, **p), None],
    batch=partial(_batch, sums=True),
    named_axes=("names", "sizes"),
    is_expensive=True,
)
