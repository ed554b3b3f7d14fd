"""Collectives between the values along named axes, such as those of `vmap(axis_name=...)`.

    vmap(lambda x: x / psum(x, "i"), axis_name="i")(xs)      # xs / xs.sum(0)

Each takes one name, or a tuple of several: then values are numbered in row-major order, with the
index along the last name changing fastest. Functions of `x` take pytrees.

`axis_index_groups` partitions the indices along the axes, such as `[[0, 1], [2, 3]]`: the
collective then runs within each group separately. Indices along several axes are flattened.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.core.infer import as_arraylike, check_alive, type_of
from shardwise._src.core.op import Op
from shardwise._src.lax.collective_axes import AxisNames, CollectiveAxes, Groups, collective_axes
from shardwise._src.messages.formatting import brief, join, short_repr
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.numpy.statistics.named_reductions import across, index_along
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import mul
from shardwise._src.ops.families import add
from shardwise._src.ops.reduce import reduce_max, reduce_min
from shardwise._src.ops.shape import expand_dims, squeeze
from shardwise._src.ops.sharded import collective as ops
from shardwise._src.ops.sharded.varying import SOURCES, state_along
from shardwise._src.ops.sharded.varying import pcast as pcast_op
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import Array, T
from shardwise._src.types.dtypes import is_bool
from shardwise._src.values.binary import true_divide

_PLAIN = (bool, int, float, complex)  # np.float64 is a float, and an array


def _mapped(fun: Callable[[Any], Any], tree: Any) -> Any:
    leaves, structure = flatten(tree)
    try:
        return structure.unflatten([fun(as_arraylike(x)) for x in leaves])
    except Exception as error:
        pass_on(error)
        raise


# -- reductions: the result is the same for all --


def psum(x: T, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> T:
    """The sum over named axes. For a Python number, the number times the axis or group size.

    Args:
      x: numbers or booleans, which count as 0 and 1.
      axis_name: one name or a tuple. Integers in it are dimensions of `x`, summed as well.
      axis_index_groups: see the module docstring.

    Returns:
      `x.sum()` over the axes, in the shape and dtype of `x`. A value that does not vary along an
      axis is multiplied by the axis size.

    Raises:
      NameError: if no axis of that name is in scope.
      ValueError: if a name occurs twice, or the groups do not partition the axis.
    """
    axes = collective_axes("psum", axis_name, axis_index_groups, True)
    return _mapped(lambda leaf: _summed(leaf, axes), x)


def _summed(x: Any, axes: CollectiveAxes) -> Any:
    if x.__class__ in _PLAIN and axes.even and not axes.positions:
        return x * axes.count
    return _reduced(reduce_sum, _countable(x), axes)


def _countable(x: Any) -> Any:
    """Booleans as integers."""
    is_flag = is_bool(type_of(x).dtype)
    return convert_element_type(x, dtype=np.dtype("int32")) if is_flag else x


def _reduced(reduce: Op, x: Any, axes: CollectiveAxes) -> Any:
    if axes.positions:
        t = type_of(x)
        if not all(-t.ndim <= a < t.ndim for a in axes.positions):
            raise ValueError(
                f"{axes.who}: integers among the axes refer to dimensions of the operand; got "
                f"{join(axes.positions)} for {t.str_short(True)}. Refer to a mapped axis by its "
                "name, the axis_name of `shardwise.vmap`."
            )
        along = tuple([a % t.ndim for a in axes.positions])
        if len({*along}) < len(along):
            raise ValueError(
                f"{axes.who}: a dimension is given twice, in {axes.positions} for "
                f"{t.str_short(True)}. Name each once."
            )
        x = reduce(x, axes=along)
    return across(reduce, x, axes, axes.groups) if axes.names else check_alive(x)


def pmean(x: T, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> T:
    """The mean over named axes; see `psum`. For integers the result is floating-point."""
    axes = collective_axes("pmean", axis_name, axis_index_groups, True)

    def mean(leaf: Any) -> Any:
        total = _summed(leaf, axes)
        count: Any = axes.count if axes.even else _summed(1, axes)
        if leaf.__class__ in _PLAIN and axes.even and not axes.positions:
            return total / count
        shape = type_of(leaf).shape
        return true_divide(total, count * math.prod([shape[a] for a in axes.positions]))

    return _mapped(mean, x)


def pmax(x: T, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> T:
    """The largest value along named axes; see `psum`. Equal maxima share the derivative."""
    return _extreme("pmax", reduce_max, x, axis_name, axis_index_groups)


def pmin(x: T, axis_name: AxisNames, *, axis_index_groups: Groups = None) -> T:
    """The smallest value along named axes; see `pmax`."""
    return _extreme("pmin", reduce_min, x, axis_name, axis_index_groups)


def _extreme(who: str, reduce: Op, x: Any, axis_name: Any, groups: Groups) -> Any:
    axes = collective_axes(who, axis_name, groups, True)

    def found(leaf: Any) -> Any:
        if leaf.__class__ in _PLAIN and not axes.positions:
            return leaf
        return _reduced(reduce, leaf, axes)

    return _mapped(found, x)


# -- gathering and distributing --


def all_gather(
    x: T,
    axis_name: AxisNames,
    *,
    axis_index_groups: Groups = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> T:
    """All values along named axes, in their order.

    Args:
      axis: position of the new dimension in the result.
      tiled: whether to concatenate the values along their existing dimension `axis` instead.
      to: the state of the result along the axes inside `shard_map`: "varying", "invarying" (as
        returned by `all_gather_invariant`), or "reduced", whose cotangent is unreduced. The last
        two do not support groups.

    Returns:
      f32[…, n, …] for n values f32[…, …]; the same for all indices.

    Raises:
      ValueError: if there is no such dimension, the groups differ in size, or `to` is
        something else.
    """
    if to not in ("varying", "invarying", "reduced"):
        raise ValueError(f"all_gather: to must be 'varying', 'invarying' or 'reduced'; got {to!r}.")
    if to != "varying" and axis_index_groups is not None:
        raise NotImplementedError(
            f"all_gather: with axis_index_groups, to must be 'varying'; got {to!r}."
        )
    return _gathered("all_gather", x, axis_name, axis, tiled, axis_index_groups, to)


def all_gather_invariant(x: T, axis_name: AxisNames, *, axis: int = 0, tiled: bool = False) -> T:
    """Like `all_gather`, but the result's type is invarying along the axes."""
    return _gathered("all_gather_invariant", x, axis_name, axis, tiled, to="invarying")


