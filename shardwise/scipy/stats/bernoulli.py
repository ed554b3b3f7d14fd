"""Bernoulli distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.counts import bernoulli_cdf as cdf
    from shardwise._src.scipy.counts import bernoulli_logpmf as logpmf
    from shardwise._src.scipy.counts import bernoulli_pmf as pmf
    from shardwise._src.scipy.counts import bernoulli_ppf as ppf

lazy_names(__name__)
