"""Minimization of functions, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.optimize import OptimizeResults as OptimizeResults
    from shardwise._src.scipy.optimize import minimize as minimize

lazy_names(__name__)
