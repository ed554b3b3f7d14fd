"""Refs as arguments: converts functions of refs to functions of their values.

    with lent(refs, "jit of f", names) as values:      # no other code may use the refs in here
        result, last = functional(f, "jit of f", at, ())(*values, [])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.refs.refs import Ref, is_ref, reject_returned, values_of
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.stage import Stage


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


def functional(fun: Callable, who: str, at: Sequence[int], closed: Sequence[Ref]) -> Callable:
    """`fun` with values in place of refs: returns the result and the final values.

    at:     the leaves of the arguments that are values of refs.
    closed: refs that `fun` captures; their values are one additional positional argument, a list,
            after all others.
    """

    @functools.wraps(fun)
    def pure(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
        outside = args[-1]
        leaves, tree = flatten((args[:-1], kwargs))
        inner = [Ref(leaves[i]) for i in at]
        for i, r in zip(at, inner, strict=True):
            leaves[i] = r
        full, named = tree.unflatten(leaves)
        with known_inside(closed, outside):
            result = fun(*full, **named)
            reject_returned(who, flatten(result)[0])
            last = [*values_of(inner), *values_of(closed)]
        return result, last

    return pure


@contextmanager
def known_inside(refs: Sequence[Ref], values: Sequence[Any]) -> Generator[None]:
    """In the current stage, outer refs have these values; their outer values do not change."""
    if not refs:
        yield
        return
    stage: Stage = current().interpreter
    for ref, value in zip(refs, values, strict=True):
        stage.refs[ref] = [value, value]
    yield
    for ref in refs:
        del stage.refs[ref]


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
