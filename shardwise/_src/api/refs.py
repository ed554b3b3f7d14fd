"""Calls of jitted and mapped functions with refs, made with values that are written back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.api.signatures import Options, names_of
from shardwise._src.api.statics import merged
from shardwise._src.api.trees import argument_names
from shardwise._src.base.caches import make_room
from shardwise._src.core.infer import type_of
from shardwise._src.refs.refs import (
    Ref,
    functional,
    is_ref,
    lent,
    refuse_returned,
    values_of,
    write_back,
)
from shardwise._src.runtime.pytree import flatten

FUNCTIONS = 256  # kept per jitted function, by where refs are among its arguments


def through_refs(
    jitted: Any, static: Any, args: tuple, kwargs: dict, closed: tuple[Ref, ...] = ()
) -> Any:
    """A call of a jitted function with refs among its arguments, or from outside (`closed`)."""
    args, kwargs = merged(static, args, kwargs)
    leaves, tree = flatten((args, kwargs))
    at = tuple([i for i, x in enumerate(leaves) if is_ref(x)])
    passed, who = [leaves[i] for i in at], f"jit of {jitted._name}"
    key = (tree, at, closed)
    inner = jitted._functional.get(key)
    if inner is None:
        make_room(jitted._functional, FUNCTIONS)
        options = _for_values(jitted._options, len(args))
        pure = functional(jitted._fun, who, at, closed)
        inner = jitted._functional[key] = type(jitted)(pure, options)
    names = _names(jitted._fun, args, kwargs)
    with lent(passed, who, lambda: [names()[i] for i in at]) as values:
        for i, value in zip(at, values, strict=True):
            leaves[i] = value
        full, named = tree.unflatten(leaves)
        result, last = inner(*full, values_of(closed), **named)
    write_back([*passed, *closed], last)
    return result


def closing_over_refs(
    jitted: Any, leaves: list[Any], tree: Any, static: Any, args: tuple, kwargs: dict
) -> Callable:
    """What runs a call of a jitted function that uses refs from outside."""
    refs: list[Ref] = []
    jitted._trace(tuple([type_of(x) for x in leaves]), tree, static, args, kwargs, refs)
    closed = tuple(refs)

    def run(leaves: Sequence[Any]) -> Any:
        moving, named = tree.unflatten(leaves)
        return through_refs(jitted, static, moving, named, closed)

    return run


def _for_values(options: Options, count: int) -> Options:
    """The options of a function of `count` positional arguments for the one of values."""
    new = copy.copy(options)
    ins, outs = options.in_shardings, options.out_shardings
    if ins is not None:
        moving = count - sum(i < count for i in options.static_argnums)
        new.in_shardings = (*(ins if isinstance(ins, tuple | list) else (ins,) * moving), None)
    if outs is not None:
        new.out_shardings = (outs, None)
    return new


def _names(fun: Callable, args: tuple, kwargs: dict) -> Callable[[], list[str]]:
    return lambda: argument_names(args, kwargs, names_of(fun))


def mapped_with_refs(
    vmap: Callable, fun: Callable, name: str, args: tuple, kwargs: dict, dims: Sequence[Any],
    out_axes: Any, options: dict[str, Any],
) -> Any:
    """`vmap(fun)(*args, **kwargs)` with refs among the arguments.

    dims: of the leaves. Refs that are not mapped are used as they are, as if from outside.
    """
    leaves, tree = flatten((args, kwargs))
    at = [i for i, x in enumerate(leaves) if is_ref(x) and dims[i] is not None]
    free = [i for i, x in enumerate(leaves) if not is_ref(x)]
    refs = [leaves[i] for i in at]

    def flat(*values: Any) -> tuple[Any, list[Any]]:
        inner = list(leaves)
        for i, x in zip(free, values, strict=False):
            inner[i] = x
        own = [Ref(x) for x in values[len(free) :]]
        for i, r in zip(at, own, strict=True):
            inner[i] = r
        full, named = tree.unflatten(inner)
        result = fun(*full, **named)
        refuse_returned(f"vmap of {name}: the function", flatten(result)[0])
        return result, values_of(own)

    flat.__name__ = name
    names = _names(fun, args, kwargs)
    picked = [dims[i] for i in at]
    with lent(refs, f"vmap of {name}", lambda: [names()[i] for i in at]) as values:
        mapped = vmap(flat, (*[dims[i] for i in free], *picked), (out_axes, picked), **options)
        result, last = mapped(*[leaves[i] for i in free], *values)
    write_back(refs, last)
    return result
