"""`jit`: values and shardings match jax; kinds of arguments, results and calls."""

import dataclasses
import functools
import inspect
from collections import namedtuple

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime.pytree import register_dataclass
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.beside_jax import MESH, assert_same, ours, sharding, theirs
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
W = np.linspace(-1, 2, 32, dtype=np.float32).reshape(4, 8)


# -------------------------------------------------------------------- values and shardings


def train_step(n, params, x):
    def forward(p):
        hidden = n.tanh(x @ p["first"] + p["bias"])
        return n.mean((hidden @ p["second"]) ** 2)

    library = sw if n is jnp else jax
    value, grads = library.value_and_grad(forward)(params)
    return value, {k: params[k] - 0.1 * grads[k] for k in params}


PROGRAMS = {
    "scale": lambda n, x, w: x * 2,
    "sin": lambda n, x, w: n.sin(x) + 1,
    "product": lambda n, x, w: x @ w,
    "gram": lambda n, x, w: x @ x.T,
    "sum": lambda n, x, w: x.sum(),
    "sum of rows": lambda n, x, w: x.sum(0),
    "sum of columns": lambda n, x, w: x.sum(axis=1, keepdims=True),
    "largest": lambda n, x, w: n.max(x, axis=1),
    "argmax": lambda n, x, w: n.argmax(x, axis=0),
    "transpose": lambda n, x, w: x.T,
    "softmax": lambda n, x, w: n.exp(x) / n.exp(x).sum(1, keepdims=True),
    "several": lambda n, x, w: (x, {"a": w.T, "b": [x.mean(), n.zeros((8, 4)) + x]}),
    "constant": lambda n, x, w: n.arange(8.0) + x[:, 0],
    "compare": lambda n, x, w: n.where(x > 0, x, -x),
    "cast": lambda n, x, w: x.astype("bfloat16"),
    "reshape": lambda n, x, w: x.reshape(2, 4, 4).sum(1),
    "outer": lambda n, x, w: x[:, None] * w[None, 0, :4, None].T,
    "cumulative": lambda n, x, w: n.cumsum(x, 0),
    "weak": lambda n, x, w: (2.0, x.dtype.type(2), True),
}
PLACEMENTS = {
    "rows": (("x",), ()),
    "columns": ((None, "y"), ("y",)),
    "both": (("x", "y"), ("y", "x")),
    "one dimension": ((("x", "y"),), (None, ("x", "y"))),
    "replicated": ((), ()),
}


@pytest.mark.parametrize("placement", everyday(PLACEMENTS, 1))
def test_values_and_shardings_are_those_of_jax(placement):
    specs = PLACEMENTS[placement]
    mine = [ours(v, *s) for v, s in zip((X, W), specs, strict=True)]
    other = [theirs(v, *s) for v, s in zip((X, W), specs, strict=True)]

    def all_programs(n, x, w):
        return {name: program(n, x, w) for name, program in PROGRAMS.items()}

    got = sw.jit(functools.partial(all_programs, jnp))(*mine)
    expected = jax.jit(functools.partial(all_programs, jax.numpy))(*other)
    assert got.keys() == expected.keys()
    for name in PROGRAMS:
        assert_same(got[name], expected[name])


@pytest.mark.parametrize(
    "name", everyday(["scale", "product", "gram", "sum of rows", "transpose"], 1)
)
def test_one_program_at_a_time(name):
    program = PROGRAMS[name]
    for specs in PLACEMENTS.values():
        pairs = list(zip((X, W), specs, strict=True))
        got = sw.jit(functools.partial(program, jnp))(*[ours(v, *s) for v, s in pairs])
        wanted = jax.jit(functools.partial(program, jax.numpy))(*[theirs(v, *s) for v, s in pairs])
        assert_same(got, wanted)
        assert got.sharding.mesh is MESH and got.committed


def test_a_training_step():
    shapes = {"first": (4, 8), "bias": (8,), "second": (8, 2)}
    rng = np.random.default_rng(0)
    params = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    specs = {"first": (None, "y"), "bias": ("y",), "second": ("y",)}
    mine = {k: ours(params[k], *specs[k]) for k in params}
    other = {k: theirs(params[k], *specs[k]) for k in params}
    step = sw.jit(functools.partial(train_step, jnp))
    reference = jax.jit(functools.partial(train_step, jax.numpy))
    x, x_jax = ours(X, "x"), theirs(X, "x")
    for _ in range(3):
        value, mine = step(mine, x)
        expected, other = reference(other, x_jax)
        assert_same((value, mine), (expected, other), rtol=1e-4)
    assert mine["first"].sharding == sharding(None, "y")


