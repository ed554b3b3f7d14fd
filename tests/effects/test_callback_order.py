"""The order in which programs call host callbacks: one by one, in loops and branches."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.experimental import io_callback
from tests.helpers.beside_jax import ours
from tests.helpers.callbacks import SCALAR, Calls, noted
from tests.helpers.errors import message


@pytest.mark.parametrize("devices", [1, 8])
def test_ordered_calls_come_in_order(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def inner(c: Any) -> Any:
        noted(c.sum() + 1, calls, ordered=True)
        return c * 2

    def f(x: Any) -> Any:
        noted(-1, calls, ordered=True)

        def body(c: Any, i: Any) -> Any:
            noted(i, calls, ordered=True)
            return sw.jit(inner)(c), io_callback(
                lambda v: (calls(v), np.asarray(v))[1], SCALAR, c.sum(), ordered=True
            )

        last, ys = lax.scan(body, x, jnp.arange(3))
        noted(ys, calls, ordered=True)
        noted(last.sum() + x.sum(), calls, ordered=True)
        return last

    expected = [-1, 0, 9, 8, 1, 17, 16, 2, 33, 32, [8, 16, 32], 72]
    g = sw.jit(f)
    for _ in range(2):
        g(x)
        g(x)
        sw.effects_barrier()
        assert calls == expected * 2
        calls.clear()
    check_program(sw.make_jaxpr(f)(jnp.ones(8)))


@pytest.mark.parametrize("devices", [1, 8])
def test_ordered_calls_in_loops_and_branches(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def even(c: Any) -> Any:
        return noted(c.sum(), calls, ordered=True) * 0 + c

    def turn(state: Any) -> Any:
        i, c = state
        c = lax.cond(i % 2 == 0, even, lambda c: c * 2, c)
        return noted(i, calls, ordered=True) + 1, c

    def f(x: Any) -> Any:
        noted(-1, calls, ordered=True)
        _, last = lax.while_loop(lambda s: s[0] < 4, turn, (0, x))
        return noted(last.sum(), calls, ordered=True)

    for _ in range(2):
        sw.jit(f)(x)
        sw.effects_barrier()
        assert calls == [-1, 8, 0, 1, 16, 2, 3, 32]
        calls.clear()


@pytest.mark.parametrize("ordered", [False, True])
def test_effects_of_a_test_happen_before_each_turn_and_after_the_last(ordered: bool) -> None:
    calls = Calls()
    for run in (sw.jit(lambda f: f(0), static_argnums=0), lambda f: f(0)):
        calls.clear()
        run(
            lambda c: lax.while_loop(
                lambda c: noted(c, calls, ordered=ordered) < 3,
                lambda c: noted(c + 10, calls, ordered=ordered) - 9,
                c,
            )
        )
        sw.effects_barrier()
        came = calls if ordered else sorted(calls)
        assert came == ([0, 10, 1, 11, 2, 12, 3] if ordered else [0, 1, 2, 3, 10, 11, 12])


def test_programs_call_in_their_order() -> None:
    calls = Calls()
    slow = sw.jit(lambda x: noted((x @ x @ x)[0, 0] * 0, calls, ordered=True))
    fast = sw.jit(lambda x: noted(x, calls, ordered=True))
    x = jnp.ones((700, 700))
    for i in range(1, 6):
        slow(x)
        fast(float(i))
    sw.effects_barrier()
    assert calls == [0, 1, 0, 2, 0, 3, 0, 4, 0, 5]


def test_ordered_calls_in_custom_derivatives() -> None:
    calls = Calls()

    @sw.custom_jvp
    def f(x: Any) -> Any:
        return noted(x, calls, ordered=True) * 2

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        noted(primals[0] + 1, calls, ordered=True)
        return primals[0] * 2, tangents[0] * 2

    assert float(sw.jit(f)(3.0)) == 6 and float(sw.jit(sw.grad(f))(3.0)) == 2
    sw.effects_barrier()
    assert calls == [3.0, 4.0]


def test_programs_that_were_traced_with_wide_types() -> None:
    """A token is added when a program is lowered, perhaps under other flags than it was traced."""

    def f(x):
        sw.debug.callback(lambda x: None, x, ordered=True)
        total = lax.fori_loop(0, 2, lambda i, c: c + 1, 2**40)
        return jnp.full((2,), 2**40), jnp.full((2,), 0.1), x.astype(jnp.float64) / 3, total

    with sw.enable_x64(True):
        traced = sw.jit(f).trace(np.float32(1))
    compiled = traced.lower().compile()
    with sw.enable_x64(True):
        whole, tenth, third, total = compiled(np.float32(1))
    assert whole.tolist() == [2**40] * 2 and tenth.tolist() == [0.1] * 2
    assert (float(third), int(total)) == (1 / 3, 2**40 + 2)


def test_ops_that_mean_more_than_their_program_are_not_replaced() -> None:
    def shown(x):
        sw.debug.callback(lambda x: None, x, ordered=True)
        return jnp.sin(x)

    composite = lax.composite(shown, "my.sine")
    assert message(NotImplementedError, lambda: sw.jit(composite)(1.0)) == (
        "[composite] does not support ordered effects in its function. Pass ordered=False, or call "
        "the host outside of it."
    )
