"""Python signatures of user functions: which arguments a number or a name means."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


@functools.lru_cache(1024)
def parameters_of(fun: Callable) -> tuple[str, ...]:
    """Names of the positional parameters; empty where the function does not say."""
    try:
        found = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in found if p.kind in kinds)


def names_of(fun: Callable) -> tuple[str, ...]:
    """`parameters_of`, also for functions that cannot be hashed."""
    try:
        return parameters_of(fun)
    except TypeError:
        return ()


def as_tuple(x: Any) -> tuple:
    """An int, a string or an iterable of them, as a tuple."""
    if x is None:
        return ()
    if isinstance(x, int | str):
        return (x,)
    return tuple(x)


def both(fun: Callable, nums: Any, names: Any, what: str) -> tuple[tuple[int, ...], tuple]:
    """Numbers and names of the same arguments: each completed from the other."""
    nums, names = as_tuple(nums), as_tuple(names)
    if not nums and not names:
        return (), ()
    parameters = names_of(fun)
    if parameters:
        nums = tuple(n + len(parameters) if n < 0 else n for n in nums)
        extra = [parameters.index(n) for n in names if n in parameters]
        named = [parameters[n] for n in nums if n < len(parameters)]
        nums = tuple(dict.fromkeys([*nums, *extra]))
        names = tuple(dict.fromkeys([*names, *named]))
    if any(n < 0 for n in nums):
        raise ValueError(f"{what}: negative numbers need a function with a known signature")
    return nums, names


def check_argnums(argnums: Any, count: int, what: str) -> None:
    wanted: Iterable[int] = as_tuple(argnums)
    for n in wanted:
        if not -count <= n < count:
            raise ValueError(
                f"{what}: argnums={argnums} asks for argument {n}, but the function was called "
                f"with {count} positional arguments."
            )
