"""Inspects a function without running it: `eval_shape`, `make_jaxpr`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.arguments.signatures import check_function
from shardwise._src.base.context import Context, NamedAxis, current
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op
from shardwise._src.jit.jit import Jitted, jit
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.tracer import Tracer


@hides_frames
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The types of `fun(*args, **kwargs)` in its pytree, as `ShapeDtypeStruct`s, without computing.

    Arguments may be arrays, NumPy arrays, scalars, or `ShapeDtypeStruct`s.
    """
    check_function("eval_shape", fun)
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    return jitted.eval_shape(*args, **kwargs)


class _AtOnce(Interpreter):
    """Runs ops on concrete values, and passes those on tracers to the outer interpreter."""

    __slots__ = ()

    def _there(self, args: Sequence[Any]) -> Context:
        traced = any(isinstance(a, Tracer) for a in args)
        return self.parent_context() if traced else current().under(EAGER)

    def process(self, op: Op, args: tuple, params: dict[str, Any]) -> Any:
        with self._there(args).entered() as there:
            return there.interpreter.process(op, args, params)

    def call(self, fused: Any, args: tuple, static: dict[str, Any]) -> Any:
        with self._there((*args, *static.values())).entered() as there:
            return there.interpreter.call(fused, args, static)


@contextmanager
def ensure_compile_time_eval() -> Generator[None]:
    """Inside, operations run immediately, even under a trace, and return concrete arrays.

    Operations on a traced value are part of the trace, as outside.
    """
    outer = current().interpreter
    if outer is EAGER:
        yield
        return
    with _AtOnce(outer, "ensure_compile_time_eval", outer.function).entered():
        yield


@hides_frames
def make_jaxpr(
    fun: Callable[..., Any],
    static_argnums: int | Sequence[int] | None = None,
    axis_env: Sequence[tuple[Hashable, int]] | None = None,
    return_shape: bool = False,
) -> Callable[..., Any]:
    """A function that returns the staged program of `fun` for its arguments.

    Args:
      static_argnums: arguments that are part of the program.
      axis_env: named axes in scope, as (name, size).
      return_shape: whether to return a pair with the types of the results, in their pytree.
    """
    check_function("make_jaxpr", fun)
    jitted = jit(fun, static_argnums=static_argnums)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        here = current()
        axes = [*here.axes, *[NamedAxis(*pair) for pair in axis_env or ()]]
        with here.replace(axes=tuple(axes)).entered():
            program, types = jitted.staged_program(*args, **kwargs)
        return (program, types) if return_shape else program

    return wrapped
