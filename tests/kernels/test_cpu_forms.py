"""Launches on CPU as loops, and with all programs along an axis as one."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise._src.base.config import kernels_cpu_form
from shardwise._src.kernels import vectorized
from shardwise.kernels import (
    VMEM,
    Block,
    Element,
    atomic_max,
    call,
    ds,
    load,
    num_programs,
    program_id,
    store,
    when,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.kernels.kernels import CASES, INTEGERS, like, normal

X, Y, ROW = normal(24, 40), normal(24, 40), normal(40)


def jitted(form, f):
    """The function compiled in a form."""

    def run(*xs):
        with kernels_cpu_form(form):
            return sw.jit(f)(*xs)

    return run


def loops(form, f, *xs):
    """How many loops the program of a form has."""
    with kernels_cpu_form(form):
        return sw.jit(f).lower(*xs).as_text().count("stablehlo.while")


def same(a, b):
    for x, y in zip(sw.tree.leaves(a), sw.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def close(a, b):
    for x, y in zip(sw.tree.leaves(a), sw.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


# How many loops the programs have in both forms.
COUNTS = {
    "softmax": (1, 0),
    "matmul": (2, 1),
    "flash": (3, 1),
    "windows": (1, 1),
    "ragged": (1, 0),
    "prefetched": (1, 1),
    "strided": (0, 0),
    "aliased": (1, 0),
    "counts": (2, 2),
}


@pytest.mark.parametrize("name", COUNTS)
def test_values(name):
    case = (CASES | INTEGERS)[name]
    f = case.launch()
    found, loop = (jitted(form, f)(*case.args) for form in ("vectorized", "loop"))
    close(found, loop)
    if name in ("ragged", "counts"):  # others have sums or functions
        same(found, loop)
    assert tuple([loops(form, f, *case.args) for form in ("loop", "vectorized")]) == COUNTS[name]


@pytest.mark.parametrize(
    "name",
    ["softmax", "matmul", "ragged", "aliased", pytest.param("flash", marks=pytest.mark.sweep)],
)
def test_transforms(name):
    case = CASES[name]
    f = case.launch()

    def gradients(*xs):
        return sw.grad(lambda *xs: jnp.sum(jnp.sin(f(*xs))), tuple(range(len(xs))))(*xs)

    mapped = sw.vmap(f, (0, *[None] * (len(case.args) - 1)))
    many = np.stack([case.args[0], -case.args[0]]), *case.args[1:]
    for g, xs in ((gradients, case.args), (mapped, many)):
        close(jitted("vectorized", g)(*xs), jitted("loop", g)(*xs))


def mixed(x, y, out):
    a, b = x[...], y[...]
    out[...] = jnp.where(a > b, jnp.maximum(a - b, 0.25), -a) * (b + 1) * b


def with_row(x, row, out):
    out[...] = (x[...] - row[...] + program_id(0)) * (num_programs(1) - program_id(1))


def in_parts(x, out):
    out[:, ::2] = x[:, 1::2] + 1
    out[:, ds(1, 2, 2)] = x[:, ds(0, 2, 2)] * 3
    atomic_max(out, (0, 1), 0.5)


def masked(x, out):
    rows = 5 * program_id(0) + jnp.arange(5)
    store(out, ..., -load(x, ..., mask=(rows < 12)[:, None], other=2.0))


def held(x, out, memory):
    memory[...] = x[...] + program_id(0)
    out[...] = memory[...] * x[...]


def of_blocks(body, *blocks, grid, **options):
    return call(
        body, like(24, 40), grid=grid, in_specs=blocks[:-1], out_specs=blocks[-1], **options
    )


def blocks(*shape):
    return Block(shape, lambda i, j: (i, j))


ELEMENTWISE = {
    "blocks": lambda: of_blocks(mixed, *[blocks(8, 8)] * 3, grid=(3, 5)),
    "rows": lambda: of_blocks(mixed, *[blocks(1, 40)] * 3, grid=(24, 1)),
    "columns": lambda: of_blocks(mixed, *[blocks(24, 8)] * 3, grid=(1, 5)),
    "without dimensions": lambda: of_blocks(mixed, *[blocks(None, 8)] * 3, grid=(24, 5)),
    "ragged": lambda: of_blocks(mixed, *[blocks(7, 16)] * 3, grid=(4, 3)),
    "in other places": lambda: of_blocks(
        lambda x, y, out: mixed(x, y.at[..., 0], out),
        blocks(8, 8),
        Block((8, 8, 1), lambda i, j: (i, j, 0)),
        blocks(8, 8),
        grid=(3, 5),
    ),
    "shared": lambda: of_blocks(
        with_row, blocks(8, 8), Block((8,), lambda i, j: (j,)), blocks(8, 8), grid=(3, 5)
    ),
    "whole": lambda: of_blocks(with_row, blocks(8, 40), Block(), blocks(8, 40), grid=(3, 1)),
    "parts": lambda: of_blocks(in_parts, blocks(6, 4), blocks(6, 4), grid=(4, 10)),
    "masked": lambda: of_blocks(masked, blocks(5, 20), blocks(5, 20), grid=(5, 2)),
    "scratch": lambda: of_blocks(
        held,
        blocks(8, 8),
        blocks(8, 8),
        grid=(3, 5),
        scratch=[VMEM((8, 8), np.float32)],
        parallel=[0, 1],
    ),
}
MORE = {
    "in other places": (Y[..., None],),
    "shared": (ROW,),
    "whole": (ROW,),
    "parts": (),
    "masked": (),
    "scratch": (),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_launches_have_no_loops(name):
    f, xs = ELEMENTWISE[name](), (X, *MORE.get(name, (Y,)))
    assert (loops("loop", f, *xs), loops("vectorized", f, *xs)) == (1, 0)
    same(jitted("vectorized", f)(*xs), jitted("loop", f)(*xs))


def double(x, out):
    out[...] = 2 * x[...]


def choosing(x, out):
    @when(x[0, 0] > 0)
    def _():
        out[...] = x[...]


def printing(x, out):
    sw.debug.callback(lambda: None)
    out[...] = x[...]


LOOPS = {
    "callbacks": lambda: of_blocks(printing, *[blocks(8, 40)] * 2, grid=(3, 1)),
    "other indices": lambda: of_blocks(
        double, Block((8, 40), lambda i, j: (2 - i, j)), blocks(8, 40), grid=(3, 1)
    ),
    "elements": lambda: of_blocks(
        double, Block((Element(8), 40), lambda i, j: (i, j)), blocks(8, 40), grid=(3, 1)
    ),
    "an axis twice": lambda: of_blocks(
        double, Block((8, 8), lambda i, j: (i, i)), blocks(8, 8), grid=(3, 1)
    ),
    "blocks of an argument beyond the end": lambda: of_blocks(
        lambda x, out: double(x[:8], out), blocks(12, 40), blocks(8, 40), grid=(3, 1)
    ),
    "blocks beyond the end": lambda: of_blocks(double, *[blocks(8, 40)] * 2, grid=(4, 1)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_other_launches_are_loops(name):
    f = LOOPS[name]()
    assert loops("vectorized", f, X) == loops("loop", f, X) > 0
    same(jitted("vectorized", f)(X), jitted("loop", f)(X))


def test_branches_that_differ_between_programs():
    f = of_blocks(choosing, *[blocks(8, 40)] * 2, grid=(3, 1), aliases={0: 0})
    same(jitted("vectorized", f)(X), jitted("loop", f)(X))


def test_one_of_two_axes():
    f = of_blocks(double, blocks(8, 20), Block((8, 20), lambda i, j: (i, 0)), grid=(3, 2))
    assert (loops("loop", f, X), loops("vectorized", f, X)) == (2, 1)
    same(jitted("vectorized", f)(X)[:, :20], 2 * X[:, 20:])


def test_scratch_memory_and_values_are_limited(monkeypatch):
    monkeypatch.setattr(vectorized, "MOST_BYTES", 24 * 40 * 4 - 1)
    f = of_blocks(lambda x, out: double(-x[...], out), *[blocks(8, 40)] * 2, grid=(3, 1))
    assert loops("vectorized", f, X) == 1


def test_sizes_that_are_traced():
    rows = Block((8, 40), lambda i, j: (i, 0))

    def f(n, x):
        return call(double, like(24, 40), grid=(3, n), in_specs=rows, out_specs=rows)(x)

    assert loops("vectorized", f, np.int32(2), X) == 2
    same(jitted("vectorized", f)(2, X), jitted("loop", f)(2, X))


def test_inside_of_maps_over_devices():
    mesh = sw.make_mesh((4,), ("i",), devices=sw.devices()[:4])
    f = of_blocks(mixed, *[blocks(8, 8)] * 3, grid=(3, 5))
    mapped = sw.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    xs = np.concatenate([X] * 4), np.concatenate([Y] * 4)
    same(jitted("vectorized", mapped)(*xs), jitted("loop", mapped)(*xs))


def test_the_option_is_checked():
    text = "kernels_cpu_form must be one of 'loop', 'vectorized'; got 'fast'"
    assert message(ValueError, kernels_cpu_form("fast").__enter__) == text
