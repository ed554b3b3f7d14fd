"""Functions created by a factory, with the name and documentation of ordinary functions.

def unary(op, name, doc):
    def fun(x):
        return op(x)

    return named(fun, name, doc)
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def named(fun: F, name: str, doc: str | None = None, owner: str = "") -> F:
    """`fun`, a new closure, under a name. owner: the class of which it is a method."""
    made: Any = fun
    made.__name__, made.__qualname__ = name, f"{owner}.{name}" if owner else name
    made.__doc__ = doc
    made.__code__ = made.__code__.replace(co_name=name)  # for tracebacks and messages
    return fun


def alias(fun: F, name: str) -> F:
    """A function under another name, which it then shows: `acos` for `arccos`."""
    f: Any = fun
    copy: Any = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
    copy.__qualname__, copy.__module__, copy.__doc__ = name, f.__module__, f.__doc__
    copy.__kwdefaults__, copy.__annotations__ = f.__kwdefaults__, f.__annotations__
    copy.__dict__.update(f.__dict__)
    return copy
