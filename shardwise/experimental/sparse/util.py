"""Error and warning classes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.sparse.base import CuSparseEfficiencyWarning as CuSparseEfficiencyWarning
    from shardwise._src.sparse.base import SparseEfficiencyError as SparseEfficiencyError
    from shardwise._src.sparse.base import SparseEfficiencyWarning as SparseEfficiencyWarning

lazy_names(__name__)
