"""custom_jvp and custom_vjp with all their options, inside every transform, against jax."""

import functools

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.beside_jax import assert_same
from tests.helpers.everyday import everyday

V = np.array([0.5, -1.2, 2.0], np.float32)
W = np.stack([V, 2 * V])


def vjp_loss(lib, n, options):
    """A loss with a `custom_vjp` function of two results, one of which it does not use.

    The rule has a factor of 3 that the function does not have.
    """

    @functools.partial(lib.custom_vjp, nondiff_argnums=(1,))
    def f(x, k, y):
        return {"a": n.sin(x) * y * k, "b": x + y}

    def fwd(x, k, y):
        if options.get("symbolic_zeros"):
            x, y = lib.custom_derivatives.custom_vjp_primal_tree_values((x, y))
        return f(x, k, y), (x, y)

    def bwd(k, residuals, ct):
        x, y = residuals
        zero = lib.custom_derivatives.SymbolicZero
        by_a = 0.0 if isinstance(ct["a"], zero) else 3 * ct["a"] * n.cos(x) * y * k
        assert isinstance(ct["b"], zero) == bool(options.get("symbolic_zeros"))
        return by_a * n.ones_like(x), None

    f.defvjp(fwd, bwd, **options)
    return lambda x, y: n.sum(f(x, 2.0, y)["a"])


def jvp_loss(lib, n, options):
    @functools.partial(lib.custom_jvp, nondiff_argnames=("k",))
    def f(x, y, k):
        return n.sin(x) * y * k

    @functools.partial(f.defjvp, **options)
    def rule(k, primals, tangents):
        (x, y), (tx, ty) = primals, tangents
        zero = lib.custom_derivatives.SymbolicZero
        by_x = 0.0 if isinstance(tx, zero) else 3 * tx * n.cos(x) * y * k
        by_y = 0.0 if isinstance(ty, zero) else 5 * ty * n.sin(x) * k
        return f(x, y, k=k), (by_x + by_y) * n.ones_like(x)

    return lambda x, y: n.sum(f(x, y, k=2.0))


def uses(lib, n, f, v, w):
    """Derivatives of a loss f of x and y, inside transforms and control flow, at v and w."""

    def summed(c, row):
        return c + f(row * c, v), None

    def chosen(x, y):
        return lib.lax.cond(x[0] > 0, f, lambda x, y: n.sum(x * y), x, y)

    slope = lib.grad(f)
    return {
        "grad": lambda: lib.grad(f, (0, 1))(v, v),
        "grad by one": lambda: slope(v, v),
        "grad of jit": lambda: lib.grad(lib.jit(f), (0, 1))(v, v),
        "grad of checkpoint": lambda: lib.grad(lib.checkpoint(f), (0, 1))(v, v),
        "vmap of grad": lambda: lib.vmap(lib.grad(f, (0, 1)), (0, None))(w, v),
        "vmap of grad of jit": lambda: lib.vmap(lib.grad(lib.jit(f), (0, 1)))(w, w),
        "grad of vmap": lambda: lib.grad(lambda x, y: n.sum(lib.vmap(f, (0, None))(x, y)), (0, 1))(
            w, v
        ),
        "grad of scan": lambda: lib.grad(lambda x: lib.lax.scan(summed, 1.0, x)[0])(w),
        "grad of scan of checkpoint": lambda: lib.grad(
            lambda x: lib.lax.scan(lib.checkpoint(summed), 1.0, x)[0]
        )(w),
        "grad of cond": lambda: lib.grad(chosen, (0, 1))(v, v),
        "grad in a loop": lambda: lib.lax.fori_loop(0, 3, lambda i, c: slope(c, v), v),
    }


def uses_of_both_modes(lib, n, f, v):
    return {
        "jvp": lambda: lib.jvp(f, (v, v), (v, v)),
        "hessian": lambda: lib.hessian(f, (0, 1))(v, v),
        "hessian of checkpoint": lambda: lib.hessian(lib.checkpoint(f), (0, 1))(v, v),
        "jvp of a loop": lambda: lib.jvp(
            lambda x: lib.lax.fori_loop(0, 3, lambda i, c: c * f(c, v), x), (v,), (v,)
        ),
        "linearize": lambda: lib.linearize(lib.grad(f), v, v)[1](v, v),
        "grad of grad": lambda: lib.grad(lambda x: n.sum(lib.grad(f)(x, v) ** 2))(v),
    }


