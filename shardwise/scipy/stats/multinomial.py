"""Multinomial distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.counts import multinomial_logpmf as logpmf
    from shardwise._src.scipy.counts import multinomial_pmf as pmf

lazy_names(__name__)
