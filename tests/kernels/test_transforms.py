"""Kernels under every transform, against the functions that they compute."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.kernels import Block, call, program_id
from shardwise.sharding import PartitionSpec as P
from tests.kernels.kernels import CASES, INTEGERS, like

CLOSE = {"rtol": 2e-4, "atol": 2e-5}


def close(found, wanted, **tolerance):
    pairs = zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, **CLOSE | tolerance)


def total(f):
    """A scalar of a function's result, which weighs all elements differently."""
    return lambda *xs: (lambda y: jnp.sum(jnp.sin(y) * jnp.arange(y.size).reshape(y.shape)))(f(*xs))


@pytest.mark.parametrize("name", [*CASES, *INTEGERS])
def test_values(name):
    case = (CASES | INTEGERS)[name]
    f, wanted = case.launch(), case.wanted(*case.args)
    close(f(*case.args), wanted)
    close(sw.jit(f)(*case.args), wanted)
    assert f(*case.args).dtype == wanted.dtype


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    case = CASES[name]
    f, numbers = case.launch(), tuple(range(len(case.args)))
    close(
        sw.grad(total(f), numbers)(*case.args),
        sw.grad(total(case.wanted), numbers)(*case.args),
        atol=1e-3,
    )
    moved = [sw.jvp(g, case.args, tuple(map(np.cos, case.args)))[1] for g in (f, case.wanted)]
    close(*moved)
    jitted = sw.jit(sw.grad(total(f), numbers))(*case.args)
    close(jitted, sw.grad(total(case.wanted), numbers)(*case.args), atol=1e-3)


@pytest.mark.parametrize("name", ["softmax", "windows", "ragged", "strided", "aliased"])
def test_second_derivatives(name):
    case = CASES[name]
    f, x = case.launch(), case.args[0]

    def along(g):
        """The product of the second derivative and a vector."""
        return sw.jvp(sw.grad(total(g)), (x,), (np.cos(x),))[1]

    close(along(f), along(case.wanted), atol=2e-3)


def test_forward_mode_stays_a_kernel():
    case = CASES["matmul"]
    f = case.launch()
    program = sw.make_jaxpr(lambda x, y: sw.jvp(f, (x, y), (x, y))[1])(*case.args)
    (eqn,) = [e for e in program.eqns if e.op.name == "kernel_call"]
    assert len(eqn.params["launch"].outs) == 2 and len(eqn.params["launch"].scratch) == 2
    mapped = sw.make_jaxpr(sw.vmap(f, (0, None)))(np.stack([case.args[0]] * 3), case.args[1])
    (eqn,) = [e for e in mapped.eqns if e.op.name == "kernel_call"]
    assert eqn.params["launch"].grid == (3, 2, 3, 4)


@pytest.mark.parametrize("name", CASES)
def test_maps(name):
    case = CASES[name]
    f = case.launch()
    many = [np.stack([x, 2 * x, -x], 1) for x in case.args]
    close(sw.vmap(f, 1)(*many), sw.vmap(case.wanted, 1)(*many))
    close(sw.vmap(f, 1, 1)(*many), sw.vmap(case.wanted, 1, 1)(*many))
    axes = (1, *[None] * (len(many) - 1))
    some = (many[0], *case.args[1:])
    close(sw.vmap(f, axes)(*some), sw.vmap(case.wanted, axes)(*some))
    grads = [sw.vmap(sw.grad(total(g)), 1)(*many) for g in (f, case.wanted)]
    close(*grads, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", ["softmax", "matmul", "prefetched"])
def test_inside_of_control_flow(name):
    case = CASES[name]
    f = case.launch()

    def run(g):
        def step(c, _):
            y = lax.cond(c > 0, g, lambda *xs: -g(*xs), *case.args)
            return c - 1.0, jnp.sum(y * c)

        return lambda c: lax.scan(sw.checkpoint(step), c, None, length=2)[1].sum()

    close(sw.value_and_grad(run(f))(1.5), sw.value_and_grad(run(case.wanted))(1.5), rtol=1e-3)


def test_derivatives_with_respect_to_prefetched_arrays():
    def scale(factors, x, out):
        out[...] = x[...] * factors[program_id(0)]

    rows = Block((4,), lambda i, factors: (i,))
    f = call(scale, like(8), grid=2, in_specs=rows, out_specs=rows, prefetch=1)
    factors, x = np.float32([3, 5]), np.arange(8, dtype=np.float32)
    wanted = lambda factors, x: x * jnp.repeat(factors, 4)  # noqa: E731
    close(sw.grad(total(f), (0, 1))(factors, x), sw.grad(total(wanted), (0, 1))(factors, x))
    moved = [sw.jvp(g, (factors, x), (np.cos(factors), np.cos(x)))[1] for g in (f, wanted)]
    close(*moved)


def test_inside_of_maps_over_devices():
    case = CASES["softmax"]
    f, mesh = case.launch(), sw.make_mesh((4,), ("i",), devices=sw.devices()[:4])
    x = np.concatenate([case.args[0] * k for k in range(4)])
    mapped = sw.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    wanted = np.concatenate([case.wanted(case.args[0] * k) for k in range(4)])
    close(mapped(x), wanted)
    close(
        sw.jit(sw.grad(total(mapped)))(x),
        sw.grad(total(lambda x: sw.nn.softmax(x, -1)))(x),
        atol=1e-3,
    )
    close(sw.pmap(f)(x.reshape(4, 24, 32)), wanted.reshape(4, 24, 32))
    placed = sw.device_put(x[:24], sw.sharding.NamedSharding(mesh, P("i")))
    close(sw.jit(f)(placed), wanted[:24])


def test_dynamic_grids():
    def double(x, y, out):
        out[...] = 2 * x[...]

    rows = Block((2,), lambda i: (i,))

    def f(n, x):
        spec = {"in_specs": rows, "out_specs": rows, "aliases": {1: 0}}
        return call(double, like(8), grid=(n,), **spec)(x, x)

    x = np.arange(8, dtype=np.float32)
    close(sw.jit(f)(3, x), np.where(x < 6, 2 * x, x))
    close(sw.jit(f)(0, x), x)
    wanted = np.stack([np.where(x < 2, 2 * x, x), 2 * x])
    close(sw.vmap(f, (0, None))(np.array([1, 4]), x), wanted)


def test_exported():
    case = CASES["matmul"]
    f = sw.jit(case.launch())
    blob = sw.export.export(f)(*case.args).serialize()
    close(sw.export.deserialize(blob).call(*case.args), case.wanted(*case.args))