def _gathered(
    who: str,
    x: Any,
    axis_name: Any,
    axis: int,
    tiled: bool,
    groups: Groups = None,
    to: str = "varying",
) -> Any:
    axes = collective_axes(who, axis_name, groups)
    axes.need_even()

    def gathered(leaf: Any) -> Any:
        place = axes.dimension("axis", leaf, axis, not tiled)
        if not tiled:
            leaf = expand_dims(leaf, (place,))
        if not axes.names:
            return leaf
        return ops.all_gather(
            axes.varied(leaf), axis=place, groups=axes.groups, to=to, **axes.params
        )

    return _mapped(gathered, x)


def psum_scatter(
    x: T,
    axis_name: AxisNames,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Groups = None,
    tiled: bool = False,
) -> T:
    """The sum over named axes, scattered: each index gets only its part.

    Args:
      x: numbers or booleans, which count as 0 and 1.
      scatter_dimension: the dimension to split. Its size is the axis size, and it is removed;
        with `tiled` its size is a multiple of the axis size, and it stays.

    Raises:
      ValueError: if that dimension or the groups have another size.
    """
    axes = collective_axes("psum_scatter", axis_name, axis_index_groups)
    axes.need_even()

    def scattered(leaf: Any) -> Any:
        place = axes.dimension("scatter_dimension", leaf, scatter_dimension)
        _check_parts(axes, "scatter_dimension", leaf, place, tiled)
        leaf = _countable(leaf)
        if axes.names:
            how = {"axis": place, "groups": axes.groups, **axes.params}
            if axes.groups is None and axes.unreduced(leaf):
                leaf = ops.unreduced_reduce_scatter(leaf, **how)
            else:
                leaf = ops.reduce_scatter(axes.varied(leaf), **how)
        return leaf if tiled else squeeze(leaf, (place,))

    return _mapped(scattered, x)


