"""Loops and branches for `sparsify`: runs their programs on sparse arrays.

Loops and branches carry sparse arrays as pytrees. The results of an iteration, or of the branches,
must have one layout: the same class and number of stored elements. Guarantees about coordinates
(that they are sorted, or unique) hold for the result if they hold for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.control.cond_api import cond, switch
from shardwise._src.control.programs import parts
from shardwise._src.control.scan_api import scan
from shardwise._src.control.while_api import while_loop
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import Program
from shardwise._src.jit.eval_shape import eval_shape
from shardwise._src.runtime.pytree import flatten
from shardwise._src.sparse.base import JAXSparse, Stored

# Runs a program on values, some of which are sparse; returns the results.
Run = Callable[[Program, Sequence[Any]], list[Any]]


def run_while(
    run: Run, values: Sequence[Any], *, test: Program, body: Program, num_test: int, num_body: int
) -> list[Any]:
    tests, bodies, init = parts(values, num_test, num_body)
    turn = lambda carry: run(body, [*bodies, *carry])  # noqa: E731
    start = _settled("a while_loop", turn, init)
    return while_loop(
        lambda carry: run(test, [*tests, *carry])[0], lambda carry: _like(start, turn(carry)), start
    )


def run_scan(
    run: Run,
    values: Sequence[Any],
    *,
    body: Program,
    num_consts: int,
    num_carry: int,
    length: int,
    reverse: bool = False,
    unroll: int = 1,
    **p: Any,
) -> list[Any]:
    consts, init, rows = parts(values, num_consts, num_carry)
    rows = [_rows(x) if isinstance(x, JAXSparse) else x for x in rows]
    leaves, tree = flatten(rows)
    types = [type_of(x) for x in leaves]
    one = tree.unflatten([ShapeDtypeStruct(t.shape[1:], t.dtype) for t in types])
    turn = lambda carry, row: run(body, [*consts, *carry, *row])  # noqa: E731
    start = _settled("a scan", lambda carry, row: turn(carry, row)[:num_carry], init, one)

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        outs = turn(carry, row)
        return _like(start, outs[:num_carry]), outs[num_carry:]

    last, ys = scan(step, start, rows, length, reverse=reverse, unroll=unroll)
    return [*last, *ys]


def run_cond(run: Run, values: Sequence[Any], *, branches: tuple[Program, ...]) -> list[Any]:
    which, *operands = values
    found = [eval_shape(lambda *xs, b=b: run(b, xs), *operands) for b in branches]
    common = found[0]
    for i, other in enumerate(found[1:], 1):
        common = [
            _common(x, y, f"result {k} of a branch", f"that of branch {i}")
            for k, (x, y) in enumerate(zip(common, other, strict=True))
        ]
    funs = [lambda *xs, b=b: _like(common, run(b, xs)) for b in branches]
    if type_of(which).dtype == np.dtype(bool):
        return cond(which, funs[1], funs[0], *operands)
    return switch(which, funs, *operands)


# -- layouts --


def _settled(who: str, turn: Callable, init: Sequence[Any], *more: Any) -> list[Any]:
    """The carry with only those guarantees about coordinates that an iteration preserves.

    more: operands of an iteration in addition to the carry.
    """
    carry = [x.without_padding() if isinstance(x, Stored) else x for x in init]
    while True:
        outs = eval_shape(turn, carry, *more)
        kept = [
            _common(
                x, y, f"carry {i} of {who}", "after an iteration it", not isinstance(x, JAXSparse)
            )
            for i, (x, y) in enumerate(zip(carry, outs, strict=True))
        ]
        new = _like(kept, carry)
        if flatten(new)[1] == flatten(carry)[1]:
            return new
        carry = new


def _common(x: Any, y: Any, what: str, other: str, may_be_dense: bool = False) -> Any:
    """A value with the common layout of two values, and the guarantees that both have."""
    if not isinstance(x, JAXSparse) and (may_be_dense or not isinstance(y, JAXSparse)):
        return x
    if type(x) is type(y):
        (leaves, rest), (others, rest_too) = x.tree_flatten(), y.tree_flatten()
        if [u.shape for u in leaves] == [v.shape for v in others]:
            both = _promised(rest, rest_too)
            if both is not None:
                return type(x).tree_unflatten(both, leaves)
    raise TypeError(
        f"sparsify: {what} is {_shown(x)}, and {other} is {_shown(y)}; they must have the same "
        "layout. Give BCOO arrays the same nse with `bcoo_sum_duplicates(nse=...)`, or make them "
        "dense with `todense`."
    )


def _promised(x: Any, y: Any) -> Any:
    """The common static data; None if they differ in more than guarantees."""
    if x == y:
        return x
    if isinstance(x, tuple) and len(x) == 3 and x[0] == y[0]:  # for BCOO and BCSR
        return x[0], x[1] and y[1], x[2] and y[2]
    return None


def _shown(x: Any) -> str:
    if isinstance(x, JAXSparse):
        return f"{type(x).__name__}({x._summary()})"
    return f"a dense array {type_of(x).str_short(True)}"


def _like(wanted: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Converts values to the layout of others."""
    return [_in_layout(w, x) for w, x in zip(wanted, found, strict=True)]


def _in_layout(wanted: Any, x: Any) -> Any:
    if not isinstance(wanted, JAXSparse):
        return x.todense() if isinstance(x, JAXSparse) else x
    leaves, rest = wanted.tree_flatten()
    children = x.tree_flatten()[0]
    cast = [
        c.astype(w.dtype) if c.dtype != w.dtype else c
        for c, w in zip(children, leaves, strict=True)
    ]
    return type(wanted).tree_unflatten(rest, cast)


def _rows(x: Any) -> Any:
    """A sparse array whose slices along its first dimension are those of its leaves."""
    if isinstance(x, Stored) and x.n_batch:
        return x.without_padding()
    raise NotImplementedError(
        f"sparsify: a scan iterates over the first dimension of {_shown(x)}, which is not a batch "
        "dimension. Make it one with `bcoo_update_layout(n_batch=1)`."
    )
