"""Exponential distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import expon_cdf as cdf
    from shardwise._src.scipy.distributions import expon_logcdf as logcdf
    from shardwise._src.scipy.distributions import expon_logpdf as logpdf
    from shardwise._src.scipy.distributions import expon_logsf as logsf
    from shardwise._src.scipy.distributions import expon_pdf as pdf
    from shardwise._src.scipy.distributions import expon_ppf as ppf
    from shardwise._src.scipy.distributions import expon_sf as sf

lazy_names(__name__)
