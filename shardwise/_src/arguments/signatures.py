"""Signatures of user functions: which arguments a number or a name refers to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.errors import did_you_mean
from shardwise._src.messages.argument_names import name_of, parameters_of
from shardwise._src.messages.formatting import join, pluralize, short_repr


def as_tuple(x: Any) -> tuple:
    """An int, a string or an iterable of them, as a tuple."""
    if x is None:
        return ()
    if isinstance(x, str) or not isinstance(x, Iterable):
        return (x,)
    return tuple(x)


def both(fun: Callable, nums: Any, names: Any, kind: str) -> tuple[tuple[int, ...], tuple]:
    """Numbers and names of arguments. If only one is given, they are of the same arguments.

    kind: `static` or `donate`, for messages.
    """
    is_alone = nums is None or names is None
    nums, names = as_tuple(nums), as_tuple(names)
    if not nums and not names:
        return (), ()
    found, parameters, _ = parameters_of(fun)
    _check_kinds(nums, names, kind)
    nums = tuple(map(int, nums))
    if found is not None:
        _check_range(fun, found, nums, len(parameters), kind)
        _check_names(fun, found, names, kind)
        nums = tuple(n + len(parameters) if n < 0 else n for n in nums)
        if is_alone:
            extra = [parameters.index(n) for n in names if n in parameters]
            named = [parameters[n] for n in nums if n < len(parameters)]
            nums = tuple(dict.fromkeys([*nums, *extra]))
            names = tuple(dict.fromkeys([*names, *named]))
    if any(n < 0 for n in nums):
        raise ValueError(
            f"jit: {kind}_argnums={nums} counts from the end, which needs a function with a known "
            "signature. Count from the beginning."
        )
    return tuple(sorted({*nums})), names


def _signature(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def _check_kinds(nums: tuple, names: tuple, kind: str) -> None:
    for n in nums:
        if not isinstance(n, int | np.integer) or isinstance(n, bool):
            raise TypeError(
                f"jit: {kind}_argnums takes ints; got {n!r} of type {type(n).__name__}."
            )
    for n in names:
        if not isinstance(n, str):
            raise TypeError(
                f"jit: {kind}_argnames takes strings; got {n!r} of type {type(n).__name__}."
            )


def _check_range(fun: Callable, found: dict[str, Any], nums: tuple, count: int, kind: str) -> None:
    if inspect.Parameter.VAR_POSITIONAL in found.values():
        return
    for n in nums:
        if not -count <= n < count:
            raise ValueError(
                f"jit of {name_of(fun)}: {kind}_argnums={nums} refers to argument {n}, but the "
                f"function takes {pluralize(count, 'positional argument')}."
            )


def _check_names(fun: Callable, found: dict[str, Any], names: tuple, kind: str) -> None:
    if inspect.Parameter.VAR_KEYWORD in found.values():
        return
    for n in names:
        if n not in found:
            hint = did_you_mean(n, found)
            raise ValueError(
                f"jit of {name_of(fun)}: {kind}_argnames names {n!r}, which is not a parameter of "
                f"the function; its parameters are {join(found)}.{hint}"
            )


def as_argnums(argnums: Any, what: str) -> tuple[int, ...]:
    """An int or several, as a tuple."""
    nums: tuple[Any, ...] = (None,) if argnums is None else as_tuple(argnums)
    for n in nums:
        if not hasattr(n, "__index__") or isinstance(n, bool):
            raise TypeError(f"{what}: argnums takes ints; got {short_repr(n)}.")
    return nums


def check_argnums(argnums: Any, count: int, what: str, named: Iterable[str] = ()) -> None:
    """Raises if `argnums` are not valid numbers of `count` positional arguments."""
    nums = as_argnums(argnums, what)
    for n in nums:
        if not -count <= n < count:
            hint = f" Pass {join(named)} by position, not by keyword." if named else ""
            raise (ValueError if n < 0 else TypeError)(
                f"{what}: argnums={argnums} refers to argument {n}, but the function was called "
                f"with {pluralize(count, 'positional argument')}.{hint}"
            )
    if len(nums) > 1 and len({n % count for n in nums}) < len(nums):
        raise ValueError(f"{what}: argnums={argnums} names an argument twice.")


def check_function(transform: str, fun: Any) -> None:
    """Raises if the object to be transformed is not callable."""
    if isinstance(fun, staticmethod):
        raise TypeError(
            f"{transform} takes a function; got a static method. Apply `staticmethod` last: "
            f"`staticmethod({transform}(f))`."
        )
    if not callable(fun):
        raise TypeError(f"{transform} takes a function; got {fun!r} of type {type(fun).__name__}.")


def called(what: str, fun: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`fun(*args, **kwargs)`; if it does not take these, the error shows its signature."""
    try:
        return fun(*args, **kwargs)
    except TypeError as error:
        trace = error.__traceback__
        found = _signature(fun) if trace is not None and trace.tb_next is None else None
        if found is None or _fits(found, args, kwargs):
            raise
        plain = [p.replace(annotation=p.empty) for p in found.parameters.values()]
        shown = found.replace(parameters=plain, return_annotation=found.empty)
        raise TypeError(f"{what}: {error}. It is {name_of(fun)}{shown}.") from None


def _fits(found: inspect.Signature, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    try:
        found.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
