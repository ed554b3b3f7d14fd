"""Pareto distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import pareto_cdf as cdf
    from shardwise._src.scipy.distributions import pareto_logcdf as logcdf
    from shardwise._src.scipy.distributions import pareto_logpdf as logpdf
    from shardwise._src.scipy.distributions import pareto_logsf as logsf
    from shardwise._src.scipy.distributions import pareto_pdf as pdf
    from shardwise._src.scipy.distributions import pareto_ppf as ppf
    from shardwise._src.scipy.distributions import pareto_sf as sf

lazy_names(__name__)
