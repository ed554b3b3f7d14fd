"""The library's kernels for GPUs and TPUs: values of Triton's modules, and compilation."""

from functools import partial

import numpy as np
import pytest

import shardwise as sw
from shardwise import nn
from shardwise import numpy as jnp
from shardwise.kernels import library
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.mosaic import kernels_in
from tests.helpers.targets import compiled, needs_cuda, needs_tpu
from tests.helpers.triton_numpy import triton_values
from tests.kernels.library.library_cases import close, heads, ids, normal

BF16, FLOAT8 = jnp.bfloat16, jnp.float8_e4m3fn
INDICES = np.random.default_rng(0).integers(-2, 72, 300).astype(np.int32)
PAGES = np.array([[7, 2, -1], [99, 99, 99], [0, 5, 9], [3, 99, 99]])


def fused_matmul(x, y, bias, residual):
    return library.matmul(x, y, bias=bias, residual=residual, activation=nn.gelu)


def quantized_matmul(x, y, x_scale, y_scale):
    return library.matmul(x, y, x_scale=x_scale, y_scale=y_scale)


def paged(q, k, v):
    return library.paged_attention(q, k, v, np.array([17, 0, 48, 1]), PAGES)


def pool(h, dtype=np.float32):
    return [normal(*shape, dtype=dtype) for shape in ((4, 4, h), (2, 10, 16, h), (2, 10, 16, h))]


def experts(*sizes, **options):
    return lambda x, w: library.grouped_matmul(x, w, np.array(sizes), **options)


def flash(**options):
    return partial(library.flash_attention, **options)


def with_cotangents(f):
    def run(*xs):
        out, back = sw.vjp(f, *xs)
        return out, back(out)

    return run


KERNELS = {  # of sizes that blocks divide, and others
    "softmax": (library.softmax, [normal(20, 300)]),
    "long softmax": (partial(library.softmax, blocks=(8, 128)), [normal(9, 300)]),
    "log_softmax": (library.log_softmax, [normal(3, 10, dtype=BF16)]),
    "layer_norm": (library.layer_norm, [normal(20, 300), normal(300), normal(300)]),
    "rms_norm": (library.rms_norm, [normal(20, 256, dtype=BF16), normal(256)]),
    "matmul": (fused_matmul, [normal(50, 300), normal(300, 130), normal(130), normal(50, 130)]),
    "matmul, bf16": (library.matmul, [normal(64, 256, dtype=BF16), normal(256, 128, dtype=BF16)]),
    "cumsum": (library.cumsum, [normal(9, 1000)]),
    "reverse cumsum": (partial(library.cumsum, exclusive=True, reverse=True), [normal(3000)]),
    "histogram": (lambda weights: library.histogram(INDICES, 70, weights), [normal(300)]),
    "scatter_add": (
        lambda x, updates: library.scatter_add(x, INDICES, updates),
        [normal(70, 100), normal(300, 100)],
    ),
}
FORWARD = {
    "matmul, int8": (
        quantized_matmul,
        [normal(64, 256, dtype=np.int8), normal(256, 128, dtype=np.int8), normal(64), normal(128)],
    ),
    "matmul, float8": (
        library.matmul,
        [normal(64, 256, dtype=FLOAT8), normal(256, 128, dtype=FLOAT8)],
    ),
}
ragged = {"lengths": np.array([70, 33]), "window": 40, "segment_ids": ids(2, 300)}
LARGE = {
    "flash": (flash(is_causal=True), heads(2, 256, 256, 4, 2, 64)),
    "flash, bf16": (flash(is_causal=True), heads(2, 256, 256, 4, 4, 128, BF16)),
    "flash, ragged": (flash(**ragged), heads(2, 300, 300, 2, 1, 80)),
    "flash, small": (flash(is_causal=True), heads(1, 5, 5, 2, 2, 4, BF16)),
    "experts": (experts(4, 0, 2), [normal(300, 256, dtype=BF16), normal(3, 256, 200, dtype=BF16)]),
    "experts, small": (experts(4, 0, 2), [normal(7, 5), normal(3, 5, 16)]),
}
COMPILED = {
    **{name: (with_cotangents(f), args) for name, (f, args) in {**KERNELS, **LARGE}.items()},
    **FORWARD,
    "paged": (paged, pool(128, BF16)),
}

small = {"blocks": (32, 32), "window": (20, 10), "scale": 0.25}
lengths = np.array([60, 20]), np.array([90, 70])
QKV = heads(2, 60, 90, 4, 2, 16)
VALUES = {
    **KERNELS,
    **FORWARD,
    "flash": (with_cotangents(flash(**small)), QKV),
    "flash, segments": (with_cotangents(flash(segment_ids=(ids(2, 60), ids(2, 90)), **small)), QKV),
    "flash, ragged": (with_cotangents(flash(lengths=lengths, **small)), QKV),
    "paged": (paged, pool(16)),
    "experts": (
        with_cotangents(experts(30, 0, 25, blocks=(32, 16, 32))),
        [normal(70, 40), normal(3, 40, 24)],
    ),
}


@pytest.mark.parametrize("name", everyday(VALUES, 2))
def test_values_for_gpus(name):
    f, args = VALUES[name]
    wanted = sw.tree.leaves(sw.jit(f)(*args))
    close(triton_values(f, *args), wanted, 1e-2 if wanted[0].dtype == BF16 else 2e-5)


@pytest.mark.parametrize("name", everyday(COMPILED, 3, of="tpu"))
def test_modules_for_tpus(name):
    assert kernels_in(COMPILED[name][0], *COMPILED[name][1])


@needs_tpu
@pytest.mark.parametrize("name", everyday(COMPILED, 2, of="compiled tpu"))
def test_compiles_for_tpus(name):
    f, args = COMPILED[name]
    assert "tpu_custom_call" in compiled(f, "tpu-v5e", *args).as_text()


@needs_cuda
@pytest.mark.parametrize("name", everyday(COMPILED, 2, of="gpu"))
def test_compiles_for_gpus(name):
    f, args = COMPILED[name]
    assert "__gpu$xla.gpu.triton" in compiled(f, "h100", *args).as_text()


RINGS = {
    "all_gather": (partial(library.ring_all_gather, tiled=True), [(256, 128)], P("i")),
    "reduce_scatter": (partial(library.ring_reduce_scatter, tiled=True), [(1024, 128)], P("i")),
    "matmul": (library.collective_matmul, [(256, 128), (128, 512)], P(None, "i")),
}


@needs_tpu
@pytest.mark.sweep
@pytest.mark.parametrize("name", RINGS)
def test_rings_compile_for_tpus(name):
    f, shapes, spec = RINGS[name]
    mesh = Mesh(np.array(sw.targets.devices("tpu-v5e:2x2")).reshape(4), ("i",))
    specs = (P("i"), P(None, "i"))[: len(shapes)]
    g = sw.shard_map(partial(f, axis_name="i"), mesh=mesh, in_specs=specs, out_specs=spec)
    args = [
        sw.ShapeDtypeStruct(shape, np.dtype("float32"), sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, specs, strict=True)
    ]
    back = sw.grad(lambda *xs: (g(*xs) ** 2).sum(), tuple(range(len(args))))
    counts = [
        sw.jit(h).lower(*args).compile().as_text().count("tpu_custom_call") for h in (g, back)
    ]
    assert counts == [1, 3 if name == "matmul" else 2]
