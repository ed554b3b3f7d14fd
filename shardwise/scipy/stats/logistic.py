"""Logistic distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import logistic_cdf as cdf
    from shardwise._src.scipy.distributions import logistic_isf as isf
    from shardwise._src.scipy.distributions import logistic_logpdf as logpdf
    from shardwise._src.scipy.distributions import logistic_pdf as pdf
    from shardwise._src.scipy.distributions import logistic_ppf as ppf
    from shardwise._src.scipy.distributions import logistic_sf as sf

lazy_names(__name__)
