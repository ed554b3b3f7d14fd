"""Dirichlet distribution."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.counts import dirichlet_logpdf as logpdf
    from shardwise._src.scipy.counts import dirichlet_pdf as pdf

lazy_names(__name__)
