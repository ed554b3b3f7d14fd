"""Gamma distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import gamma_cdf as cdf
    from shardwise._src.scipy.distributions import gamma_logcdf as logcdf
    from shardwise._src.scipy.distributions import gamma_logpdf as logpdf
    from shardwise._src.scipy.distributions import gamma_logsf as logsf
    from shardwise._src.scipy.distributions import gamma_pdf as pdf
    from shardwise._src.scipy.distributions import gamma_sf as sf

lazy_names(__name__)