def _check_parts(axes: CollectiveAxes, what: str, x: Any, place: int, tiled: bool) -> None:
    t = type_of(x)
    size = t.shape[place]
    if size % axes.count if tiled else size != axes.count:
        wanted = "a multiple of the number" if tiled else "the number"
        raise ValueError(
            f"{axes.who}: the dimension {what}={place} of {t.str_short(True)} is split among the "
            f"{axes.count} indices of {'a group of ' if axes.groups else ''}{axes.shown}, so its "
            f"size must be {wanted} of them; got {size}."
        )


def all_to_all(
    x: T,
    axis_name: AxisNames,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Groups = None,
    tiled: bool = False,
) -> T:
    """Sends part k of each value to index k, which gets one part from each index.

    Args:
      split_axis: the dimension to split. Its size is the axis size, and it is removed;
        with `tiled` its size is a multiple of the axis size, and it stays.
      concat_axis: position of the new dimension in the result, which is ordered by source index;
        with `tiled` the dimension along which the parts are concatenated.

    Raises:
      ValueError: if the dimension `split_axis` or the groups have another size.
    """
    axes = collective_axes("all_to_all", axis_name, axis_index_groups)
    return _exchanged(axes, x, ("split_axis", split_axis), ("concat_axis", concat_axis), tiled)


def _exchanged(
    axes: CollectiveAxes,
    x: Any,
    split_axis: tuple[str, Any],
    concat_axis: tuple[str, Any],
    tiled: bool,
) -> Any:
    """The exchange; each axis comes with the name of its argument."""
    axes.need_even()

    def exchanged(leaf: Any) -> Any:
        split, concat = [axes.dimension(what, leaf, a) for what, a in (split_axis, concat_axis)]
        _check_parts(axes, split_axis[0], leaf, split, tiled)
        if not tiled:
            new = concat + (concat >= split)
            leaf, concat, split = expand_dims(leaf, (new,)), new, split + (new <= split)
        if axes.names:
            leaf = ops.all_to_all(
                axes.varied(leaf), split=split, concat=concat, groups=axes.groups, **axes.params
            )
        return leaf if tiled else squeeze(leaf, (split,))

    return _mapped(exchanged, x)


def pswapaxes(x: T, axis_name: AxisNames, axis: int, *, axis_index_groups: Groups = None) -> T:
    """Swaps the dimension `axis` with a named axis of the same size."""
    axes = collective_axes("pswapaxes", axis_name, axis_index_groups)
    return _exchanged(axes, x, ("axis", axis), ("axis", axis), False)


# -- permuting --


def ppermute(x: T, axis_name: AxisNames, perm: Sequence[tuple[int, int]]) -> T:
    """Sends values from index to index.

    Args:
      perm: pairs (source, destination), with no source and no destination twice. An index that is
        no destination gets zeros.

    Raises:
      TypeError: if `perm` is not a list or a tuple of pairs.
      ValueError: if an index does not exist or occurs twice.
    """
    axes = collective_axes("ppermute", axis_name)
    try:
        if not isinstance(perm, list | tuple):  # an iterator would be used up by the first leaf
            raise TypeError
        pairs = tuple([(operator.index(a), operator.index(b)) for a, b in perm])
    except (TypeError, ValueError):
        raise TypeError(
            f"{axes.who}: perm must be a list of pairs of indices (source, destination), such as "
            f"[(0, 1), (1, 0)]; got {brief(perm)}."
        ) from None
    for what, indices in zip(("source", "destination"), zip(*pairs, strict=True), strict=False):
        if len({*indices}) < len(indices) or not all(0 <= i < axes.count for i in indices):
            raise ValueError(
                f"{axes.who}: each {what} in perm must be one of the {axes.count} indices of "
                f"{axes.shown}, and occur once; got {list(indices)}."
            )
    return _permuted(axes, x, pairs)


def _permuted(axes: CollectiveAxes, x: T, pairs: Any) -> T:
    return _mapped(lambda leaf: ops.ppermute(axes.varied(leaf), perm=pairs, **axes.params), x)


