"""Fused functions: one cached program when eager, inlined when traced.

`@fused` marks a function over ops (`var`, indexing, `where`, `.at[].set`). Called eagerly, the
whole function is staged once per types and static arguments and runs as one compiled program; under
any other interpreter its body simply runs, so that a trace sees plain ops.

    @fused(arrays=1)
    def mean(x, axis=None): ...

The first `arrays` parameters take arrays; the others are static and must be hashable.

`@one_program` marks a public function that is written with fused ones and prepares their arguments:
an eager call of it, too, is one program, found by the arguments as users give them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from shardwise._src.base.caches import exact
from shardwise._src.base.context import current
from shardwise._src.messages.tracebacks import pass_on

P = ParamSpec("P")
T = TypeVar("T")

VARIADIC = 1 << 30
FORMS = 8192  # kept


class Composite:
    """A function that dispatches as one program. `arrays`: how many leading parameters are."""

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
        """The same call with array parameters by position."""
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
    record = Composite(fun, arrays)

    @functools.wraps(fun)
    def call(*args: Any, **static: Any) -> Any:
        try:
            return current().interpreter.call(record, args, static)
        except Exception as error:
            pass_on(error)
            raise

    call.fused = record  # pyright: ignore[reportAttributeAccessIssue]
    return call


def record_of(call: Callable[..., Any]) -> Composite:
    """The record of a fused function, for `call` of an interpreter: one wrapper less on the way."""
    return getattr(call, "fused")  # noqa: B009 (of a function, as type checkers see it)


def body_of(call: Callable[P, T]) -> Callable[P, T]:
    """The function that was marked, for others that are fused themselves."""
    return record_of(call).fun


@overload
def eager_jit(fun: Callable[P, T], *, arrays: int = 1) -> Callable[P, T]: ...
@overload
def eager_jit(*, arrays: int = 1) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def eager_jit(fun: Callable[..., Any] | None = None, *, arrays: int = 1) -> Any:
    """Marks a function whose results are arrays, and whose eager calls may be one program.

    That is for arrays, and for static arguments for which `is_plain` holds. Else the function runs
    as it is written: under transforms, for operands that are no arrays, and where staging it fails,
    so that the error is the one that it raises itself.
    """
    if fun is None:
        return functools.partial(eager_jit, arrays=arrays)
    record = Composite(fun, arrays)

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
    """Whether a static argument is none that warns each time (dtypes do), or takes many values."""
    if x.__class__ is str:
        with suppress(TypeError):
            return not np.dtype(x)
        return True
    return x.__class__ in _PLAIN or (x.__class__ is tuple and all(map(is_plain, x)))


class StaticKey:
    """Stands for a fused function with its static arguments. In a key it saves hashing these.

    signed: whether a zero among them is a float, whose sign `==` does not tell.
    """

    __slots__ = ("signed",)

    def __init__(self, signed: bool):
        self.signed = signed


@functools.lru_cache(FORMS, typed=True)
def equal_form(fused: Any, *static: Any, **named: Any) -> StaticKey:
    """The same object for equal static arguments of equal types: 1, 1.0 and True are equal."""
    return StaticKey(any(v.__class__ is float and not v for v in (*static, *named.values())))


def form_of(fused: Any, rest: Sequence[Any], static: dict[str, Any]) -> StaticKey:
    """`equal_form`, which also tells 0.0 from -0.0."""
    form = equal_form(fused, *rest, **static)
    if form.signed:
        return equal_form(fused, *rest, exact((*rest, *static.values())), **static)
    return form
