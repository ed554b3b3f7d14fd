"""Iterative solvers for linear systems, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.linalg.iterative import bicgstab as bicgstab
    from shardwise._src.linalg.iterative import cg as cg
    from shardwise._src.linalg.iterative import gmres as gmres

lazy_names(__name__)