def pshuffle(x: T, axis_name: AxisNames, perm: Sequence[int]) -> T:
    """Index i gets the value of index `perm[i]`; `perm` is a permutation.

    Raises:
      ValueError: if `perm` is not a permutation.
    """
    axes = collective_axes("pshuffle", axis_name)
    sources = [axes.index("each of perm", i) for i in perm]
    if sorted(sources) != list(range(axes.count)):
        raise ValueError(
            f"{axes.who}: perm must be a permutation of the {axes.count} indices of {axes.shown}; "
            f"got {sources}."
        )
    return _permuted(axes, x, tuple([(source, to) for to, source in enumerate(sources)]))


def pbroadcast(x: T, axis_name: AxisNames, source: int) -> T:
    """The value of index `source`, for all indices.

    Raises:
      ValueError: if there is no such index.
    """
    axes = collective_axes("pbroadcast", axis_name)
    place = axes.index("source", source)
    if not 0 <= place < axes.count:
        raise ValueError(
            f"{axes.who}: source must be one of the {axes.count} indices of {axes.shown}; got "
            f"{place}."
        )
    return _mapped(lambda leaf: ops.pbroadcast(axes.varied(leaf), source=place, **axes.params), x)


def pcast(x: T, axis_name: AxisNames, *, to: str) -> T:
    """The same values, with their state along named axes changed, without communication.

    Inside `shard_map`, types record the state of a value along each axis of the mesh. Types do not
    track the axes of a `vmap`, along which all values may vary.

    Args:
      to: "varying", for a value that is the same on all devices (invarying or reduced); "reduced",
        for an invarying value: its cotangent will be unreduced; or "unreduced", for a varying
        value: the result represents the sum.

    Raises:
      ValueError: for other values of `to`, if the value is in another state, or outside of a map.
      TypeError: if `axis_name` is a set.
    """
    if isinstance(axis_name, set | frozenset):
        raise TypeError(
            f"pcast: axis_name must be a name or a tuple of names; got {short_repr(axis_name)}."
        )
    try:
        axes = collective_axes("pcast", axis_name)
    except NameError as error:
        if current().interpreter.eager:
            raise ValueError(f"{error} Call pcast inside it.") from None
        raise
    if to not in SOURCES:
        raise ValueError(
            f"{axes.who}: to must be {join(SOURCES, 'or')}; got {to!r}. To make a value invarying, "
            "use a collective, such as `shardwise.lax.psum`."
        )
    return _mapped(lambda leaf: check_alive(_cast(axes, leaf, to)), x)


def _cast(axes: CollectiveAxes, x: Any, to: str) -> Any:
    """Axes along which the value is varying already need no cast to that state."""
    t = type_of(x)
    states = {state_along(t, name): name for name in axes.tracked}
    if len(states) > 1 and to != "varying":
        axes.reject(x, f"is {join(states)} along them", "cast axes of different states separately")
    if states and not {*states} <= {*SOURCES[to], to if to == "varying" else None}:
        axes.reject(x, f"is {join(states)} along them", _CASTS[to])
    names = [name for name in axes.tracked if name not in getattr(t, to)]
    return pcast_op(x, names=tuple(names), to=to) if names else x


_CASTS = {
    "varying": "take the sum of an unreduced value: `shardwise.lax.psum`",
    "reduced": "cast only invarying values to 'reduced'",
    "unreduced": "cast only varying values to 'unreduced'",
}


def pvary(x: T, axis_name: AxisNames) -> T:
    """The same values, as varying along named axes: the older form of `pcast`."""
    return pcast(x, axis_name, to="varying")


# -- the position along an axis --


def axis_index(axis_name: AxisNames) -> Array:
    """The index along a named axis, an int32; along several axes, the flattened index."""
    axes = collective_axes("axis_index", axis_name)
    found: Any = np.int32(0)
    for i, axis in enumerate(axes.found):
        own = index_along(axis)
        found = own if i == 0 else add(mul(found, np.int32(axis.size)), own)
    return found


def axis_size(axis_name: AxisNames) -> int:
    """The size of a named axis; for several, the product."""
    return collective_axes("axis_size", axis_name).count
