"""Integrals of samples, under SciPy's name."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.statistics.scans import trapezoid as trapezoid

lazy_names(__name__)
