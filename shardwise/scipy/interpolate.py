"""Interpolation on grids, under SciPy's name."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.signal.grid_interpolator import (
        RegularGridInterpolator as RegularGridInterpolator,
    )

lazy_names(__name__)
