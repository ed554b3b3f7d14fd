"""`cond` and `switch` under every transform, against jax."""

import functools
import gc
import weakref

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import NamedSharding, P, explain, lax, random
from shardwise._src.base.config import disable_jit, poison_padding
from shardwise._src.control import bodies
from shardwise._src.core.checker import check_program
from shardwise.experimental import io_callback
from shardwise.sharding import AxisType, reshard
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import mesh_of
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

X = np.float32([0.5, 1.0, -0.3])
W = np.float32([0.9, 0.2, 1.4])

BOTH = pytest.mark.parametrize("lib", [OURS, JAX], ids=["ours", "jax"])


def two_ways(lib, pred, x, w):
    """Residuals of different kinds, a result that one branch does not compute, and captures."""
    scale = lib.np.cos(w)

    def one(x, pair):
        y = lib.np.sin(x * scale) * pair["w"]
        return {"y": y, "n": lib.np.sum(y), "same": x}

    def other(x, pair):
        return {"y": x * x * x, "n": lib.np.float32(2.0), "same": pair["w"] * scale}

    return lib.lax.cond(pred, one, other, x, {"w": w})


@pytest.mark.parametrize("pred", everyday([True, False], 1))
def test_cond(pred):
    same_as_jax(two_ways, np.asarray(pred), X, W, axes=(None, 0, None))


def test_cond_on_a_value_that_is_differentiated():
    def f(lib, x, w):
        return two_ways(lib, lib.np.sum(x) > 1.0, x, w)

    same_as_jax(f, X, W, axes=(0, 0))


@pytest.mark.parametrize("index", everyday([-2, 1, 5], 1))
def test_switch(index):
    def f(lib, i, x, w):
        branches = [lambda x: x * w, lib.np.sin, lambda x: lib.np.exp(x) * lib.np.sum(w * w)]
        return lib.lax.switch(i, branches, x)

    same_as_jax(f, np.int32(index), X, W, axes=(0 if index == 1 else None, 0, None))


@pytest.mark.sweep
def test_nested_in_loops():
    def f(lib, x, w):
        def step(carry, i):
            def halve(h):
                return lib.lax.fori_loop(0, 2, lambda j, h: h * 0.7 + w, h)

            def turn(h):
                return lib.lax.scan(lambda c, a: (lib.np.sin(c + a), c), h, h)[0]

            h = lib.lax.cond(i % 2 == 0, halve, lambda h: lib.root.jit(lib.np.sin)(h) * w, carry)
            return h, lib.lax.switch(i, [lambda h: h, turn_each(turn), lib.np.cos], h)

        def turn_each(turn):
            return lambda h: lib.root.vmap(lambda e: turn(e * w)[0])(h)

        return lib.lax.scan(step, x, np.arange(4))

    same_as_jax(f, X, W)


def test_finite_differences():
    for pred in (True, False):
        check_grads(lambda x, w, p=pred: two_ways(OURS, p, x, w), (X, W), order=2)


def test_second_derivatives_by_python_scalars():
    """Residuals that a branch lacks are zeros, as weakly typed as those of the other branch."""

    def f(lib, x):
        return lib.lax.cond(x > 0, lambda x: lib.np.sin(x) * x, lambda x: x**2, x)

    def second(lib, x):
        return lib.root.grad(lib.root.grad(lambda x: f(lib, x)))(x)

    for x in (0.3, -0.4):
        ours, theirs = second(OURS, x), second(JAX, x)
        close(ours, theirs)
        assert ours.weak_type and theirs.weak_type


@BOTH
def test_forms_of_the_call(lib):
    cond, x = lib.lax.cond, lib.np.asarray(X)
    close(cond(True, lambda: x, lambda: -x), X)
    close(cond(False, lambda x: x, lambda x: -x, operand=x), -X)
    close(cond(True, x, lambda x: x, 2 * x, lambda x: -x), X)
    close(cond(False, x, lambda x: x, 2 * x, lambda x: -x), -2 * X)
    close(cond(2, lambda: x, lambda: -x), X)
    close(cond(0.0, lambda: x, lambda: -x), -X)
    close(lib.lax.switch(1, [lambda x: x], x), X)
    close(lib.lax.switch(np.uint8(200), [lambda x: x, lambda x: -x], operand=x), -X)
    assert cond(True, lambda: None, lambda: None) is None
    (weak, strong) = cond(True, lambda: (1, 1), lambda: (2, np.int32(2)))
    assert (weak.weak_type, strong.weak_type) == (True, False)


