"""How errors name the arguments of users' functions: by parameter, and by path into a tree.

    params['w']     a leaf of a call's argument
    args[3]         an argument beyond the parameters that are known
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.messages.trees import leaf_paths, path_text
from shardwise._src.runtime.pytree import flatten_with_path


def name_of(fun: Callable[..., Any]) -> str:
    """The name of a function, for messages and programs."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


def names_of(fun: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the positional parameters; empty where the function does not say."""
    try:
        found = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in found if p.kind in kinds)


def argument_name(parameters: Sequence[str], i: int) -> str:
    """The name of positional argument `i`: `x`, or `args[3]` where the parameter is not known."""
    return parameters[i] if i < len(parameters) else f"args[{i}]"


def names_at(fun: Callable[..., Any], places: Sequence[int]) -> list[str]:
    """Names of the positional arguments at these places."""
    parameters = names_of(fun)
    return [argument_name(parameters, i) for i in places]


def leaf_name(tree: Any, i: int, parameters: Sequence[str] = ()) -> str:
    """The path of leaf `i` of a tree of positional arguments: `params['w']`, or `args[0]['w']`."""
    path = flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0][i][0]
    return argument_name(parameters, path[0].idx) + path_text(path[1:])


def argument_names(
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Sequence[str]
) -> list[str]:
    """A name for every leaf of a call's arguments: `params['w']`."""
    named = [(argument_name(parameters, i), arg) for i, arg in enumerate(args)]
    named += sorted(kwargs.items(), key=lambda item: item[0])
    return [name + path for name, arg in named for path in leaf_paths(arg)]
