"""Looking at values and their places while a program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise import explain, tree
from shardwise.api.breakpoints import breakpoint as breakpoint
from shardwise.api.callbacks import debug_function, debug_log, debug_print
from shardwise.engine.array import Array
from shardwise.ops.inspect import inspect_sharding
from shardwise.transforms.tracer import Tracer


def visualize_sharding(shape: Any, sharding: Any, **options: Any) -> None:
    """Prints which devices hold which block of an array of this shape.

    Args:
      shape: of the whole array; any rank.
      sharding: where its parts are.
      options: `use_color`; `scale`, how many times larger than need be; `min_width` of a box and
        `max_width` of all, in columns; `console` (of `rich`).
    """
    explain.visualize_sharding(shape, sharding, **options)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Prints which devices hold which block of `arr`; options as for `visualize_sharding`.

    Inside a jitted function that happens when it is compiled, as for `inspect_array_sharding`.
    """
    if isinstance(arr, Tracer):
        shape = arr.shape
        inspect_array_sharding(arr, callback=lambda s: visualize_sharding(shape, s, **options))
    else:
        explain.visualize_array_sharding(arr, **options)


def inspect_array_sharding(value: Any, /, *, callback: Callable[[Any], Any]) -> None:
    """Calls `callback` with the sharding of each array in `value`, a tree of arrays.

    Inside a jitted function that happens when the function is compiled, with the sharding that the
    compiler chose; it is compiled a second time for that. Inside loops, branches and functions with
    derivatives of their own there is no saying: NotImplementedError.
    """
    for x in tree.leaves(value):
        if not isinstance(x, Array):
            raise TypeError(
                f"inspect_array_sharding takes a tree of arrays; got {x!r} of type "
                f"{type(x).__name__}, which is on no device. Make it an array with `device_put`."
            )
        inspect_sharding(x, callback=callback)


callback = debug_function
log = debug_log
print = debug_print
