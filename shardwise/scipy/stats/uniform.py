"""Uniform distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import uniform_cdf as cdf
    from shardwise._src.scipy.distributions import uniform_logpdf as logpdf
    from shardwise._src.scipy.distributions import uniform_pdf as pdf
    from shardwise._src.scipy.distributions import uniform_ppf as ppf

lazy_names(__name__)
