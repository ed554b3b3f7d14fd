"""Sample statistics: ranks, the mode, the standard error of the mean."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.core.fused import fused
from shardwise._src.core.infer import type_of
from shardwise._src.lax.lax_reductions import cummax, cummin
from shardwise._src.numpy.creation import full_like
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ordering.sorting import argsort, sort
from shardwise._src.numpy.picking import take_along_axis
from shardwise._src.numpy.shapes import moveaxis, ravel
from shardwise._src.numpy.statistics.averages import std
from shardwise._src.numpy.statistics.nan_reductions import nanstd
from shardwise._src.numpy.statistics.reductions import argmax
from shardwise._src.numpy.statistics.scans import cumsum
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.create import iota
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_inexact
from shardwise._src.values.convert import broadcast_to, cast, promote_inexact

METHODS = ("average", "min", "max", "dense", "ordinal")


def _check_policy(name: str, policy: str, known: tuple[str, ...]) -> None:
    if policy in ("omit", "raise") and policy not in known:
        raise NotImplementedError(
            f"{name}: nan_policy={policy!r} is not supported: "
            + (
                "whether there are NaNs is unknown at trace time."
                if policy == "raise"
                else "use 'propagate'."
            )
        )
    if policy not in known:
        raise ValueError(f"{name}: nan_policy must be one of {known}; got {policy!r}.")


def _runs(s: Any) -> tuple[Any, Any]:
    """For values sorted along the last axis: positions, and where a new value starts."""
    shape = type_of(s).shape
    places = iota(dtype=np.dtype("int32"), shape=shape, dimension=len(shape) - 1)
    before, after = s[..., :-1], s[..., 1:]
    new = before != after
    if is_inexact(type_of(s).dtype):
        new = new & ~((before != before) & (after != after))  # NaNs are equal
    return places, concatenate([broadcast_to(True, (*shape[:-1], 1)), new], axis=-1)


# -- mode --


class ModeResult(NamedTuple):
    """The most frequent value, and its count."""

    mode: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride] (the name in SciPy)


def mode(
    a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent value along `axis` (of all elements for None); the smallest if tied.

    NaNs count as one value. Without elements: NaN, 0 times. nan_policy: must be "propagate".
    """
    _check_policy("mode", nan_policy, ("propagate",))
    return ModeResult(*_mode(a, axis, bool(keepdims)))


@fused(arrays=1)
def _mode(a: Any, axis: int | None, keepdims: bool) -> Any:
    t = type_of(a)
    if axis is None or not t.ndim:
        kept, rows = (1,) * t.ndim, ravel(a)
    else:
        place = canonical_axis(axis, t.ndim)
        kept = tuple(1 if i == place else n for i, n in enumerate(t.shape))
        rows = moveaxis(a, place, -1)
    *outer, size = type_of(rows).shape
    shape = kept if keepdims else tuple(outer)
    if not size:
        floats = canonicalize(float)
        return tuple(broadcast_to(cast(v, floats), shape) for v in (math.nan, 0.0))
    s = sort(rows, axis=-1)
    places, new = _runs(s)
    length = places - cummax(where(new, places, 0), axis=len(outer)) + 1
    best = argmax(length, axis=-1, keepdims=True)
    return tuple(take_along_axis(v, best, axis=-1).reshape(shape) for v in (s, length))


# -- ranks --


def rankdata(
    a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Array:
    """The ranks of elements along `axis`, from 1, as floats; of the flat array for None.

    method: of equal elements: "average", "min", "max"; "dense": consecutive ranks for distinct
            values; "ordinal": in the order of occurrence.
    nan_policy: must be "propagate": rows with a NaN are NaN.
    """
    if method not in METHODS:
        raise ValueError(f"rankdata: method must be one of {METHODS}; got {method!r}.")
    _check_policy("rankdata", nan_policy, ("propagate",))
    return _rankdata(a, method, axis)


@fused(arrays=1)
def _rankdata(a: Any, method: str, axis: int | None) -> Any:
    if axis is None:
        a, axis = ravel(a), 0
    place = canonical_axis(axis, type_of(a).ndim)
    rows = moveaxis(a, place, -1)
    floats, last = canonicalize(float), type_of(rows).ndim - 1
    if not type_of(a).size:
        return cast(a, floats)
    order = argsort(rows, axis=-1)
    places, new = _runs(take_along_axis(rows, order, axis=-1))
    least = cummax(where(new, places, 0), axis=last) + 1
    ends = concatenate([new[..., 1:], full_like(new[..., :1], True)], axis=-1)
    most = cummin(where(ends, places, type_of(rows).shape[-1]), axis=last, reverse=True) + 1
    ranks = {
        "average": lambda: cast(least + most, floats) * 0.5,
        "min": lambda: least,
        "max": lambda: most,
        "dense": lambda: cumsum(cast(new, np.dtype("int32")), axis=-1),
        "ordinal": lambda: places + 1,
    }[method]()
    back = argsort(order, axis=-1)
    out = cast(take_along_axis(ranks, back, axis=-1), floats)
    if is_inexact(type_of(rows).dtype):
        out = where((rows != rows).any(-1, keepdims=True), math.nan, out)
    return moveaxis(out, -1, place)


# -- standard error of the mean --


def sem(
    a: ArrayLike,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean: the standard deviation over the square root of the count.

    nan_policy: "propagate", or "omit", which ignores NaNs.
    """
    _check_policy("sem", nan_policy, ("propagate", "omit"))
    return _sem(a, axis, ddof, nan_policy == "omit", bool(keepdims))


@fused(arrays=1)
def _sem(a: Any, axis: int | None, ddof: int, omit: bool, keepdims: bool) -> Any:
    (a,) = promote_inexact(a)
    t = type_of(a)
    if omit:
        count = cast((a == a).sum(axis, keepdims=keepdims), t.dtype)
        return nanstd(a, axis, ddof=ddof, keepdims=keepdims) / ew.sqrt(count)
    size = t.size if axis is None else t.shape[canonical_axis(axis, t.ndim)]
    return std(a, axis, ddof=ddof, keepdims=keepdims) * (size**-0.5 if size else math.nan)