def test_the_program_of_the_readme():
    def step(library, n):
        return library.jit(library.value_and_grad(lambda w, x: n.mean(n.tanh(x @ w / 16) ** 2)))

    x, w = np.ones((64, 16), np.float32), np.ones((16, 32), np.float32)
    loss, gradient = step(sw, jnp)(ours(w, None, "y"), ours(x, "x", None))
    expected = step(jax, jax.numpy)(theirs(w, None, "y"), theirs(x, "x", None))
    assert_same((loss, gradient), expected)
    assert f"{loss:.4f}" == "0.5800" and gradient.sharding == sharding(None, "y")


def test_on_one_device_and_on_none_in_particular():
    on_three = sw.device_put(X, sw.devices()[3])
    y = sw.jit(lambda a, b: a * b)(on_three, 2.0)
    assert y.devices() == {sw.devices()[3]} and y.committed
    z = sw.jit(lambda a: a * 2)(X)
    assert z.devices() == {sw.devices()[0]} and not z.committed


def test_uncommitted_arguments_go_to_where_the_others_are():
    x = ours(X, "x")
    here = jnp.ones(4)
    for other in (here, np.ones(4, np.float32), 2.0):
        y = sw.jit(lambda a, b: a + b)(x, other)
        assert y.sharding == sharding("x") and y.committed


# --------------------------------------------------------------------- requested shardings


def test_in_and_out_shardings():
    f = sw.jit(
        lambda a, b: (a * 2, {"t": a.T, "b": b}),
        in_shardings=(sharding("x"), None),
        out_shardings=(sharding("y", "x"), {"t": None, "b": sharding()}),
    )
    y, rest = f(X, 3.0)
    assert y.sharding is sharding("y", "x")
    assert rest["t"].sharding == sharding(None, "x") and rest["b"].sharding is sharding()
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(rest["t"]), X.T)


def test_one_sharding_stands_for_a_whole_tree():
    f = sw.jit(lambda t: t, in_shardings=sharding("x"), out_shardings=sharding())
    out = f({"a": X, "b": [X, X]})
    assert [a.sharding for a in (out["a"], *out["b"])] == [sharding()] * 3


def test_bare_specs_in_another_mesh_make_another_program():
    f = sw.jit(lambda a: sw.with_sharding_constraint(a + 1, P("x")))
    turned = Mesh(MESH.devices.T, ("x", "y"))
    for mesh in (MESH, turned, MESH):
        with mesh:
            assert f(X).sharding == NamedSharding(mesh, P("x"))


def test_out_shardings_decide_where_uncommitted_arguments_go():
    y = sw.jit(lambda a: a + 1, out_shardings=sharding("x"))(X)
    assert y.sharding is sharding("x") and y.committed


def test_constraints_inside():
    f = sw.jit(lambda a: sw.with_sharding_constraint(a + 1, sharding(None, "y")) * 2)
    y = f(ours(X, "x"))
    assert y.sharding == sharding(None, "y")
    np.testing.assert_array_equal(np.asarray(y), (X + 1) * 2)
    text = f.lower(ours(X, "x")).as_text()
    assert 'sdy.mesh @mesh = <["x"=4, "y"=2]>' in text
    assert 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>' in text
    assert "sdy.sharding_constraint %" in text and '<@mesh, [{}, {"y"}]>' in text


def test_meshes_over_the_same_devices_in_another_order_go_together():
    turned = Mesh(MESH.devices[::-1], ("x", "y"))
    a, b = ours(X, "x", "y"), sw.device_put(X, NamedSharding(turned, P("y", "x")))
    for first, second in ((a, b), (b, a)):
        y = sw.jit(lambda u, v: u + 2 * v)(first, second)
        np.testing.assert_array_equal(np.asarray(y), X * 3)
    asked = sw.jit(lambda u: u * 2, in_shardings=sharding("x", "y"))(X)
    np.testing.assert_array_equal(np.asarray(asked), X * 2)
    y = sw.jit(lambda u: u * 2, out_shardings=NamedSharding(turned, P("x")))(a)
    np.testing.assert_array_equal(np.asarray(y), X * 2)
    np.testing.assert_array_equal(np.asarray(y + a), X * 3)


