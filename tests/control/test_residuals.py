"""What loops, branches and maps store for the backward pass: the smallest form of each residual."""

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise._src.core.checker import check_program

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def in_scan(lib, f, x):
    return lib.lax.scan(lambda c, row: (f(lib, c, row), None), x[0], x)[0]


def in_cond(lib, f, x):
    return lib.lax.cond(x[0, 0] < 0, lambda x: f(lib, x[0], x[1]), lambda x: x[2] * 2, x)


def in_map(lib, f, x):
    mesh = lib.sharding.Mesh(np.array(lib.devices()[:2]), ("i",))
    spec = lib.sharding.PartitionSpec("i")
    g = lib.shard_map(lambda x: f(lib, x[0], x[1])[None], mesh=mesh, in_specs=spec, out_specs=spec)
    return g(x)


def spread(lib, c, row):
    """The factor is a broadcast of one number, which was a bfloat16."""
    factor = lib.numpy.sum(c * row).astype("bfloat16").astype("float32")
    return lib.numpy.sin(lib.numpy.broadcast_to(factor, (3,)) * c) + row


def chosen(lib, c, row):
    """The factor is 0 or 1, from a comparison."""
    return lib.numpy.sin(c * (row > 0).astype("float32"))


@pytest.mark.parametrize("write", [spread, chosen])
@pytest.mark.parametrize("inside", [in_scan, in_cond, in_map])
def test_gradients_are_those_of_jax(inside, write):
    grads = [
        lib.jit(lib.grad(lambda x, lib=lib: inside(lib, write, x).sum()))(X) for lib in (sw, jax)
    ]
    np.testing.assert_allclose(*grads, rtol=2e-2, atol=1e-3)  # sums may be rounded differently
    second = sw.jit(sw.hessian(lambda x: inside(sw, write, x).sum()))(X)
    assert np.isfinite(second).all()


@pytest.mark.parametrize(
    "write, stored, absent", [(spread, "bfloat16[4]", "float32[4]"), (chosen, "bool[4,3]", "")]
)
def test_a_loop_stores_what_a_residual_is_made_from(write, stored, absent):
    program = sw.jit(sw.grad(lambda x: in_scan(sw, write, x).sum())).trace(X).program
    check_program(program)
    forward = next(e for e in program.eqns if e.op.name == "scan")
    types = [f"{v.aval.dtype}{list(v.aval.shape)}".replace(" ", "") for v in forward.outvars]
    assert stored in types
    assert absent not in types


def test_a_residual_of_several_uses_is_stored_once():
    def step(c, row):
        narrow = (c * row).astype(jnp.bfloat16)
        wide = narrow.astype(jnp.float32)
        return jnp.sin(wide * c) + jnp.cos(wide + narrow), None

    f = lambda x: lax.scan(step, x[0], x)[0].sum()  # noqa: E731
    program = sw.jit(sw.grad(f)).trace(X).program
    forward = next(e for e in program.eqns if e.op.name == "scan")
    assert len({id(v) for v in forward.params["body"].outvars}) == len(forward.outvars)
    kinds = [str(v.aval.dtype) for v in forward.outvars]
    assert kinds.count("bfloat16") == 1
    _, linear = sw.linearize(f, X)
    np.testing.assert_allclose(linear(X), np.vdot(sw.grad(f)(X), X), rtol=1e-2)


def test_results_are_not_stored_twice():
    def step(c, row):
        factor = lax.stop_gradient(c * row).astype(jnp.bfloat16).astype(jnp.float32)
        return jnp.sin(c * factor), factor

    def f(x):
        last, factors = lax.scan(step, x[0], x)
        return last.sum(), factors

    program = sw.jit(sw.grad(f, has_aux=True)).trace(X).program
    forward = next(e for e in program.eqns if e.op.name == "scan")
    assert {str(v.aval.dtype) for v in forward.outvars} == {"float32"}


def test_symbolic_sizes():
    f = sw.jit(sw.grad(lambda x: in_scan(sw, spread, x).sum()))
    exported = sw.export.export(f)(
        sw.ShapeDtypeStruct(sw.export.symbolic_shape("n, 3"), np.dtype("float32"))
    )
    np.testing.assert_allclose(exported.call(X), f(X), rtol=1e-5)
