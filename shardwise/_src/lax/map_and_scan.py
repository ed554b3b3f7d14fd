"""Other control flow: `map`, `associative_scan`; and `optimization_barrier`, `dce_sink`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.config import disable_jit
from shardwise._src.base.context import CURRENT
from shardwise._src.control.bodies import (
    Loop,
    body_cache_by_fingerprint,
    check_function,
    leaf,
    staged,
)
from shardwise._src.control.call import call
from shardwise._src.control.scan_api import scan
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import BoundOp
from shardwise._src.core.structure import shared
from shardwise._src.maps.vmap import vmap
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in, paths_in, tree_difference
from shardwise._src.ops.barrier import optimization_barrier as _barrier
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import canonical_axis, concatenate, rev, slice_in_dim
from shardwise._src.ops.sink import dce_sink as _sink
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import T, X, Y
from shardwise._src.types.array_type import ArrayType


def optimization_barrier(operand: T) -> T:
    """The same values, behind a barrier that the compiler moves nothing across.

    All of `operand` is computed before anything uses a result of this call, and no part of it is
    recomputed or fused with its uses.

    Args:
      operand: a pytree of arrays.

    Returns:
      A pytree of the same structure.

    Raises:
      TypeError: if a leaf is not an array.
    """
    leaves, tree = flatten(operand)
    values = [leaf(x, "optimization_barrier", "operand", tree, i) for i, x in enumerate(leaves)]
    return tree.unflatten(_barrier(*values) if values else [])


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Keeps unused values in a program; does nothing when called eagerly.

        def f(x):
            dce_sink(check(x))  # `make_jaxpr`, `grad` and `vmap` keep the call
            return x

    Args:
      val: a pytree of arrays.
      prevent_mlir_dce: whether the compiler keeps the values, too; otherwise it removes them.
        Over several devices, this is supported only inside `shard_map`.

    Raises:
      TypeError: if a leaf is not an array.
    """
    leaves, tree = flatten(val)
    for i, x in enumerate(leaves):
        value = leaf(x, "dce_sink", "val", tree, i)
        _sink(value, prevent_mlir_dce=bool(prevent_mlir_dce))


@hides_frames
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y:
    """Applies a function to each element along the leading dimension, one after the other.

        stack([f(x) for x in xs])

    Like `vmap`, but with the memory of one element at a time, or of `batch_size` elements.

    Args:
      f: takes one slice of `xs`, returns a pytree of arrays.
      xs: a pytree of arrays with equal sizes along dimension 0.
      batch_size: how many elements to process at a time, with `vmap`; 0 means all at once.

    Returns:
      The results, stacked along a new dimension 0.

    Raises:
      ValueError: if sizes along dimension 0 differ.
    """
    check_function("map", "f", f)
    leaves, tree = flatten(xs)
    if batch_size is None and any([is_ref(x) for x in leaves]):
        return scan(_step(f), (), xs)[1]
    leaves = [leaf(x, "map", "xs", tree, i) for i, x in enumerate(leaves)]
    total = _common_size("map", leaves, tree, 0)
    if batch_size is None:
        return scan(_step(f), (), xs)[1]
    size = operator.index(batch_size)
    if size < 0:
        raise ValueError(f"map: batch_size must not be negative; got {batch_size}.")
    if not size:
        return vmap(f)(tree.unflatten(leaves))
    turns = total // size
    mapped, parts = vmap(f), []
    if turns:
        rows = [_rows(slice_in_dim(x, 0, turns * size, 0), turns, size) for x in leaves]
        ys, out_tree = flatten(scan(_step(mapped), (), tree.unflatten(rows))[1])
        parts.append([reshape(y, shape=(turns * size, *type_of(y).shape[2:])) for y in ys])
    if turns * size < total or not turns:
        rest = [slice_in_dim(x, turns * size, total, 0) for x in leaves]
        ys, out_tree = flatten(mapped(tree.unflatten(rest)))
        parts.append(ys)
    return out_tree.unflatten(  # pyright: ignore[reportPossiblyUnboundVariable] (a step has run)
        [concatenate(*ys, dimension=0) for ys in zip(*parts, strict=True)]
    )


def _rows(x: Any, turns: int, size: int) -> Any:
    return reshape(x, shape=(turns, size, *type_of(x).shape[1:]))


def _step(f: Callable) -> Callable:
    """`f` as a new scan body, so that it is traced again."""

    def step(_: Any, x: Any) -> Any:
        return (), f(x)

    step.__name__ = name_of(f)
    return step


@hides_frames
def associative_scan(fn: Callable[[T, T], T], elems: T, reverse: bool = False, axis: int = 0) -> T:
    """Cumulative results of an associative function, in parallel.

        y[0], y[1], y[2], … = x[0], fn(x[0], x[1]), fn(fn(x[0], x[1]), x[2]), …

    Takes about 2 log n steps for n elements; each applies `fn` to many pairs together.

    Args:
      fn: an associative function of two pytrees like `elems`, elementwise along `axis`: it gets
        arrays of pairs, of any size along that axis.
      elems: a pytree of arrays with equal sizes along `axis`.
      reverse: whether to go from the last element to the first.
      axis: the dimension to scan.

    Returns:
      A pytree like `elems`.

    Raises:
      TypeError: if `fn` returns another tree structure.
      ValueError: if sizes along `axis` differ.
    """
    who = "associative_scan"
    check_function(who, "fn", fn)
    leaves, tree = flatten(elems)
    leaves = [leaf(x, who, "elems", tree, i) for i, x in enumerate(leaves)]
    _common_size(who, leaves, tree, axis)
    scanner = _Associative(fn, tree, bool(reverse), axis)
    if disable_jit.value:
        return tree.unflatten(scanner.run(*leaves))
    types = [type_of(x) for x in leaves]
    key = (who, CURRENT.get().key, tree, scanner.reverse, axis, *types)
    cache = body_cache_by_fingerprint(fn)
    loop = cache.bodies.get(key)
    if loop is None:
        names = paths_in("elems", tree)
        name = name_of(fn)
        body = staged(scanner.run, types, who, name, names, lambda ys: (ys, tree), True)
        held, at = {"program": shared(body.program)}, len(types)
        loop = Loop(BoundOp(call, held), body.outside, [], tree, body.refs, at)
        if not body.captures:
            cache.keep(key, loop)
    return loop(leaves)


