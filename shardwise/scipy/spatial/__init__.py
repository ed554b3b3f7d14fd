"""SciPy's spatial functions, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy.spatial import transform as transform

lazy_names(__name__)
