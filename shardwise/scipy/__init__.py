"""SciPy's functions under its names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy import linalg as linalg
    from shardwise.scipy import special as special

lazy_names(__name__)
