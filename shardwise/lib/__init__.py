"""The version of jaxlib; `xla_bridge`, the former import path of `shardwise.default_backend` and
`shardwise.extend.backend`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.runtime.plugins import JAXLIB_VERSION as __version__
    from shardwise.lib import xla_bridge as xla_bridge

lazy_names(__name__)
