"""Functions of matrices, compiled for GPUs and TPUs: what computes them, and what is missing."""

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
import shardwise.scipy.linalg as scipy
from shardwise._src.runtime import platforms
from shardwise.lax import linalg
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.targets import CUDA, MACHINES, TPU, compiled, mesh_on, needs_cuda, needs_tpu, on

N = (6, 6)
TALL, WIDE = (8, 5), (5, 8)
LINE = (6,)
SIMPLE = ("float32", "float64", "complex64", "complex128")
LU, LU_TPU = "cu_lu_pivots_to_permutation cusolver_getrf_ffi", "Lu(Real)?DecompositionBlock"
SVD_TPU = "Cholesky CompactWyHelper EighTpu QrDecompositionBlock"
# name: function, shapes of its operands, patterns of targets on CUDA and on TPU
FUNCTIONS = {
    "lu": (linalg.lu, [TALL], LU, LU_TPU),
    "qr": (jnp.linalg.qr, [TALL], "cusolver_geqrf_ffi cusolver_orgqr_ffi", "QrDecompositionBlock"),
    "qr with pivots": (
        lambda x: scipy.qr(x, pivoting=True), [TALL],
        "cuhybrid_geqp3 cusolver_orgqr_ffi", "CompactWyHelper",
    ),
    "ormqr": (linalg.ormqr, [TALL, (5,), (8, 3)], "cusolver_ormqr_ffi", "CompactWyHelper"),
    "eigh": (jnp.linalg.eigh, [N], "cusolver_syevd_ffi", "EighTpu"),
    "svd": (
        lambda x: jnp.linalg.svd(x, full_matrices=False), [TALL], "cusolver_gesvdj_ffi", SVD_TPU,
    ),
    "svd of all vectors": (jnp.linalg.svd, [WIDE], "cusolver_gesvdj_ffi", SVD_TPU),
    "svd by QR": (
        lambda x: linalg.svd(x, algorithm=linalg.SvdAlgorithm.QR), [WIDE],
        "cusolver_gesvd_ffi", SVD_TPU,
    ),
    "cholesky": (jnp.linalg.cholesky, [N], "cusolver_potrf_ffi", "Cholesky"),
    "triangular": (
        lambda a, b: scipy.solve_triangular(a, b, lower=True), [N, (6, 2)],
        r"__cublas\$triangularSolve", "InvertDiagBlocksLowerTriangular",
    ),
    "tridiagonal": (linalg.tridiagonal, [N], "cusolver_sytrd_ffi", ""),
    "tridiagonal_solve": (
        linalg.tridiagonal_solve, [LINE, LINE, LINE, (6, 2)], "cusparse_gtsv2_ffi", "",
    ),
    "hessenberg": (linalg.hessenberg, [N], "", ""),
    "solve": (jnp.linalg.solve, [N, (6, 2)], LU, LU_TPU),
    "det": (jnp.linalg.det, [N], "cusolver_getrf_ffi", LU_TPU),
    "slogdet": (jnp.linalg.slogdet, [N], "cusolver_getrf_ffi", LU_TPU),
    "inv": (jnp.linalg.inv, [N], LU, LU_TPU),
    "pinv": (jnp.linalg.pinv, [TALL], "cusolver_gesvdj_ffi", SVD_TPU),
    "lstsq": (jnp.linalg.lstsq, [TALL, (8, 2)], "cusolver_gesvdj_ffi", SVD_TPU),
    "matrix_rank": (jnp.linalg.matrix_rank, [TALL], "cusolver_gesvdj_ffi", ""),
    "expm": (scipy.expm, [N], LU, LU_TPU),
    "polar": (scipy.polar, [TALL], "cusolver_geqrf_ffi cusolver_potrf_ffi", "Cholesky"),
    "cholesky_update": (linalg.cholesky_update, [N, LINE], "", ""),
}  # fmt: skip
DIFFERENTIABLE = [name for name, row in FUNCTIONS.items() if name not in (
    "qr with pivots", "ormqr", "svd of all vectors", "svd by QR", "tridiagonal", "hessenberg",
    "matrix_rank", "cholesky_update", "lu",
)]  # fmt: skip
BATCHED = [name for name in FUNCTIONS if name not in ("polar", "lstsq", "triangular")]
GATHERED_ON_TPU = {"lu", "eigh", "solve", "det", "slogdet", "inv", "expm"}


