"""SciPy's functions for sparse matrices, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy.sparse import linalg as linalg

lazy_names(__name__)
