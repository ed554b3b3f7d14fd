"""Linear algebra with sparse matrices."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.composed_sparse import spsolve_p as spsolve_p
    from shardwise._src.sparse.linalg import lobpcg_standard as lobpcg_standard
    from shardwise._src.sparse.linalg import spsolve as spsolve

lazy_names(__name__)
