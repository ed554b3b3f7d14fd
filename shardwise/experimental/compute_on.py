"""Functions that run on a device's host, or on a part of the device."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.debug.xla_metadata import compute_on as compute_on
    from shardwise._src.debug.xla_metadata import compute_on2 as compute_on2

lazy_names(__name__)
