"""Attributes for XLA instructions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.xla_metadata import set_xla_metadata as set_xla_metadata

lazy_names(__name__)
