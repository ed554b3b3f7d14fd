"""Host callbacks that fail: what is raised, where, and what continues."""

import re
import traceback
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.runtime.compiler.callback_targets import CallbackError
from shardwise.experimental import io_callback
from tests.helpers.beside_jax import ours
from tests.helpers.callbacks import SCALAR, Calls, message, noted, scale
from tests.helpers.processes import python


def fail(x: Any) -> None:
    raise ValueError("no such value")


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("kind", ["debug.callback", "pure_callback", "io_callback"])
def test_what_a_function_raises_is_raised(devices: int, kind: str) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")

    def f(x: Any) -> Any:
        if kind == "debug.callback":
            sw.debug.callback(fail, x)
            return x
        return (sw.pure_callback if kind == "pure_callback" else io_callback)(fail, x, x)

    with pytest.raises(CallbackError) as e:
        sw.jit(f)(x)
        sw.effects_barrier()
    text = message(__file__, kind, "fail", "f") + "it raised ValueError: no such value"
    assert re.fullmatch(text, str(e.value))
    assert isinstance(e.value.__cause__, ValueError)
    assert traceback.extract_tb(e.value.__cause__.__traceback__)[-1].name == "fail"
    assert float(sw.jit(jnp.sum)(x)) == 8  # the devices continue


def test_eager_calls_raise_what_the_function_raised() -> None:
    for call in (lambda: noted(1.0, fail), lambda: sw.pure_callback(fail, SCALAR, 1.0)):
        with pytest.raises(ValueError, match=r"^no such value$"):
            call()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_loops_that_wait_for_a_function_that_failed_end(dtype: str, first: int) -> None:
    kind = sw.ShapeDtypeStruct((), np.dtype(dtype))

    def f(x: Any) -> Any:
        def turn(c: Any) -> Any:
            return io_callback(fail, kind, c[1].sum()), c[1] + 1

        start = jnp.asarray(first, kind.dtype)
        return lax.while_loop(lambda c: c[0] == start, turn, (start, x))

    x = ours(np.ones(8, np.float32), "x")
    with pytest.raises(CallbackError, match="no such value"):
        sw.jit(f)(x)
    with pytest.raises(CallbackError, match="no such value"):
        sw.jit(
            lambda x: lax.while_loop(
                lambda i: i < 1000,
                lambda i: io_callback(fail, sw.ShapeDtypeStruct((), np.int32), i),
                x.astype("int32").sum(),
            )
        )(x)
    assert float(sw.jit(jnp.sum)(x)) == 8


