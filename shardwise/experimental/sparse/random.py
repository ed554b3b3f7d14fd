"""Random sparse arrays."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.making import random_bcoo as random_bcoo

lazy_names(__name__)
