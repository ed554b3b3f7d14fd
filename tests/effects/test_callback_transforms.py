"""Host callbacks under vmap and derivatives, and over explicit axes."""

import re
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import io_callback
from tests.helpers.callbacks import SCALAR, Calls, message, noted, scale


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_vmap_calls_for_each_element(jitted: bool, ordered: bool) -> None:
    calls = Calls()

    def f(x: Any, y: Any) -> Any:
        return noted(x * y, calls, ordered=ordered)

    g = sw.vmap(sw.vmap(f, (0, None)), (None, 0))
    (sw.jit(g) if jitted else g)(jnp.arange(3.0), jnp.arange(1.0, 3.0))
    sw.effects_barrier()
    assert calls == [0, 1, 2, 0, 2, 4]


@pytest.mark.parametrize(
    "method",
    ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"],
)
@pytest.mark.parametrize("jitted", [False, True])
def test_vmap_methods_as_in_jax(method: str, jitted: bool) -> None:
    found = []
    for library, numpy in ((sw, jnp), (jax, jax.numpy)):
        shapes: list[Any] = []

        def host(a: Any, b: Any, shapes: list[Any] = shapes) -> Any:
            shapes.append((a.shape, b.shape))
            return np.asarray(a) + np.asarray(b)

        def f(a: Any, b: Any, library: Any = library, host: Any = host) -> Any:
            return library.pure_callback(host, a, a, b, vmap_method=method)

        g = library.vmap(f, in_axes=(1, None))
        out = (library.jit(g) if jitted else g)(numpy.arange(6.0).reshape(2, 3), numpy.ones(2))
        found.append((shapes, np.asarray(out).tolist()))
    assert found[0] == found[1]


def test_derivatives_see_primals_only() -> None:
    calls = Calls()

    def f(x: Any) -> Any:
        return jnp.sin(noted(x, calls))

    for g in (sw.grad(f), sw.jit(sw.grad(f)), sw.grad(sw.jit(f)), sw.grad(sw.grad(f))):
        g(1.0)
        sw.effects_barrier()
        assert calls == [1.0]
        calls.clear()
    sw.jvp(f, (1.0,), (1.0,))
    lax.scan(lambda c, _: (c, sw.grad(f)(c)), 1.0, None, length=2)
    sw.effects_barrier()
    assert calls == [1.0] * 3


def test_a_derivative_given_by_custom_jvp() -> None:
    @sw.custom_jvp
    def sine(x: Any) -> Any:
        return sw.pure_callback(np.sin, SCALAR, x)

    sine.defjvp(lambda p, t: (sine(*p), jnp.cos(p[0]) * t[0]))
    assert float(sw.jit(sw.grad(sine))(0.5)) == pytest.approx(np.cos(0.5))


@pytest.mark.parametrize("derive", [sw.grad, lambda f: lambda x: sw.linear_transpose(f, x)(x)])
def test_what_has_no_derivative_says_what_to_do(derive: Any) -> None:
    for call, kind in ((sw.pure_callback, "pure_callback"), (io_callback, "io_callback")):
        with pytest.raises(ValueError) as e:
            derive(lambda x, call=call: call(scale, SCALAR, x))(1.0)
        assert re.fullmatch(
            message(__file__, kind, "scale", "<lambda>")
            + re.escape(
                "it has no derivative, as the function is opaque. Define "
                "one: wrap the call in a function with `custom_jvp` or `custom_vjp`. Or use "
                "`shardwise.lax.stop_gradient` on its arguments."
            ),
            str(e.value),
        )
        g = sw.grad(lambda x, call=call: call(scale, SCALAR, lax.stop_gradient(x)) * x)
        assert float(g(3.0)) == 6


def test_what_vmap_refuses() -> None:
    with pytest.raises(NotImplementedError) as e:
        sw.vmap(lambda x: sw.pure_callback(scale, SCALAR, x))(jnp.ones(2))
    assert re.fullmatch(
        message(__file__, "pure_callback", "scale", "<lambda>")
        + re.escape(
            "it cannot be used under vmap, as vmap_method is None. Pass one of 'sequential', "
            "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized' to "
            "`pure_callback`: 'sequential' calls the function for each element; with the others "
            "it gets whole batches."
        ),
        str(e.value),
    )
    with pytest.raises(ValueError) as v:
        sw.vmap(lambda x: io_callback(scale, SCALAR, x, ordered=True))(jnp.ones(2))
    assert re.fullmatch(
        message(__file__, "io_callback", "scale", "<lambda>")
        + re.escape(
            "it is ordered, and calls for the elements of a batch have no order: it cannot be "
            "used under vmap. Use ordered=False, or `shardwise.lax.map` in place of vmap."
        ),
        str(v.value),
    )


def test_explicit_axes() -> None:
    x = sw.device_put(
        np.arange(8, dtype=np.float32), sw.NamedSharding(sw.make_mesh((8,), ("x",)), sw.P("x"))
    )
    calls = Calls()

    def f(x: Any) -> Any:
        noted(x, calls, ordered=True)
        y = sw.pure_callback(scale, SCALAR.__class__((8,), np.float32), x)
        assert sw.typeof(y).str_short() == "float32[8]"
        return lax.scan(lambda c, _: (noted(c, calls, ordered=True) * 2, None), x, None, 2)[0], y

    last, y = sw.jit(f)(x)
    assert sw.typeof(last).str_short() == "float32[8@x]"
    assert np.asarray(y).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    sw.effects_barrier()
    whole = np.arange(8)
    assert calls == [whole.tolist(), whole.tolist(), (whole * 2).tolist()]
