"""Lowering of collectives over mesh axes to instructions between devices.

The emitter (`lowering.manual`) writes them. Along axes with one device there is no communication.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.ops.families import BOOL
from shardwise._src.types.dtypes import is_complex

Lower = Callable[..., Any]
Groups = tuple[tuple[int, ...], ...] | None


def span(sizes: Sequence[int], groups: Groups = None) -> int:
    """The number of values that take part together."""
    return len(groups[0]) if groups else math.prod(sizes)


def is_even(groups: Groups) -> bool:
    return len({*map(len, groups or ())}) <= 1


def _over_axes(rule: Lower) -> Lower:
    """Applies a rule only if the bound axes have more than one device."""

    def lower(
        op: Op, e: Any, ins: Any, outs: Any, x: str, *, names: tuple, sizes: tuple, **p: Any
    ) -> Any:
        e.check_bound(op.name, names)
        groups = p.get("groups")
        if is_even(groups) and span(sizes, groups) == 1:
            return x
        return rule(op, e, ins, outs, x, names=names, sizes=sizes, **p)

    return lower


def folding(body: str, gathered: Callable[..., Any]) -> Lower:
    """body: the name of the binary instruction.

    gathered: the op as a function over ops, for cases that devices cannot reduce: groups of unequal
      sizes, and ordering of complex numbers. It gets all values, and reduces them itself.
    """
    of_bools = {"maximum": "or", "minimum": "and"}

    @_over_axes
    def lower(
        op: Op, e: Any, ins: Any, outs: Any, x: str, *, names: tuple, sizes: tuple, groups: Groups
    ) -> str:
        (t,) = ins
        if not is_even(groups) or (body != "add" and is_complex(t.dtype)):
            return e.via(gathered, ins, x, names=names, sizes=sizes, groups=groups)[0]
        kind = of_bools.get(body, body) if t.dtype == BOOL else body
        return e.all_reduce(x, t, kind, names, groups)

    return lower


@_over_axes
def all_gather(op: Op, e: Any, ins: Any, outs: Any, x: str, **p: Any) -> str:
    return e.all_gather(x, ins[0], outs[0], p["axis"], p["names"], p["groups"])


@_over_axes
def reduce_scatter(op: Op, e: Any, ins: Any, outs: Any, x: str, **p: Any) -> str:
    return e.reduce_scatter(x, ins[0], outs[0], p["axis"], p["names"], p["groups"])


@_over_axes
def all_to_all(op: Op, e: Any, ins: Any, outs: Any, x: str, **p: Any) -> str:
    return e.all_to_all(x, ins[0], outs[0], p["split"], p["concat"], p["names"], p["groups"])


def permute(
    op: Op, e: Any, ins: Any, outs: Any, x: str, *, names: tuple, sizes: tuple, perm: tuple
) -> str:
    (t,) = ins
    e.check_bound(op.name, names)
    if not perm:
        return e.constant(np.zeros((), t.dtype)[()], t)
    if math.prod(sizes) == 1:
        return x
    return e.collective_permute(x, t, perm, names)


def axis_index(op: Op, e: Any, ins: Any, outs: Any, *, names: tuple, sizes: tuple, **p: Any) -> str:
    e.check_bound(op.name, names)
    return e.scalar(0, outs[0].dtype) if sizes == (1,) else e.place_along(names[0])