def test_without_jit():
    with disable_jit(True):
        seen = []
        assert lax.cond(True, lambda: seen.append(1) or 3, lambda: seen.append(2) or 4) == 3
        assert lax.switch(9, [lambda: seen.append(1), lambda: seen.append(5) or 6]) == 6
        assert seen == [1, 5]


def test_keys_are_chosen():
    def f(lib, random, pred, key):
        return random.key_data(lib.lax.cond(pred, lambda k: random.fold_in(k, 1), lambda k: k, key))

    for pred in (True, False):
        wanted = f(JAX, jax.random, pred, jax.random.key(3))
        close(f(OURS, random, pred, random.key(3)), wanted)
    keys = jax.random.split(jax.random.key(3), 2)
    wanted = jax.vmap(lambda p, k: f(JAX, jax.random, p, k))(np.array([True, False]), keys)
    ours = random.split(random.key(3), 2)
    close(sw.vmap(lambda p, k: f(OURS, random, p, k))(np.array([True, False]), ours), wanted)


# -- the staged program --


def test_only_what_is_needed_is_kept_and_run_again():
    def f(x, w):
        return swnp.sum(
            lax.cond(
                True, lambda x: swnp.sin(x) * swnp.exp(w), lambda x: swnp.cos(x) * swnp.tanh(w), x
            )
        )

    program = sw.jit(sw.grad(f)).trace(X, W).program
    check_program(program)
    forward, backward = [e for e in program.eqns if e.op.name == "cond"]
    assert len(forward.outvars) == 2  # the residuals; the gradient does not need the result
    for branch in backward.params["branches"]:
        assert {e.op.name for e in branch.eqns} <= {"mul", "neg"}


def test_a_predicate_that_is_the_same_for_all_rows_stays_a_cond():
    def names(axes):
        f = sw.vmap(lambda p, x: lax.cond(p, swnp.sin, swnp.cos, x), axes)
        given = swnp.ones(2, bool) if axes[0] == 0 else True
        program = sw.jit(f).trace(given, swnp.ones((2, 3))).program
        return {e.op.name for e in program.eqns}

    assert names((None, 0)) == {"cond"}
    assert names((0, 0)) == {"sin", "cos", "broadcast_in_dim", "select_n"}


def test_functions_are_staged_once():
    runs = []

    def one(x):
        runs.append(1)
        return x

    def other(x):
        runs.append(2)
        return -x

    for pred in (True, False, np.bool_(True)):
        lax.cond(pred, one, other, swnp.asarray(X))
        sw.jit(lambda p, x: lax.cond(p, one, other, x))(pred, swnp.asarray(X))
        lax.switch(swnp.asarray(1), [one, other], swnp.asarray(X))
    assert sorted(runs) == [1, 1, 2, 2]


def test_a_function_that_is_several_branches_is_staged_once():
    calls = []

    def cube(x):
        calls.append(cube)
        return x**3 * y

    def twice(x):
        calls.append(twice)
        return x * 2

    y = swnp.float32(2.0)  # captured
    for i, wanted in enumerate([54, 6, 54, 6]):
        calls.clear()
        assert lax.switch(i, [cube, twice] * 2, swnp.float32(3.0)) == wanted
        assert calls.count(cube) <= 1 and calls.count(twice) <= 1
    calls.clear()
    assert sw.grad(lambda x: lax.cond(x > 0, cube, cube, x))(1.0) == 6
    assert calls == [cube]


def test_clear_caches_forgets_what_was_staged():
    def one(x):
        return x * 2

    lax.cond(True, one, lambda x: x, swnp.asarray(X))
    assert one in bodies.body_caches
    sw.clear_caches()
    assert not bodies.body_caches
    close(lax.cond(True, one, lambda x: x, swnp.asarray(X)), X * 2)


SCALE = 2.0


def test_functions_made_again_are_staged_once(monkeypatch):
    counts = []
    staged = bodies.stage
    monkeypatch.setattr(bodies, "stage", lambda *a, **k: counts.append(1) or staged(*a, **k))

    def run(scale):
        def helper(x):
            return x * scale

        return lax.cond(True, lambda x: helper(x) * SCALE, lambda x: swnp.sin(x), swnp.asarray(X))

    for _ in range(3):
        close(run(3.0), X * 6)
    assert len(counts) == 2
    close(run(-3.0), X * -6)  # another function, although its code is the same
    assert len(counts) == 4
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    close(run(-3.0), X * -3)
    close(run(swnp.asarray(W)), X * W)  # the value of an array must not be read
    close(run(swnp.asarray(X)), X * X)


