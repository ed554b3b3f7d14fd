"""Keys and shapes of samplers; if the shape has named axes, each index draws its own samples.

The key of an index is the common key with its number folded in. So the samples depend only on the
index, whatever its axis maps over.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.base.context import current
from shardwise._src.numpy.statistics.named_reductions import index_along
from shardwise._src.random.keys import fold_in
from shardwise._src.random.sampler_arguments import check_key, sizes
from shardwise._src.types.named_shape import NamedShape


def keyed(name: str, key: Any, shape: Any) -> tuple[Any, tuple[int, ...]]:
    """The key, and the shape as a tuple of ints."""
    check_key(name, key)
    if shape.__class__ is NamedShape:
        key, shape = _own_key(name, key, shape), shape.positional
    return key, sizes(name, shape)


def optionally_keyed(name: str, key: Any, shape: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Like `keyed`, for samplers whose shape may be None."""
    if shape is None:
        check_key(name, key)
        return key, None
    return keyed(name, key, shape)


def _own_key(name: str, key: Any, shape: NamedShape) -> Any:
    for axis, size in shape.named_items():
        found = current().axis(axis, f"{name}: ")
        if found.size != size:
            raise ValueError(
                f"{name}: {shape!r} has size {size} for the axis {axis!r}, whose size is "
                f"{found.size}."
            )
        key = fold_in(key, index_along(found))
    return key
