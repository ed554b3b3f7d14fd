"""Refs as arguments: converts functions of refs to functions of their values.

For example:

    with lent(refs, "jit of f", names) as values:      # no other code may use the refs in here
        result, last = functional(f, "jit of f", at, kinds)(*values)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.refs.refs import Ref, RefPart, is_ref, reject_returned, values_of
from shardwise._src.runtime.pytree import flatten


@contextmanager
def lent(refs: Sequence[Ref], who: str, names: Callable[[], Sequence[str]]) -> Generator[list[Any]]:
    """The values of refs that are passed to a function, which has exclusive use of them."""
    if len({*map(id, refs)}) < len(refs):
        twice = next(r for i, r in enumerate(refs) if r in refs[:i])
        at = [n for n, r in zip(names(), refs, strict=True) if r is twice]
        raise ValueError(
            f"{who}: {twice.short} is passed more than once, as {' and '.join(at)}. A write "
            "to one would have to be visible in the other: pass it once."
        )
    values = values_of(refs)
    before = [r._lent_to for r in refs]
    for r in refs:
        r._lent_to = who
    try:
        yield values
    finally:
        for r, b in zip(refs, before, strict=True):
            r._lent_to = b


def reject_parts(who: str, tree: Any) -> None:
    """Raises if a part of a ref is among the arguments of a function that maps over them."""
    found = flatten(tree, lambda x: isinstance(x, RefPart))[0]
    part = next((x for x in found if isinstance(x, RefPart)), None)
    if part is not None:
        raise TypeError(
            f"{who}: a part of {part.ref.short} is an argument, which cannot be mapped over. Pass "
            "the ref itself, and select the part in the function."
        )


def functional(fun: Callable, who: str, at: Sequence[int], kinds: Sequence[str | None]) -> Callable:
    """`fun` with values in place of refs: returns the result and the final values.

    at: the leaves of the arguments that are values of refs. kinds: those of the refs.
    """

    @functools.wraps(fun)
    def pure(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        leaves, tree = flatten((args, kwargs))
        inner = [Ref(leaves[i], kind=kind) for i, kind in zip(at, kinds, strict=True)]
        for i, r in zip(at, inner, strict=True):
            leaves[i] = r
        full, named = tree.unflatten(leaves)
        result = fun(*full, **named)
        reject_returned(who, flatten(result)[0])
        return result, values_of(inner)

    return pure


def with_refs_outside(fun: Callable, leaves: Sequence[Any]) -> Callable:
    """`fun(*leaves)` as a function of the leaves that are not refs."""

    @functools.wraps(fun)
    def filled(*rest: Any) -> Any:
        return fun(*merged(leaves, rest))

    return filled


def merged(leaves: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The leaves, with new values in place of those that are not refs."""
    given = iter(values)
    return [x if is_ref(x) else next(given) for x in leaves]
