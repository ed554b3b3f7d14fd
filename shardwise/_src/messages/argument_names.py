"""Names of arguments in errors: by parameter, and by path into a pytree.

For example:

    params['w']     a leaf of a call's argument
    args[3]         an argument beyond the known parameters
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any

from shardwise._src.base.caches import Table
from shardwise._src.messages.tree_paths import leaf_paths, path_text
from shardwise._src.runtime.pytree import (
    cycle,
    cycle_error,
    flatten_quickly,
    flatten_with_path,
    order_error,
    refund,
)

CODES = 4096  # code objects whose parameters are cached
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def name_of(fun: Callable[..., Any]) -> str:
    """The name of a function, for messages and programs."""
    while isinstance(fun, functools.partial) and not hasattr(fun, "__name__"):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


_by_code: Table[tuple[CodeType, dict[str, Any]]] = Table(__name__, "parameters", CODES)


def parameters_of(fun: Callable[..., Any]) -> dict[str, Any] | None:
    """The parameters of a function and their kinds, by name; None if it has no signature."""
    plain = fun.__class__ is FunctionType and not fun.__dict__  # its code determines them
    code = getattr(fun, "__code__", None) if plain else None
    found = _by_code.entries.get(id(code))
    if found is not None and found[0] is code:
        return found[1]
    try:
        kinds = {n: p.kind for n, p in inspect.signature(fun).parameters.items()}
    except (TypeError, ValueError):
        return None
    if code is not None:
        _by_code.put(id(code), (code, kinds))
    return kinds


def names_of(fun: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the positional parameters; empty if the function has no signature."""
    found = parameters_of(fun) or {}
    return tuple([n for n, kind in found.items() if kind in POSITIONAL])


def argument_name(parameters: Sequence[str], i: int) -> str:
    """The name of positional argument `i`: `x`, or `args[3]` if the parameter is unknown."""
    return parameters[i] if i < len(parameters) else f"args[{i}]"


def names_at(fun: Callable[..., Any], places: Sequence[int]) -> list[str]:
    """Names of the positional arguments at these places."""
    parameters = names_of(fun)
    return [argument_name(parameters, i) for i in places]


def leaf_name(tree: Any, i: int, parameters: Sequence[str] = ()) -> str:
    """The path of leaf `i` in a treedef of positional arguments: `params['w']`, `args[0]['w']`."""
    path = flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0][i][0]
    return argument_name(parameters, path[0].idx) + path_text(path[1:])


def flat_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Callable[[], Sequence[str]]
) -> tuple[list[Any], Any]:
    """The leaves and treedef of a call's arguments. parameters: returns the names, for messages.

    Raises:
      ValueError: an argument has a dict whose keys cannot be ordered, or contains itself.
    """

    def named(path: Any) -> str:
        group, first, *rest = path
        name = first.key if group.idx else argument_name(parameters(), first.idx)
        return f"{name}{path_text(rest)}"

    try:
        return flatten_quickly((args, kwargs))
    except Exception as error:
        unordered = refund((args, kwargs), error)
        if unordered is not None and len(unordered[0]) > 1:
            raise order_error(named(unordered[0]), unordered[1]) from None
        if (endless := cycle((args, kwargs), error)) is not None:
            raise cycle_error(*map(named, endless)) from None
        raise


def argument_names(
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Sequence[str]
) -> list[str]:
    """A name for every leaf of a call's arguments: `params['w']`."""
    named = [(argument_name(parameters, i), arg) for i, arg in enumerate(args)]
    named += sorted(kwargs.items(), key=lambda item: item[0])
    return [name + path for name, arg in named for path in leaf_paths(arg)]
