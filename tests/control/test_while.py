"""`while_loop` under every transform that it supports, against jax."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import NamedSharding, P, explain, lax, random
from shardwise._src.base.config import disable_jit, poison_padding
from shardwise._src.core.checker import check_program
from shardwise.sharding import AxisType, reshard
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.meshes import mesh_of
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

X = np.float32([0.5, 1.0, -0.3])
W = np.float32([0.9, 0.2, 1.4])

BOTH = pytest.mark.parametrize("lib", [OURS, JAX], ids=["ours", "jax"])


def grown(lib, x, w, limit):
    """A counter, a state, and captures in the condition and in the body."""

    def small(s):
        return lib.np.sum(s["h"] ** 2) < limit

    def turn(s):
        return {"n": s["n"] + 1, "h": s["h"] * 1.5 + lib.np.sin(w), "same": s["same"]}

    return lib.lax.while_loop(small, turn, {"n": 0, "h": x, "same": w})


def test_while_loop():
    limit = np.float32(40)
    same_as_jax(grown, X, W, limit, axes=(0, None, None), reverse=False)
    same_as_jax(grown, X, W, limit, axes=(None, 0, 0), reverse=False)


def test_rows_that_are_done_keep_their_values():
    def f(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] / 2), (0, x))

    counts = np.array([3, 0, 7, 1])
    done, halves = sw.vmap(f, (None, 0))(8.0, counts)
    close((done, halves), (counts.astype(np.int32), np.float32(8.0 / 2.0**counts)))
    program = sw.jit(sw.vmap(f, (None, 0))).trace(8.0, counts).program
    check_program(program)
    (loop,) = [e for e in program.eqns if e.op.name == "while_loop"]
    assert (
        str(loop.params["test"])
        == """\
{ lambda ; a:bool[4] b:~i32[4] c:~f32[4]. let
    d:bool[] = reduce_or[axes=(0,)] a
  in (d,) }"""
    )


def test_a_condition_that_is_the_same_for_all_rows_stays_a_scalar():
    def f(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x))[1]

    program = sw.jit(sw.vmap(f)).trace(X).program
    (loop,) = [e for e in program.eqns if e.op.name == "while_loop"]
    assert loop.params["test"].out_types[0].shape == ()
    assert loop.outvars[0].aval.shape == ()  # the counter


def test_nested_with_cond_and_scan_in_jit():
    def f(lib, x, w):
        def inner(h, a):
            return lib.lax.cond(h[0] > a, lambda: h * 0.9, lambda: lib.np.sin(h) + w), h[1]

        def turn(s):
            h, ys = lib.lax.scan(inner, s[1], s[1])
            h = lib.root.vmap(lambda e: collatz(e * 4))(h)
            return s[0] + 1, lib.np.cos(h) + lib.np.sum(ys)

        def collatz(e):
            return lib.lax.while_loop(lambda e: e > 1.0, lambda e: e * 0.4, e)

        return lib.root.jit(lambda x: lib.lax.while_loop(lambda s: s[0] < 3, turn, (0, x))[1])(x)

    same_as_jax(f, X, W, axes=(0, None), reverse=False)


def test_forward_derivatives():
    def f(x, w):
        return grown(OURS, x, w, 40.0)["h"]

    check_grads(f, (X, W), order=2, modes=["fwd"])
    wanted = jax.jacfwd(lambda x: grown(JAX, x, W, 40.0)["h"])(X)
    close(sw.jacfwd(lambda x: f(x, swnp.asarray(W)))(swnp.asarray(X)), wanted)


def test_linearization_runs_what_is_known_once():
    def f(x):
        return grown(OURS, x, swnp.asarray(W), 40.0)["h"]

    program = sw.jit(lambda x: sw.linearize(f, x)[1](x)).trace(X).program
    check_program(program)
    loops = [e for e in sw.jit(lambda x: sw.linearize(f, x)[0]).trace(X).program.eqns]
    assert sum(e.op.name == "while_loop" for e in loops) == 1


def test_reverse_mode_is_refused_unless_nothing_depends_on_the_loop():
    def halved(h):
        return h / 2

    def large(h):
        return swnp.sum(h) > 1

    def f(x):
        return swnp.sum(lax.while_loop(large, halved, x))

    assert message(ValueError, sw.grad(f), swnp.asarray(X)) == (
        "while_loop and fori_loop with traced bounds have no reverse-mode derivative (grad, vjp, "
        "jacrev), here the loop of halved: the number of iterations is not known before it runs, "
        "so residuals cannot be stored for the backward pass. Use `fori_loop` with Python integers "
        "as bounds or `scan`, whose number of iterations is known; forward mode (`jvp`, `jacfwd`); "
        "or define a rule for the function with the loop by `custom_vjp`."
    )

    def steps(x):
        n, _ = lax.while_loop(lambda s: s[1] > 0, lambda s: (s[0] + 1, s[1] - 1), (0, 3))
        return swnp.sum(x) * n

    close(sw.grad(steps)(swnp.asarray(X)), np.full(3, 3, np.float32))


@BOTH
def test_weak_types_give_way(lib):
    x = lib.np.float32(1)
    n, h = lib.lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * lib.np.asarray(2.0, np.float32)), (0, 1)
    )
    assert (n.weak_type, h.weak_type, h.dtype) == (True, False, np.float32)
    close(h, np.float32(8))
    h = lib.lax.while_loop(lambda h: h < 3, lambda h: h + x, 0)
    close(h, np.float32(3))


def test_keys_in_the_state():
    def f(lib, random, key, n):
        return lib.lax.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1, random.fold_in(s[1], s[0])), (0, key)
        )[1]

    wanted = jax.random.key_data(
        jax.vmap(lambda n: f(JAX, jax.random, jax.random.key(1), n))(np.arange(3))
    )
    came = sw.vmap(lambda n: f(OURS, random, random.key(1), n))(np.arange(3))
    close(random.key_data(came), wanted)


def test_without_jit():
    seen = []

    def turn(n):
        seen.append(n)
        return n + 1

    with disable_jit(True):
        assert lax.while_loop(lambda n: n < 3, turn, 0) == 3
        assert seen == [0, 1, 2]
        rows = sw.vmap(lambda n: lax.while_loop(lambda n: n < 3, lambda n: n + 1, n))
        close(rows(swnp.arange(5)), np.int32([3, 3, 3, 3, 4]))


def test_functions_are_staged_once():
    runs = []

    def small(s):
        runs.append(1)
        return s[0] < 3

    def turn(s):
        runs.append(2)
        return s[0] + 1, s[1] * 2

    for _ in range(3):
        state = swnp.asarray(0), swnp.asarray(X)
        close(lax.while_loop(small, turn, state)[1], X * 8)
        sw.jit(lambda s: lax.while_loop(small, turn, s))(state)
    assert sorted(runs) == [1, 2]


# -- shardings --


def test_sharded_states_stay_sharded():
    rows = NamedSharding(mesh_of(8), P("x"))
    x = sw.device_put(np.linspace(0, 1, 64, dtype=np.float32).reshape(16, 4), rows)

    def f(x):
        return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, swnp.sin(s[1]) + x), (0, x))[
            1
        ]

    assert f(x).sharding == sw.jit(f)(x).sharding == rows
    close(f(x), f(swnp.asarray(np.asarray(x))))
    g = sw.jit(lambda x: sw.jvp(f, (x,), (x,))[1])
    assert g(x).sharding == rows
    assert not explain.collectives(g.lower(x).compile().as_text())
    h = sw.jit(sw.vmap(lambda x: lax.while_loop(lambda h: h[0] < 5, lambda h: h + 1, x)))
    assert h(x).sharding == rows
    kinds = [c.kind for c in explain.collectives(h.lower(x).compile().as_text())]
    assert set(kinds) == {"all-reduce"}  # whether any row continues


def test_explicit_shardings_are_in_the_types():
    mesh = mesh_of(2, 2, types=AxisType.Explicit)
    x = sw.device_put(np.ones((4, 2), np.float32), NamedSharding(mesh, P("x", None)))

    def f(x):
        return lax.while_loop(lambda h: swnp.sum(h) < 50, lambda h: h * 2 + x, x)

    check_program(sw.jit(f).trace(x).program)
    assert f(x).aval.str_short(True) == "f32[4@x,2]"
    close(f(x), np.full((4, 2), 7, np.float32))
    rows = sw.vmap(lambda r: lax.while_loop(lambda h: swnp.sum(h) < 50, lambda h: h * 2 + r, r))
    check_program(sw.jit(rows).trace(x).program)
    assert rows(x).aval.str_short(True) == "f32[4@x,2]"
    slope = sw.jit(lambda x: sw.jvp(f, (x,), (x,))[1])
    check_program(slope.trace(x).program)
    assert slope(x).aval.str_short(True) == "f32[4@x,2]"
    turned = NamedSharding(mesh, P(None, "y"))
    assert message(
        TypeError,
        lax.while_loop,
        lambda h: True,
        lambda h: {"a": reshard(h["a"], turned)},
        {"a": x},
    ) == (
        "while_loop: <lambda> must return the carry with its input types; carry['a'] came in "
        "as f32[4@x,2] and was returned as f32[4,2@y] (differs in sharding). Change init or "
        "<lambda> so that they agree, for example with `shardwise.sharding.reshard`."
    )


@pytest.mark.parametrize("types", [AxisType.Auto, AxisType.Explicit])
def test_uneven_shards(types):
    x = np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4)

    def f(x):
        return lax.while_loop(lambda h: swnp.sum(h) < 50, lambda h: h + swnp.sum(h, 0) * 0.1 + x, x)

    placed = sw.device_put(x, NamedSharding(mesh_of(4, types=types), P("x")))
    with poison_padding(True):
        wanted = sw.jvp(f, (swnp.asarray(x),), (swnp.asarray(x),))
        close(f(placed), wanted[0])
        close(sw.jit(lambda x: sw.jvp(f, (x,), (x,)))(placed), wanted)


# -- effects --


def test_effects_happen_once_in_each_turn():
    seen = []

    def f(x):
        def small(s):
            sw.debug.callback(lambda n: seen.append(("test", int(n))), s[0])
            return s[0] < 2

        def turn(s):
            sw.debug.callback(lambda n: seen.append(("turn", int(n))), s[0])
            return s[0] + 1, s[1] * x

        return lax.while_loop(small, turn, (0, x))[1]

    wanted = [("test", 0), ("test", 1), ("test", 2), ("turn", 0), ("turn", 1)]
    slope = sw.jit(lambda x: sw.linearize(f, x)[1](x))
    for fun in (f, sw.jit(f), lambda x: f(x) * 0, lambda x: sw.jvp(f, (x,), (x,)), slope):
        seen.clear()
        fun(swnp.asarray(2.0))
        sw.effects_barrier()
        assert sorted(seen) == wanted


# -- messages --


def test_messages():
    same = lambda h: h  # noqa: E731
    loop = lax.while_loop
    assert message(TypeError, loop, 3, same, 0) == (
        "while_loop: cond_fun must be a function; got 3."
    )
    assert message(TypeError, loop, same, None, 0) == (
        "while_loop: body_fun must be a function; got None."
    )
    assert message(TypeError, loop, same, same, {"a": "text"}) == (
        "while_loop: init_val['a'] is 'text' of type str, which is not an array."
    )
    assert message(TypeError, loop, same, same, 0) == (
        "while_loop: <lambda> must return a boolean scalar, which decides whether to continue; it "
        "returned ~i32[]."
    )
    assert message(TypeError, loop, lambda h: h > 0, same, X) == (
        "while_loop: <lambda> must return a boolean scalar, which decides whether to continue; it "
        "returned bool[3]."
    )
    assert message(TypeError, loop, lambda h: (True,), same, 0) == (
        "while_loop: <lambda> must return a boolean scalar, which decides whether to continue; it "
        "returned a pytree PyTreeDef((*,))."
    )

    def wrong_tree(s):
        return {"a": s["a"], "c": (s["b"], s["b"])}

    def wrong_types(s):
        return {"a": s["a"][0], "b": s["b"] + np.float32(0.5)}

    state = {"a": X, "b": np.int32(1)}
    assert message(TypeError, loop, lambda s: True, wrong_tree, state) == (
        "while_loop: wrong_tree must return a carry with the pytree structure of init; only init "
        "has carry['b'] and only the result has carry['c']."
    )
    assert message(TypeError, loop, lambda s: True, wrong_types, state) == (
        "while_loop: wrong_types must return the carry with its input types; carry['a'] came "
        "in as f32[3] and was returned as f32[] (differs in shape), carry['b'] came in as i32[] "
        "and was returned as f32[] (differs in dtype). Change init or wrong_types so that they "
        "agree, for example with `astype`."
    )


def test_no_state_at_all():
    seen = sw.new_ref(np.int32(0))

    def turn(_):
        seen[...] += 1
        return ()

    for run in (lambda f: f, sw.jit):
        assert run(lambda: lax.while_loop(lambda _: False, lambda s: s, ()))() == ()
    assert sw.jit(lambda: lax.while_loop(lambda _: seen[...] < 3, turn, ()))() == ()
    assert int(seen[...]) == 3


def test_carries_that_no_turn_changes_are_not_batched():
    def powers(w, x, most):
        def turn(carry):
            n, x, w = carry
            return n + 1, x @ w, w

        _, x, w = lax.while_loop(lambda carry: carry[0] < most, turn, (0, x, w))
        return w, x

    w, x = np.diag([2.0, 3.0]).astype(np.float32), np.ones((3, 2), np.float32)
    mapped = sw.vmap(powers, (None, 0, 0), (None, 0))
    same, found = mapped(w, x, np.arange(3))
    np.testing.assert_array_equal(same, w)
    np.testing.assert_array_equal(found, [[1, 1], [2, 3], [4, 9]])
