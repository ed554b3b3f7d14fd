"""The library's kernels under transforms, in control flow, and over eight devices."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.kernels.library.library_cases import CASES, chosen, close
from tests.kernels.library.test_library_derivatives import in_float64, total

ROWS = [name for name, case in CASES.items() if case.by_rows]


def mesh():
    return sw.make_mesh((8,), ("i",), devices=sw.devices()[:8])


@pytest.mark.parametrize("name", chosen(1, of="maps"))
def test_maps_and_gradients_of_maps(name):
    case = CASES[name]
    many = [np.stack([x, 2 * x, -x], 1) for x in case.args]
    axes = (1, *[None] * (len(many) - 1))

    def both(f):
        def run(first, *rest):
            mapped = sw.vmap(f, 1)(first, *rest), sw.vmap(f, axes, 1)(first, *case.args[1:])
            of_maps = sw.grad(total(sw.vmap(f, 1)))(first, *rest)
            return mapped, of_maps, sw.vmap(sw.grad(total(f)), 1)(first, *rest)

        return run

    close(sw.jit(both(case.kernel))(*many), in_float64(both(case.wanted), *many), 1e-3)


@pytest.mark.parametrize("name", chosen(1, of="checkpoint"))
def test_inside_of_control_flow_and_checkpoint(name):
    case = CASES[name]

    def run(f):
        def step(c, _):
            y = lax.cond(c > 0, f, lambda *xs: -f(*xs), *[c * x for x in case.args])
            return c - 1.0, jnp.sin(y).sum()

        return sw.value_and_grad(
            lambda c: lax.scan(sw.checkpoint(step), c, None, length=2)[1].sum()
        )

    close(sw.jit(run(case.kernel))(1.5), sw.jit(run(case.wanted))(1.5), 2e-3)


@pytest.mark.parametrize("name", everyday(ROWS, 1))
def test_shards(name):
    """Of rows, inside of maps over devices; and uneven ones, with automatic shardings."""
    case = CASES[name]
    f, wanted = [lambda x, f=f: f(x, *case.args[1:]) for f in (case.kernel, case.wanted)]
    mapped = sw.shard_map(f, mesh=mesh(), in_specs=P("i"), out_specs=P("i"))
    x = np.concatenate([case.args[0][:2] * k for k in range(1, 9)])
    uneven = np.concatenate([case.args[0], -case.args[0], case.args[0][:1]])  # 11 rows, or 7
    placed = sw.device_put(uneven, NamedSharding(mesh(), P("i")))
    for g, given, rows in ((mapped, x, x), (f, placed, uneven)):
        found = sw.jit(lambda x, g=g: (g(x), sw.grad(total(g))(x)))(given)
        close(found, (wanted(rows), sw.grad(total(wanted))(rows)), 1e-3)


def test_a_product_of_shards_is_summed_over_devices():
    x, y, bias, residual = CASES["matmul"].args
    x, y = np.tile(x, (1, 8)), np.tile(y, (8, 1))

    def f(x, y):
        return lax.psum(CASES["matmul"].kernel(x, y, bias, residual), "i")

    specs = {"in_specs": (P(None, "i"), P("i")), "out_specs": P()}
    found = sw.jit(sw.shard_map(f, mesh=mesh(), **specs))(x, y)
    close(found, 8 * CASES["matmul"].wanted(*CASES["matmul"].args))
