"""`jit`: values, and the shardings of results, match jax."""

from __future__ import annotations

import functools

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.beside_jax import MESH, assert_same, ours, sharding, theirs
from tests.helpers.everyday import everyday
from tests.helpers.jitted import W, X


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


def test_eager_operations_run_where_their_operands_are():
    x, w = ours(X, "x", "y"), ours(X.T, "y")
    other, weights = theirs(X, "x", "y"), theirs(X.T, "y")
    assert_same(x @ w, other @ weights)
    assert_same(jnp.sin(x).T + 1, jax.numpy.sin(other).T + 1)
    assert_same((x * 2).sum(1), (other * 2).sum(1))


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.astype("float16"),
        lambda x: jnp.asarray(x, "int32"),
        lambda x: x.real,
        lambda x: sw.lax.convert_element_type(x, "bfloat16"),
        lambda x: jnp.array(x, dtype=bool),
    ],
)
def test_conversions_move_nothing(convert):
    for x in (ours(X, "x", "y"), sw.device_put(X, sw.devices()[3])):
        y = convert(x)
        assert y.sharding is x.sharding and y.committed
        text = sw.jit(convert).lower(x).compile().as_text()
        assert not any(c in text for c in ("all-gather", "all-to-all", "collective-permute"))


def test_uneven_arrays_are_arguments_and_results_as_all_others():
    x = ours(np.arange(10.0, dtype=np.float32), "x")
    y = sw.jit(lambda a: a * 2 + 1, in_shardings=sharding("x"), out_shardings=sharding("x"))(x)
    assert y.shape == (10,) and y.sharding is sharding("x")
    np.testing.assert_array_equal(np.asarray(y), np.arange(10) * 2 + 1)