@pytest.mark.parametrize("devices", [1, 8])
def test_order_survives_failures(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def host(i: Any, s: Any) -> None:
        if i == 2:
            raise ValueError("no such value")
        calls(i)

    f = sw.jit(lambda i, x: sw.debug.callback(host, i, x.sum(), ordered=True))
    failures = 0
    for i in range(6):
        try:
            f(np.int32(i), x)
        except CallbackError:
            failures += 1
    try:
        sw.effects_barrier()
    except CallbackError:
        failures += 1
    assert calls == [0, 1, 3, 4, 5] and failures == 1


def test_a_failure_is_seen_when_the_program_runs_later() -> None:
    x = jnp.ones((900, 900))
    y = sw.jit(lambda x: io_callback(fail, SCALAR, (x @ x @ x @ x)[0, 0]))
    with pytest.raises(RuntimeError, match=r"fail, called at .*no such value"):
        y(x).block_until_ready()
    try:
        sw.effects_barrier()
    except CallbackError as error:
        assert "no such value" in str(error)


def test_calls_happen_and_failures_show_before_the_process_ends() -> None:
    code = (
        "import shardwise as sw, shardwise.numpy as jnp\n"
        "x = jnp.ones((700, 700))\n"
        "def fail(x): raise ValueError('no such value')\n"
        "sw.jit(lambda x: sw.debug.print('{}', (x @ x)[0, 0]))(x)\n"
        "sw.jit(lambda x: sw.debug.callback(fail, (x @ x @ x)[0, 0]))(x)\n"
    )
    found = python(code)
    assert found.stdout == "700.0\n"
    assert "no such value" in found.stderr


@pytest.mark.parametrize("devices", [1, 8])
def test_after_a_failure_no_more_calls_are_made(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def host(i: Any) -> None:
        calls(i)
        if i == 2:
            raise SystemExit

    def f(x: Any) -> Any:
        return lax.scan(
            lambda c, i: (noted(c, lambda _: None), noted(i, host, ordered=True)), x, jnp.arange(5)
        )

    with pytest.raises(CallbackError, match="it raised SystemExit"):
        sw.jit(f)(x)
        sw.effects_barrier()
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    "result, text",
    [
        (
            np.zeros(3, np.float32),
            "the function returned f32[3]; result_shape_dtypes specifies f32[].",
        ),
        (np.int32(1), "the function returned i32[]; result_shape_dtypes specifies f32[]."),
        (1j, "the function returned c128[]; result_shape_dtypes specifies f32[]."),
        (
            (1.0, 2.0),
            "the function returned the pytree (*, *); result_shape_dtypes is *. They must have "
            "equally many leaves.",
        ),
    ],
)
@pytest.mark.parametrize("jitted", [False, True])
def test_results_are_checked(result: Any, text: str, jitted: bool) -> None:
    def give(x: Any) -> Any:
        return result

    def f(x: Any) -> Any:
        return sw.pure_callback(give, SCALAR, x)

    with pytest.raises(CallbackError if jitted else TypeError) as e:
        (sw.jit(f) if jitted else f)(1.0)
        sw.effects_barrier()
    begin = message(__file__, "pure_callback", "give", "f")
    assert re.fullmatch(begin + re.escape(text), str(e.value))


@pytest.mark.parametrize("result", [2, 2.0, np.float64(2), np.float32(2), np.array(2.0), True])
def test_results_that_fit_are_taken(result: Any) -> None:
    y = sw.jit(lambda x: sw.pure_callback(lambda v: result, SCALAR, x))(1.0)
    assert y.dtype == np.float32 and float(y) == float(result)


def test_arguments_are_checked() -> None:
    def refused(
        kind: Any, text: str, *args: Any, call: Any = sw.pure_callback, **named: Any
    ) -> None:
        with pytest.raises(kind) as e:
            call(*args, **named)
        assert str(e.value) == text

    refused(
        TypeError,
        "pure_callback takes a function as its first argument; got 3 of type int.",
        3,
        SCALAR,
    )
    refused(
        TypeError,
        "debug.callback takes a function as its first argument; got 3 of type int.",
        3,
        call=sw.debug.callback,
    )
    refused(
        TypeError,
        "pure_callback of scale: arguments must be pytrees of arrays and scalars; "
        "got 'text' of type str. Bind others with functools.partial.",
        scale,
        SCALAR,
        "text",
    )
    refused(
        TypeError,
        "pure_callback of scale: result_shape_dtypes must be a pytree of objects "
        "with a shape and a dtype; got 1.0 of type float. Use "
        "`ShapeDtypeStruct`.",
        scale,
        1.0,
        1.0,
    )
    refused(
        ValueError,
        "io_callback of scale: result_shape_dtypes requests float64, but 64-bit "
        "types are off. Request float32, or set the flag enable_x64.",
        scale,
        np.zeros(()),
        call=io_callback,
    )
    refused(
        ValueError,
        "pure_callback: vmap_method must be None or one of 'sequential', "
        "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized'; got "
        "'all'.",
        scale,
        SCALAR,
        1.0,
        vmap_method="all",
    )
    refused(
        NotImplementedError,
        "pure_callback: sharding must be None or a SingleDeviceSharding, "
        "as one device makes the call; got 3.",
        scale,
        SCALAR,
        1.0,
        sharding=3,
    )
