"""SciPy's functions for clustering, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy.cluster import vq as vq

lazy_names(__name__)
