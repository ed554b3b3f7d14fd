"""Inputs and outputs of transforms, as values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.arguments.float0_partition import is_trivial
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.tracer import Tracer, escaped
from shardwise._src.values.value import Value


def as_value(x: Any) -> Any:
    """A leaf as an array, which may be returned to users; tracers and values of dtype `float0`
    unchanged.
    """
    if x.__class__ is Array:
        return x._itself()
    if isinstance(x, Tracer):
        if not x.interpreter.alive:
            raise escaped(x)
        return x
    if is_trivial(x):
        return x
    if isinstance(x, ShapeDtypeStruct) and current().interpreter is not EAGER:
        return x  # if nothing runs, its type is enough
    host = isinstance(x, np.ndarray | np.generic | bool | int | float | complex)
    return EAGER.new_array(x) if host else EAGER.array(x)


def as_input(x: Any, what: str, path: Callable[[], str]) -> Any:
    """An input or result of a transform as a value; raises with its path if it is not one."""
    try:
        return as_value(x)
    except UnexpectedTracerError:
        raise
    except TypeError as error:
        raise TypeError(f"{what}: {path()}: {error}") from None


def checked_results(outs: list[Any], tree: Any, what: str) -> list[Any]:
    """The leaves of a function's result, if all are values."""
    for i, x in enumerate(outs):
        if not isinstance(x, _VALUES):
            as_input(x, what, lambda i=i: path_in("the result", tree, i))
    return outs


_VALUES = Value | np.ndarray | np.generic | bool | int | float | complex
