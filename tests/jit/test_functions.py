"""`jit`: kinds of functions; what they close over; jitted functions inside; running without `jit`."""

from __future__ import annotations

import functools
import inspect
import pickle

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base.errors import ConcretizationTypeError
from tests.helpers.beside_jax import ours, sharding
from tests.helpers.errors import message
from tests.helpers.jitted import V, X

# -- kinds of functions --


class Model:
    factor = 3.0

    @functools.partial(sw.jit, static_argnums=0)
    def scaled(self, x):
        """Doc."""
        return self.factor * x

    def __call__(self, x):
        return self.factor * x

    @staticmethod
    @sw.jit
    def doubled(x):
        return x * 2

    @classmethod
    def make(cls):
        return sw.jit(cls())


def test_what_can_be_jitted():
    def loss(x, scale):
        return (x * scale).sum()

    assert float(sw.jit(Model())(2.0)) == 6.0 and float(Model.make()(2.0)) == 6.0
    assert float(Model().scaled(2.0)) == 6.0 and float(Model.doubled(2.0)) == 4.0
    assert float(sw.jit(Model().__call__)(2.0)) == 6.0
    assert float(sw.jit(functools.partial(loss, scale=2.0))(V)) == 12.0
    assert float(sw.jit(functools.partial(loss, V))(2.0)) == 12.0
    half = functools.partial(loss, scale=2.0)
    assert float(sw.jit(half, static_argnames="scale")(V, scale=3)) == 18
    assert float(sw.jit(sw.jit(loss))(V, 2.0)) == 12.0
    assert float(sw.jit(sw.grad(sw.jit(loss), argnums=1))(V, 2.0)) == 6.0
    assert float(sw.jit(abs)(-2.0)) == 2.0 and sw.jit(jnp.sin).__name__ == "sin"
    assert sw.jit(loss).__wrapped__ is loss and sw.jit(half).__name__ == "loss"
    half.__name__ = "half"  # pyright: ignore[reportAttributeAccessIssue]
    assert sw.jit(half).__name__ == sw.jit(half).trace(V).fun_name == "half"
    assert Model.scaled.__name__ == "scaled" and Model.scaled.__doc__ == "Doc."
    power = sw.jit(static_argnames="n")(lambda x, n: x**n)
    assert float(power(2.0, n=3)) == 8.0 and float(power(2.0, 3)) == 8.0
    with pytest.raises(TypeError) as caught:
        sw.jit(i for i in ())
    assert "jit takes a function; got <generator object" in str(caught.value)


def test_libraries_recognize_them_by_the_name_of_their_class():
    for lib in (sw, jax):
        kind = type(lib.jit(np.sin))
        assert "PjitFunction" in str(kind)
        assert pickle.loads(pickle.dumps(kind)) is kind


def test_signatures_are_those_of_the_functions():
    def f(x, *, y=2):
        return x + y

    for follow in (True, False):
        found = inspect.signature(sw.jit(f), follow_wrapped=follow)
        assert found == inspect.signature(f)
    assert not hasattr(sw.jit(max), "__signature__")  # Python does not know its signature either


# -- closures --


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


def test_large_closures_are_no_text():
    big = np.arange(100_000, dtype=np.float32)
    held = jnp.asarray(big)
    for value in (big, held):
        f = sw.jit(lambda a, value=value: (a + jnp.asarray(value)).sum())
        assert len(f.lower(2.0).as_text()) < 2000
        np.testing.assert_allclose(float(f(2.0)), big.sum() + 2 * big.size, rtol=1e-5)
    inner = sw.jit(lambda a: a + held)
    assert len(sw.jit(lambda a: inner(a) + inner(a * 2)).lower(2.0).as_text()) < 3000


# -- jitted functions inside --


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


# -- without `jit`, and while tracing --


def test_disable_jit():
    seen = []
    f = sw.jit(lambda a: seen.append(type(a)) or (a * 2 if float(a) > 0 else a))
    g = sw.jit(lambda a: seen.append(type(a)) or a)
    with sw.disable_jit():
        assert float(f(2.0)) == 4.0
    with sw.disable_jit(), sw.disable_jit(False), pytest.raises(ConcretizationTypeError):
        f(2.0)
    del seen[:]
    g(jnp.asarray(X))
    with sw.disable_jit():
        g(jnp.asarray(X)), g(jnp.asarray(X))
    g(jnp.asarray(X))
    assert len(seen) == 3 and seen[0] is not seen[1] is seen[2]


def test_ensure_compile_time_eval():
    seen = []

    @sw.jit
    def f(a):
        with sw.ensure_compile_time_eval():
            best = int(jnp.argmax(jnp.array([1.0, 5.0, 2.0])))
            seen.append(best)
        return a[best]

    assert float(f(V)) == 1.0 and seen == [1]
    assert float(sw.grad(lambda a: f(a))(V)[1]) == 1.0


def test_traced_values_stay_traced_at_compile_time():
    def both(library, n):
        def f(a):
            with library.ensure_compile_time_eval():
                twice = library.jit(lambda b: b * 2)(n.arange(3))
                last, _ = library.lax.scan(lambda c, x: (c + x, c), 0, twice)
                steps = int(last) + int(n.zeros(3).at[1].set(4.0)[1])  # concrete
                a = n.where(a > 1, a, library.jit(n.sin)(a)).at[0].add(1.0)  # traced
                rows = library.vmap(lambda x: (x * a).sum())(n.ones(2))
            return (a * steps).sum() + rows.sum()

        out = f(n.asarray(V)), library.jit(f)(V), library.vmap(f)(X)
        return *out, library.jit(library.grad(f))(V), library.vmap(library.grad(f))(X)

    for mine, jaxs in zip(both(sw, jnp), both(jax, jax.numpy), strict=True):
        np.testing.assert_allclose(mine, jaxs, rtol=1e-5)


@pytest.mark.parametrize("inline", [*sw.Inline])
def test_when_calls_are_inlined(inline):
    inner = sw.jit(lambda a: jnp.sin(a) * 2, inline=inline)
    outer = sw.jit(lambda a: inner(a) + 1)
    is_early = inline is sw.Inline.JAX_EARLY
    assert ("jit[" in str(outer.trace(V).jaxpr)) is not is_early
    text = outer.lower(V).as_text()
    assert ("call @" in text) is (inline not in (sw.Inline.JAX_EARLY, sw.Inline.JAX_LATE))
    value, grads = sw.jit(sw.value_and_grad(lambda a: sw.vmap(outer)(a).sum()))(V)
    np.testing.assert_allclose([value, *grads], [(np.sin(V) * 2 + 1).sum(), *np.cos(V) * 2], 1e-6)


def test_static_methods_are_not_functions():
    for transform in (sw.jit, sw.grad, sw.vmap):
        found = message(TypeError, transform, staticmethod(lambda x: x))
        assert "takes a function; got a static method" in found
