"""Reductions over segments of an array."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.segments import segment_max as segment_max
    from shardwise._src.numpy.segments import segment_min as segment_min
    from shardwise._src.numpy.segments import segment_prod as segment_prod
    from shardwise._src.numpy.segments import segment_sum as segment_sum

lazy_names(__name__)
