"""`fori_loop` under every transform, against jax."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.base.config import disable_jit
from shardwise._src.core.checker import check_program
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

X = np.float32([0.5, 1.0, -0.3])
W = np.float32([0.9, 0.2, 1.4])

BOTH = pytest.mark.parametrize("lib", [OURS, JAX], ids=["ours", "jax"])


def body(lib, w):
    def turn(i, s):
        return {"h": lib.np.sin(s["h"] * w) + i, "n": s["n"] + i}

    return turn


@pytest.mark.parametrize("options", everyday([{}, {"unroll": 2}, {"unroll": True}], 1), ids=str)
def test_known_bounds(options):
    def f(lib, x, w):
        return lib.lax.fori_loop(2, 5, body(lib, w), {"h": x, "n": 0}, **options)

    same_as_jax(f, X, W, axes=(0, None))


def test_bounds_that_are_not_known():
    def f(lib, x, w, n):
        return lib.lax.fori_loop(1, n, body(lib, w), {"h": x, "n": 0})

    same_as_jax(f, X, W, np.int32(4), axes=(0, None, None), reverse=False)
    same_as_jax(f, X, W, np.int32(4), axes=(None, None, 0), reverse=False)
    grad = sw.jit(sw.grad(lambda x, n: swnp.sum(f(OURS, x, W, n)["h"])))
    assert message(ValueError, grad, X, 3) == (
        "while_loop and fori_loop with traced bounds have no reverse-mode derivative (grad, vjp, "
        "jacrev), here the loop of turn: the number of iterations is not known before it runs, so "
        "residuals cannot be stored for the backward pass. Use `fori_loop` with Python integers as "
        "bounds or `scan`, whose number of iterations is known; forward mode (`jvp`, `jacfwd`); or "
        "define a rule for the function with the loop by `custom_vjp`."
    )


def test_finite_differences():
    check_grads(lambda x, w: lax.fori_loop(0, 3, body(OURS, w), {"h": x, "n": 0}), (X, W), order=2)


def test_a_known_loop_is_a_scan_and_another_one_a_while_loop():
    def f(n, x):
        return lax.fori_loop(0, n, lambda i, x: x * 2, x)

    known = sw.jit(f, static_argnums=0).trace(3, X).program
    other = sw.jit(f).trace(3, X).program
    for program, name in ((known, "scan"), (other, "while_loop")):
        check_program(program)
        assert [e.op.name for e in program.eqns if e.op.programs] == [name]


@BOTH
def test_bounds_and_types(lib):
    fori, array = lib.lax.fori_loop, lib.np.asarray
    close(fori(5, 3, lambda i, x: x + 1, array(1)), np.int32(1))
    close(fori(0, 0, lambda i, x: x + 1, 1), np.int32(1))
    close(fori(array(1), array(4), lambda i, x: x + i, array(X)), X + 6)
    close(fori(0, 3, lambda i, x: x + i, array(1.0, np.float32)), np.float32(4))
    close(fori(0, 3, lambda i, x: i, 7), np.int32(2))
    close(lib.root.jit(lambda n: fori(np.int16(0), n, lambda i, x: i, n))(np.int16(4)), np.int16(3))
    assert fori(0, 3, lambda i, x: None, None) is None
    x = fori(0, 3, lambda i, x: x * 2.0, 1)
    assert (x.weak_type, x.dtype) == (False, np.float32)


def test_functions_are_staged_once_whatever_the_bounds():
    runs = []

    def turn(i, x):
        runs.append(1)
        return x + i

    for n in (2, 3, 3):
        close(lax.fori_loop(0, n, turn, swnp.asarray(0)), np.int32(n * (n - 1) // 2))
        close(lax.fori_loop(1, n, turn, swnp.asarray(0)), np.int32(n * (n - 1) // 2))
    assert runs == [1]


def test_without_jit():
    seen = []
    with disable_jit(True):
        assert lax.fori_loop(1, 4, lambda i, x: seen.append(i) or x + i, 0) == 6
    assert seen == [1, 2, 3]


def test_messages():
    same = lambda i, x: x  # noqa: E731
    assert message(TypeError, lax.fori_loop, 0, 3, None, X) == (
        "fori_loop: body_fun must be a function; got None."
    )
    assert message(TypeError, lax.fori_loop, 0, 3.0, same, X) == (
        "fori_loop: lower and upper must be integer scalars; got ~i32[] and ~f32[]."
    )
    assert message(TypeError, lax.fori_loop, 0, "a", same, X) == (
        "fori_loop: lower and upper must be integer scalars; got 0 and 'a'."
    )
    assert message(TypeError, lax.fori_loop, np.uint8(0), 3, same, X) == (
        "fori_loop: lower and upper must be of one dtype; got u8[] and ~i32[]. Convert one of them."
    )
    assert message(ValueError, lax.fori_loop, 0, 3, same, X, unroll=-1) == (
        "fori_loop: unroll must be a bool or a non-negative int; got -1."
    )
    assert message(ValueError, sw.jit(lambda n: lax.fori_loop(0, n, same, X, unroll=2)), 3) == (
        "fori_loop: unroll=2 needs concrete bounds; got ~i32[] and ~i32[], at least one of "
        "which is traced. Use Python integers."
    )

    def wrong(i, s):
        return {"a": s["a"][0]}

    assert message(TypeError, lax.fori_loop, 0, 3, wrong, {"a": X}) == (
        "fori_loop: wrong must return the carry with its input types; carry['a'] came in as "
        "f32[3] and was returned as f32[] (differs in shape). Change init or wrong so that they "
        "agree."
    )
    assert message(TypeError, lax.fori_loop, 0, 3, same, "text") == (
        "fori_loop: init_val is 'text' of type str, which is not an array."
    )
    assert message(TypeError, lax.fori_loop, 0, 3, lambda i, s: (s, s), X) == (
        "fori_loop: <lambda> must return a carry with the pytree structure of init; carry is a "
        "leaf in init and a tuple of 2 in the result."
    )
