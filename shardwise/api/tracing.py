"""Looking at a function without running it: `eval_shape`, `make_jaxpr`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise.api.jit import jit
from shardwise.base.context import current
from shardwise.engine.eager import EAGER


def eval_shape(fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """The types of `fun(*args, **kwargs)` in its tree, as `ShapeDtypeStruct`s. Nothing is computed.

    Arguments may be arrays, NumPy arrays, scalars, or `ShapeDtypeStruct`s instead of them.
    """
    return jit(fun).eval_shape(*args, **kwargs)


@contextmanager
def ensure_compile_time_eval() -> Generator[None]:
    """Inside, operations run at once, though a function is traced, and give concrete arrays.

    Their operands must not be traced values.
    """
    with current().under(EAGER).entered():
        yield


def make_jaxpr(
    fun: Callable, static_argnums: Any = None,
    axis_env: Sequence[tuple[Hashable, int]] | None = None, return_shape: bool = False,
) -> Callable:
    """A function that gives the staged program of `fun` for its arguments.

    Args:
      static_argnums: arguments that are part of the program.
      axis_env: named axes in scope, as (name, size).
      return_shape: whether to give a pair with the types of the results, in their tree.
    """
    jitted = jit(fun, static_argnums=static_argnums)

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        here = current()
        with here.replace(axes=(*here.axes, *map(tuple, axis_env or ()))).entered():
            traced = jitted.trace(*args, **kwargs)
        return (traced.program, traced.out_info) if return_shape else traced.program

    return wrapped
