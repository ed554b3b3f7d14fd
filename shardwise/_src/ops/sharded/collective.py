"""Collectives: ops between the values along named axes.

    psum(x, names=("i",), sizes=(4,), groups=None)        # x, summed over the axis i

An axis is named by the `vmap` that maps over it, or is a mesh axis, inside `shard_map`. The batch
interpreter of a `vmap` consumes the name: what an op does along the axis becomes an operation along
the batch dimension. Names of other axes stay, so that a collective over several is decomposed axis
by axis; mesh axes are left to the program that runs, whose devices exchange the values
(`ops.sharded.exchange`). With names n₁ … nₖ, values are numbered in row-major order: the index
along the last axis changes fastest.

names, sizes: the axes, and the number of values along each.
groups:       None, or a partition of the indices along one axis: groups are independent of one
              another.

`all_gather`, `reduce_scatter` and `all_to_all` preserve the rank, as in StableHLO; the variants
that add or remove a dimension (`lax.parallel`) are reshapes around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.messages.formatting import join
from shardwise._src.ops.basis import batch_first, move_axis, reduce_sum, reshape, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import iota
from shardwise._src.ops.elementwise import div, mul
from shardwise._src.ops.families import ANY, NUMERIC, add, check_domain, lit
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice
from shardwise._src.ops.indexing.rows import rows
from shardwise._src.ops.logical import eq, where
from shardwise._src.ops.reduce import reduce_max, reduce_min, reduce_or
from shardwise._src.ops.rules import linear_jvp
from shardwise._src.ops.shape import along, concatenate, slice_in_dim, squeeze
from shardwise._src.ops.sharded import exchange
from shardwise._src.ops.sharded.exchange import Groups, is_even, span
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import pcast, pvary
from shardwise._src.types.abstract import ManualAxisType
from shardwise._src.types.array_type import ArrayType, array_type, with_sharding
from shardwise._src.types.dims import Dims

INT32 = np.dtype("int32")


# -- common code --


def collective(
    name: str, *, type_rule: Callable, alone: Callable, positions: Sequence[str] = (), **rules: Any
) -> Op:
    """An op with one operand.

    alone:     `(x, d, size, before, after, **params) → (result, dim)`: the op over one axis whose
               values are along dimension `d` of `x`. before, after: parameters `names` and `sizes`
               of the axes before and after it; None if there are none.
    positions: the parameters that are dimensions of the operand.
    """

    def dims(op: Op, x: ArrayType, **p: Any) -> Dims:
        kept = along(x, [p[name] for name in positions])
        return Dims((kept,), (kept,), linear=((0,),))

    fields = {
        "type_rule": type_rule,
        "dims": dims,
        "jvp": linear_jvp,
        "batch": _batch(alone, tuple(positions)),
        "elements": Elements.MOVED,
        "is_expensive": True,
    }
    return Op(name, named_axes=("names", "sizes"), **fields | rules)


def from_varying(to: str) -> Callable:
    """The rule of a collective of varying values. to: the state of its results."""

    def rule(
        op: Op, axes: ManualAxisType, *, names: tuple, groups: Groups = None, **p: Any
    ) -> ManualAxisType:
        return axes if groups else axes.cast(axes.varying.intersection(names), to)

    return rule


def _batch(alone: Callable, positions: tuple[str, ...]) -> Callable:
    def rule(
        op: Op, mapped: Any, args: Any, ds: Any, *, names: tuple, sizes: tuple, **p: Any
    ) -> tuple[Any, int | None]:
        (x,), (d,), name = args, ds, mapped.axis.name
        if name is None or name not in names:
            x, shifted = batch_first(mapped.size, x, d), {k: p[k] + 1 for k in positions}
            return op(x, names=names, sizes=sizes, **{**p, **shifted}), 0
        rest = (None, None) if len(names) == 1 else _beside(names, sizes, name, "groups" in p)
        if d is None:
            x, d = batch_first(mapped.size, x, None), 0
        if p.get("groups"):
            if rest[1]:
                raise NotImplementedError(
                    f"[{op.name}] axis_index_groups over several axes, {join(names)}: that of a "
                    f"`vmap`, {name!r}, must be the last one."
                )
            return _grouped(alone, move_axis(x, d, 0), rest[0], **p), 0
        return alone(x, d, mapped.size, *rest, **p)

    return rule


def _beside(names: tuple, sizes: tuple, name: Any, grouped: bool) -> list[dict[str, Any] | None]:
    """The axes before and after the axis `name`."""
    at, fixed = names.index(name), {"groups": None} if grouped else {}
    return [_axes(names[s], sizes[s], fixed) for s in (slice(at), slice(at + 1, None))]


def _axes(names: tuple, sizes: tuple, fixed: dict[str, Any]) -> dict[str, Any] | None:
    return {"names": names, "sizes": sizes, **fixed} if names else None


def _grouped(alone: Callable, x: Any, before: Any, groups: Any, **p: Any) -> Any:
    """Group by group, along dimension 0. before: the parameters of preceding axes, or None.

    A group may span several devices: then each gathers all its values, and slices its own.
    """
    parts, own = [], type_of(x).shape[0]
    if before:
        x = all_gather(x, axis=0, to="varying", **before)
    for group in groups:
        out, dim = alone(rows(x, group), 0, len(group), None, None, groups=None, **p)
        parts.append(batch_first(len(group), out, dim))
    order = [i for group in groups for i in group]
    found = rows(concatenate(*parts, dimension=0), np.argsort(order))
    if not before:
        return found
    start = mul(number(before["names"], before["sizes"]), np.int32(own))
    starts = [start, *[np.int32(0)] * (type_of(found).ndim - 1)]
    return dynamic_slice(found, *starts, slice_sizes=(own, *type_of(found).shape[1:]))


def _split(x: Any, axis: int, *parts: int) -> Any:
    """Splits the dimension into several, major first."""
    shape = type_of(x).shape
    return reshape(x, shape=(*shape[:axis], *parts, *shape[axis + 1 :]))


def _merged(x: Any, axis: int) -> Any:
    """Merges a dimension and the next one."""
    shape = type_of(x).shape
    size = shape[axis] * shape[axis + 1]
    return reshape(x, shape=(*shape[:axis], size, *shape[axis + 2 :]))


def _shape_kept(op: Op, x: ArrayType, **p: Any) -> ArrayType:
    return array_type(x.shape, x.dtype, x.weak_type)


# -- psum, pmax, pmin: reductions of all values, replicated --


def _reduction(
    name: str, domain: Any, reduce: Op, body: str, repeated: Callable, **rules: Any
) -> Op:
    """body: the name of the binary instruction.

    repeated: `(x, size)` → the result for `size` equal values.
    """

    def type_rule(op: Op, x: ArrayType, **p: Any) -> ArrayType:
        check_domain(op.name, domain, (x,))
        return _shape_kept(op, x)

    def alone(x: Any, d: int, size: int, before: Any, after: Any, **p: Any) -> tuple[Any, None]:
        x, rest = reduce(x, axes=(d,)), _together(before, after)
        return (new(x, groups=None, **rest) if rest else x), None

    def batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, int | None]:
        """An unmapped value is not repeated, and its dimensions are not moved."""
        (x,), (d,), own = args, ds, mapped.axis.name
        names, sizes, groups = p["names"], p["sizes"], p["groups"]
        if own not in names:
            return op(x, names=names, sizes=sizes, groups=groups), d
        if d is not None or not is_even(groups) or (groups and len(names) > 1):
            return taken_apart(op, mapped, args, ds, **p)
        at = names.index(own)
        others = names[:at] + names[at + 1 :], sizes[:at] + sizes[at + 1 :]
        rest = _axes(*others, {"groups": None})
        x = op(x, **rest) if rest else x
        return repeated(x, span((mapped.size,), groups)), None

    taken_apart = _batch(alone, ())
    fields = {
        "type_rule": type_rule,
        "alone": alone,
        "batch": batch,
        "manual_axes": from_varying("invarying"),
        "lower": exchange.folding(body, partial(_gathered, reduce)),
        "elements": Elements.COMPUTED,
    }
    new = collective(name, **fields | rules)
    return new


def _gathered(reduce: Op, x: Any, names: tuple, sizes: tuple, groups: Groups) -> Any:
    """All values, gathered and reduced by each device; without those of other groups."""
    every = _every(x, names, sizes)
    if groups is None:
        return reduce(every, axes=(0,))
    parts = [reduce(rows(every, group), axes=(0,)) for group in groups]
    for group, part in zip(groups[1:], parts[1:], strict=True):
        parts[0] = where(_among(group, {"names": names, "sizes": sizes}), part, parts[0])
    return parts[0]


def _every(x: Any, names: tuple, sizes: tuple) -> Any:
    """All values, along a new first dimension."""
    one = reshape(x, shape=(1, *type_of(x).shape))
    return all_gather(one, names=names, sizes=sizes, groups=None, axis=0, to="varying")


def _among(numbers: Sequence[int], axes: dict[str, Any]) -> Any:
    """Whether the index along the axes is one of these numbers."""
    return reduce_or(eq(number(**axes), np.asarray(numbers, INT32)), axes=(0,))


def transpose_sum(op: Op, ct: Any, x: Any, *, names: tuple, sizes: tuple, **p: Any) -> list[Any]:
    """Each value was added to all results. For tracked axes the result is one value, and so is the
    cotangent; for the other axes, the cotangents of all results are summed.
    """
    tracked = {n for n in names if n in x.aval.varying and not p["groups"]}
    pairs = [(n, size) for n, size in zip(names, sizes, strict=True) if n not in tracked]
    if pairs:
        names, sizes = zip(*pairs, strict=True)
        ct = psum(ct, names=names, sizes=sizes, **p)
    return [pvary(ct, tracked)]


def _from_unreduced(to: str) -> Callable:
    """The rule of a sum of unreduced values. to: the state of its results."""
    return lambda op, axes, *, names, **p: axes.cast(axes.unreduced.intersection(names), to)


def _extreme_jvp(op: Op, primals: Any, tangents: Any, **p: Any) -> tuple[Any, Any]:
    """The mean of the tangents of the values that equal the result."""
    (x,), (t,) = primals, tangents
    out = op(x, **p)
    found = convert_element_type(eq(x, out), dtype=type_of(t).dtype)
    return out, div(psum(mul(t, found), **p), psum(found, **p))


def _times(x: Any, size: int) -> Any:
    """The sum of equal values."""
    return mul(x, lit(size, x))


psum = _reduction("psum", NUMERIC, reduce_sum, "add", _times, transpose=transpose_sum)
# unreduced_psum: the sum of an unreduced value. Its cotangent, that of all devices, is reduced.
unreduced_psum = _reduction(
    "unreduced_psum",
    NUMERIC,
    reduce_sum,
    "add",
    _times,
    manual_axes=_from_unreduced("invarying"),
    transpose=lambda op, ct, x, **p: [ct],
)
pmax = _reduction("pmax", ANY, reduce_max, "maximum", lambda x, size: x, jvp=_extreme_jvp)
pmin = _reduction("pmin", ANY, reduce_min, "minimum", lambda x, size: x, jvp=_extreme_jvp)


# -- all_gather: all values, concatenated along `axis`, for all --
# to: the state of the result, which is the same for all: varying, invarying or reduced.


def _gather_type(
    op: Op, x: ArrayType, *, names: tuple, sizes: tuple, groups: Groups, axis: int, **p: Any
) -> ArrayType:
    size = x.shape[axis] * span(sizes, groups)
    return array_type((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, x.weak_type)


def _gather_alone(
    x: Any, d: int, size: int, before: Any, after: Any, *, axis: int, to: str, **_: Any
) -> tuple[Any, None]:
    x = move_axis(x, d, 0)
    if after:
        x = all_gather(x, axis=axis + 1, to=to, **after)
    x = _merged(move_axis(x, 0, axis), axis)
    return (all_gather(x, axis=axis, to=to, **before) if before else x), None


def _gather_transpose(op: Op, ct: Any, x: Any, *, to: str, **p: Any) -> list[Any]:
    """For invarying results, each index takes its part of the cotangent; otherwise of the sum,
    which an unreduced cotangent, that of a reduced result, is already.
    """
    names, axis = p["names"], p["axis"]
    tracked = x.aval.varying.intersection(names) if to != "varying" else ()
    for at, name in enumerate(names if tracked else ()):
        own = {"names": (name,), "sizes": p["sizes"][at : at + 1]}
        if name not in tracked:
            ct = reduce_scatter(ct, axis=axis, groups=None, **own)
        elif to == "reduced":
            ct = unreduced_reduce_scatter(ct, axis=axis, groups=None, **own)
        else:
            ct = _own_part(pvary(ct, (name,)), axis, **own)
    return [ct if tracked else reduce_scatter(ct, **p)]


def _own_part(x: Any, axis: int, names: tuple, sizes: tuple) -> Any:
    shape, start = list(type_of(x).shape), [np.int32(0)] * type_of(x).ndim
    shape[axis] //= span(sizes)
    start[axis] = mul(number(names, sizes, varies=True), np.int32(shape[axis]))
    return dynamic_slice(x, *start, slice_sizes=tuple(shape))


all_gather = collective(
    "all_gather",
    type_rule=_gather_type,
    alone=_gather_alone,
    positions=("axis",),
    transpose=_gather_transpose,
    lower=exchange.all_gather,
    manual_axes=lambda op, axes, *, to, **p: from_varying(to)(op, axes, **p),
)

# -- reduce_scatter: the sum of all values, scattered along `axis` --


def _scatter_type(
    op: Op, x: ArrayType, *, names: tuple, sizes: tuple, groups: Groups, axis: int
) -> ArrayType:
    check_domain("reduce_scatter", NUMERIC, (x,))
    size = _part("reduce_scatter", x, axis, span(sizes, groups))
    return array_type((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype, x.weak_type)


def _part(name: str, x: ArrayType, axis: int, parts: int) -> int:
    if x.shape[axis] % parts:
        raise ValueError(
            f"[{name}] cannot split dimension {axis} of {x.str_short(True)} into {parts} equal "
            "parts."
        )
    return x.shape[axis] // parts


def _scatter_alone(
    x: Any, d: int, size: int, before: Any, after: Any, *, axis: int, groups: None = None
) -> tuple[Any, int]:
    x = move_axis(x, d, 0)
    if before:
        x = reduce_scatter(x, axis=axis + 1, **before)
    x = reduce_sum(x, axes=(0,))
    x = _split(x, axis, size, type_of(x).shape[axis] // size)
    return (reduce_scatter(x, axis=axis + 1, **after) if after else x), axis


_scatter = partial(
    collective,
    type_rule=_scatter_type,
    alone=_scatter_alone,
    positions=("axis",),
    elements=Elements.COMPUTED,
    lower=exchange.reduce_scatter,
    needs_fusion=True,
)
reduce_scatter = _scatter(
    "reduce_scatter", transpose=lambda op, ct, x, **p: [all_gather(ct, to="varying", **p)]
)
unreduced_reduce_scatter = _scatter(
    "unreduced_reduce_scatter",
    manual_axes=_from_unreduced("varying"),
    transpose=lambda op, ct, x, **p: [all_gather(ct, to="reduced", **p)],
)


def summed_on(x: Any, names: tuple, sizes: tuple) -> Any:
    """A value that is the same along axes, as unreduced along them: the first index has it, the
    others have zeros.
    """
    own = eq(number(names, sizes, varies=True), np.int32(0))
    return pcast(where(own, pvary(x, names), lit(0, x)), names=names, to="unreduced")


# -- all_to_all: part k along `split` goes to index k; received parts are along `concat` --


def _exchange_type(
    op: Op, x: ArrayType, *, names: tuple, sizes: tuple, groups: Groups, split: int, concat: int
) -> ArrayType:
    parts = span(sizes, groups)
    shape = list(x.shape)
    shape[split] = _part("all_to_all", x, split, parts)
    shape[concat] *= parts
    return array_type(tuple(shape), x.dtype, x.weak_type)


def _exchange_alone(
    x: Any, d: int, size: int, before: Any, after: Any, *, split: int, concat: int, **_: Any
) -> tuple[Any, int]:
    """Splits the dimension `split` into [before, own, rest]. Own is swapped with the batch
    dimension, which goes before `concat`; then come the exchanges over the other axes.
    """
    first = span(before["sizes"]) if before else 1
    x = move_axis(x, d, 0)
    length = type_of(x).shape[split + 1] // first // size
    x = _split(x, split + 1, first, size, length)
    own, part = split + 2, split + 3
    order = [i for i in range(type_of(x).ndim) if i not in (0, own)]
    place = order.index(concat + 3 if concat >= split else concat + 1)
    order = [own, *order[:place], 0, *order[place:]]
    x, place = transpose(x, perm=tuple(order)), place + 1
    if after:
        x = all_to_all(x, split=order.index(part), concat=place + 1, **after)
    lead = order.index(split + 1)
    lead -= lead > place
    x = _merged(x, place)
    if before:
        x = all_to_all(x, split=lead, concat=place, **before)
    return squeeze(x, (lead,)), 0


def _exchange_transpose(op: Op, ct: Any, x: Any, *, split: int, concat: int, **p: Any) -> list[Any]:
    return [all_to_all(ct, split=concat, concat=split, **p)]


all_to_all = collective(
    "all_to_all",
    type_rule=_exchange_type,
    alone=_exchange_alone,
    positions=("split", "concat"),
    transpose=_exchange_transpose,
    lower=exchange.all_to_all,
)

# -- ppermute: values move from index to index, as in `perm`; indices without a source get zeros --


def _permute_alone(
    x: Any, d: int, size: int, before: Any, after: Any, *, perm: tuple
) -> tuple[Any, int]:
    x, rest = move_axis(x, d, 0), _together(before, after)
    if not rest:
        sources = {to: source for source, to in perm}
        return rows(x, [sources.get(i, size) for i in range(size)]), 0
    inner = span(after["sizes"]) if after else 1
    ways: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for pair in perm:  # grouped by places on this axis, as indices along the others
        (source, i), (to, j) = [_apart(number, size, inner) for number in pair]
        ways.setdefault((source, to), []).append((i, j))
    found: dict[int, Any] = {}
    for (source, to), pairs in ways.items():
        part = ppermute(slice_in_dim(x, source, source + 1, 0), perm=tuple(pairs), **rest)
        if to in found:
            part = where(_among([j for _, j in pairs], rest), part, found[to])
        found[to] = part
    none = rows(x, [size])
    return concatenate(*[found.get(to, none) for to in range(size)], dimension=0), 0


def _together(before: Any, after: Any) -> dict[str, Any]:
    """The parameters of all other axes, combined."""
    given = [axes for axes in (before, after) if axes]
    return {k: sum([axes[k] for axes in given], ()) for k in ("names", "sizes")} if given else {}


def _apart(number: int, size: int, inner: int) -> tuple[int, int]:
    """The index along one axis, and along the others. inner: the number of values after it."""
    rest, last = divmod(number, inner)
    outer, own = divmod(rest, size)
    return own, outer * inner + last


def _permute_transpose(op: Op, ct: Any, x: Any, *, perm: tuple, **p: Any) -> list[Any]:
    return [ppermute(ct, perm=tuple([(to, source) for source, to in perm]), **p)]


ppermute = collective(
    "ppermute",
    type_rule=_shape_kept,
    alone=_permute_alone,
    transpose=_permute_transpose,
    lower=exchange.permute,
)

# -- pbroadcast: the value of index `source`, for all --


def _broadcast_alone(
    x: Any, d: int, size: int, before: Any, after: Any, *, source: int
) -> tuple[Any, None]:
    inner = span(after["sizes"]) if after else 1
    own, other = _apart(source, size, inner)
    x = squeeze(slice_in_dim(x, own, own + 1, d), (d,))
    rest = _together(before, after)
    return (pbroadcast(x, source=other, **rest) if rest else x), None


def _broadcast_transpose(
    op: Op, ct: Any, x: Any, *, source: int, names: tuple, sizes: tuple
) -> list[Any]:
    total = psum(ct, groups=None, names=names, sizes=sizes)
    own = number(names, sizes, varies=x.aval.varying.issuperset(names))
    return [where(eq(own, np.int32(source)), total, lit(0, ct))]


def _broadcast_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, **p: Any) -> str:
    return x if span(p["sizes"]) == 1 else e.via(_broadcast_gathered, ins, x, **p)[0]


def _broadcast_gathered(x: Any, source: int, names: tuple, sizes: tuple) -> Any:
    """The value of one index, by gathering all. No instruction sends to several devices."""
    return squeeze(slice_in_dim(_every(x, names, sizes), source, source + 1, 0), (0,))


pbroadcast = collective(
    "pbroadcast",
    type_rule=_shape_kept,
    alone=_broadcast_alone,
    transpose=_broadcast_transpose,
    lower=_broadcast_lower,
)

# -- axis_index: the index along one axis --
# varies: whether its type varies along the axis.


def _index_type(op: Op, *, names: tuple, sizes: tuple, varies: bool) -> ArrayType:
    return array_type((), INT32, varying=frozenset(names) if varies else frozenset())


def _index_batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, int]:
    found = iota(dtype=INT32, shape=(mapped.size,), dimension=0)
    return reshard_like(found, with_sharding(type_of(found), mapped.batch_sharding)), 0


axis_index = Op(
    "axis_index",
    type_rule=_index_type,
    dims=lambda op, **p: Dims((), ((),)),
    lower=exchange.axis_index,
    batch=_index_batch,
    named_axes=("names", "sizes"),
)


def number(names: Sequence[Any], sizes: Sequence[int], varies: bool = False) -> Any:
    """The flattened index along several axes. varies: along all of them; see `axis_index`."""
    found: Any = None
    for name, size in zip(names, sizes, strict=True):
        own = axis_index(names=(name,), sizes=(size,), varies=varies)
        found = own if found is None else add(mul(found, np.int32(size)), own)
    return found