class _Associative:
    """The scan of one function, over leaves."""

    def __init__(self, fn: Callable, tree: Any, reverse: bool, axis: int):
        self.fn, self.tree, self.reverse, self.axis = fn, tree, reverse, axis

    def run(self, *leaves: Any) -> list[Any]:
        axes = [canonical_axis(self.axis, type_of(x).ndim) for x in leaves]
        if not leaves:
            return []
        if self.reverse:
            leaves = tuple([rev(x, dimensions=(a,)) for x, a in zip(leaves, axes, strict=True)])
        ys = self._scan(list(leaves), axes)
        if self.reverse:
            ys = [rev(y, dimensions=(a,)) for y, a in zip(ys, axes, strict=True)]
        return ys

    def _scan(self, xs: list[Any], axes: Sequence[int]) -> list[Any]:
        """Combines pairs and scans them for every second result, then computes the rest."""
        n = type_of(xs[0]).shape[axes[0]]
        if n < 2:
            return xs

        def every(values: list[Any], start: int, stop: int, stride: int = 2) -> list[Any]:
            rows = zip(values, axes, strict=True)
            return [slice_in_dim(x, start, stop, a, stride) for x, a in rows]

        odd = self._scan(self.combine(every(xs, 0, n - 1), every(xs, 1, n)), axes)
        first = every(xs, 0, 1, 1)
        if n == 2:
            even = first
        else:
            before = every(odd, 0, (n - 1) // 2, 1)
            later = self.combine(before, every(xs, 2, n))
            rows = zip(first, later, axes, strict=True)
            even = [concatenate(x, y, dimension=a) for x, y, a in rows]
        return [interleaved(x, y, a) for x, y, a in zip(even, odd, axes, strict=True)]

    def combine(self, a: list[Any], b: list[Any]) -> list[Any]:
        outs, tree = flatten(self.fn(self.tree.unflatten(a), self.tree.unflatten(b)))
        if tree != self.tree:
            differences = tree_difference("elems", self.tree, "the result", tree, "elems")
            raise TypeError(
                f"associative_scan: {name_of(self.fn)} must return a pytree like elems; "
                f"{differences}."
            )
        self._check_types([type_of(x) for x in a], [type_of(x) for x in outs])
        return outs

    def _check_types(self, types: Sequence[ArrayType], returned: Sequence[ArrayType]) -> None:
        rows: list[str] = []
        for i, (t, r) in enumerate(zip(types, returned, strict=True)):
            if (t.shape, t.dtype) != (r.shape, r.dtype):
                rows.append(
                    f"{path_in('elems', self.tree, i)} was passed as {t.str_short(True)} and "
                    f"returned as {r.str_short(True)}"
                )
        if rows:
            name = name_of(self.fn)
            raise TypeError(
                f"associative_scan: {name} must preserve the shapes and dtypes of its arguments, "
                f"which are slices along dimension {self.axis}; {', '.join(rows)}. Change elems or "
                f"{name} so that they agree."
            )


def interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Alternating elements along an axis; `even` may have one more."""
    shape = type_of(odd).shape
    n, more = shape[axis], type_of(even).shape[axis] - shape[axis]
    apart = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    paired = [
        reshape(x, shape=apart) for x in (slice_in_dim(even, 0, n, axis) if more else even, odd)
    ]
    joined = reshape(
        concatenate(*paired, dimension=axis + 1), shape=(*shape[:axis], 2 * n, *shape[axis + 1 :])
    )
    if not more:
        return joined
    return concatenate(joined, slice_in_dim(even, n, n + 1, axis), dimension=axis)


def _common_size(who: str, leaves: Sequence[Any], tree: Any, axis: int) -> int:
    """The size that all arrays have along an axis."""
    what = "xs" if who == "map" else "elems"
    sizes = []
    for i, x in enumerate(leaves):
        t = type_of(x)
        if not -t.ndim <= axis < t.ndim:
            raise ValueError(
                f"{who}: {path_in(what, tree, i)} is of type {t.str_short(True)}, which has no "
                f"dimension {axis}."
            )
        sizes.append(t.shape[axis])
    if len(set(sizes)) > 1:
        rows = [
            f"{path_in(what, tree, i)} of type {type_of(x).str_short(True)} has {n}"
            for i, (x, n) in enumerate(zip(leaves, sizes, strict=True))
        ]
        raise ValueError(
            f"{who}: the arrays of {what} must have the same size along dimension {axis}; "
            f"{', '.join(rows)}."
        )
    return sizes[0] if sizes else 0
