"""Rotations, under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.rotations import Rotation as Rotation
    from shardwise._src.scipy.rotations import Slerp as Slerp

lazy_names(__name__)
