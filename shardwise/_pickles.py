"""Names that pickles of arrays, shardings and meshes refer to; stable when their code moves."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.pickles import restored as restored

lazy_names(__name__)