def test_a_shared_shelf_is_left_by_what_does_something_else_now(monkeypatch):
    def run(f, x):
        return lax.cond(True, f, lambda x: x, swnp.asarray(x))

    def make():
        return lambda x: x * SCALE + abs(1)

    first = make()
    close(run(first, X), X * 2 + 1)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    monkeypatch.setitem(globals(), "abs", lambda x: 5)
    close(run(first, X[:2]), X[:2] * 3 + 5)
    monkeypatch.undo()
    close(run(make(), X[:2]), X[:2] * 2 + 1)


def test_decorated_functions_are_known_by_what_they_read(monkeypatch):
    @functools.wraps(np.sin)
    def scaled(x):
        return x * SCALE

    def run():
        def plain(x):
            return scaled(x)

        back = sw.grad(lambda x: plain(x).sum())
        return [lax.cond(True, f, lambda x: x, swnp.asarray(X)) for f in (plain, back)]

    for scale in (2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        first, second = run()
        close(first, X * scale)
        close(second, np.full_like(X, scale))


def test_functions_and_what_they_use_are_not_kept_alive():
    class Model:
        pass

    model = Model()

    def one(x, model=model):
        return x

    lax.cond(True, one, lambda x: x, swnp.asarray(X))
    assert one in bodies.body_caches
    gone = weakref.ref(model)
    del one, model
    gc.collect()
    assert gone() is None


# -- shardings --


def test_sharded_operands_stay_sharded():
    rows = NamedSharding(mesh_of(8), P("x"))
    x = sw.device_put(np.linspace(0, 1, 64, dtype=np.float32).reshape(16, 4), rows)

    def f(p, x):
        return lax.cond(p, lambda x: swnp.sin(x) * x, lambda x: x * 2, x)

    g = sw.jit(sw.grad(lambda p, x: swnp.sum(f(p, x)), 1))
    for pred in (True, False):
        assert f(pred, x).sharding == rows
        assert sw.jit(f)(pred, x).sharding == rows
        assert g(pred, x).sharding == rows
        close(g(pred, x), np.sin(x) + x * np.cos(x) if pred else np.full_like(x, 2.0))
    found = explain.collectives(g.lower(True, x).compile().as_text())
    assert not found


def test_explicit_shardings_are_in_the_types():
    mesh = mesh_of(2, 2, types=AxisType.Explicit)
    x = sw.device_put(np.ones((4, 2), np.float32), NamedSharding(mesh, P("x", None)))
    f = sw.jit(lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: swnp.sin(x), x))
    check_program(f.trace(True, x).program)
    assert f(True, x).aval.str_short(True) == "f32[4@x,2]"
    g = sw.jit(sw.grad(lambda p, x: swnp.sum(f(p, x)), 1))
    check_program(g.trace(True, x).program)
    assert g(False, x).aval.str_short(True) == "f32[4@x,2]"
    v = sw.vmap(lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: swnp.sin(x), x))
    p = sw.device_put(np.array([True, False, True, False]), NamedSharding(mesh, P("x")))
    check_program(sw.jit(v).trace(p, x).program)
    assert v(p, x).aval.str_short(True) == "f32[4@x,2]"
    turned = NamedSharding(mesh, P(None, "y"))
    assert message(
        TypeError, lax.cond, True, lambda x: {"a": x}, lambda x: {"a": reshard(x, turned)}, x
    ) == (
        "cond: the branches must return results of the same types; result['a'] is f32[4@x,2] from "
        "true_fun (<lambda>) and f32[4,2@y] from false_fun (<lambda>) (differ in sharding). Make "
        "them agree, for example with `shardwise.sharding.reshard`."
    )


@pytest.mark.sweep
@pytest.mark.parametrize("types", [AxisType.Auto, AxisType.Explicit])
def test_uneven_shards(types):
    x = np.linspace(0, 1, 20, dtype=np.float32).reshape(5, 4)

    def f(p, x):
        return swnp.sum(lax.cond(p, lambda x: x + swnp.sum(x, 0), lambda x: x * x, x) ** 2)

    placed = sw.device_put(x, NamedSharding(mesh_of(4, types=types), P("x")))
    with poison_padding(True):
        for pred in (True, False):
            wanted = sw.value_and_grad(f, 1)(pred, swnp.asarray(x))
            close(sw.value_and_grad(f, 1)(pred, placed), wanted)
            close(sw.jit(sw.value_and_grad(f, 1))(pred, placed), wanted)


