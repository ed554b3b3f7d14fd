"""Cauchy distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import cauchy_cdf as cdf
    from shardwise._src.scipy.distributions import cauchy_isf as isf
    from shardwise._src.scipy.distributions import cauchy_logcdf as logcdf
    from shardwise._src.scipy.distributions import cauchy_logpdf as logpdf
    from shardwise._src.scipy.distributions import cauchy_logsf as logsf
    from shardwise._src.scipy.distributions import cauchy_pdf as pdf
    from shardwise._src.scipy.distributions import cauchy_ppf as ppf
    from shardwise._src.scipy.distributions import cauchy_sf as sf

lazy_names(__name__)
