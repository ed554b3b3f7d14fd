"""Linear algebra under SciPy's names: matrix decompositions, linear systems, special matrices."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.linalg.matrix_functions import expm_frechet as expm_frechet
    from shardwise._src.linalg.matrix_functions import funm as funm
    from shardwise._src.linalg.matrix_functions import polar as polar
    from shardwise._src.linalg.matrix_functions import rsf2csf as rsf2csf
    from shardwise._src.linalg.matrix_functions import solve_sylvester as solve_sylvester
    from shardwise._src.linalg.matrix_functions import sqrtm as sqrtm
    from shardwise._src.linalg.schur import eigh as eigh
    from shardwise._src.linalg.schur import eigh_tridiagonal as eigh_tridiagonal
    from shardwise._src.linalg.schur import hessenberg as hessenberg
    from shardwise._src.linalg.schur import schur as schur
    from shardwise._src.linalg.scipy_linalg import cho_factor as cho_factor
    from shardwise._src.linalg.scipy_linalg import cho_solve as cho_solve
    from shardwise._src.linalg.scipy_linalg import cholesky as cholesky
    from shardwise._src.linalg.scipy_linalg import det as det
    from shardwise._src.linalg.scipy_linalg import inv as inv
    from shardwise._src.linalg.scipy_linalg import lu as lu
    from shardwise._src.linalg.scipy_linalg import lu_factor as lu_factor
    from shardwise._src.linalg.scipy_linalg import lu_solve as lu_solve
    from shardwise._src.linalg.scipy_linalg import qr as qr
    from shardwise._src.linalg.scipy_linalg import qr_multiply as qr_multiply
    from shardwise._src.linalg.scipy_linalg import solve as solve
    from shardwise._src.linalg.scipy_linalg import solve_triangular as solve_triangular
    from shardwise._src.linalg.scipy_linalg import svd as svd
    from shardwise._src.linalg.special_matrices import block_diag as block_diag
    from shardwise._src.linalg.special_matrices import circulant as circulant
    from shardwise._src.linalg.special_matrices import companion as companion
    from shardwise._src.linalg.special_matrices import convolution_matrix as convolution_matrix
    from shardwise._src.linalg.special_matrices import dft as dft
    from shardwise._src.linalg.special_matrices import expm as expm
    from shardwise._src.linalg.special_matrices import fiedler as fiedler
    from shardwise._src.linalg.special_matrices import fiedler_companion as fiedler_companion
    from shardwise._src.linalg.special_matrices import hadamard as hadamard
    from shardwise._src.linalg.special_matrices import hankel as hankel
    from shardwise._src.linalg.special_matrices import helmert as helmert
    from shardwise._src.linalg.special_matrices import hilbert as hilbert
    from shardwise._src.linalg.special_matrices import invhilbert as invhilbert
    from shardwise._src.linalg.special_matrices import invpascal as invpascal
    from shardwise._src.linalg.special_matrices import leslie as leslie
    from shardwise._src.linalg.special_matrices import pascal as pascal
    from shardwise._src.linalg.special_matrices import toeplitz as toeplitz

lazy_names(__name__)