# -- effects --


def noted(seen, x, **options):
    sw.debug.callback(lambda v: seen.append(float(v)), x, **options)


def test_effects_happen_once():
    seen = []

    def f(p, x):
        def one(x):
            noted(seen, x)
            return x * x

        return lax.cond(p, one, lambda x: x, x)

    def count(fun, *args):
        seen.clear()
        fun(*args)
        sw.effects_barrier()
        return len(seen)

    assert count(f, True, 3.0) == count(sw.jit(f), True, 3.0) == 1
    assert count(f, False, 3.0) == count(sw.jit(f), False, 3.0) == 0
    assert count(sw.grad(f, 1), True, 3.0) == count(sw.jit(sw.grad(f, 1)), True, 3.0) == 1
    assert count(sw.jit(sw.grad(sw.grad(f, 1), 1)), True, 3.0) == 1
    assert count(sw.jit(lambda p, x: f(p, x) * 0), True, 3.0) == 1
    assert count(sw.vmap(f, (None, 0)), True, swnp.arange(2.0)) == 2
    assert count(sw.vmap(f), np.array([True, False]), swnp.arange(2.0)) == 2  # as in jax


@pytest.mark.parametrize("which", ["ordered effects", "effects of `io_callback`"])
def test_exact_effects_are_refused_where_every_branch_runs(which):
    def one(x):
        if which == "ordered effects":
            noted([], x, ordered=True)
            return x
        return io_callback(np.sin, x, x)

    def f(p, x):
        return lax.cond(p, one, lambda x: x, x)

    def g(p, x):
        return lax.while_loop(lambda x: x > p, one, x)

    assert message(NotImplementedError, sw.vmap(g), np.zeros(1), swnp.ones(1)).startswith(
        f"[while_loop] under vmap: a batched condition runs until the last row is done, so {which} "
    )
    assert message(NotImplementedError, sw.vmap(f), np.array([True]), swnp.ones(1)) == (
        f"[cond] under vmap: a batched predicate runs every branch, so {which} would also happen for rows that did not request them. Select the inputs "
        "of the effect, with `shardwise.lax.select` or `shardwise.numpy.where`, and move "
        "it outside."
    )


# -- messages --


def test_messages_about_the_choice():
    f = lambda x: x  # noqa: E731
    assert message(TypeError, lax.cond, swnp.asarray([True]), f, f, X) == (
        "cond: pred must be a boolean scalar; got bool[1]. To select elementwise, use "
        "`shardwise.lax.select` or `shardwise.numpy.where`."
    )
    assert message(TypeError, lax.cond, "yes", f, f, X) == (
        "cond: pred must be a boolean scalar; got 'yes' of type str."
    )
    assert message(TypeError, lax.cond, 1j, f, f, X) == (
        "cond: pred must be a boolean, or a number to compare with zero; got ~c64[]."
    )
    assert message(TypeError, lax.cond, True, f, 3, X) == (
        "cond: false_fun must be a function; got 3."
    )
    assert message(TypeError, lax.cond, True, f, f, X, operand=X) == (
        "cond: pass operands by position or as `operand`, not both."
    )
    assert message(TypeError, lax.cond, True, f, f, {"a": "text"}) == (
        "cond: operands[0]['a'] is 'text' of type str, which is not an array."
    )
    assert message(TypeError, lax.switch, 1.0, [f, f], X) == (
        "switch: index must be an integer scalar; got ~f32[]."
    )
    assert message(TypeError, lax.switch, "a", [f, f], X) == (
        "switch: index must be an integer scalar; got 'a' of type str."
    )
    assert message(ValueError, lax.switch, 1, []) == "switch: branches must not be empty."
    assert message(TypeError, lax.switch, 1, [f, 2], X) == (
        "switch: branches[1] must be a function; got 2."
    )


