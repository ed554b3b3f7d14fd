"""`pjit`, the older name of `jit`, with the older names of its shardings."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.pjit import pjit as pjit

lazy_names(__name__)
