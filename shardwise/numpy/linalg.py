"""Linear algebra under NumPy's names: norms, products, matrix decompositions, linear systems."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.linalg.decompositions import cholesky as cholesky
    from shardwise._src.linalg.decompositions import eig as eig
    from shardwise._src.linalg.decompositions import eigh as eigh
    from shardwise._src.linalg.decompositions import eigvals as eigvals
    from shardwise._src.linalg.decompositions import eigvalsh as eigvalsh
    from shardwise._src.linalg.decompositions import qr as qr
    from shardwise._src.linalg.decompositions import svd as svd
    from shardwise._src.linalg.decompositions import svdvals as svdvals
    from shardwise._src.linalg.linear_systems import cond as cond
    from shardwise._src.linalg.linear_systems import det as det
    from shardwise._src.linalg.linear_systems import diagonal as diagonal
    from shardwise._src.linalg.linear_systems import inv as inv
    from shardwise._src.linalg.linear_systems import lstsq as lstsq
    from shardwise._src.linalg.linear_systems import matrix_rank as matrix_rank
    from shardwise._src.linalg.linear_systems import pinv as pinv
    from shardwise._src.linalg.linear_systems import slogdet as slogdet
    from shardwise._src.linalg.linear_systems import solve as solve
    from shardwise._src.linalg.linear_systems import tensorinv as tensorinv
    from shardwise._src.linalg.linear_systems import tensorsolve as tensorsolve
    from shardwise._src.linalg.norms import cross as cross
    from shardwise._src.linalg.norms import matmul as matmul
    from shardwise._src.linalg.norms import matrix_norm as matrix_norm
    from shardwise._src.linalg.norms import matrix_power as matrix_power
    from shardwise._src.linalg.norms import matrix_transpose as matrix_transpose
    from shardwise._src.linalg.norms import multi_dot as multi_dot
    from shardwise._src.linalg.norms import norm as norm
    from shardwise._src.linalg.norms import outer as outer
    from shardwise._src.linalg.norms import tensordot as tensordot
    from shardwise._src.linalg.norms import trace as trace
    from shardwise._src.linalg.norms import vecdot as vecdot
    from shardwise._src.linalg.norms import vector_norm as vector_norm

lazy_names(__name__)