def test_messages_about_the_branches():
    def pair(x):
        return {"a": x, "b": (x, x)}

    def single(x):
        return {"a": x, "c": x}

    assert message(TypeError, lax.cond, True, pair, single, X) == (
        "cond: the branches must return results with the same pytree structure; only that of "
        "true_fun (pair) has result['b'] and only that of false_fun (single) has result['c']."
    )
    assert message(TypeError, lax.cond, True, lambda: (1,), lambda: [1]) == (
        "cond: the branches must return results with the same pytree structure; result is a tuple "
        "of 1 in that of true_fun (<lambda>) and a list of 1 in that of false_fun (<lambda>)."
    )
    assert message(TypeError, lax.switch, 1, [pair, lambda x: {"a": x, "b": (x, x[0])}], X) == (
        "switch: the branches must return results of the same types; result['b'][1] is f32[3] "
        "from branches[0] (pair) and f32[] from branches[1] (<lambda>) (differ in shape). Make "
        "them agree."
    )
    assert message(TypeError, lax.cond, True, lambda: 1, lambda: 2.0) == (
        "cond: the branches must return results of the same types; result is ~i32[] from true_fun "
        "(<lambda>) and ~f32[] from false_fun (<lambda>) (differ in dtype). Make them agree, for "
        "example with `astype`."
    )
    assert message(
        TypeError, lax.switch, 1, [lambda: {"a": 1}, lambda: {"a": (1,)}, lambda: {"b": 1}]
    ) == (
        "switch: the branches must return results with the same pytree structure; result['a'] is a "
        "leaf in that of branches[0] (<lambda>) and a tuple of 1 in that of branches[1] "
        "(<lambda>); only that of branches[0] (<lambda>) has result['a'] and only that of "
        "branches[2] (<lambda>) has result['b']."
    )
    rows = [lambda: (X, {"x": X, "y": 1}), lambda: (X[0], {"x": X.astype(np.int32), "y": 1.0})]
    assert message(TypeError, lax.cond, True, *rows) == (
        "cond: the branches must return results of the same types; result[0] is f32[3] from "
        "true_fun (<lambda>) and f32[] from false_fun (<lambda>) (differ in shape), "
        "result[1]['x'] is f32[3] from true_fun (<lambda>) and i32[3] from false_fun (<lambda>) "
        "(differ in dtype), result[1]['y'] is ~i32[] from true_fun (<lambda>) and ~f32[] from "
        "false_fun (<lambda>) (differ in dtype). Make them agree, for example with `astype`."
    )
    assert message(TypeError, lax.cond, True, lambda: "a", lambda: "a") == (
        "cond: the result of <lambda> is 'a' of type str, which is not an array."
    )
    assert "missing 1 required positional argument: 'x'" in message(
        TypeError, lax.cond, True, pair, single
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.uint32])
def test_select_n_by_any_integers(dtype):
    which = np.array([0, 2, 1], dtype)
    cases = [np.full(3, i, np.float32) for i in range(3)]
    close(lax.select_n(which, *cases), jax.lax.select_n(which, *cases))


def _doubled(y):
    return lax.scan(lambda c, _: (c * lax.psum(c, "a"), None), y, None, length=2)[0]


@pytest.mark.parametrize(
    "f",
    everyday(
        [
            lambda y: lax.cond(lax.axis_index("a") > 1, swnp.sin, _doubled, y),
            lambda y: lax.cond(
                lax.axis_index("a") > 1, lambda y: lax.psum(y * y, "a"), _doubled, y
            ),
            lambda y: lax.cond(lax.psum(y, "a") > 0, _doubled, lambda y: lax.pmean(y**3, "a"), y),
        ],
        1,
    ),
)
def test_second_derivatives_of_branches_that_have_loops_with_collectives(f):
    """The second derivatives of the sum of all losses, against finite differences of the first."""
    with sw.enable_x64(True):
        x, step = np.cos(np.arange(4.0)), 1e-5
        first = sw.jit(sw.vmap(sw.grad(f), axis_name="a"))
        found = sw.vmap(sw.grad(lambda y: sw.grad(f)(y)), axis_name="a")(x)
        sums = [[first(x + s * e).sum() for e in step * np.eye(4)] for s in (1, -1)]
        np.testing.assert_allclose(found, np.subtract(*sums) / 2 / step, atol=1e-5)


def test_operands_that_all_branches_return_are_not_batched():
    def f(x, y):
        return lax.cond(x < 2, lambda x, y: (2 * x, y, x), lambda x, y: (3 * x, y, y), x, y)

    y = swnp.float32(7)
    doubled, same, mixed = sw.vmap(f, (0, None), (0, None, 0))(np.arange(3.0), y)
    assert same is y
    np.testing.assert_array_equal(doubled, [0, 2, 6])
    np.testing.assert_array_equal(mixed, [0, 1, 7])
