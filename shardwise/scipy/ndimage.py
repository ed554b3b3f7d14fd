"""Images at coordinates, under SciPy's name."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.signal.map_coordinates import map_coordinates as map_coordinates

lazy_names(__name__)
