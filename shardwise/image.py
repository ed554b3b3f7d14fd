"""Resampling of images."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.image.resizing import ResizeMethod as ResizeMethod
    from shardwise._src.image.resizing import resize as resize
    from shardwise._src.image.resizing import scale_and_translate as scale_and_translate

lazy_names(__name__)
