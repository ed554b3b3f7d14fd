"""Refs as arguments of `custom_vjp` functions, converted to functions of the other arguments.

The rules get the refs in their positions. Residuals may contain refs, so `bwd` can write to one:

    @custom_vjp
    def watch(ref, x): return x
    watch.defvjp(lambda ref, x: (x, ref), lambda ref, ct: (ref.set(ct), ct))   # the first is None
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from shardwise._src.refs.passing import merged
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten


def without_refs(fun: Any, fixed: tuple, leaves: Sequence[Any], tree: Any) -> Any:
    """The result of a custom_vjp function that has refs among the leaves of its arguments."""
    residual: list[Any] = []  # the residuals and their treedef, once `fwd` has run

    @functools.wraps(fun.fun)
    def primal(*values: Any) -> Any:
        return fun.fun(*fun.merged(fixed, tree.unflatten(merged(leaves, values))))

    @functools.wraps(fun.fwd)
    def fwd(*values: Any) -> Any:
        result = fun.fwd(*fun.merged(fixed, tree.unflatten(merged(leaves, values))))
        if not isinstance(result, tuple | list) or len(result) != 2:
            return result  # is rejected later
        rows, row_tree = flatten(result[1])
        residual[:] = [row_tree, rows]
        return result[0], [x for x in rows if not is_ref(x)]

    @functools.wraps(fun.bwd)
    def bwd(kept: Any, ct: Any) -> Any:
        row_tree, rows = residual
        cts = fun.bwd(*fixed, row_tree.unflatten(merged(rows, kept)), ct)
        return _of_values(cts, leaves, tree)

    inner = type(fun)(primal)
    inner.defvjp(fwd, bwd, fun.symbolic_zeros)
    return inner(*[x for x in leaves if not is_ref(x)])


def _of_values(cts: Any, leaves: Sequence[Any], tree: Any) -> Any:
    """The cotangents for leaves that are not refs."""
    places = tree.unflatten(range(len(leaves)))
    if not isinstance(cts, tuple | list) or len(cts) != len(places):
        return cts  # is rejected later
    found: list[Any] = []
    for ct, inside in zip(cts, places, strict=True):
        at, kind = flatten(inside)
        rows = [None] * len(at) if ct is None else kind.flatten_up_to(ct)
        found += [row for i, row in zip(at, rows, strict=True) if not is_ref(leaves[i])]
    return tuple(found)
