"""Left Gumbel distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import gumbel_l_cdf as cdf
    from shardwise._src.scipy.distributions import gumbel_l_logcdf as logcdf
    from shardwise._src.scipy.distributions import gumbel_l_logpdf as logpdf
    from shardwise._src.scipy.distributions import gumbel_l_logsf as logsf
    from shardwise._src.scipy.distributions import gumbel_l_pdf as pdf
    from shardwise._src.scipy.distributions import gumbel_l_ppf as ppf
    from shardwise._src.scipy.distributions import gumbel_l_sf as sf

lazy_names(__name__)
