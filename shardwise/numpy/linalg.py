"""Linear algebra under NumPy's names: norms, products, matrix decompositions, linear systems."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.decompositions import cholesky as cholesky
    from shardwise._src.numpy.decompositions import eig as eig
    from shardwise._src.numpy.decompositions import eigh as eigh
    from shardwise._src.numpy.decompositions import eigvals as eigvals
    from shardwise._src.numpy.decompositions import eigvalsh as eigvalsh
    from shardwise._src.numpy.decompositions import qr as qr
    from shardwise._src.numpy.decompositions import svd as svd
    from shardwise._src.numpy.decompositions import svdvals as svdvals
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
    from shardwise._src.numpy.systems import cond as cond
    from shardwise._src.numpy.systems import det as det
    from shardwise._src.numpy.systems import diagonal as diagonal
    from shardwise._src.numpy.systems import inv as inv
    from shardwise._src.numpy.systems import lstsq as lstsq
    from shardwise._src.numpy.systems import matrix_rank as matrix_rank
    from shardwise._src.numpy.systems import pinv as pinv
    from shardwise._src.numpy.systems import slogdet as slogdet
    from shardwise._src.numpy.systems import solve as solve
    from shardwise._src.numpy.systems import tensorinv as tensorinv
    from shardwise._src.numpy.systems import tensorsolve as tensorsolve

lazy_names(__name__)