def test_results_are_over_the_mesh_of_their_arguments():
    other = Mesh(MESH.devices.reshape(2, 4), ("a", "b"))
    a, b = ours(X, "x"), sw.device_put(X, NamedSharding(other, P("a", "b")))
    assert (2.5 - a).sharding == sharding("x")  # the scalar is cached, but not for the other mesh
    assert (2.5 - b).sharding == NamedSharding(other, P("a", "b"))
    into = sw.jit(lambda u: sw.with_sharding_constraint(u, b.sharding))(a)
    assert into.sharding == b.sharding


# -------------------------------------------------------------------- trees and kinds of calls


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class State:
    weights: object
    step: object
    name: str = "state"


register_dataclass(State, ["weights", "step"], ["name"])


def test_containers_of_all_kinds():
    f = sw.jit(lambda p, s, d: (Point(p.y, p.x), State(s.weights * 2, s.step + 1, s.name), d))
    p, s, d = f(Point(X, 1), State(X, 3, "mine"), {"a": (None, [X])})
    assert type(p) is Point and int(p.x) == 1
    assert type(s) is State and s.name == "mine" and int(s.step) == 4
    assert d["a"][0] is None
    np.testing.assert_array_equal(np.asarray(s.weights), X * 2)


def test_other_static_fields_make_another_trace():
    traces = []
    f = sw.jit(lambda s: traces.append(s.name) or s.weights)
    for name in ("a", "b", "a"):
        f(State(X, 0, name))
    assert traces == ["a", "b"]


def test_named_arguments_defaults_and_varargs():
    f = sw.jit(lambda a, b=2.0, *rest, c, **more: a * b + sum(rest) + c + more.get("d", 0))
    assert float(f(1.0, c=3.0)) == 5.0
    assert float(f(1.0, 3.0, 4.0, 5.0, c=0.0, d=1.0)) == 13.0
    assert float(f(a=1.0, b=5.0, c=1.0)) == 6.0


def test_kinds_of_host_values():
    f = sw.jit(lambda a: a + 1)
    for value, dtype, weak in (
        (1, np.int32, True),
        (1.0, np.float32, True),
        (True, np.int32, True),
        (1j, np.complex64, True),
        (np.float32(1), np.float32, False),
        (np.float64(1), np.float32, False),
        (np.arange(3), np.int32, False),
        (np.int8(1), np.int8, False),
        (np.ones((), np.float16), np.float16, False),
    ):
        y, z = f(value), jax.jit(lambda a: a + 1)(value)
        assert (y.dtype, y.weak_type) == (dtype, weak) == (z.dtype, z.weak_type), value


def test_results_of_all_kinds():
    y = sw.jit(lambda a: (1, 2.5, True, None, np.arange(3), np.float32(2), a))(X)
    assert [getattr(v, "weak_type", None) for v in y] == [True, True, False, None] + [False] * 3
    assert y[3] is None and np.asarray(y[4]).tolist() == [0, 1, 2]


def test_no_arguments_and_no_results():
    assert np.asarray(sw.jit(lambda: jnp.arange(3))()).tolist() == [0, 1, 2]
    assert sw.jit(lambda a: None)(X) is None
    assert sw.jit(lambda a: ())(ours(X, "x")) == ()


def test_closed_over_arrays_become_hidden_arguments():
    big = jnp.arange(1000.0)
    sharded = ours(X, "x")
    f = sw.jit(lambda a: (a + big.sum() + sharded * 2, big))
    y, same = f(ours(X, "x"))
    np.testing.assert_allclose(np.asarray(y), X * 3 + 499500, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(same), np.arange(1000))
    traced = f.trace(ours(X, "x"))
    assert len(traced.program.consts) == 2 and len(traced.program.invars) == 1
    assert "499" not in f.lower(ours(X, "x")).as_text()


def test_a_closed_over_array_that_is_deleted():
    held = jnp.arange(10.0)

    def shifted(a):
        return a + held

    f = sw.jit(shifted)
    f(1.0)
    held.delete()
    assert message(RuntimeError, f, 1.0) == (
        "shifted: an array that it closes over has been deleted or donated. Pass the array as an "
        "argument."
    )


