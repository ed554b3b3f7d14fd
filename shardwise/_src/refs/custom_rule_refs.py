"""Refs as arguments of `custom_vjp` functions, converted to functions of their values.

The function and its rules get the refs in their positions. Residuals may contain these refs, so
`bwd` can write to one. Its cotangent for a ref is that of the ref's value, or None:

    @custom_vjp
    def watch(ref, x): return x
    watch.defvjp(lambda ref, x: (x, ref), lambda ref, ct: (ref.set(ct), ct))   # the first is None

Values that the function or `fwd` writes are constants to derivatives, as no rule describes theirs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.positions import put as put_at
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.refs.passing import lent, merged
from shardwise._src.refs.refs import Ref, is_ref, put, reject_returned, value_of, values_of
from shardwise._src.runtime.pytree import flatten


def without_refs(
    fun: Any, fixed: tuple, leaves: Sequence[Any], tree: Any, names: Callable[[], Sequence[str]]
) -> Any:
    """The result of a custom_vjp function that has refs among the leaves of its arguments."""
    who = f"{fun.kind} function {fun.name}"
    at = [i for i, x in enumerate(leaves) if is_ref(x)]
    refs = [leaves[i] for i in at]
    residual: list[Any] = []  # the residuals and their treedef, once `fwd` has run
    written: list[bool] = []  # for each ref, once the function or `fwd` has run

    def called(f: Callable, values: Sequence[Any], starts: Sequence[Any]) -> tuple[Any, ...]:
        """The result of a function on new refs with these initial values, their last values, and
        these refs."""
        own = [Ref(x, kind=r.kind) for x, r in zip(starts, refs, strict=True)]
        result = f(*fun.merged(fixed, tree.unflatten(put_at(values, at, own))))
        last = values_of(own)
        written[:] = [a is not b for a, b in zip(starts, last, strict=True)]
        return result, last, own

    @functools.wraps(fun.fun)
    def primal(*values: Any) -> Any:
        result, last, _ = called(fun.fun, values, [values[i] for i in at])
        reject_returned(who, flatten(result)[0])
        return result, last

    @functools.wraps(fun.fwd)
    def fwd(*values: Any) -> Any:
        starts = [values[i].value if fun.symbolic_zeros else values[i] for i in at]
        result, last, own = called(fun.fwd, values, starts)
        if not isinstance(result, tuple | list) or len(result) != 2:
            return result  # is rejected later
        rows, row_tree = flatten(result[1])
        outer = dict(zip(own, refs, strict=True))
        rows = [outer.get(x, x) if is_ref(x) else x for x in rows]
        inside = [x for x in rows if is_ref(x) and x not in refs]
        reject_returned(f"the fwd rule of {who}", [*flatten(result[0])[0], *inside])
        residual[:] = [row_tree, rows]
        inner.linear = fun.linear_with_refs if any(map(is_ref, rows)) else fun.linear
        return (result[0], last), [x for x in rows if not is_ref(x)]

    @functools.wraps(fun.bwd)
    def bwd(kept: Any, cts: Any) -> Any:
        row_tree, rows = residual
        found = fun.bwd(*fixed, row_tree.unflatten(merged(rows, kept)), cts[0])
        if not fun.with_logs:
            return _of_leaves(found, len(leaves), tree)
        is_pair = isinstance(found, tuple | list) and len(found) == 2
        return (_of_leaves(found[0], len(leaves), tree), found[1]) if is_pair else found

    inner = type(fun)(primal)
    inner.defvjp(fwd, bwd, fun.symbolic_zeros)
    inner.with_logs = fun.with_logs
    with lent(refs, who, lambda: [names()[i] for i in at]) as values:
        result, last = inner(*put_at(leaves, at, values))
    for ref, value, changed in zip(refs, last, written, strict=True):
        if changed:
            put(ref, stop_gradient(value))
    return result


def _of_leaves(cts: Any, count: int, tree: Any) -> Any:
    """The cotangents of the leaves of the arguments; of refs, as values."""
    places = tree.unflatten(range(count))
    if not isinstance(cts, tuple | list) or len(cts) != len(places):
        return cts  # is rejected later
    found: list[Any] = []
    for ct, inside in zip(cts, places, strict=True):
        at, kind = flatten(inside)
        rows: list[Any] = [None] * len(at) if ct is None else kind.flatten_up_to(ct)
        found += [value_of(row) if is_ref(row) else row for row in rows]
    return tuple(found)
