"""Derivatives with respect to refs: functions of refs, as functions of the refs' values.

A ref adds its initial value to the arguments of the function, and its last value to the results.
Tangents and cotangents of a ref change with it, and are refs themselves:

    with held(leaves, what, path) as values:            # no other use of the refs in the meantime
        outs = of_values(flat, places(leaves), trees)(*values)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from shardwise._src.arguments.values import as_input
from shardwise._src.base.positions import put
from shardwise._src.messages.formatting import short_repr
from shardwise._src.refs.passing import lent
from shardwise._src.refs.refs import Ref, is_ref, values_of, write_back
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact


def places(leaves: Sequence[Any]) -> list[int]:
    """Which leaves are refs."""
    return [i for i, x in enumerate(leaves) if x.__class__ is Ref]


def held(
    leaves: Sequence[Any], what: str, path: Callable[[int], str]
) -> AbstractContextManager[Sequence[Any]]:
    """The leaves with values in place of refs, which a function borrows."""
    at = places(leaves)
    return _held(leaves, at, what, path) if at else nullcontext(leaves)


@contextmanager
def _held(
    leaves: Sequence[Any], at: Sequence[int], what: str, path: Callable[[int], str]
) -> Generator[Sequence[Any]]:
    with lent([leaves[i] for i in at], what, lambda: [path(i) for i in at]) as values:
        yield put(leaves, at, values)


def of_values(flat: Callable, at: Sequence[int], trees: Sequence[Any]) -> Callable:
    """`flat`, whose arguments `at` are refs, as a function of values; it returns their last values
    between results and aux. trees: receives the pytree of the results.
    """
    if not at:
        return flat

    def pure(*leaves: Any) -> list[Any]:
        refs = [Ref(leaves[i]) for i in at]
        outs, last = flat(*put(leaves, at, refs)), values_of(refs)
        count = trees[0].num_leaves
        return [*outs[:count], *last, *outs[count:]]

    return pure


def as_moving(x: Any, what: str, path: Callable[[], str]) -> Any:
    """`as_input` of a differentiated argument; raises for a ref, whose gradient is not a value."""
    if is_ref(x):
        raise TypeError(
            f"{what}: {path()} is {x.short}, and the gradient of a ref is also a ref. Use "
            "`shardwise.vjp`, and `with_refs` of the function that it returns. Refs are "
            "accepted in arguments that are not differentiated."
        )
    return as_input(x, what, path)


def write_moved(tangents: Sequence[Any], values: Sequence[Any]) -> None:
    """Writes to the tangents that are refs; tangents of integers are not."""
    pairs = [(t, x) for t, x in zip(tangents, values, strict=True) if is_ref(t)]
    write_back([t for t, _ in pairs], [x for _, x in pairs])


def check_tangents(
    what: str,
    at: Sequence[int],
    types: Sequence[ArrayType],
    tangents: Sequence[Any],
    path: Callable[[int], str],
) -> None:
    """Raises if the tangent of a ref (`at`) is not a matching ref, or is the ref of another."""
    for i, (t, x) in enumerate(zip(types, tangents, strict=True)):
        if i in at and is_inexact(t.dtype):
            check_like(what, t, x, lambda i=i: path(i))
        elif is_ref(x):
            raise TypeError(
                f"{what}: the tangent of {path(i)}, which is of type {t.str_short(True)}, cannot "
                f"be {x.short}: a ref is the tangent of a ref of real or complex numbers."
            )


def check_like(what: str, t: ArrayType, x: Any, path: Callable[[], str]) -> None:
    """Raises if the derivative of a ref of this type is not a ref of the same type."""
    if is_ref(x) and (x.shape, x.dtype) == (t.shape, t.dtype):
        return
    raise TypeError(
        f"{what}: {path()} is a Ref{{{t.str_short(True)}}}; its derivative must be a ref of the "
        f"same shape and dtype; got {x.short if is_ref(x) else short_repr(x)}."
    )
