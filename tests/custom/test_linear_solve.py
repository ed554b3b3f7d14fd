"""`custom_linear_solve` under every transform, against jax."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import NamedSharding, P, lax
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import OURS, same_as_jax

A = (np.eye(3) * 4 + np.random.default_rng(1).normal(size=(3, 3)) * 0.5).astype(np.float32)
B = np.float32([1.0, -2.0, 0.5])


def jacobi(lib, diagonal, has_aux=False):
    """An iterative solver, through which no derivative is taken."""

    def solve(matvec, b):
        def step(_, x):
            return (b - (matvec(x) - diagonal * x)) / diagonal

        x = lib.lax.fori_loop(0, 40, step, b * 0)
        return (x, {"residual": matvec(x) - b}) if has_aux else x

    return solve


def solved(lib, a, b, symmetric=False, has_aux=False):
    a = a + a.T if symmetric else a
    solve = jacobi(lib, lib.lax.stop_gradient(lib.np.diag(a)), has_aux)
    return lib.lax.custom_linear_solve(
        lambda x: a @ x, b, solve, None if symmetric else solve, symmetric, has_aux
    )


@pytest.mark.parametrize("symmetric", everyday([False, True], 1))
def test_a_matrix(symmetric):
    same_as_jax(lambda lib, a, b: solved(lib, a, b, symmetric), A, B, axes=(0, None))


@pytest.mark.sweep
def test_more_results_and_other_axes():
    def f(lib, a, b):
        x, more = solved(lib, a, b, has_aux=True)
        return x, lib.np.round(more["residual"])

    same_as_jax(f, A, B, axes=(None, 0))
    wanted = np.linalg.solve(A, B)
    close(solved(OURS, swnp.asarray(A), swnp.asarray(B)), wanted)
    close(sw.jit(lambda a, b: solved(OURS, a, b))(A, B), wanted)


def test_a_tree_within_a_scan():
    def f(lib, w, b):
        def matvec(x):
            return {"u": 3 * x["u"] + w * x["v"], "v": 2 * x["v"] - w * x["u"]}

        def inverse(sign):
            def solve(_, y):
                det = 6 + w * w
                return {
                    "u": (2 * y["u"] - sign * w * y["v"]) / det,
                    "v": (3 * y["v"] + sign * w * y["u"]) / det,
                }

            return solve

        def step(h, _):
            x = lib.lax.custom_linear_solve(matvec, {"u": h, "v": b}, inverse(1), inverse(-1))
            return x["u"] + x["v"], x

        return lib.lax.scan(step, b, None, length=2)

    same_as_jax(f, B, B * 2, axes=(0, 0))
    check_grads(lambda w, b: f(OURS, w, b), (B, B * 2), order=2)


def test_only_the_system_is_differentiated():
    def f(a, b):
        return swnp.sum(solved(OURS, a, b))

    program = sw.jit(sw.grad(f, (0, 1))).trace(A, B).program
    check_program(program)
    names = [e.op.name for e in program.eqns]
    assert names.count("custom_linear_solve") == 2  # forward, and with the transpose
    assert "scan" not in names


def test_a_sharded_right_hand_side_stays_sharded():
    mesh = Mesh(np.array(sw.devices()), ("x",))
    rows = NamedSharding(mesh, P("x"))
    b = sw.device_put(np.linspace(0, 1, 16, dtype=np.float32), rows)

    def f(b):
        solve = jacobi(OURS, swnp.asarray(2.0))
        return lax.custom_linear_solve(lambda x: 2 * x, b, solve, solve)

    assert sw.jit(f)(b).sharding == rows
    assert sw.jit(sw.grad(lambda b: swnp.sum(f(b) ** 2)))(b).sharding == rows
    close(f(b), np.asarray(b) / 2)


def test_messages():
    solve = lax.custom_linear_solve
    one = lambda f, b: b  # noqa: E731
    same = lambda x: x  # noqa: E731
    b = swnp.asarray(B)
    assert message(TypeError, solve, 3, b, one) == (
        "custom_linear_solve: matvec must be a function; got 3."
    )
    assert message(TypeError, solve, same, {"a": "text"}, one) == (
        "custom_linear_solve: b['a'] is 'text' of type str, which is not an array."
    )

    def by_halves(f, b):
        return b

    def matrix(x):
        return 1.0 * x

    assert message(TypeError, sw.grad(lambda b: swnp.sum(solve(matrix, b, by_halves))), b) == (
        "custom_linear_solve: reverse-mode differentiation of the solution by by_halves solves a "
        "system with the transpose of matrix. Pass `transpose_solve`, or `symmetric=True` if it is "
        "its own transpose."
    )
    assert message(TypeError, sw.jit(lambda b: solve(lambda x: (x, x), b, one)), b) == (
        "custom_linear_solve: <lambda> must return a pytree like b; x is a leaf in b and a tuple "
        "of 2 in the result."
    )
    assert message(TypeError, sw.jit(lambda b: solve(lambda x: x[:2], b, one)), b) == (
        "custom_linear_solve: <lambda> must return values with the types of b; x is f32[2], but b "
        "has f32[3]."
    )
    assert message(TypeError, solve, same, b, lambda f, b: {"x": b}) == (
        "custom_linear_solve: <lambda> must return a pytree like b; x is a leaf in b and a dict of "
        "1 in the result."
    )
    for solver, came in ((lambda f, b: b[:2], "f32[2]"), (lambda f, b: b > 0, "bool[3]")):
        wrong = lambda b, s=solver: solve(same, b, s)  # noqa: E731
        for run in (wrong, sw.jit(wrong)):
            assert message(TypeError, run, b) == (
                "custom_linear_solve: <lambda> must return values with the types of b; x is "
                f"{came}, but b has f32[3]."
            )


@pytest.mark.parametrize("ordered", [True, False])
def test_effects(ordered):
    """Effects run as often as the solver; if ordered, in program order."""
    seen = []

    def solve(f, b):
        sw.debug.callback(lambda b: seen.append(float(b[0])), b, ordered=ordered)
        return b / 4

    def f(b):
        twice = lambda v: lax.custom_linear_solve(lambda x: 4 * x, v, solve, symmetric=True)  # noqa: E731
        return twice(twice(b))

    def runs(g, *args):
        seen.clear()
        result = g(*args)
        sw.effects_barrier()
        return result, list(seen) if ordered else sorted(seen, reverse=True)

    b = swnp.asarray(np.float32([16, 32]))
    wanted, again = np.float32([1, 2]), [16.0, 4.0]
    for g in (f, sw.jit(f)):
        found, told = runs(g, b)
        close(found, wanted)
        assert told == again
    loop = sw.jit(lambda b: lax.scan(lambda c, _: (f(c) * 16, None), b, None, length=2)[0])
    found, told = runs(loop, b)
    close(found, np.asarray(b))
    assert told == (again * 2 if ordered else sorted(again * 2, reverse=True))
    found, told = runs(sw.jit(sw.grad(lambda b: swnp.sum(f(b)))), b)
    close(found, np.float32([1, 1]) / 16)
    assert told == [16.0, 4.0, 1.0, 0.25]


def test_a_ref_from_outside():
    def f(b):
        scale = sw.new_ref(np.float32(2))
        return lax.custom_linear_solve(lambda x: x * scale[...], b, lambda f, b: b / 2)

    text = message(NotImplementedError, sw.jit(f), np.float32([2]))
    assert text.startswith(
        "Ref{f32[]} from outside is used in a function that is staged by "
        "custom_linear_solve of <lambda>, called at "
    )
    assert text.endswith(
        "which does not support refs. Read the ref beforehand and pass the value; `jit`, "
        "`checkpoint`, `checkify`, `scan`, `map`, `associative_scan`, `cond`, `switch`, "
        "`while_loop`, `fori_loop`, `shard_map` and `pmap` support refs."
    )
