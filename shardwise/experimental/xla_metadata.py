"""Attributes for XLA instructions."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.xla_metadata import fuse_limit as fuse_limit
    from shardwise._src.debug.xla_metadata import must_fuse_call as must_fuse_call
    from shardwise._src.debug.xla_metadata import set_xla_metadata as set_xla_metadata
    from shardwise._src.debug.xla_metadata import xla_metadata_call as xla_metadata_call
    from shardwise._src.debug.xla_metadata import xla_metadata_call2 as xla_metadata_call2

lazy_names(__name__)
