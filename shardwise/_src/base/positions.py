"""Positional arguments of a call: fixes or extracts some of them, and passes on the rest.

    fixed, rest = split(args, places)       # `static_argnums`, `nondiff_argnums`
    join(places, fixed, rest) == args
    put(args, places, values)               # `argnums`: replaces these arguments

Places are indices from 0. For `split` and `join` they are in ascending order; those beyond the last
argument are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def split(args: Sequence[Any], places: Sequence[int]) -> tuple[tuple[Any, ...], list[Any]]:
    """The arguments at these places, and the others in order."""
    fixed = tuple([args[n] for n in places if n < len(args)])
    return fixed, [a for n, a in enumerate(args) if n not in places]


def join(places: Sequence[int], fixed: Iterable[Any], rest: Iterable[Any]) -> list[Any]:
    """All arguments in order, from the results of `split`."""
    args = list(rest)
    for n, value in zip(places, fixed, strict=False):
        args.insert(n, value)
    return args


def put(args: Iterable[Any], places: Sequence[int], values: Iterable[Any]) -> list[Any]:
    """The arguments with these values at these places."""
    full = list(args)
    for n, value in zip(places, values, strict=True):
        full[n] = value
    return full


def taking_only(
    fun: Callable[..., Any], name: str, args: Sequence[Any], places: Sequence[int]
) -> Callable[..., Any]:
    """`fun(*args)` as a function of only the arguments at these places."""

    def of_picked(*picked: Any) -> Any:
        return fun(*put(args, places, picked))

    of_picked.__name__ = name
    return of_picked
