"""Looking at values and their places while a program runs."""

from __future__ import annotations

from typing import Any

from shardwise import explain


def visualize_sharding(shape: Any, sharding: Any, **options: Any) -> None:
    """Prints which devices hold which block of an array of this shape.

    Args:
      shape: of the whole array; any rank.
      sharding: where its parts are.
      options: `use_color`, `min_width`, `max_width` in columns, and `console` (of `rich`).
    """
    explain.visualize_sharding(shape, sharding, **options)


def visualize_array_sharding(arr: Any, **options: Any) -> None:
    """Prints which devices hold which block of `arr`; options as for `visualize_sharding`."""
    explain.visualize_array_sharding(arr, **options)
