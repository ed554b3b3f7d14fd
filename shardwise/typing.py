"""Types for annotations: what functions of arrays take.

An array, and a traced value that stands for one, is an `Array`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.arrays.annotations import ArrayLike as ArrayLike
    from shardwise._src.types.annotations import DTypeLike as DTypeLike

lazy_names(__name__)
