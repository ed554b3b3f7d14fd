"""The library's kernels under transforms, in control flow, and over eight devices."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.kernels.library.library_cases import CASES
from tests.kernels.library.test_library_derivatives import close, total

ROWS = [name for name, case in CASES.items() if case.by_rows]


def mesh():
    return sw.make_mesh((8,), ("i",), devices=sw.devices()[:8])


def of_first(case, f, g=None):
    """A function of the first argument alone."""
    return lambda x: f(x, *case.args[1:]) if g is None else g(lambda x: f(x, *case.args[1:]))(x)


@pytest.mark.parametrize("name", everyday(CASES, 1))
def test_maps_and_gradients_of_maps(name):
    case = CASES[name]
    many = [np.stack([x, 2 * x, -x], 1) for x in case.args]

    def both(f):
        def summed(*xs):
            return total(sw.vmap(f, 1))(*xs)

        return sw.jit(sw.value_and_grad(summed))(*many), sw.jit(sw.vmap(sw.grad(total(f)), 1))(
            *many
        )

    close(both(case.kernel), both(case.wanted), 1e-2)


@pytest.mark.parametrize("name", everyday(CASES, 1, of="control flow"))
def test_inside_of_control_flow_and_checkpoint(name):
    case = CASES[name]

    def run(f):
        def step(c, _):
            y = lax.cond(c > 0, f, lambda *xs: -f(*xs), *[c * x for x in case.args])
            return c - 1.0, jnp.sum(jnp.sin(y))

        return lambda c: lax.scan(sw.checkpoint(step), c, None, length=2)[1].sum()

    found, wanted = [sw.jit(sw.value_and_grad(run(f)))(1.5) for f in (case.kernel, case.wanted)]
    close(found, wanted, 2e-3)


@pytest.mark.parametrize("name", everyday(ROWS, 1))
def test_inside_of_maps_over_devices(name):
    case = CASES[name]
    x = np.concatenate([case.args[0][:2] * k for k in range(1, 9)])
    f, wanted = of_first(case, case.kernel), of_first(case, case.wanted)
    mapped = sw.shard_map(f, mesh=mesh(), in_specs=P("i"), out_specs=P("i"))
    close(sw.jit(mapped)(x), wanted(x))
    close(sw.jit(sw.grad(total(mapped)))(x), sw.grad(total(wanted))(x), 1e-2)


@pytest.mark.parametrize("name", everyday(ROWS, 1, of="uneven"))
def test_uneven_shards(name):
    case = CASES[name]
    x = np.concatenate([case.args[0], -case.args[0], case.args[0][:1]])  # 11 rows, or 7
    f, wanted = of_first(case, case.kernel), of_first(case, case.wanted)
    placed = sw.device_put(x, NamedSharding(mesh(), P("i")))
    close(sw.jit(sw.grad(total(f)))(placed), sw.grad(total(wanted))(x), 1e-2)
    close(sw.jit(f)(placed), wanted(x))


def test_a_product_of_shards_is_summed_over_devices():
    x, y, bias, residual = CASES["matmul"].args
    x, y = np.tile(x, (1, 8)), np.tile(y, (8, 1))

    def f(x, y):
        return lax.psum(CASES["matmul"].kernel(x, y, bias, residual), "i")

    specs = {"in_specs": (P(None, "i"), P("i")), "out_specs": P()}
    found = sw.jit(sw.shard_map(f, mesh=mesh(), **specs))(x, y)
    close(found, 8 * CASES["matmul"].wanted(*CASES["matmul"].args))
