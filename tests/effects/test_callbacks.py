"""Functions of the host in programs: how often, in which order, with what, and what fails."""

import faulthandler
import gc
import re
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback as jax_io_callback

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise._src.runtime.callbacks import CallbackError
from shardwise.experimental import io_callback
from tests.helpers.beside_jax import ours, theirs

pytestmark = pytest.mark.turns(2)

SCALAR = sw.ShapeDtypeStruct((), np.float32)
SECONDS = 60


@pytest.fixture(autouse=True)
def ends_in_time() -> Iterator[None]:
    """What hangs is shown and ended; and no failure is left for the next test."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    yield
    sw.effects_barrier()
    faulthandler.cancel_dump_traceback_later()


class Calls(list[Any]):
    """A function of the host that notes what it is called with."""

    def __call__(self, *args: Any) -> None:
        self.append(args[0].item() if np.shape(args[0]) == () else np.asarray(args[0]).tolist())


def noted(x: Any, calls: Any, **options: Any) -> Any:
    sw.debug.callback(calls, x, **options)
    return x


def scale(x: Any) -> Any:
    return np.asarray(x) * 2


def fail(x: Any) -> None:
    raise ValueError("no such value")


def here() -> str:
    return re.escape(__file__)


def message(kind: str, fun: str, where: str) -> str:
    return rf"{kind} of {fun}, called at {here()}:\d+ \({where}\): "


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
        "sum": [2, 2], "scaled": ([3, 3], None)
    }


@pytest.mark.parametrize("shape", [(8, 6), (7, 3), (1, 1), (3, 40)])
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
    deadline = time.monotonic() + 5
    while seen() is not None and time.monotonic() < deadline:  # XLA's threads let go of it late
        gc.collect()
    assert seen() is None


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
    jnp.ones(4_000_000).block_until_ready()  # what was given stays whole when its memory is reused
    np.testing.assert_array_equal(np.asarray(kept[0]), whole)


# ----------------------------------------------------------------------------------------- order


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
        run(lambda c: lax.while_loop(
            lambda c: noted(c, calls, ordered=ordered) < 3,
            lambda c: noted(c + 10, calls, ordered=ordered) - 9, c,
        ))
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


# ------------------------------------------------------------------------------------ transforms


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


@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims",
                                    "broadcast_all", "legacy_vectorized"])
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


def test_what_has_no_derivative_says_what_to_do() -> None:
    for call, kind in ((sw.pure_callback, "pure_callback"), (io_callback, "io_callback")):
        with pytest.raises(ValueError) as e:
            sw.grad(lambda x, call=call: call(scale, SCALAR, x))(1.0)
        assert re.fullmatch(
            message(kind, "scale", "<lambda>")
            + re.escape(
                "it has no derivative, as nothing is known of what the function computes. Give it "
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
        message("pure_callback", "scale", "<lambda>")
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
        message("io_callback", "scale", "<lambda>")
        + re.escape(
            "it is ordered, and calls for the elements of a batch have no order: it cannot be "
            "used under vmap. Use ordered=False, or `shardwise.lax.map` in place of vmap."
        ),
        str(v.value),
    )


def test_explicit_axes() -> None:
    x = sw.device_put(np.arange(8, dtype=np.float32),
                      sw.NamedSharding(sw.make_mesh((8,), ("x",)), sw.P("x")))
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


# ------------------------------------------------------------------------------------- printing


FORMATS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("{} {!r} {0}".replace("{} {!r}", "{0} {0!r}"), (np.arange(3.0, dtype=np.float32),), {}),
    ("{:.3f} {x:5.1f}|{n:>4}|{s!r}", (2.0,), {"x": 1.25, "n": 7, "s": "text"}),
    ("{a[k]} {b.shape} {c}", (), {"a": {"k": 1}, "b": np.ones((2, 3), np.int8), "c": (1, [2.5])}),
    ("{}", (np.array([1e-9, 1.0, np.nan, np.inf], np.float32),), {}),
    ("{} {}", (True, 3 + 4j), {}),
    ("{}", (np.arange(2000),), {}),
    ("{}", (None,), {}),
    ("{:>8}|{:<8}|", ("left", "right"), {}),
]


@pytest.mark.parametrize("fmt, args, kwargs", FORMATS)
@pytest.mark.parametrize("jitted", [False, True])
def test_prints_as_jax_does(
    fmt: str, args: Any, kwargs: Any, jitted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for library in (sw, jax):
        held = [a for a in args if not isinstance(a, str)]

        def f(*held: Any, library: Any = library) -> None:
            given = iter(held)
            mixed = [a if isinstance(a, str) else next(given) for a in args]
            library.debug.print(fmt, *mixed, **kwargs)

        (library.jit(f) if jitted else f)(*held)
        library.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].endswith("\n")


def test_prints_of_loops_and_batches_as_jax(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for library in (sw, jax):
        def f(x: Any, library: Any = library) -> Any:
            library.debug.print("in {} {x}", x, x=x * 2, ordered=True)
            return x * 2

        def loop(x: Any, library: Any = library, f: Any = f) -> Any:
            body = lambda c, _: (library.jit(f)(c), None)  # noqa: E731
            return library.lax.scan(body, x, None, length=3)[0]

        library.jit(loop)(1.0)
        library.vmap(f)(np.arange(3.0, dtype=np.float32))
        library.grad(lambda x, f=f: f(x) ** 2)(2.0)
        library.effects_barrier()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") == 7


def test_a_sharded_array_is_printed_whole_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    value = np.arange(8.0, dtype=np.float32)
    sw.jit(lambda x: sw.debug.print("x = {}", x))(ours(value, "x"))
    sw.effects_barrier()
    mine = capsys.readouterr().out
    jax.jit(lambda x: jax.debug.print("x = {}", x))(theirs(value, "x"))
    jax.effects_barrier()
    assert mine == capsys.readouterr().out == "x = [0. 1. 2. 3. 4. 5. 6. 7.]\n"
    sw.jit(lambda x: sw.debug.print("{}", x))(ours(value[:7], "x"))
    assert capsys.readouterr().out == "[0. 1. 2. 3. 4. 5. 6.]\n"


def test_each_device_prints_its_part(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[Any] = []
    x = ours(np.arange(8.0, dtype=np.float32), ("x", "y"))
    sw.jit(lambda x: sw.debug.print("part {}", x, partitioned=True))(x)
    sw.effects_barrier()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == [f"part [{i}.]" for i in range(8)]
    x = ours(np.ones((7, 8), np.float32), "x", "y")
    sw.jit(lambda x: sw.debug.callback(lambda v: calls.append(v.shape), x, partitioned=True))(x)
    assert calls == [(7, 4)] * 8  # no padding is shown


def test_print_options_are_those_of_the_caller(capsys: pytest.CaptureFixture[str]) -> None:
    f = sw.jit(lambda x: sw.debug.print("{}", x))
    with np.printoptions(precision=2):
        f(np.array([1.23456], np.float32))
    sw.effects_barrier()
    assert capsys.readouterr().out == "[1.23]\n"


def test_doubled_braces_are_braces(capsys: pytest.CaptureFixture[str]) -> None:
    sw.jit(lambda x: sw.debug.print("{{x}} is {}", x))(1.5)
    sw.effects_barrier()
    assert capsys.readouterr().out == "{x} is 1.5\n"


def test_keys_are_shown_by_their_integers() -> None:
    calls = Calls()
    sw.jit(lambda k: noted(k, calls))(sw.random.key(3))
    sw.effects_barrier()
    assert calls == [[0, 3]]


@pytest.mark.parametrize("jitted", [False, True])
def test_logs(jitted: bool, caplog: pytest.LogCaptureFixture) -> None:
    def f(x: Any) -> None:
        sw.debug.log("x = {:.2f} {y}", x, y="text")
        sw.debug.log(ordered=True)("then {}", x)

    with caplog.at_level("INFO", "shardwise.debug"):
        (sw.jit(f) if jitted else f)(np.float32(1.234))
        sw.effects_barrier()
    assert [(r.name, r.levelname) for r in caplog.records] == [("shardwise.debug", "INFO")] * 2
    assert sorted(caplog.messages) == ["then 1.2339999675750732", "x = 1.23 text"]
    with pytest.raises(TypeError) as e:
        sw.debug.log(x=1)
    assert str(e.value) == "debug.log: there are arguments, but no format for them."


@pytest.mark.parametrize(
    "fmt, args, kwargs, kind, text",
    [
        ("{} {}", (1,), {}, IndexError, "debug.print: the format '{} {}' asks for argument number "
         "1, but was given 1 positional argument and no names."),
        ("{y}", (1,), {"x": 2}, KeyError, "\"debug.print: the format '{y}' asks for 'y', but was "
         "given 1 positional argument and the names x.\""),
        ("{}", (1, 2), {"k": 1}, ValueError, "debug.print: the format '{}' does not use the "
         "arguments 1, 'k'. Give it a field for each; an f-string would have been formatted before "
         "the call."),
        ("{", (), {}, ValueError, "debug.print: the format '{': Single '{' encountered in format "
         "string."),
        (1.0, (), {}, TypeError, "debug.print takes a format string first; got 1.0 of type float. "
         'Write `debug.print("{}", x)`.'),
    ],
)
def test_bad_formats_are_refused_at_once(
    fmt: Any, args: Any, kwargs: Any, kind: Any, text: str
) -> None:
    with pytest.raises(kind) as e:
        sw.jit(lambda: sw.debug.print(fmt, *args, **kwargs))()
    assert str(e.value) == text


# -------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("kind", ["debug.callback", "pure_callback", "io_callback"])
def test_what_a_function_raises_is_raised(devices: int, kind: str) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")

    def f(x: Any) -> Any:
        if kind == "debug.callback":
            return noted(x, fail)
        return (sw.pure_callback if kind == "pure_callback" else io_callback)(fail, x, x)

    with pytest.raises(CallbackError) as e:
        sw.jit(f)(x)
        sw.effects_barrier()
    where = "noted" if kind == "debug.callback" else "f"
    text = message(kind, "fail", where) + "it raised ValueError: no such value"
    assert re.fullmatch(text, str(e.value))
    assert isinstance(e.value.__cause__, ValueError)
    assert traceback.extract_tb(e.value.__cause__.__traceback__)[-1].name == "fail"
    assert float(sw.jit(jnp.sum)(x)) == 8  # the devices go on


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
        sw.jit(lambda x: lax.while_loop(
            lambda i: i < 1000, lambda i: io_callback(fail, sw.ShapeDtypeStruct((), np.int32), i),
            x.astype("int32").sum()))(x)
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
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                           timeout=SECONDS, check=False)
    assert found.stdout == "700.0\n"
    assert "no such value" in found.stderr


@pytest.mark.parametrize("devices", [1, 8])
def test_after_a_failure_no_more_calls_are_made(devices: int) -> None:
    x = jnp.ones(8) if devices == 1 else ours(np.ones(8, np.float32), "x")
    calls = Calls()

    def host(i: Any) -> None:
        calls(i)
        if i == 2:
            raise KeyboardInterrupt

    def f(x: Any) -> Any:
        return lax.scan(lambda c, i: (noted(c, lambda _: None), noted(i, host, ordered=True)), x,
                        jnp.arange(5))

    with pytest.raises(CallbackError, match="it raised KeyboardInterrupt"):
        sw.jit(f)(x)
        sw.effects_barrier()
    assert calls == [0, 1, 2]


@pytest.mark.parametrize(
    "result, text",
    [
        (np.zeros(3, np.float32), "the function returned f32[3]; result_shape_dtypes says f32[]."),
        (np.int32(1), "the function returned i32[]; result_shape_dtypes says f32[]."),
        (1j, "the function returned c128[]; result_shape_dtypes says f32[]."),
        ((1.0, 2.0), "the function returned the tree (*, *); result_shape_dtypes is *. Return what "
         "it says."),
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
    assert re.fullmatch(message("pure_callback", "give", "f") + re.escape(text), str(e.value))


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

    refused(TypeError, "pure_callback takes a function first; got 3 of type int.", 3, SCALAR)
    refused(TypeError, "debug.callback takes a function first; got 3 of type int.", 3,
            call=sw.debug.callback)
    refused(TypeError, "pure_callback of scale: arguments are arrays and scalars, in pytrees; got "
            "'text' of type str. Bind others with functools.partial.", scale, SCALAR, "text")
    refused(TypeError, "pure_callback of scale: result_shape_dtypes is a tree of what has a shape "
            "and a dtype; got 1.0 of type float. Use `ShapeDtypeStruct`.", scale, 1.0, 1.0)
    refused(ValueError, "io_callback of scale: result_shape_dtypes asks for float64, but 64-bit "
            "types are off. Ask for float32, or set the flag enable_x64.", scale, np.zeros(()),
            call=io_callback)
    refused(ValueError, "pure_callback: vmap_method must be None or one of 'sequential', "
            "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized'; got "
            "'all'.", scale, SCALAR, 1.0, vmap_method="all")
    refused(NotImplementedError, "pure_callback: sharding must be None or a SingleDeviceSharding, "
            "as one device makes the call; got 3.", scale, SCALAR, 1.0, sharding=3)


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
        "it raised RuntimeError: a function that a program over several devices calls on the host "
        "cannot run another program over several devices: they are waiting for the function. Fetch "
        "the values that it needs with NumPy, or compute them in the program."
    )
    with pytest.raises(CallbackError) as b:
        sw.jit(lambda x: noted(x, lambda _: sw.effects_barrier()))(1.0)
        sw.effects_barrier()
    assert str(b.value).endswith(
        "it raised RuntimeError: effects_barrier() inside of a function that a program calls on "
        "the host would wait for that function itself. Call it where the program was called."
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