def _like(shapes, dtype, batch=()):
    return [np.ones((*batch, *shape), dtype) for shape in shapes]


def _targets(text):
    return {*re.findall('custom_call_target="([^"]+)"', text)}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", everyday(FUNCTIONS, 6))
def test_the_libraries_of_a_platform(name, machine):
    function, shapes, *wanted = FUNCTIONS[name]
    found = _targets(compiled(function, machine, *_like(shapes, np.float32)).as_text())
    for pattern in wanted[machine == TPU].split():
        assert any(re.fullmatch(pattern, target) for target in found), (pattern, found)


def _missing(machine, dtype):
    return machine == TPU and dtype == "complex128"


SLOW = [  # TPU's compiler expands each operation on float64 to many
    (n, "float64") for n, row in FUNCTIONS.items() if row[3] == SVD_TPU or n == "matrix_rank"
]
OTHERS = [(n, d) for n in FUNCTIONS for d in SIMPLE[1:] if (n, d) not in SLOW]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "dtype"), everyday(OTHERS, 5))
def test_other_dtypes(name, dtype, machine):
    function, shapes, *_ = FUNCTIONS[name]
    if _missing(machine, dtype) or (name == "cholesky_update" and dtype[0] == "c"):
        pytest.skip("not for these numbers")
    with sw.enable_x64(True):
        compiled(function, machine, *_like(shapes, dtype))


@pytest.mark.sweep
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "dtype"), SLOW)
def test_dtypes_that_compile_slowly(name, dtype, machine):
    test_other_dtypes(name, dtype, machine)


@needs_tpu
@pytest.mark.parametrize("spec", [(), ("x",), (None, "x")])
def test_complex_cholesky_over_several_tpus(spec):
    mesh = mesh_on("tpu-v5e:2x4", (8,), ("x",))
    x = on(mesh, np.zeros((8, 8), np.complex64), *spec)
    assert "f32[16,16]" in sw.jit(jnp.linalg.cholesky).lower(x).compile().as_text()