def test_closed_over_numpy_arrays_and_scalars():
    table, factor = np.arange(8, dtype=np.float32), np.float32(2)
    y = sw.jit(lambda a: a[:, 0] * factor + table)(ours(X, "x"))
    assert y.sharding == sharding("x")
    np.testing.assert_allclose(np.asarray(y), X[:, 0] * 2 + np.arange(8), rtol=1e-6)


def test_nested_jit():
    calls = []

    @sw.jit
    def inner(a, scale):
        calls.append(a.shape)
        return jnp.sin(a) * scale

    @sw.jit
    def outer(a):
        return inner(a, 2.0) + inner(a * 2, 2.0) + inner(a[:4].sum(), 1.0)

    np.testing.assert_allclose(
        np.asarray(outer(X)), np.sin(X) * 2 + np.sin(2 * X) * 2 + np.sin(X[:4].sum()), atol=1e-5
    )
    assert calls == [(8, 4), ()]
    text = outer.lower(X).as_text()
    assert text.count("func.func private @inner") == 2 and text.count("call @inner(") == 2


def test_nested_jit_with_shardings():
    inner = sw.jit(lambda a: a + 1, out_shardings=sharding(None, "y"))
    y = sw.jit(lambda a: inner(a) * 2)(ours(X, "x"))
    assert y.sharding == sharding(None, "y")


def test_nested_jit_closing_over_a_traced_value():
    def outer(a):
        inner = sw.jit(lambda b: a * b)
        return inner(2.0) + inner(3.0)

    np.testing.assert_allclose(np.asarray(sw.jit(outer)(X)), X * 5, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(sw.grad(lambda a: outer(a).sum())(X)), 5, rtol=1e-6)


def test_inline_is_compiled_at_the_top_and_has_no_call_inside():
    traces = []
    inner = sw.jit(lambda a: traces.append(1) or a * 2, inline=True)
    inner(X), inner(X)
    assert len(traces) == 1
    assert "func.call" not in sw.jit(lambda a: inner(a)).lower(X).as_text()


@pytest.mark.parametrize("inline", [False, True])
def test_arguments_are_arrays_inside_whether_inline_or_not(inline):
    seen = []

    @functools.partial(sw.jit, inline=inline, static_argnames="power")
    def scaled(by, x, *, power=1):
        seen.append((by.dtype, by.shape, by.weak_type, x.dtype, type(power)))
        return by.astype(x.dtype) * x**power, x * by

    def outer(x):
        return scaled(2, x), scaled(np.float64(0.5), x, power=2)

    want = [(2 * X, 2 * X), (0.5 * X**2, 0.5 * X)]
    for way in (outer, sw.jit(outer), sw.vmap(outer), lambda x: sw.jvp(outer, (x,), (x,))[0]):
        seen.clear()
        for found, wanted in zip(way(ours(X)), want, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        assert way is not outer or seen == [
            (jnp.int32, (), True, jnp.float32, int), (jnp.float32, (), False, jnp.float32, int)
        ]  # fmt: skip
    grads = sw.grad(lambda x: scaled(3.0, x, power=2)[0].sum())(X)
    np.testing.assert_allclose(grads, 6 * X, rtol=1e-6)
    closed = sw.make_jaxpr(outer)(X)
    assert ("jit[" in str(closed)) is not inline
    closing = sw.jit(lambda y: sw.jit(lambda x: x * y, inline=inline)(y + 1))
    np.testing.assert_allclose(closing(X), X * (X + 1), rtol=1e-6)


def test_unused_and_forwarded_arguments():
    f = sw.jit(lambda a, b, c: (b, b))
    one, two = f(ours(X, "x"), ours(W, None, "y"), 1.0)
    assert one.sharding == two.sharding == sharding(None, "y")
    np.testing.assert_array_equal(np.asarray(one), W)


def test_signatures_are_those_of_the_functions():
    def f(x, *, y=2):
        return x + y

    for follow in (True, False):
        found = inspect.signature(sw.jit(f), follow_wrapped=follow)
        assert found == inspect.signature(f)
    assert not hasattr(sw.jit(max), "__signature__")  # Python does not know its signature either
