"""Matrix decompositions and solvers, as strict functions under JAX's names.

`shardwise.numpy.linalg` and `shardwise.scipy.linalg` have them as NumPy and SciPy do.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.extend.composed import cholesky_update_p as cholesky_update_p
    from shardwise._src.extend.composed import symmetric_product_p as symmetric_product_p
    from shardwise._src.linalg.lax_linalg import EighImplementation as EighImplementation
    from shardwise._src.linalg.lax_linalg import EigImplementation as EigImplementation
    from shardwise._src.linalg.lax_linalg import SvdAlgorithm as SvdAlgorithm
    from shardwise._src.linalg.lax_linalg import cholesky as cholesky
    from shardwise._src.linalg.lax_linalg import cholesky_update as cholesky_update
    from shardwise._src.linalg.lax_linalg import eig as eig
    from shardwise._src.linalg.lax_linalg import eigh as eigh
    from shardwise._src.linalg.lax_linalg import hessenberg as hessenberg
    from shardwise._src.linalg.lax_linalg import householder_product as householder_product
    from shardwise._src.linalg.lax_linalg import lu as lu
    from shardwise._src.linalg.lax_linalg import (
        lu_pivots_to_permutation as lu_pivots_to_permutation,
    )
    from shardwise._src.linalg.lax_linalg import ormqr as ormqr
    from shardwise._src.linalg.lax_linalg import qr as qr
    from shardwise._src.linalg.lax_linalg import schur as schur
    from shardwise._src.linalg.lax_linalg import svd as svd
    from shardwise._src.linalg.lax_linalg import tridiagonal as tridiagonal
    from shardwise._src.linalg.polar import qdwh as qdwh
    from shardwise._src.linalg.triangular_solves import symmetric_product as symmetric_product
    from shardwise._src.linalg.triangular_solves import triangular_solve as triangular_solve
    from shardwise._src.linalg.triangular_solves import tridiagonal_solve as tridiagonal_solve
    from shardwise._src.ops.linalg.factor import cholesky as cholesky_p
    from shardwise._src.ops.linalg.forms import hessenberg as hessenberg_p
    from shardwise._src.ops.linalg.forms import schur as schur_p
    from shardwise._src.ops.linalg.forms import tridiagonal as tridiagonal_p
    from shardwise._src.ops.linalg.lu import lu as lu_p
    from shardwise._src.ops.linalg.lu import lu_pivots_to_permutation as lu_pivots_to_permutation_p
    from shardwise._src.ops.linalg.qr import householder_product as householder_product_p
    from shardwise._src.ops.linalg.qr import ormqr as ormqr_p
    from shardwise._src.ops.linalg.qr import qr as qr_p
    from shardwise._src.ops.linalg.singular_values import svd as svd_p
    from shardwise._src.ops.linalg.spectral import eig as eig_p
    from shardwise._src.ops.linalg.spectral import eigh as eigh_p
    from shardwise._src.ops.linalg.triangular import triangular_solve as triangular_solve_p
    from shardwise._src.ops.linalg.tridiagonal_solve import tridiagonal_solve as tridiagonal_solve_p

lazy_names(__name__)
