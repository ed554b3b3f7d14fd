"""Linear algebra by sums and products alone: norms, powers, chains of products.

What needs a decomposition is in `shardwise.linalg`, where it exists.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.linalg import cross as cross
    from shardwise._src.numpy.linalg import matmul as matmul
    from shardwise._src.numpy.linalg import matrix_norm as matrix_norm
    from shardwise._src.numpy.linalg import matrix_power as matrix_power
    from shardwise._src.numpy.linalg import matrix_transpose as matrix_transpose
    from shardwise._src.numpy.linalg import multi_dot as multi_dot
    from shardwise._src.numpy.linalg import norm as norm
    from shardwise._src.numpy.linalg import outer as outer
    from shardwise._src.numpy.linalg import tensordot as tensordot
    from shardwise._src.numpy.linalg import trace as trace
    from shardwise._src.numpy.linalg import vecdot as vecdot
    from shardwise._src.numpy.linalg import vector_norm as vector_norm

lazy_names(__name__)
