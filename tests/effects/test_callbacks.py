"""Host callbacks in programs: how often they run, their arguments, and what they may do."""

import gc
import threading
import weakref
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.runtime.compiler.callback_targets import CallbackError
from shardwise.experimental import io_callback
from tests.helpers.beside_jax import ours
from tests.helpers.callbacks import SCALAR, SECONDS, Calls, noted, scale
from tests.helpers.everyday import everyday
from tests.helpers.patience import until

# ----------------------------------------------------------------------------- values and numbers


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "uint32"])
def test_values_are_those_of_the_host(jitted: bool, dtype: str) -> None:
    x = jnp.arange(-3, 3).reshape(2, 3).astype(dtype)

    def f(x: Any) -> Any:
        return sw.pure_callback(np.flip, x, x)

    y = (sw.jit(f) if jitted else f)(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(y), np.asarray(x)[::-1, ::-1])


def test_trees_go_in_and_out() -> None:
    def host(pair: Any, *, scale: Any) -> Any:
        return {"sum": pair[0] + pair[1], "scaled": (np.asarray(pair[0]) * scale, None)}

    def f(a: Any, b: Any) -> Any:
        return sw.pure_callback(host, {"sum": a, "scaled": (a, None)}, (a, b), scale=np.float32(3))

    out = sw.jit(f)(jnp.ones(2), jnp.ones(2))
    assert sw.tree.map(np.ndarray.tolist, sw.device_get(out)) == {
        "sum": [2, 2],
        "scaled": ([3, 3], None),
    }


@pytest.mark.parametrize("shape", everyday([(8, 6), (7, 3), (1, 1), (3, 40)], 1))
@pytest.mark.parametrize("spec", [(), ("x",), (None, "y"), (("x", "y"),)])
def test_a_sharded_value_comes_whole_and_once(shape: tuple[int, ...], spec: Any) -> None:
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    seen: list[Any] = []

    def host(x: Any) -> Any:
        seen.append(np.asarray(x))
        return -seen[-1]

    y = sw.jit(lambda x: sw.pure_callback(host, x, x) * x)(ours(value, *spec))
    np.testing.assert_array_equal(np.asarray(y), -value * value)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], value)


def test_signs_of_zeros_survive_the_way_to_other_devices() -> None:
    for dtype in ("float32", "bfloat16", "float16"):
        x = ours(np.zeros(8, dtype), "x")
        y = sw.jit(lambda x: sw.pure_callback(lambda v: -np.asarray(v), x, x))(x)
        assert np.signbit(np.asarray(y, np.float32)).all()


