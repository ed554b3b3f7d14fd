"""Looking at values and their places while a program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise import explain, tree, tree_util
from shardwise.engine.conversions import Concrete


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
    """Prints which devices hold which block of `arr`; options as for `visualize_sharding`."""
    explain.visualize_array_sharding(arr, **options)


def inspect_array_sharding(value: Any, /, *, callback: Callable[[Any], Any]) -> None:
    """Calls `callback` with the sharding of each array in `value`, a tree of arrays.

    Raises NotImplementedError for values that are being traced: those have no sharding until the
    function is compiled.
    """
    for path, x in tree.leaves_with_path(value):
        if not isinstance(x, Concrete):
            at = f" at {tree_util.keystr(path)}" if path else ""
            raise NotImplementedError(
                f"inspect_array_sharding{at} needs an array with a value; got {x!r} of type "
                f"{type(x).__name__}. What is traced has no sharding until it is compiled: "
                "return it from the jitted function, and inspect the result."
            )
        callback(x.sharding)
