"""On a machine with an NVIDIA GPU: kernels of the library, compared with the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.runtime import cuda
from shardwise.kernels import library

pytestmark = pytest.mark.skipif(not cuda.available(), reason="needs an NVIDIA GPU and the plugin")
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def exact_product(x: Any, y: Any) -> Any:
    return library.matmul(x, y, precision="highest")


def attention(q: Any, k: Any, v: Any) -> Any:
    return library.flash_attention(q, k, v, is_causal=True)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (exact_product, (normal(100, 300), normal(300, 70))),
    "softmax": (library.softmax, (normal(100, 1000),)),
    "log_softmax": (library.log_softmax, (normal(100, 1000),)),
    "layer_norm": (library.layer_norm, (normal(100, 256), normal(256), normal(256))),
    "rms_norm": (library.rms_norm, (normal(100, 256), normal(256))),
    "attention": (attention, (normal(2, 100, 4, 64), normal(2, 100, 2, 64), normal(2, 100, 2, 64))),
    "histogram": (lambda at: library.histogram(at, 100), (RNG.integers(0, 100, 5000),)),
    "cumsum": (library.cumsum, (normal(30, 1000),)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_equal_those_of_the_cpu(name: str):
    f, args = CASES[name]
    found, wanted = (
        np.asarray(sw.jit(f)(*[sw.device_put(x, sw.devices(platform)[0]) for x in args]))
        for platform in ("cuda", "cpu")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", ["matmul", "softmax", "layer_norm", "rms_norm", "attention"])
def test_derivatives_equal_those_of_the_cpu(name: str):
    f, args = CASES[name]
    gradient = sw.jit(sw.grad(lambda *xs: (f(*xs) ** 2).sum(), argnums=tuple(range(len(args)))))
    found, wanted = (
        gradient(*[sw.device_put(x, sw.devices(platform)[0]) for x in args])
        for platform in ("cuda", "cpu")
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("product", [library.matmul, sw.numpy.matmul])
def test_a_product_of_usual_precision_rounds_operands_to_ten_bits(product: Callable[..., Any]):
    """TF32: each operand has a relative error of at most 2**-10, and sums are in float32."""
    x, y = normal(100, 300), normal(300, 70)
    gpu = sw.devices("cuda")[0]
    found = np.asarray(sw.jit(product)(sw.device_put(x, gpu), sw.device_put(y, gpu)))
    assert (abs(found - x.astype(np.float64) @ y) <= 2.1 * 2**-10 * (abs(x) @ abs(y))).all()
