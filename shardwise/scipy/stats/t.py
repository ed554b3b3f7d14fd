"""Student's t distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.distributions import t_logpdf as logpdf
    from shardwise._src.scipy.distributions import t_pdf as pdf

lazy_names(__name__)
