"""The library's kernels for GPUs and TPUs: their modules, values, and compilation."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise._src.kernels.library.block_choices import Options
from shardwise._src.kernels.library.flash_kernels import Plan, Side, cotangents, forward
from shardwise._src.kernels.library.grouped_matmul_kernel import Plan as Products
from shardwise._src.kernels.library.grouped_matmul_kernel import launched, visits_of
from shardwise.kernels.library import (
    collective_matmul,
    flash_attention,
    grouped_matmul,
    paged_attention,
    ring_all_gather,
    ring_reduce_scatter,
)
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.mosaic import kernels_in
from tests.helpers.targets import compiled, needs_cuda, needs_tpu
from tests.helpers.triton_numpy import triton_values

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


PAGES = np.array([[7, 2, -1], [99, 99, 99], [0, 5, 9], [3, 99, 99]])


def paged(q, k, v):
    return paged_attention(q, k, v, np.array([17, 0, 48, 1]), PAGES)


# -- launches, without the rules for derivatives around them --


def attention(run, is_ragged, has_ids):
    sides = Side(60, 32, 20, 10), Side(90, 32, 10, 20)
    plan = Plan(sides, 2, 0.25, is_ragged, Options((32, 32)))
    ids = ()
    if has_ids:
        ids = [np.sort(RNG.integers(0, 3, s), -1).astype(np.int32) for s in ((2, 64), (2, 96))]
        ids = ids[0][:, :, None], ids[1][:, None]
    lengths = np.array([[60, 20], [90, 70]], np.int32)

    def f(q, k, v):
        if run is forward:
            return forward(plan, q, k, v, ids, lengths)
        results = q, jnp.log(1 + q[..., :1] ** 2)
        return cotangents(plan, (q, k, v, ids, lengths), results, results)

    return f, [normal(2, 4, 64, 16), normal(2, 2, 96, 16), normal(2, 2, 96, 16)]


def products(kind, *shapes):
    plan = Products(70, 40, 24, 3, Options((32, 16, 32)))
    visits = [np.asarray(x) for x in visits_of(plan, np.array([30, 0, 25], np.int32))]
    return lambda x, y: launched((plan, kind), x, y, visits), [normal(*shape) for shape in shapes]


LAUNCHES = {
    "flash": lambda: attention(forward, False, False),
    "flash, ragged": lambda: attention(forward, True, True),
    "flash cotangents": lambda: attention(cotangents, False, True),
    "flash cotangents, ragged": lambda: attention(cotangents, True, False),
    "paged": lambda: (paged, [normal(4, 4, 16), normal(2, 10, 16, 16), normal(2, 10, 16, 16)]),
    "products": lambda: products("products", (70, 40), (3, 40, 24)),
    "transposed": lambda: products("transposed", (70, 24), (3, 40, 24)),
    "outer": lambda: products("outer", (70, 40), (70, 24)),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAUNCHES)
def test_values_for_gpus(name):
    f, args = LAUNCHES[name]()
    wanted = sw.tree.leaves(sw.jit(f)(*args))
    for a, b in zip(triton_values(f, *args), wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


# -- functions and derivatives, of sizes that blocks divide, and others --


def with_cotangents(f):
    def run(*xs):
        out, back = sw.vjp(f, *xs)
        return back(out)

    return run


def causal(q, k, v):
    return flash_attention(q, k, v, is_causal=True)


def ragged(q, k, v):
    return flash_attention(q, k, v, lengths=np.array([70, 33]), window=40, segment_ids=SEGMENTS)


def experts(x, w):
    return grouped_matmul(x, w, np.array([4, 0, 2]))


SEGMENTS = np.sort(RNG.integers(0, 3, (2, 300)), 1)
HALF = jnp.bfloat16
FUNCTIONS = {
    "flash": (causal, [(2, 256, 4, 64), (2, 256, 2, 64), (2, 256, 2, 64)], np.float32),
    "flash, bf16": (causal, [(2, 256, 4, 128), (2, 256, 4, 128), (2, 256, 4, 128)], HALF),
    "flash, ragged": (ragged, [(2, 300, 2, 80), (2, 300, 1, 80), (2, 300, 1, 80)], np.float32),
    "flash, small": (causal, [(1, 5, 2, 4), (1, 5, 2, 4), (1, 5, 2, 4)], HALF),
    "experts": (experts, [(300, 256), (3, 256, 200)], HALF),
    "experts, small": (experts, [(7, 5), (3, 5, 16)], np.float32),
    "paged": (paged, [(4, 4, 128), (2, 10, 16, 128), (2, 10, 16, 128)], HALF),
}


def function(name):
    f, shapes, dtype = FUNCTIONS[name]
    f = f if f is paged else with_cotangents(f)
    return f, [jnp.asarray(normal(*shape), dtype) for shape in shapes]


@pytest.mark.parametrize("name", everyday(FUNCTIONS, 1, of="modules"))
def test_modules_for_tpus(name):
    f, args = function(name)
    assert kernels_in(f, *args)


@needs_tpu
@pytest.mark.parametrize("name", everyday(FUNCTIONS, 1))
def test_compiles_for_tpus(name):
    f, args = function(name)
    assert "tpu_custom_call" in compiled(f, "tpu-v5e", *args).as_text()


@needs_cuda
@pytest.mark.parametrize("name", everyday(FUNCTIONS, 1, of="cuda"))
def test_compiles_for_gpus(name):
    f, args = function(name)
    assert "__gpu$xla.gpu.triton" in compiled(f, "h100", *args).as_text()


RINGS = {
    "all_gather": (lambda x: ring_all_gather(x, "i", tiled=True), [(256, 128)], P("i")),
    "reduce_scatter": (lambda x: ring_reduce_scatter(x, "i", tiled=True), [(1024, 128)], P("i")),
    "matmul": (lambda *xs: collective_matmul(*xs, "i"), [(256, 128), (128, 512)], P(None, "i")),
}


@needs_tpu
@pytest.mark.sweep
@pytest.mark.parametrize("name", RINGS)
def test_rings_compile_for_tpus(name):
    f, shapes, spec = RINGS[name]
    mesh = Mesh(np.array(sw.targets.devices("tpu-v5e:2x2")).reshape(4), ("i",))
    specs = P("i"), P(None, "i")
    g = sw.shard_map(f, mesh=mesh, in_specs=specs[: len(shapes)], out_specs=spec)
    args = [
        sw.ShapeDtypeStruct(shape, np.dtype("float32"), sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, specs, strict=False)
    ]
    back = sw.grad(lambda *xs: (g(*xs) ** 2).sum(), tuple(range(len(args))))
    counts = [
        sw.jit(h).lower(*args).compile().as_text().count("tpu_custom_call") for h in (g, back)
    ]
    assert counts == [1, 3 if name == "matmul" else 2]
