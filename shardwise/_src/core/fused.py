"""Fused functions: one cached program when eager, inlined when traced.

`@fused` marks a function over ops (`var`, indexing, `where`, `.at[].set`). An eager call stages the
entire function once per types and static arguments and runs it as one compiled program; under
any other interpreter its body simply runs, so that a trace sees plain ops.

    @fused(arrays=1)
    def mean(x, axis=None): ...

The first `arrays` parameters take arrays; the others are static and must be hashable.

`@eager_jit` marks a public function that calls fused functions and prepares their arguments: an
eager call of it is also one program, which is looked up by the user's arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from shardwise._src.base.caches import cached, exact
from shardwise._src.base.context import current
from shardwise._src.base.named import named
from shardwise._src.messages.tracebacks import pass_on

P = ParamSpec("P")
T = TypeVar("T")

VARIADIC = 1 << 30
FORMS = 8192  # cached


class Fused:
    """A function that dispatches as one program. `arrays`: number of leading array parameters."""

    __slots__ = ("fun", "arrays", "name", "_array_names")

    def __init__(self, fun: Callable[..., Any], arrays: int):
        code = fun.__code__
        self.fun = fun
        self.arrays = VARIADIC if code.co_flags & 0x04 else arrays
        self.name = fun.__name__
        self._array_names = code.co_varnames[: min(arrays, code.co_argcount)]

    def positional(
        self, args: tuple[Any, ...], static: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with array parameters passed by position."""
        while len(args) < len(self._array_names) and self._array_names[len(args)] in static:
            static = dict(static)
            args = (*args, static.pop(self._array_names[len(args)]))
        return args, static


@overload
def fused(fun: Callable[P, T], *, arrays: int = 1) -> Callable[P, T]: ...
@overload
def fused(*, arrays: int = 1) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def fused(fun: Callable[..., Any] | None = None, *, arrays: int = 1) -> Any:
    """Marks a function over ops as one program. Returns a plain function, for its signature."""
    if fun is None:
        return functools.partial(fused, arrays=arrays)
    record = Fused(fun, arrays)

    @functools.wraps(fun)
    def call(*args: Any, **static: Any) -> Any:
        try:
            return current().interpreter.call(record, args, static)
        except Exception as error:
            pass_on(error)
            raise

    call.fused = record  # pyright: ignore[reportAttributeAccessIssue]
    return call


def fused_optional(fun: Callable[P, T]) -> Callable[P, T]:
    """`fused`, for array parameters that may be None.

    Calls pass arrays by position, and static arguments by name.
    """

    def program(*given: Any, absent: tuple[int, ...], **static: Any) -> Any:
        arrays = list(given)
        for i in absent:
            arrays.insert(i, None)
        return fun(*arrays, **static)  # pyright: ignore[reportCallIssue] (arguments of `call`)

    first, some = Fused(fun, 1), fused(named(program, fun.__name__))

    @functools.wraps(fun)
    def call(*arrays: P.args, **static: P.kwargs) -> T:
        absent = tuple([i for i, x in enumerate(arrays) if x is None])
        if len(absent) == len(arrays) - 1:
            return current().interpreter.call(first, arrays[:1], static)
        return some(*[x for x in arrays if x is not None], absent=absent, **static)

    return call


def record_of(call: Callable[..., Any]) -> Fused:
    """The record of a fused function, for `call` of an interpreter: saves one wrapper call."""
    return getattr(call, "fused")  # noqa: B009 (an attribute of a function, for type checkers)


def body_of(call: Callable[P, T]) -> Callable[P, T]:
    """The decorated function, for use inside other fused functions."""
    return record_of(call).fun


@overload
def eager_jit(fun: Callable[P, T], *, arrays: int = 1) -> Callable[P, T]: ...
@overload
def eager_jit(*, arrays: int = 1) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def eager_jit(fun: Callable[..., Any] | None = None, *, arrays: int = 1) -> Any:
    """Marks a function that returns arrays, and whose eager calls may be one program.

    This applies to arrays, and to static arguments for which `is_plain` holds. Otherwise the
    function simply runs: under transforms, for operands that are not arrays, and if staging it
    fails, so that the user sees its own error.
    """
    if fun is None:
        return functools.partial(eager_jit, arrays=arrays)
    record = Fused(fun, arrays)

    @functools.wraps(fun)
    def call(*args: Any, **static: Any) -> Any:
        try:
            return current().interpreter.call_as_one(record, args, static)
        except Exception as error:
            pass_on(error)
            raise

    return call


_PLAIN = {int, bool, type(None)}


def is_plain(x: Any) -> bool:
    """False for static arguments that warn on each call (dtypes do) or have many values."""
    if x.__class__ is str:
        if x == "a":  # an alias of "S", of which NumPy warns
            return True
        with suppress(TypeError, ValueError):
            return not np.dtype(x)
        return True
    return x.__class__ in _PLAIN or (x.__class__ is tuple and all(map(is_plain, x)))


class StaticKey:
    """Represents a fused function with its static arguments. In a key it avoids hashing these.

    ambiguous: whether there is a number among them that `==` does not distinguish from others, such
      as a zero, whose sign it ignores.
    """

    __slots__ = ("ambiguous",)

    def __init__(self, ambiguous: bool):
        self.ambiguous = ambiguous


@cached(FORMS, typed=True)
def equal_form(fused: Any, *static: Any, **named: Any) -> StaticKey:
    """The same object for equal static arguments of equal types: 1, 1.0 and True are equal."""
    return StaticKey(any(map(_is_ambiguous, (*static, *named.values()))))


def _is_ambiguous(value: Any) -> bool:
    if value.__class__ is tuple:
        return any(map(_is_ambiguous, value))
    return exact(value) is not value.__class__


def form_of(fused: Any, rest: Sequence[Any], static: dict[str, Any]) -> StaticKey:
    """`equal_form`, which also distinguishes 0.0 from -0.0, of all classes and inside tuples."""
    form = equal_form(fused, *rest, **static)
    if form.ambiguous:
        return equal_form(fused, *rest, exact((*rest, *static.values())), **static)
    return form
