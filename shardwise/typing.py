"""Types to annotate the arguments of array functions.

Arrays, and the traced values that represent them, are of type `Array`.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.arrays.array_like import ArrayLike as ArrayLike
    from shardwise._src.types.annotations import DTypeLike as DTypeLike

lazy_names(__name__)
