"""Python signatures of user functions: which arguments a number or a name means."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from shardwise.core.interpreter import name_of
from shardwise.types.frozen import counted, listed


def names_of(fun: Callable) -> tuple[str, ...]:
    """Names of the positional parameters; empty where the function does not say."""
    try:
        found = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in found if p.kind in kinds)


def as_tuple(x: Any) -> tuple:
    """An int, a string or an iterable of them, as a tuple."""
    if x is None:
        return ()
    if isinstance(x, str) or not isinstance(x, Iterable):
        return (x,)
    return tuple(x)


def both(fun: Callable, nums: Any, names: Any, kind: str) -> tuple[tuple[int, ...], tuple]:
    """Numbers and names of the same arguments, each completed from the other.

    kind: `static` or `donate`, for messages.
    """
    nums, names = as_tuple(nums), as_tuple(names)
    if not nums and not names:
        return (), ()
    parameters = names_of(fun)
    _check_kinds(nums, names, kind)
    found = _signature(fun)
    if found is not None:
        _check_range(fun, found, nums, len(parameters), kind)
        _check_names(fun, found, names, kind)
        nums = tuple(n + len(parameters) if n < 0 else n for n in nums)
        extra = [parameters.index(n) for n in names if n in parameters]
        named = [parameters[n] for n in nums if n < len(parameters)]
        nums = tuple(dict.fromkeys([*nums, *extra]))
        names = tuple(dict.fromkeys([*names, *named]))
    if any(n < 0 for n in nums):
        raise ValueError(
            f"jit: {kind}_argnums={nums} counts from the end, which needs a function with a known "
            "signature. Count from the beginning."
        )
    return nums, names


def _signature(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def _check_kinds(nums: tuple, names: tuple, kind: str) -> None:
    for n in nums:
        if not isinstance(n, int) or isinstance(n, bool):
            raise TypeError(
                f"jit: {kind}_argnums takes ints; got {n!r} of type {type(n).__name__}."
            )
    for n in names:
        if not isinstance(n, str):
            raise TypeError(
                f"jit: {kind}_argnames takes strings; got {n!r} of type {type(n).__name__}."
            )


def _check_range(
    fun: Callable, found: inspect.Signature, nums: tuple, count: int, kind: str
) -> None:
    kinds = [p.kind for p in found.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return
    for n in nums:
        if not -count <= n < count:
            raise ValueError(
                f"jit of {name_of(fun)}: {kind}_argnums={nums} asks for argument {n}, but the "
                f"function takes {counted(count, 'positional argument')}."
            )


def _check_names(fun: Callable, found: inspect.Signature, names: tuple, kind: str) -> None:
    parameters = found.parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return
    for n in names:
        if n not in found.parameters:
            raise ValueError(
                f"jit of {name_of(fun)}: {kind}_argnames names {n!r}, which is not a parameter of "
                f"the function; its parameters are {listed(found.parameters)}."
            )


def check_options(fun: Callable, options: Any, *, device: Any, backend: Any) -> None:
    """Raises where options of `jit` contradict each other."""
    what = f"jit of {name_of(fun)}"
    numbers = set(options.static_argnums) & set(options.donate_argnums)
    names = set(options.static_argnames) & set(options.donate_argnames)
    if numbers or names:
        shown = listed(sorted(names) or sorted(numbers))
        raise ValueError(
            f"{what}: {shown} cannot be both static and donated; a static argument has no memory "
            "on a device."
        )
    if device is not None and backend is not None:
        raise ValueError(f"{what}: got device={device} and backend={backend!r}; give one of them.")
    if device is None and backend is None:
        return
    if options.in_shardings is not None or options.out_shardings is not None:
        raise ValueError(
            f"{what}: got {'device' if backend is None else 'backend'} beside in_shardings or "
            "out_shardings, which say where to run, too. Leave it out."
        )


def check_argnums(argnums: Any, count: int, what: str) -> None:
    wanted: Iterable[int] = as_tuple(argnums)
    for n in wanted:
        if not -count <= n < count:
            raise ValueError(
                f"{what}: argnums={argnums} asks for argument {n}, but the function was called "
                f"with {count} positional arguments."
            )


class JitOptions(TypedDict, total=False):
    """The keyword arguments of `jit`, for type checkers."""

    in_shardings: Any
    out_shardings: Any
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    device: Any
    backend: str | None
    inline: bool
    compiler_options: dict[str, Any] | None


class Options:
    """The arguments of `jit`, in canonical form."""

    __slots__ = (
        "in_shardings", "out_shardings", "static_argnums", "static_argnames", "donate_argnums",
        "donate_argnames", "inline", "compiler_options", "device", "keep_unused",
    )


def exactly(value: Any) -> Any:
    """What tells a static argument from one that is equal: 1, 1.0, True; 0.0 and -0.0."""
    return type(value), repr(value) if isinstance(value, float | complex) else None


def without_static(nums: tuple, static: tuple) -> list[int]:
    """Argument numbers, counted without the static arguments."""
    return [n - sum(s < n for s in static) for n in nums if n not in static]


def names_without_static(parameters: tuple, static: tuple) -> list[str]:
    return [p for i, p in enumerate(parameters) if i not in static]
