"""The library's kernels for GPUs and TPUs: values of Triton's modules, and compilation."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import nn
from shardwise import numpy as jnp
from shardwise.kernels import library
from tests.helpers.everyday import everyday
from tests.helpers.mosaic import kernels_in
from tests.helpers.targets import compiled, needs_cuda, needs_tpu
from tests.helpers.triton_numpy import triton_values
from tests.kernels.library.library_cases import normal

INDICES = np.random.default_rng(0).integers(-2, 72, 300).astype(np.int32)
BF16, FLOAT8 = jnp.bfloat16, jnp.float8_e4m3fn


def long_softmax(x):
    return library.softmax(x, blocks=(8, 128))


def fused_matmul(x, y, bias, residual):
    return library.matmul(x, y, bias=bias, residual=residual, activation=nn.gelu)


def quantized_matmul(x, y, x_scale, y_scale):
    return library.matmul(x, y, x_scale=x_scale, y_scale=y_scale)


def reverse_cumsum(x):
    return library.cumsum(x, exclusive=True, reverse=True)


def histogram(weights):
    return library.histogram(INDICES, 70, weights)


def scatter_add(x, updates):
    return library.scatter_add(x, INDICES, updates)


KERNELS = {
    "softmax": (library.softmax, [normal(20, 300)]),
    "long softmax": (long_softmax, [normal(9, 300)]),
    "log_softmax": (library.log_softmax, [normal(3, 10, dtype=BF16)]),
    "layer_norm": (library.layer_norm, [normal(20, 300), normal(300), normal(300)]),
    "rms_norm": (library.rms_norm, [normal(20, 256, dtype=BF16), normal(256)]),
    "matmul": (fused_matmul, [normal(50, 300), normal(300, 130), normal(130), normal(50, 130)]),
    "matmul, bf16": (library.matmul, [normal(64, 256, dtype=BF16), normal(256, 128, dtype=BF16)]),
    "cumsum": (library.cumsum, [normal(9, 1000)]),
    "reverse cumsum": (reverse_cumsum, [normal(3000)]),
    "histogram": (histogram, [normal(300)]),
    "scatter_add": (scatter_add, [normal(70, 100), normal(300, 100)]),
}
EXACT = {
    "matmul, int8": (
        quantized_matmul,
        [normal(64, 256, dtype=np.int8), normal(256, 128, dtype=np.int8), normal(64), normal(128)],
    ),
    "matmul, float8": (
        library.matmul,
        [normal(64, 256, dtype=FLOAT8), normal(256, 128, dtype=FLOAT8)],
    ),
}


def with_cotangents(name):
    if name in EXACT:
        return EXACT[name]
    f, args = KERNELS[name]

    def run(*xs):
        out, back = sw.vjp(f, *xs)
        return back(out)

    return run, args


@pytest.mark.parametrize("name", everyday([*KERNELS, *EXACT], 2))
def test_values_for_gpus(name):
    f, args = (KERNELS | EXACT)[name]
    wanted = sw.jit(f)(*args)
    (found,) = triton_values(f, *args)
    bound = 1e-2 if wanted.dtype == BF16 else 1e-4
    np.testing.assert_allclose(
        np.float32(found), np.asarray(wanted, "float32"), rtol=bound, atol=bound
    )


@pytest.mark.parametrize("name", everyday([*KERNELS, *EXACT], 2, of="tpu"))
def test_modules_for_tpus(name):
    f, args = with_cotangents(name)
    assert kernels_in(f, *args)


@needs_tpu
@pytest.mark.parametrize("name", everyday([*KERNELS, *EXACT], 1, of="compiled tpu"))
def test_compiles_for_tpus(name):
    f, args = with_cotangents(name)
    assert "tpu_custom_call" in compiled(f, "tpu-v5e", *args).as_text()


@needs_cuda
@pytest.mark.parametrize("name", everyday([*KERNELS, *EXACT], 1, of="cuda"))
def test_compiles_for_gpus(name):
    f, args = with_cotangents(name)
    assert "__gpu$xla.gpu.triton" in compiled(f, "h100", *args).as_text()
