"""Normal distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import norm_cdf as cdf
    from shardwise._src.scipy.distributions import norm_isf as isf
    from shardwise._src.scipy.distributions import norm_logcdf as logcdf
    from shardwise._src.scipy.distributions import norm_logpdf as logpdf
    from shardwise._src.scipy.distributions import norm_logsf as logsf
    from shardwise._src.scipy.distributions import norm_pdf as pdf
    from shardwise._src.scipy.distributions import norm_ppf as ppf
    from shardwise._src.scipy.distributions import norm_sf as sf

lazy_names(__name__)
