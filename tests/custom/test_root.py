"""`custom_root` under every transform, against jax and the analytic derivative."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import OURS, same_as_jax


def bisected(lib, f, guess):
    """A root between 0 and 100 of a decreasing function; no derivative goes through the search."""

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        above = f(middle) > 0
        return lib.np.where(above, middle, low), lib.np.where(above, high, middle)

    return lib.lax.fori_loop(0, 60, halve, (guess * 0, guess * 0 + 100.0))[0]


def power(lib, p, has_aux=False):
    """p ** 1.5, as a root."""

    def solve(f, guess):
        root = bisected(lib, f, guess)
        return (root, {"residual": f(root)}) if has_aux else root

    return lib.lax.custom_root(
        lambda y: p**3 - y**2, p, solve, lambda g, y: y / g(lib.np.ones_like(y)), has_aux=has_aux
    )


@pytest.mark.parametrize("has_aux", everyday([False, True], 1))
def test_a_scalar(has_aux):
    def f(lib, p):
        found = power(lib, p, has_aux)
        return found[0] if has_aux else found

    same_as_jax(f, np.float32(5.0), axes=(0,))
    close(sw.grad(lambda p: f(OURS, p))(5.0), np.float32(1.5 * 5**0.5))


@pytest.mark.sweep
def test_a_tree_and_the_guess_has_no_derivative():
    def f(lib, a, b):
        def residual(x):
            return {"u": a * x["u"] - x["v"], "v": x["v"] * x["v"] - b}

        def solve(f, x):
            def newton(_, x):
                r = f(x)
                v = x["v"] - r["v"] / (2 * x["v"])
                return {"u": v / a, "v": v}

            return lib.lax.fori_loop(0, 20, newton, x)

        def tangent_solve(g, y):
            # g is linear: its matrix, column by column
            none, one = np.zeros(2, np.float32), np.ones(2, np.float32)
            one_u, one_v = {"u": one, "v": none}, {"u": none, "v": one}
            cu, cv = g(one_u), g(one_v)
            det = cu["u"] * cv["v"] - cv["u"] * cu["v"]
            return {
                "u": (cv["v"] * y["u"] - cv["u"] * y["v"]) / det,
                "v": (cu["u"] * y["v"] - cu["v"] * y["u"]) / det,
            }

        guess = {"u": a + b, "v": b + 1.0}
        return lib.lax.custom_root(residual, guess, solve, tangent_solve)

    args = np.float32([2.0, 3.0]), np.float32([4.0, 9.0])
    same_as_jax(f, *args, axes=(0, None))
    close(f(OURS, *map(swnp.asarray, args)), {"u": np.float32([1, 1]), "v": np.float32([2, 3])})
    check_grads(lambda a, b: f(OURS, a, b), args, order=2, modes=("fwd", "rev"))


def test_within_loops_and_branches():
    def f(lib, p):
        def step(h, x):
            h = lib.lax.cond(x > 1, lambda: power(lib, h + x), lambda: h * x)
            return h * 0.1 + 1, h

        return lib.lax.scan(step, p, np.float32([1, 2, 3]))

    same_as_jax(f, np.float32(2.0), tol=5e-4)


def test_messages():
    ok = lambda g, y: y  # noqa: E731
    assert message(TypeError, lax.custom_root, 1, 1.0, ok, ok) == (
        "custom_root: f must be a function; got 1."
    )
    assert message(TypeError, lax.custom_root, ok, 1.0, ok, None) == (
        "custom_root: tangent_solve must be a function; got None."
    )

    def pair(f, x):
        return x, x

    def root(p, f=lambda x: x, solve=lambda f, x: x, has_aux=False):
        return lax.custom_root(f, p, solve, ok, has_aux=has_aux)

    grad = sw.grad(lambda p: root(p, solve=pair))
    for run in (lambda: root(1.0, solve=pair), lambda: grad(1.0)):
        assert message(TypeError, run) == (
            "custom_root: pair must return a pytree like initial_guess; x is a leaf in "
            "initial_guess and a tuple of 2 in the result."
        )
    assert message(TypeError, lambda: root(1.0, solve=lambda f, x: 3, has_aux=True)) == (
        "custom_root: with has_aux, <lambda> must return a pair (solution, aux); it returned 3."
    )
    assert message(TypeError, lambda: root(1.0, f=lambda x: (x, x))) == (
        "custom_root: <lambda> must return a pytree like initial_guess; x is a leaf in "
        "initial_guess and a tuple of 2 in the result."
    )
    assert message(TypeError, sw.grad(lambda p: root(p, f=lambda x: p > 0)), 1.0) == (
        "custom_root: <lambda> must return values with the types of initial_guess; x is bool[], "
        "but initial_guess has f32[]."
    )
