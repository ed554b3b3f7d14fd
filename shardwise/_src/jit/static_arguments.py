"""Static arguments of jitted functions: part of the program, and of its cache key.

They are compared by `==`, by class, and by the sign of zeros: a program made for 1 is not run for
1.0 or True. This also holds inside tuples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardwise._src.base.caches import exact
from shardwise._src.base.positions import join, split
from shardwise._src.jit.options import Options
from shardwise._src.messages.argument_names import Parameters
from shardwise._src.messages.formatting import short_repr
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.tracer import Tracer, escaped


def split_static(options: Options, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict]:
    """(static arguments as a part of keys, the other positional ones, the other named ones)."""
    numbers, names, named = options.static_argnums, options.static_argnames, ()
    if len(numbers) == 1 and numbers[0] < len(args):  # a third of the time
        (n,) = numbers
        value = args[n]
        picked, rest = ((n, exact(value), value),), args[:n] + args[n + 1 :]
    else:
        fixed, others = split(args, numbers)
        rows = zip(numbers, fixed, strict=False)
        picked, rest = tuple([(i, exact(v), v) for i, v in rows]), tuple(others)
    if kwargs and not kwargs.keys().isdisjoint(names):
        named = tuple([(k, exact(v), v) for k, v in sorted(kwargs.items()) if k in names])
        kwargs = {k: v for k, v in kwargs.items() if k not in names}
    return (picked, named), rest, kwargs


def merged(static: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """All arguments of the call, including static ones."""
    if static is None:
        return args, kwargs
    full = join([i for i, _, _ in static[0]], [v for _, _, v in static[0]], args)
    return tuple(full), kwargs | {k: v for k, _, v in static[1]}


def _name(where: int | str, parameters: Parameters) -> str:
    return parameters.keyword(where) if isinstance(where, str) else parameters.at(where)


def _kind(value: Any) -> str:
    return type(value).__name__


def unhashable(what: str, parameters: Parameters, static: Any, error: Exception) -> Exception:
    """The error for a static argument that is unhashable, or `error`.

    what: the transform and the function; parameters: of the function.
    """
    for where, _, value in (*static[0], *static[1]):
        inner = _without_hash(value)
        if inner is None:
            continue
        held = next((x for x in flatten(value)[0] if isinstance(x, Tracer)), None)
        name = f"{what}: static argument {_name(where, parameters)}"
        if held is not None:
            return _traced(name, held)
        part, error = inner
        holds = "" if part is value else f", as it holds {short_repr(part)}"
        usual = isinstance(error, TypeError) and "unhashable" in str(error)
        why = "" if usual else f" ({_kind(error)}: {error})"
        return ValueError(
            f"{name} is {short_repr(value)}, which cannot be hashed{holds}{why}. Static arguments "
            "are part of the cache key: use a hashable type such as a tuple, or do not mark it "
            "static."
        )
    return error


def _without_hash(value: Any) -> tuple[Any, Exception] | None:
    """The innermost unhashable part of a value, and the error that it raises."""
    try:
        hash(value)
    except Exception as error:
        if isinstance(value, tuple):
            return next(filter(None, map(_without_hash, value)), (value, error))
        return value, error
    return None


def _traced(name: str, x: Tracer) -> Exception:
    if not x.interpreter.alive:
        return escaped(x)
    return ValueError(
        f"{name} is a traced value of type {x.aval.str_short(True)} ({x.interpreter.describe()})."
        f"{x.origin()} A program is compiled for each value of a static argument, and this value "
        "is not known while tracing. Do not mark it static, or compute it outside of the traced "
        "function."
    )


def incomparable(
    what: str, parameters: Parameters, static: Any, known: Iterable[Any]
) -> ValueError | None:
    """The error for a static argument whose `==` fails against one of the `known` ones."""
    for other in known:
        for where, _, value in (*static[0], *static[1]):
            for at, _, old in (*other[0], *other[1]):
                if at != where or hash(value) != hash(old):
                    continue
                try:
                    bool(value == old)
                except Exception as error:
                    return ValueError(
                        f"{what}: static argument {_name(where, parameters)} is "
                        f"{short_repr(value)}, whose `==` raised {_kind(error)} ({error}). It is "
                        "compared with those of earlier calls: make `__eq__` return a bool for any "
                        "two values."
                    )
    return None
