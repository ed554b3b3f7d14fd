"""`optimization_barrier`: an identity that the compiler does not optimize across.

The inputs of one barrier are computed before any of its outputs is used, and only once: they are
not fused into users or recomputed for each user.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.op import Elements, Op
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dims import Dims, letters


def _dims(op: Op, *xs: ArrayType) -> Dims:
    names = letters(sum(x.ndim for x in xs))
    parts, start = [], 0
    for x in xs:
        parts.append(names[start : start + x.ndim])
        start += x.ndim
    return Dims(tuple(parts), tuple(parts), linear=(tuple(range(len(xs))),))


def _lower(op: Op, e: Any, ins: Any, outs: Any, *xs: str) -> list[str]:
    if not xs:
        return []
    types = ", ".join(e.ty(t) for t in ins)
    return e.lets(f"stablehlo.optimization_barrier {', '.join(xs)} : {types}", len(xs))


def _jvp(op: Op, primals: Any, tangents: Any) -> tuple[list, list]:
    given = [t for t in tangents if t is not None]
    moved = iter(optimization_barrier(*given) if given else [])
    return optimization_barrier(*primals), [None if t is None else next(moved) for t in tangents]


def _transpose(op: Op, cts: Any, *xs: Any) -> list[Any]:
    given = [ct for ct in cts if ct is not None]
    moved = iter(optimization_barrier(*given) if given else [])
    return [None if ct is None else next(moved) for ct in cts]


optimization_barrier = Op(
    "optimization_barrier",
    multiple=True,
    elements=Elements.MOVED,
    type_rule=lambda op, *xs: tuple(x.update(spec=None, mesh=None) for x in xs),
    dims=_dims,
    lower=_lower,
    jvp=_jvp,
    transpose=_transpose,
    batch=lambda op, mapped, args, dims: (op(*args), list(dims)),
)


def kept(x: Any) -> Any:
    """One value behind a barrier."""
    return optimization_barrier(x)[0]
