"""Poisson distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.counts import poisson_cdf as cdf
    from shardwise._src.scipy.counts import poisson_entropy as entropy
    from shardwise._src.scipy.counts import poisson_logpmf as logpmf
    from shardwise._src.scipy.counts import poisson_pmf as pmf

lazy_names(__name__)
