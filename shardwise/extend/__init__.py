"""Building blocks for programs that extend the library, at JAX's import paths."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.extend import backend as backend
    from shardwise.extend import core as core
    from shardwise.extend import ffi as ffi
    from shardwise.extend import linear_util as linear_util
    from shardwise.extend import lowering as lowering
    from shardwise.extend import random as random
    from shardwise.extend import sharding as sharding
    from shardwise.extend import source_info_util as source_info_util

lazy_names(__name__)