@pytest.mark.parametrize("devices", [1, 8])
def test_calls_are_counted(devices: int) -> None:
    x = jnp.arange(8.0) if devices == 1 else ours(np.arange(8, dtype=np.float32), "x")
    calls = Calls()
    f = sw.jit(lambda x: noted(x.sum(), calls))
    for _ in range(3):
        f(x)
    sw.effects_barrier()
    assert calls == [28.0] * 3


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("unroll", [1, 2])
def test_a_scan_calls_in_each_step(devices: int, unroll: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return noted(c.sum(), calls, ordered=True) * 0 + c * 2, None

        return lax.scan(body, x, None, length=5, unroll=unroll)[0]

    for g in (f, sw.jit(f)):
        g(x)
        sw.effects_barrier()
        assert calls == [8.0, 16.0, 32.0, 64.0, 128.0]
        calls.clear()


def test_effects_stay_and_pure_calls_go() -> None:
    calls = Calls()

    def host(x: Any) -> Any:
        calls(x)
        return np.float32(0)

    def pure(x: Any) -> Any:
        sw.pure_callback(host, SCALAR, x)
        return x

    def effect(x: Any) -> Any:
        io_callback(host, SCALAR, x)
        return x

    sw.jit(pure)(1.0)
    assert not calls
    sw.jit(effect)(1.0)
    sw.jit(lambda x: sw.jit(effect)(x) + 1)(2.0)
    lax.scan(lambda c, _: (effect(c), None), jnp.float32(3), None, length=2)
    sw.effects_barrier()
    assert calls == [1.0, 2.0, 3.0, 3.0]


def test_equal_programs_of_other_functions_are_not_mixed_up() -> None:
    made = [sw.jit(lambda x, n=n: sw.pure_callback(lambda v: v + n, SCALAR, x)) for n in range(4)]
    assert [float(f(1.0)) for f in made] == [1.0, 2.0, 3.0, 4.0]


def test_a_function_lives_as_long_as_what_calls_it() -> None:
    class Owner:
        def host(self, x: Any) -> Any:
            return np.float32(1)

    owner = Owner()
    seen, bound = weakref.ref(owner), owner.host
    f = sw.jit(lambda x, host=bound: sw.pure_callback(host, SCALAR, x))
    f(1.0)
    del owner, bound
    gc.collect()
    assert seen() is not None and float(f(2.0)) == 1
    del f
    until(lambda: gc.collect() is not None and seen() is None)  # XLA's threads release it late


def test_big_operands() -> None:
    x = jnp.arange(4_000_000, dtype=np.float32)
    kept: list[Any] = []

    def host(v: Any) -> Any:
        kept.append(v)
        return np.asarray(v)[::-1]

    y = sw.jit(lambda x: sw.pure_callback(host, x, x * 2) + 1)(x)
    whole = np.arange(4_000_000, dtype=np.float32) * 2
    np.testing.assert_array_equal(np.asarray(y), whole[::-1] + 1)
    del x, y
    jnp.ones(4_000_000).block_until_ready()  # the argument stays intact when its memory is reused
    np.testing.assert_array_equal(np.asarray(kept[0]), whole)


# --------------------------------------------------------------------- computing inside a callback


def test_a_function_of_the_host_may_compute() -> None:
    def host(x: Any) -> Any:
        return sw.jit(lambda x: jnp.dot(x, x))(x) + jnp.float32(1)

    for x in (jnp.ones(1000), ours(np.ones(1000, np.float32), "x")):
        y = sw.jit(lambda x: sw.pure_callback(host, SCALAR, x))(x)
        assert float(y) == 1001


def test_it_may_not_wait_for_the_devices_that_wait_for_it() -> None:
    x = ours(np.ones(8, np.float32), "x")

    def host(_: Any) -> Any:
        return sw.jit(jnp.sum)(x)

    with pytest.raises(CallbackError) as e:
        sw.jit(lambda x: sw.pure_callback(host, SCALAR, x))(x)
    assert str(e.value).endswith(
        "it raised RuntimeError: a host callback of a program over several devices cannot run "
        "another program over several devices: the devices are waiting for the callback. Compute "
        "its values with NumPy, or in the program."
    )
    with pytest.raises(CallbackError) as b:
        sw.jit(lambda x: noted(x, lambda _: sw.effects_barrier()))(1.0)
        sw.effects_barrier()
    assert str(b.value).endswith(
        "it raised RuntimeError: effects_barrier() inside a host callback would wait for that "
        "callback itself. Call it in the code that called the program."
    )


def test_ordered_calls_inside_of_ordered_calls() -> None:
    calls = Calls()
    inner = sw.jit(lambda x: noted(x + 1, calls, ordered=True))

    def host(x: Any) -> None:
        calls(x)
        inner(x)

    sw.jit(lambda x: noted(x, host, ordered=True))(1.0)
    sw.effects_barrier()
    assert calls == [1.0, 2.0]


@pytest.mark.parametrize("devices", [1, 8])
def test_threads(devices: int) -> None:
    x = jnp.arange(8.0) if devices == 1 else ours(np.arange(8, dtype=np.float32), "x")
    f = sw.jit(lambda x, n: sw.pure_callback(lambda v, n: np.asarray(v) * n, x, x, n) + 1)
    wrong: list[Any] = []

    def work(n: int) -> None:
        for _ in range(10):
            y = np.asarray(f(x, np.float32(n)))
            if y.tolist() != (np.arange(8) * n + 1).tolist():
                wrong.append(y)

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS / 2)
    assert not wrong and not any(t.is_alive() for t in threads)


def test_flags_of_the_caller_hold_in_the_function() -> None:
    with sw.enable_x64(True):
        y = sw.jit(lambda x: sw.pure_callback(lambda v: v * 2, x, x))(np.float64(1.5))
        assert y.dtype == np.float64 and float(y) == 3


def test_io_callbacks_count_as_in_jax() -> None:
    found = []
    for library, call in ((sw, io_callback), (jax, jax_io_callback)):
        count = [0]

        def host(x: Any, count: list[int] = count) -> Any:
            count[0] += 1
            return np.float32(count[0])

        def f(x: Any, call: Any = call, host: Any = host) -> Any:
            shape = jax.ShapeDtypeStruct((), np.float32)
            return call(host, shape, x, ordered=True) + call(host, shape, x, ordered=True)

        g = library.jit(f)
        found.append([float(g(0.0)) for _ in range(3)])
    assert found[0] == found[1] == [3.0, 7.0, 11.0]


def test_programs_with_callbacks_print_readably() -> None:
    program = sw.make_jaxpr(lambda x: sw.pure_callback(scale, SCALAR, x))(1.0)
    assert str(program) == (
        "{ lambda ; a:~f32[]. let\n"
        "    b:f32[] = pure_callback[callback=scale results=(f32[],) token=False] a\n"
        "  in (b,) }"
    )


def test_effects_of_debugging_have_classes():
    def f(x):
        sw.debug.print("{}", x)
        sw.debug.print("{}", x, ordered=True)
        return x

    effects = sw.make_jaxpr(f)(1.0).effects
    assert {sw.debug.DebugEffect(), sw.debug.OrderedDebugEffect()} < effects
    assert [type(e) for e in effects if isinstance(e, sw.debug.OrderedDebugEffect)] == [
        sw.debug.OrderedDebugEffect
    ]
    assert sw.debug.DebugEffect() != sw.debug.OrderedDebugEffect()
    assert repr(sw.debug.OrderedDebugEffect()) == "OrderedDebug"
