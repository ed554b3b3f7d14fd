"""Sizes of 1 that broadcast in elementwise functions of `lax`, where ranks are equal, as in jax."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message

RNG = np.random.default_rng(0)
FLOATS = """
add sub mul div rem max min nextafter atan2 complex pow eq ne lt le gt ge igamma igammac
igamma_grad_a random_gamma_grad zeta polygamma
""".split()
LONG = {"igamma", "igammac", "igamma_grad_a", "random_gamma_grad", "zeta", "polygamma"}  # of XLA
INTS = """
bitwise_and bitwise_or bitwise_xor shift_left shift_right_arithmetic shift_right_logical mulhi
""".split()
SHAPES = [((2, 3), (1, 3)), ((2, 1), (1, 3)), ((1,), (3,)), ((0, 3), (1, 1)), ((), (2, 3))]


def floats(shape):
    return RNG.uniform(1.5, 3, shape).astype(np.float32)


def operands(name, shapes):
    if name in INTS:
        return [RNG.integers(1, 9, s).astype(np.int32) for s in shapes]
    args = [floats(s) for s in shapes]
    return [np.round(args[0]), *args[1:]] if name == "polygamma" else args


def test_sizes_of_1_broadcast():
    """The same as for operands that are broadcast first."""
    cases = [
        (n, tuple(operands(n, shapes[::order])))
        for k, n in enumerate(FLOATS + INTS)
        for shapes in [SHAPES[k % len(SHAPES)]]
        for order in (1, -1)
    ]

    def both(every):
        pairs = [(name, args) for (name, _), args in zip(cases, every, strict=True)]
        return [(getattr(lax, n)(*a), getattr(lax, n)(*snp.broadcast_arrays(*a))) for n, a in pairs]

    for got, wanted in sw.eval_shape(both, [args for _, args in cases]):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    cases = [case for case in cases if case[0] not in LONG]
    for got, wanted in sw.jit(both)([args for _, args in cases]):
        close(got, wanted)


@pytest.mark.sweep
@pytest.mark.parametrize("name", FLOATS + INTS)
def test_values_are_those_of_jax(name):
    for shapes in SHAPES:
        for order in (1, -1):
            args = operands(name, shapes[::order])
            close(getattr(lax, name)(*args), getattr(jax.lax, name)(*args))


def test_three_operands():
    args = floats((2, 1)), floats((1, 3)), RNG.uniform(0, 1, (2, 3)).astype(np.float32)
    wide = np.broadcast_arrays(*args)
    got, wanted = sw.eval_shape(lambda a, b: (lax.betainc(*a), lax.betainc(*b)), args, wide)
    assert got == wanted
    close(lax.mul(*args[:2], out_dtype=np.float16), (args[0] * args[1]).astype(np.float16), 1e-3)


@pytest.mark.parametrize("name", ["mul", "atan2"])
def test_derivatives_and_maps(name):
    f, x, y = getattr(lax, name), floats((2, 1)), floats((2, 3))
    got = sw.grad(lambda *a: f(*a).sum(), (0, 1))(x, y)
    wanted = sw.grad(lambda *a: f(*snp.broadcast_arrays(*a)).sum(), (0, 1))(x, y)
    for a, b in zip(got, wanted, strict=True):
        close(a, b)
    xs = floats((4, 1, 3))
    np.testing.assert_allclose(sw.vmap(f, (0, None))(xs, y), [f(x, y) for x in xs], rtol=1e-6)


def test_shardings_in_types():
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x, y = floats((8, 4)), floats((1, 4))
    with sw.set_mesh(mesh):
        a = sw.device_put(x, NamedSharding(mesh, P("x", "y")))
        b = sw.device_put(y, NamedSharding(mesh, P(None, "y")))
        out = sw.jit(lax.add)(a, b)
    assert out.sharding.spec == P("x", "y")
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize(
    "shapes, listed",
    [(((2, 3), (4, 3)), "f32[2,3] and f32[4,3]"), (((2, 3), (3,)), "f32[2,3] and f32[3]")],
)
def test_what_does_not_broadcast(shapes, listed):
    assert message(TypeError, lax.add, *[snp.ones(s) for s in shapes]) == (
        f"add: operands must have equal shapes or be scalars; got {listed}. The functions of "
        "shardwise.numpy broadcast."
    )