def compare(made, options, more):
    def of(lib, n):
        f, v, w = made(lib, n, options), n.asarray(V), n.asarray(W)
        found = uses(lib, n, f, v, w) | (uses_of_both_modes(lib, n, f, v) if more else {})
        return found, lib.jit(lambda: {k: g() for k, g in found.items()})

    found, together = of(sw, jnp)
    wanted = of(jax, jax.numpy)[1]()
    assert_same(together(), wanted, 1e-3)
    for name in ("grad", "vmap of grad", "grad of scan", "grad of checkpoint"):
        assert_same(found[name](), wanted[name], 1e-3)


@pytest.mark.parametrize("options", everyday([{}, {"symbolic_zeros": True}], 1), ids=str)
def test_custom_jvp(options):
    compare(jvp_loss, options, True)


@pytest.mark.parametrize("options", [{}, {"symbolic_zeros": True}], ids=str)
def test_custom_vjp(options):
    compare(vjp_loss, options, False)


def test_second_derivatives_with_optimize_remat():
    """jax does not support this."""

    def of(lib, n, options):
        @lib.custom_vjp
        def f(x):
            return n.sin(x)

        f.defvjp(lambda x: (n.sin(x), x), lambda x, ct: (3 * ct * n.cos(x),), **options)
        slope = lib.grad(lambda x: n.sum(f(x)))
        return lib.grad(lambda x: n.sum(slope(x) ** 2))(V)

    assert_same(of(sw, jnp, {"optimize_remat": True}), of(jax, jax.numpy, {}), 1e-4)


def test_numbers_among_residuals_are_numbers():
    seen = []

    @sw.custom_vjp
    def cube(x):
        return x**3

    def fwd(x):
        return x.value**3, (x.value, x.perturbed, 3, 0.5, np.float32(2))

    def bwd(residuals, ct):
        x, moving, n, half, two = residuals
        seen.append((moving, n, half))
        return (ct * n * x**two if moving else None,)

    cube.defvjp(fwd, bwd, symbolic_zeros=True)
    for f in (
        sw.grad(cube),
        sw.jit(sw.grad(cube)),
        sw.grad(sw.jit(cube)),
        sw.grad(sw.checkpoint(cube)),
        sw.grad(lambda x: sw.lax.cond(x > 0, cube, cube, x)),
    ):
        assert f(2.0) == 12
    np.testing.assert_array_equal(sw.vmap(sw.grad(cube))(jnp.arange(3.0)), [0, 3, 12])
    scanned = sw.grad(lambda x: sw.lax.scan(lambda c, _: (cube(c), None), x, None, length=2)[0])
    assert scanned(1.0) == 9
    assert {*seen} == {(True, 3, 0.5)}
    assert {tuple(map(type, row)) for row in seen} == {(bool, int, float)}


def test_none_in_an_argument_has_none_as_its_cotangent():
    @sw.custom_vjp
    def f(tree):
        return tree["a"] * 2

    f.defvjp(lambda tree: (f(tree), None), lambda _, ct: ({"a": ct * 2, "b": (None, None)},))
    x = {"a": jnp.array(3.0), "b": (None, jnp.array(1.0))}
    found = sw.grad(f)(x)
    assert found["a"] == 2 and found["b"] == (None, 0)


def test_cotangents_of_another_dtype() -> None:
    half = np.dtype("bfloat16")

    @sw.custom_vjp
    def total(x):
        return x.astype(np.float32).sum()

    total.defvjp(lambda x: (total(x), x.shape), lambda shape, ct: (jnp.full(shape, ct / 3),))
    x = jnp.ones((4, 2), half)
    third, rounded = np.float32(1) / 3, jnp.asarray(1 / 3, half)
    moved = [
        total,
        lambda x: total(x[np.array([1, 2, 1])]),
        lambda x: total(sw.lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (2, 2)).T),
        lambda x: total(jnp.concatenate([x, x])) + total(x * 2),
        sw.checkpoint(lambda x: total(x[::2])),
    ]
    for f in moved:
        for g in (sw.grad(f), sw.jit(sw.grad(f)), sw.grad(sw.jit(f))):
            ct = g(x)
            assert ct.dtype == np.float32
            wanted = 2 * third + 2 * rounded if f is moved[3] else third
            np.testing.assert_allclose(ct[2], [wanted, wanted])
    in_loop = lambda x: sw.lax.scan(lambda c, r: (c + total(r), 0), 0.0, x)[0]  # noqa: E731
    for f in (lambda x: total(x * 1), in_loop):
        assert sw.grad(f)(x).dtype == half and (sw.grad(f)(x) == rounded).all()
