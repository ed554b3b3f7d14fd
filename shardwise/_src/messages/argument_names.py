"""Names of arguments in errors and programs: by parameter, and by path into a pytree, as in JAX.

For example:

    params['w']             a leaf of a call's argument
    rest[0], named['z']     arguments that `*rest` and `**named` catch
    args[3], kwargs['z']    arguments of a function without a signature
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

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
BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def name_of(fun: Callable[..., Any]) -> str:
    """The name of a function, for messages and programs."""
    while isinstance(fun, functools.partial) and not hasattr(fun, "__name__"):
        fun = fun.func
    return getattr(fun, "__name__", type(fun).__name__)


class Parameters(NamedTuple):
    """The parameters of a function, which give arguments of calls their names.

    kinds: by name; None if the function has no signature.
    positional: the names of those that an argument may be passed to by position.
    static: positions of arguments that calls are without.
    """

    kinds: dict[str, Any] | None = None
    positional: tuple[str, ...] = ()
    static: tuple[int, ...] = ()

    def without(self, static: Sequence[int]) -> Parameters:
        """For calls without the arguments at these positions."""
        return self._replace(static=tuple(sorted(static)))

    def at(self, i: int) -> str:
        """The name of positional argument `i`: `x` or `rest[0]`."""
        for n in self.static:
            i += n <= i
        count = len(self.positional)
        if i < count:
            return self.positional[i]
        rest = self._first(inspect.Parameter.VAR_POSITIONAL)
        return f"{rest}[{i - count}]" if rest else f"args[{i}]"

    def keyword(self, name: str) -> str:
        """The name of an argument that is passed by keyword: `x` or `named['x']`."""
        if (self.kinds or {}).get(name) in BY_KEYWORD:
            return name
        return f"{self._first(inspect.Parameter.VAR_KEYWORD) or 'kwargs'}[{name!r}]"

    def _first(self, kind: Any) -> str | None:
        return next((n for n, k in (self.kinds or {}).items() if k is kind), None)


_by_code: Table[tuple[CodeType, Parameters]] = Table(__name__, "parameters", CODES)


def parameters_of(fun: Callable[..., Any]) -> Parameters:
    """The parameters of a function."""
    plain = fun.__class__ is FunctionType and not fun.__dict__  # its code determines them
    code = getattr(fun, "__code__", None) if plain else None
    known = _by_code.entries.get(id(code))
    if known is not None and known[0] is code:
        return known[1]
    try:
        kinds = {n: p.kind for n, p in inspect.signature(fun).parameters.items()}
    except (TypeError, ValueError):
        return Parameters()
    found = Parameters(kinds, tuple([n for n, kind in kinds.items() if kind in POSITIONAL]))
    if code is not None:
        _by_code.put(id(code), (code, found))
    return found


def names_at(fun: Callable[..., Any], places: Sequence[int]) -> list[str]:
    """Names of the positional arguments at these places."""
    return list(map(parameters_of(fun).at, places))


def leaf_name(tree: Any, i: int, names: Sequence[str]) -> str:
    """The path of leaf `i` in a treedef of positional arguments with names: `params['w']`."""
    path = flatten_with_path(tree.unflatten(range(tree.num_leaves)))[0][i][0]
    first, *rest = path
    return f"{names[first.idx]}{path_text(rest)}"


def flat_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Callable[[], Parameters]
) -> tuple[list[Any], Any]:
    """The leaves and treedef of a call's arguments. parameters: of the function, for messages.

    Raises:
      ValueError: an argument has a dict whose keys cannot be ordered, or contains itself.
    """

    def named(path: Any) -> str:
        group, first, *rest = path
        known = parameters()
        name = known.keyword(first.key) if group.idx else known.at(first.idx)
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
    args: tuple[Any, ...], kwargs: dict[str, Any], parameters: Parameters
) -> list[str]:
    """A name for every leaf of a call's arguments: `params['w']`."""
    named = [(parameters.at(i), arg) for i, arg in enumerate(args)]
    named += [(parameters.keyword(n), kwargs[n]) for n in sorted(kwargs)]
    return [name + path for name, arg in named for path in leaf_paths(arg)]
