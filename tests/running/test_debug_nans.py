"""`debug_nans` and `debug_infs`: the op that returned the first bad value, and its source line."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.beside_jax import ours
from tests.helpers.everyday import everyday


@pytest.fixture
def nans() -> Iterator[None]:
    with sw.debug_nans(True):
        yield


def raised(f: Any, *args: Any) -> str:
    with pytest.raises(FloatingPointError) as e:
        f(*args)
    return str(e.value)


def line_of(text: str) -> int:
    """The number of the line in this file that ends with `# text`."""
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def message(op: str, operands: str, result: str, mark: str, function: str, rest: str = "") -> str:
    return (
        f"invalid value (nan) encountered in {op}: operands {operands}, result {result}, at "
        f"{__file__}:{line_of(mark)} ({function}).{rest} The flag debug_nans enables this check."
    )


def quotient(x: Any, y: Any) -> Any:
    z = x * 2
    w = z / y  # the quotient
    return w.sum() + jnp.sin(x).sum()


def test_an_eager_op(nans: None) -> None:
    def f(x: Any) -> Any:
        return jnp.log(x)  # the logarithm

    text = raised(f, jnp.float32(-1.0))
    assert text == message("log", "f32[]", "f32[]", "the logarithm", "f")


def test_an_eager_fused_function(nans: None) -> None:
    def f(x: Any) -> Any:
        return jnp.var(x)  # the variance

    x = jnp.array([np.inf, 1.0], np.float32)
    text = raised(f, x)
    assert f"at {__file__}:{line_of('the variance')} (f)." in text
    assert f"at {__file__}:{line_of('again')} (g)." in raised(lambda: g(x))


def g(x: Any) -> Any:
    return jnp.var(x)  # again


@pytest.mark.parametrize("spec", everyday([None, (), ("x",), (("x", "y"),)], 2))
@pytest.mark.parametrize("size", [8, 5])
def test_a_jitted_function(nans: None, spec: Any, size: int) -> None:
    zeros, ones = np.zeros(size, np.float32), np.ones(size, np.float32)
    if spec is None:
        assert raised(sw.jit(quotient), zeros, zeros) == message(
            "div", f"f32[{size}], f32[{size}]", f"f32[{size}]", "the quotient", "quotient"
        )
        return
    f = sw.jit(quotient)
    assert np.isfinite(f(ours(ones, *spec), ours(ones, *spec)))
    assert raised(f, ours(zeros, *spec), ours(zeros, *spec)) == message(
        "div", f"f32[{size}], f32[{size}]", f"f32[{size}]", "the quotient", "quotient"
    )


@pytest.mark.parametrize("poison", [False, True])
def test_padding_is_no_value(nans: None, poison: bool) -> None:
    with ExitStack() as stack:
        stack.enter_context(sw.debug_infs(True))
        if poison:
            sw.config.update("poison_padding", True)
            stack.callback(sw.config.update, "poison_padding", False)
        x = ours(np.ones((7, 3), np.float32), "x", "y")
        for f in (lambda x: 1 / x, jnp.log, lambda x: x / x.sum(0), lambda x: x @ x.T):
            assert np.isfinite(np.asarray(f(x))).all()
            assert np.isfinite(np.asarray(sw.jit(f)(x))).all()


def test_inside_of_nested_functions(nans: None) -> None:
    @sw.jit
    def inner(x: Any) -> Any:
        return jnp.log(x) * 0  # inside

    @sw.custom_jvp
    def custom(x: Any) -> Any:
        return inner(x) + 1

    custom.defjvp(lambda p, t: (custom(*p), t[0]))
    text = message("log", "f32[]", "f32[]", "inside", "inner")
    assert raised(sw.jit(lambda x: inner(x) + 1), np.float32(-1)) == text
    assert raised(sw.jit(lambda x: custom(x) + 1), np.float32(-1)) == text
    assert raised(custom, jnp.float32(-1)) == text


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_in_the_step_of_a_scan_that_is_first(nans: None, jitted: bool, reverse: bool) -> None:
    seen: list[float] = []

    def body(c: Any, x: Any) -> Any:
        sw.debug.callback(lambda v: seen.append(float(v)), x)
        return c + jnp.sqrt(x), c  # the root

    def f(xs: Any) -> Any:
        return lax.scan(body, np.float32(0), xs, reverse=reverse)

    text = raised(sw.jit(f) if jitted else f, jnp.array([4.0, -1.0, 9.0], np.float32))
    assert text == message("sqrt", "f32[]", "f32[]", "the root", "body")
    sw.effects_barrier()
    assert seen[-2:] == ([9.0, -1.0] if reverse else [4.0, -1.0])


def test_in_loops_and_branches(nans: None) -> None:
    def turn(state: Any) -> Any:
        i, x = state
        return i + 1, jnp.log(x)  # in the loop

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 3, turn, (0, x))

    def branch(x: Any) -> Any:
        return lax.cond(x > 0, lambda x: x, lambda x: jnp.sqrt(x), x)  # the branch

    text = message("log", "f32[]", "f32[]", "in the loop", "turn")
    assert raised(sw.jit(loop), np.float32(1.5)) == text
    assert float(sw.jit(branch)(np.float32(1.5))) == 1.5
    assert raised(sw.jit(branch), np.float32(-1)) == message(
        "sqrt", "f32[]", "f32[]", "the branch", "<lambda>"
    )


def test_of_derivatives(nans: None) -> None:
    def f(x: Any) -> Any:
        return jnp.where(x > 0, jnp.sqrt(x), 0.0).sum()

    assert "invalid value (nan) encountered in " in raised(sw.grad(f), jnp.zeros(3))
    assert "invalid value (nan) encountered in " in raised(sw.jit(sw.grad(f)), jnp.zeros(3))


def test_of_the_forward_pass_of_eager_derivatives(nans: None) -> None:
    def f(x: Any) -> Any:
        return jnp.log(x)  # forward

    def body(c: Any, _: Any) -> Any:
        return jnp.sqrt(c - 1), None  # in a step

    text = message("log", "f32[]", "f32[]", "forward", "f")
    x = np.float32(-1)
    for g in (sw.grad(f), sw.jit(sw.value_and_grad(f)), sw.grad(sw.jit(f)), sw.hessian(f)):
        assert raised(g, x) == text
    assert raised(lambda x: sw.jvp(f, (x,), (x,)), x) == text
    assert raised(lambda x: sw.vjp(sw.checkpoint(f), x), x) == text
    text = message("sqrt", "f32[]", "f32[]", "in a step", "body")
    assert raised(sw.grad(lambda x: lax.scan(body, x, None, 3)[0]), np.float32(1.5)) == text
    text = message("log", "f32[2]", "f32[2]", "forward", "f")
    assert raised(sw.vmap(f), np.array([1, -1], np.float32)) == text


def test_of_refs(nans: None) -> None:
    def f(r: Any) -> Any:
        r[...] = jnp.log(r[...])  # of a ref

    text = message("log", "f32[]", "f32[]", "of a ref", "f")
    assert raised(sw.jit(f), sw.new_ref(np.float32(-1))) == text


def test_of_programs_compiled_before() -> None:
    def f(x: Any) -> Any:
        return jnp.log(x)  # compiled before

    x = np.array([-1], np.float32)
    run = sw.jit(f).lower(x).compile()
    donating = sw.jit(f, donate_argnums=0).lower(x).compile()
    assert np.isnan(run(x)).all()
    with sw.debug_nans(True):
        assert raised(run, x) == message("log", "f32[1]", "f32[1]", "compiled before", "f")
        assert raised(donating, sw.device_put(x)) == (
            "invalid value (nan) encountered in a result of f. The op that produced it cannot be "
            "found, because arguments were donated: compile it while the flag debug_nans is on, "
            "which enables this check."
        )


def test_of_what_came_in(nans: None) -> None:
    def f(x: Any) -> Any:
        return x + 1  # had one

    x = sw.device_put(np.array([np.nan, 0], np.float32))
    text = message("add", "f32[2], f32[]", "f32[2]", "had one", "f", " Operand 0 already has one.")
    assert raised(sw.jit(f), x) == text


def test_infinities() -> None:
    def f(x: Any) -> Any:
        return 1 / x  # infinite

    with sw.debug_infs(True):
        text = raised(sw.jit(f), np.zeros(2, np.float32))
        expected = message("div", "f32[], f32[2]", "f32[2]", "infinite", "f")
        expected = expected.replace("(nan)", "(inf)").replace("flag debug_nans", "flag debug_infs")
        assert text == expected
        assert np.isnan(jnp.log(np.float32(-1)))
        text = raised(jnp.exp, np.array([20], np.float16))
        assert text.startswith("invalid value (inf) encountered in exp")


def test_other_dtypes(nans: None) -> None:
    for dtype in ("bfloat16", "float16", "complex64", "float8_e4m3fn"):
        x = jnp.zeros(3, dtype)
        assert "invalid value (nan)" in raised(lambda x: x / x, x)
    assert (jnp.arange(3) // 0).shape == (3,)
    assert sw.random.key(0).shape == ()


def test_only_while_it_is_on() -> None:
    f = sw.jit(jnp.log)
    assert np.isnan(f(np.float32(-1)))
    with sw.debug_nans(True):
        raised(f, np.float32(-1))
        with sw.debug_nans(False):
            assert np.isnan(f(np.float32(-1)))
    assert np.isnan(f(np.float32(-1)))
    sw.config.update("jax_debug_nans", True)
    try:
        raised(f, np.float32(-1))
    finally:
        sw.config.update("jax_debug_nans", False)
    assert np.isnan(f(np.float32(-1)))


def test_with_disable_jit(nans: None) -> None:
    with sw.disable_jit(True):
        x = jnp.zeros(2)
        start = r"true_divide: invalid value \(nan\) encountered in div"
        assert re.match(start, raised(sw.jit(quotient), x, x))


def test_donated_memory_is_kept(nans: None) -> None:
    f = sw.jit(lambda x: x / x, donate_argnums=0)
    x = jnp.zeros(4)
    assert "encountered in div" in raised(f, x)
    assert not x.is_deleted()


def test_the_error_is_that_of_jax(nans: None) -> None:
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as e:
        jax.jit(jax.numpy.log)(-1.0)
    assert raised(sw.jit(jnp.log), -1.0).startswith(str(e.value).partition(".")[0])
