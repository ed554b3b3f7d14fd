"""Collectives over rings of devices, against those of `lax`, with derivatives."""

import itertools

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise.kernels.library import collective_matmul, ring_all_gather, ring_reduce_scatter
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(0)
ROWS, COLUMNS = P("i"), P(None, "i")


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def mapped(f, specs, out, size):
    mesh = sw.make_mesh((size,), ("i",), devices=sw.devices()[:size])
    return sw.shard_map(f, mesh=mesh, in_specs=specs, out_specs=out)


def weighted(gather):
    """So that the parts of the result have cotangents that differ between devices."""
    return lambda x: gather(x, "i", tiled=True) * (1.0 + lax.axis_index("i"))


CASES = {  # the function and its reference, specs, shapes for a number of devices
    "all_gather": (
        *(weighted(ring_all_gather), weighted(lax.all_gather)),
        *((ROWS,), ROWS, lambda d: [(3 * d, 5)]),
    ),
    "reduce_scatter": (
        lambda x: ring_reduce_scatter(x, "i", tiled=True),
        lambda x: lax.psum_scatter(x, "i", tiled=True),
        *((ROWS,), ROWS, lambda d: [(2 * d * d, 5)]),
    ),
    "matmul": (
        lambda x, w: collective_matmul(x, w, "i"),
        lambda x, w: lax.all_gather(x, "i", tiled=True) @ w,
        *((ROWS, COLUMNS), COLUMNS, lambda d: [(3 * d, 5), (5, 4 * d)]),
    ),
}


@pytest.mark.parametrize(("name", "size"), everyday(itertools.product(CASES, (1, 2, 4, 8)), 2))
def test_values_and_gradients(name, size):
    f, wanted, specs, out, shapes = CASES[name]
    args = [normal(*shape) for shape in shapes(size)]

    def moved(f):
        def total(*xs):
            out = g(*xs)
            return jnp.sin(out).sum(), out

        g = mapped(f, specs, out, size)
        return sw.jit(sw.grad(total, tuple(range(len(args))), has_aux=True))(*args)

    close(moved(f), moved(wanted), rtol=1e-4, atol=1e-5)


SIZES = [3, *[pytest.param(size, marks=pytest.mark.sweep) for size in (2, 8)]]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", CASES)
def test_no_races_and_deadlocks(name, size):
    f, _, specs, out, shapes = CASES[name]
    args = [normal(*shape) for shape in shapes(size)]
    found = kernels.checked(mapped(f, specs, out, size))(*args)
    close(found, sw.jit(mapped(f, specs, out, size))(*args))


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_further_derivatives_and_maps(name):
    f, wanted, specs, out, shapes = CASES[name]
    args = [normal(*shape) for shape in shapes(4)]

    def moved(f):
        g = mapped(f, specs, out, 4)
        back = sw.grad(lambda *xs: jnp.sin(g(*xs)).sum())
        stacked = [np.stack([x, 2 * x]) for x in args]
        return sw.jit(lambda: (sw.jvp(back, args, args)[1], sw.vmap(g)(*stacked)))()

    close(moved(f), moved(wanted), rtol=1e-4, atol=1e-5)


def test_arrays_that_are_not_tiled_and_other_mesh_axes():
    mesh = sw.make_mesh((2, 2), ("j", "i"), devices=sw.devices()[:4])
    x = np.arange(4, dtype=np.int32)

    def f(x):
        rows = ring_all_gather(x[0], "i")
        return ring_reduce_scatter(rows * 10, "i")[None], rows[None]

    summed, rows = sw.jit(
        sw.shard_map(f, mesh=mesh, in_specs=P(("j", "i")), out_specs=P(("j", "i")))
    )(x)
    close(rows, np.int32([[0, 1], [0, 1], [2, 3], [2, 3]]))
    close(summed, x * 20)
