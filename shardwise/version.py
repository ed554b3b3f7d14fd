"""The version of the library."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._version import __version__ as __version__
    from shardwise._version import __version_info__ as __version_info__

lazy_names(__name__)
