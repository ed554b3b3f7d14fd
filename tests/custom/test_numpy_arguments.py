"""User rules receive arrays, whatever a call was given; a NumPy float64 does not propagate."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.types.dtypes import float0

ARGUMENTS = {
    "NumPy's scalars": (np.float64(2), np.float64(3)),
    "0-d": (np.array(2.0), np.array(3.0)),
    "NumPy's arrays": (np.arange(1.0, 4), np.arange(2.0, 5)),
    "mixed": (snp.arange(1.0, 4), np.arange(2.0, 5)),
    "Python": (2.0, 3.0),
    "in x": (np.arange(3, dtype=np.float16), np.ones(3, np.float16)),
}


def made(kind):
    """A product with a rule, and the values that its functions received."""
    got = []

    def seen(*xs):
        got.extend(xs)
        return xs

    def product(x, y):
        seen(x, y)
        return x * y

    if kind == "custom_jvp":
        f = sw.custom_jvp(product)
        f.defjvp(lambda p, t: (lambda x, y, s, r: (x * y, x * r + y * s))(*seen(*p, *t)))
    else:
        f = sw.custom_vjp(product)
        f.defvjp(
            lambda x, y: (lambda a, b: (a * b, (a, b)))(*seen(x, y)),
            lambda res, ct: (lambda x, y, c: (c * y, c * x))(*seen(*res, ct)),
        )
    return f, got


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_rules_see_arrays(kind, name):
    f, got = made(kind)
    x, y = ARGUMENTS[name]

    def loss(a, b):
        return f(a, b).sum() if np.ndim(a) else f(a, b)

    uses = {
        "grad": lambda: sw.grad(loss, (0, 1))(x, y),
        "of one": lambda: [sw.grad(loss)(x, y)],
        "value": lambda: sw.value_and_grad(loss)(x, y),
        "vjp": lambda: [sw.vjp(f, x, y)[0]],
        "pulled": lambda: sw.vjp(f, x, y)[1](np.ones(np.shape(x), snp.asarray(x).dtype)),
        "closed over": lambda: [sw.grad(lambda a: loss(a, y))(x)],
        "jit": lambda: sw.jit(sw.grad(loss, (0, 1)))(x, y),
        "vmap": lambda: [sw.vmap(f, (None, None), axis_size=2, out_axes=None)(x, y)],
    }
    if kind == "custom_jvp":
        uses["jvp"] = lambda: sw.jvp(f, (x, y), (np.ones_like(x), np.ones_like(y)))
        uses["one tangent"] = lambda: sw.jvp(lambda a: f(a, y), (x,), (np.ones_like(x),))
    for use, run in uses.items():
        got.clear()
        results = run()
        assert got and all(isinstance(v, sw.Array) for v in got), use
        for r in results:
            assert isinstance(r, sw.Array) and r.dtype == snp.asarray(x).dtype, use
    expected = np.asarray(y, np.float32) * np.ones_like(x, np.float32)
    np.testing.assert_allclose(uses["grad"]()[0], expected)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_a_call_without_a_transform(kind):
    f, got = made(kind)
    for x, y in ARGUMENTS.values():
        got.clear()
        out = f(x, y)
        if type(x) is float:  # Python numbers stay unchanged: sizes, settings
            assert got == [2.0, 3.0] and type(got[0]) is float
            assert out == 6.0 and isinstance(out, sw.Array) and out.weak_type
            continue
        assert all(isinstance(v, sw.Array) for v in got) and isinstance(out, sw.Array)
        assert out.dtype == snp.asarray(x).dtype
        np.testing.assert_array_equal(out, np.asarray(x, np.float32) * np.asarray(y, np.float32))
    out = f(y=np.ones(3), x=np.ones(3))
    assert isinstance(out, sw.Array) and out.dtype == np.float32


def test_trees_and_settings():
    got = []

    def fun(params, mode, n):
        got.append((params, mode, n))
        return {"out": np.float64(2), "all": [params["w"] * n, mode]}

    f = sw.custom_vjp(fun, nondiff_argnums=(1, 2))
    f.defvjp(lambda p, mode, n: (p["w"] * n, None), lambda mode, n, res, ct: (None,))
    table = np.arange(3.0)
    out = f({"w": np.ones(3), "b": None}, "slow", table)
    ((params, mode, n),) = got
    assert isinstance(params["w"], sw.Array) and params["b"] is None
    assert mode == "slow" and n is table
    assert isinstance(out["out"], sw.Array) and out["all"][1] == "slow"


def test_rules_that_give_numpy():
    @sw.custom_vjp
    def f(x):
        return x.sum()

    f.defvjp(lambda x: (x.sum(), x.shape[0]), lambda n, ct: (np.ones(int(n)) * 2,))
    g = sw.grad(f)(snp.arange(3.0))
    assert isinstance(g, sw.Array) and g.dtype == np.float32
    np.testing.assert_array_equal(g, [2, 2, 2])


def test_integers_have_float0_tangents():
    got = []

    @sw.custom_jvp
    def f(x, n):
        return x * n

    @f.defjvp
    def rule(primals, tangents):
        got.append((primals, tangents))
        return primals[0] * primals[1], primals[1] * tangents[0]

    np.testing.assert_array_equal(sw.grad(lambda x: f(x, np.int64(3)))(2.0), 3.0)
    ((_, n), (_, t)) = got[0]
    assert isinstance(n, sw.Array) and n.dtype == np.int32 and t.dtype == float0


def test_custom_vmap():
    got = []

    @sw.custom_batching.custom_vmap
    def f(x, y):
        return x * y

    @f.def_vmap
    def rule(size, batched, x, y):
        got.extend([x, y])
        return x * y, True

    out = sw.vmap(f, (0, None))(np.arange(3.0), np.float64(2))
    assert all(isinstance(v, sw.Array) for v in got) and out.dtype == np.float32
    np.testing.assert_array_equal(out, [0, 2, 4])
