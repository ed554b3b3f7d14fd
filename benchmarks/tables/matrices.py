"""Calls of numpy.linalg, lax.linalg and scipy.linalg."""

from benchmarks.tables.kinds import A_CLASS, LeftOut, Table

TABLE: Table = {
    ("contraction", "numpy.linalg"): {
        "f(matrix, turned)": "matmul",
        "f([matrix, turned, matrix])": "multi_dot",
        "f(square, 3)": "matrix_power",
        "f(column, row)": "outer",
        "f(matrix, turned, axes=1)": "tensordot",
        "f(u, v)": "cross vecdot",
    },
    ("reduction", "numpy.linalg"): {"f(matrix)": "matrix_norm norm trace vector_norm"},
    ("shape", "numpy.linalg"): {"f(matrix)": "matrix_transpose", "f(matrices)": "diagonal"},
    ("linear algebra", "numpy.linalg"): {
        "f(positive)": "cholesky cond det eigh eigvalsh inv matrix_rank pinv slogdet",
        "f(matrices)": "eig eigvals qr svd svdvals",
        "f(positive, matrices)": "solve",
        "f(matrix, column)": "lstsq",
        "f(positive[0], ind=1)": "tensorinv",
        "f(positive[0], positive[0, 0])": "tensorsolve",
    },
    ("linear algebra", "lax.linalg"): {
        "f(positive)": "cholesky eigh svd tridiagonal",
        "f(matrices)": "eig hessenberg lu qr schur",
        "f(positive[0])": "qdwh",
        "f(matrices[..., :2], matrices[..., 0, :2])": "householder_product",
        "f(positive[0], positive[0, 0])": "cholesky_update",
        "f(i % 8, n) | -": "lu_pivots_to_permutation",
        "f(matrices[..., :2], matrices[..., 0, :2], matrices)": "ormqr",
        "f(matrices, matrices, symmetrize_output=True)": "symmetric_product",
        "f(positive, matrices, left_side=True)": "triangular_solve",
        "f(matrices[..., 0, :], 2 + matrices[..., 1, :], matrices[..., 2, :], "
        "matrices)": "tridiagonal_solve",
    },
    ("linear algebra", "scipy.linalg"): {
        "f(positive)": "cho_factor cholesky det eigh inv",
        "f(matrices)": "expm hessenberg lu_factor polar qr schur svd",
        "f(square)": "lu",
        "f(positive[0])": "sqrtm",
        "f(positive[0], lib.np.exp)": "funm",
        "f(matrices, matrices)": "expm_frechet qr_multiply rsf2csf",
        "f(positive, positive, matrices)": "solve_sylvester",
        "f(few, few[1:], eigvals_only=True)": "eigh_tridiagonal",
        "f(few, 5)": "convolution_matrix",
        "f((positive, True), matrices)": "cho_solve",
        "f((matrices, i[:matrices.size // matrices.shape[-1]].reshape(matrices.shape[:-1]) % 2), "
        "matrices)": "lu_solve",
        "f(positive, matrices)": "solve solve_triangular",
        "f(u, v)": "block_diag",
        "f(few)": "circulant companion fiedler fiedler_companion toeplitz",
        "f(few, few)": "hankel",
        "f(few, few[1:])": "leslie",
        "f(8)": "dft hadamard helmert hilbert invhilbert invpascal pascal",
    },
}

LEFT_OUT: LeftOut = {"lax.linalg": {A_CLASS: "EigImplementation EighImplementation SvdAlgorithm"}}