@needs_tpu
def test_complex_qr_over_several_tpus():
    x = on(mesh_on("tpu-v5e:2x4", (8,), ("x",)), np.zeros((8, 8), np.complex64))
    assert message(NotImplementedError, sw.jit(jnp.linalg.qr).lower, x) == (
        "[geqrf] of complex matrices cannot be compiled for several devices of 'tpu': its compiler "
        "ends the process. Compute it in a program for one device, or with operands on a CPU "
        "device: `shardwise.device_put(x, shardwise.devices('cpu')[0])`."
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", everyday(DIFFERENTIABLE, 3))
def test_derivatives(name, machine):
    function, shapes, *_ = FUNCTIONS[name]

    def total(*args):
        leaves = sw.tree.leaves(function(*args))
        return sum(jnp.sum(x) for x in leaves if jnp.issubdtype(x.dtype, jnp.inexact))

    assert "HloModule" in compiled(sw.grad(total), machine, *_like(shapes, np.float32)).as_text()


@pytest.mark.parametrize("machine", [pytest.param("h100:8", marks=needs_cuda),
                                     pytest.param("tpu-v5e:2x4", marks=needs_tpu)])  # fmt: skip
@pytest.mark.parametrize("name", everyday(BATCHED, 4))
def test_a_sharded_batch(name, machine):
    """Each device computes its own matrices; TPU's kernels for LU and eigenvalues need all."""
    function, shapes, *_ = FUNCTIONS[name]
    mesh = mesh_on(machine, (8,), ("x",))
    args = [on(mesh, x, "x") for x in _like(shapes, np.float32, (8,))]
    text = sw.jit(sw.vmap(function)).lower(*args).compile().as_text()
    needs_all = machine[0] == "t" and (name in GATHERED_ON_TPU or "EighTpu" in text)
    assert needs_all or "all-gather" not in text


@pytest.mark.parametrize("machine", [pytest.param("h100:8", marks=needs_cuda),
                                     pytest.param("tpu-v5e:2x4", marks=needs_tpu)])  # fmt: skip
@pytest.mark.parametrize("name", everyday(["lu", "qr", "eigh", "cholesky", "solve", "svd"], 2))
def test_a_sharded_matrix(name, machine):
    """It is gathered."""
    function, shapes, *_ = FUNCTIONS[name]
    mesh = mesh_on(machine, (8,), ("x",))
    args = [on(mesh, np.ones([8 * n for n in shape], np.float32), "x") for shape in shapes]
    text = sw.jit(function).lower(*args).compile().as_text()
    assert re.search("all-gather|all-reduce|all-to-all", text)


@needs_cuda
def test_large_matrices_have_other_singular_value_algorithms_on_cuda():
    """QR iterations above 1,024 rows or columns; wide matrices are read as their transposes."""

    def call(x, **p):
        text = sw.jit(lambda x: jnp.linalg.svd(x, **p)).lower(on(CUDA, x)).as_text()
        return next(line for line in text.splitlines() if "cusolver_gesvd" in line)

    tall, wide = np.zeros((1025, 8), np.float32), np.zeros((8, 1025), np.float32)
    line = call(tall, full_matrices=False)
    assert "@cusolver_gesvd_ffi" in line and "transposed = false" in line
    line = call(wide, full_matrices=False)
    assert "transposed = true" in line and "dense<[1, 0]>" in line  # row-major
    line = call(tall, compute_uv=False)
    assert "compute_uv = false" in line
    line = call(np.zeros((33, 40), np.float32), full_matrices=False)
    assert "@cusolver_gesvdj_ffi" in line and "full_matrices = false" in line
    line = call(np.zeros((32, 40), np.float32), full_matrices=False)
    assert "full_matrices = true" in line  # only the batched algorithm has all sizes


@needs_cuda
def test_eigenvalues_of_general_matrices_on_cuda():
    x = np.ones((2, *N), np.float32)
    assert "cusolver_geev_ffi" in _targets(compiled(jnp.linalg.eig, CUDA, x).as_text())
    left = compiled(linalg.eig, CUDA, x)  # cuSOLVER has no left vectors
    assert "cuhybrid_eig_real" in _targets(left.as_text())


@needs_tpu
def test_functions_that_tpus_lack():
    def lowered(function, dtype):
        with sw.enable_x64(True):
            return sw.jit(function).lower(on(TPU, np.ones(N, dtype)))

    cpu = "`shardwise.device_put(x, shardwise.devices('cpu')[0])`"
    advice = f"on a CPU device: {cpu}."
    assert message(NotImplementedError, lowered, jnp.linalg.eigvals, "float32") == (
        "[eig] is computed by LAPACK or cuSOLVER only; this program is for 'tpu'. Compute it "
        f"outside of this program, with operands {advice}"
    )
    assert message(NotImplementedError, lowered, scipy.schur, "float32") == (
        "[schur] is computed by LAPACK only; this program is for 'tpu'. Compute it outside of this "
        f"program, with operands {advice}"
    )
    found = message(NotImplementedError, lowered, jnp.linalg.cholesky, "complex128")
    assert "cannot be compiled for tpu with complex128" in found


@needs_cuda
def test_errors_name_the_line():
    def f(x):
        return scipy.schur(x)[0]

    with pytest.raises(NotImplementedError) as caught:
        sw.jit(lambda x: sw.jit(f)(x)).lower(on(CUDA, np.ones(N, np.float32)))
    (note,) = caught.value.__notes__
    assert re.fullmatch(r"The op was called at .*test_linear_algebra\.py:\d+ \(f\)", note)


def test_the_libraries_in_records_of_platforms():
    found = {
        p.name: p.linalg for p in (platforms.CPU, platforms.CUDA, platforms.ROCM, platforms.TPU)
    }
    assert found == {
        "cpu": ("lapack", "xla"),
        "cuda": ("cusolver", "xla"),
        "rocm": ("xla",),
        "tpu": ("libtpu", "xla"),
    }
