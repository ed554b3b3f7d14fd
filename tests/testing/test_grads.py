"""check_grads accepts correct derivatives and names the wrong ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.base.config import enable_x64
from shardwise._src.core.op import OPS, Op
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.elementwise import add, complex, cos, imag, mul, real, sin
from shardwise.test_util import check_jvp, check_vjp
from shardwise.testing import check_grads

X = np.linspace(-1, 1, 4, dtype=np.float32)


def test_trees_integers_and_several_results():
    def f(x: dict, n: Any) -> tuple:
        return {"a": mul(sin(x["u"]), x["v"][0])}, n, reduce_sum(x["u"], axes=(0,))

    check_grads(f, ({"u": X, "v": (X + 2,)}, np.int32(3)), order=2)


@pytest.mark.parametrize("dtype", ["bfloat16", np.float16, np.float32])
def test_dtypes(dtype: Any):
    check_grads(lambda x: mul(x, x), (X.astype(dtype),), order=1)


def test_double_precision_allows_third_derivatives():
    with enable_x64(True):
        check_grads(lambda x: mul(sin(x), x), (X.astype(np.float64),), order=3)


def test_complex():
    def f(z: Any) -> list:
        return [mul(z, z), complex(imag(z), real(z))]

    check_grads(f, ((X + 1j * X[::-1]).astype(np.complex64),), order=2)


@pytest.fixture
def wrong():
    """The sine with a wrong derivative: of the right sign, but too large."""
    op = Op(
        "wrong",
        type_rule=sin.type_rule,
        lower=sin.lower,
        jvp=lambda op, ps, ts: (sin(*ps), mul(ts[0], add(cos(*ps), np.float32(1)))),
    )
    yield op
    del OPS["wrong"]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("fwd", "jvp of f, result 0: derivatives differ from finite differences.\n  got:      "),
        ("rev", "vjp of f, inner product: derivatives differ from finite differences.\n  got:"),
    ],
)
def test_wrong_derivatives(wrong: Op, mode: str, message: str):
    with pytest.raises(AssertionError) as caught:
        check_grads(wrong, (X,), order=1, modes=(mode,))
    assert str(caught.value).startswith(message)
    check_grads(wrong, (X,), order=0)


def test_wrong_second_derivative(wrong: Op):
    op = Op(
        "outer",
        type_rule=sin.type_rule,
        lower=sin.lower,
        jvp=lambda op, ps, ts: (sin(*ps), mul(ts[0], wrong(add(*ps, np.float32(np.pi / 2))))),
    )
    try:
        check_grads(op, (X,), order=1)
        with pytest.raises(AssertionError, match=r"^(jvp|vjp) of (jvp|vjp) of f, "):
            check_grads(op, (X,), order=2)
    finally:
        del OPS["outer"]


def test_unknown_mode():
    with pytest.raises(ValueError) as caught:
        check_grads(sin, (X,), order=1, modes=("backwards",))
    assert str(caught.value) == "modes must be among 'fwd' and 'rev'; got ['backwards']."


def _both(x: Any, y: Any) -> tuple:
    return mul(sin(x), y), x


def test_given_functions_of_tangents_and_cotangents_are_checked():
    check_jvp(_both, functools.partial(sw.jvp, _both), (X, X + 2))
    check_vjp(_both, functools.partial(sw.vjp, _both), (X, X + 2))
    ints = np.arange(4, dtype=np.int32)

    def held(x: Any, n: Any) -> tuple:
        return mul(x, x), n

    check_jvp(held, functools.partial(sw.jvp, held), (X, ints))
    check_vjp(held, functools.partial(sw.vjp, held), (X, ints))


@pytest.mark.parametrize(
    ("factor", "shift", "what"),
    [
        (2.0, 0.0, "tangent of f_jvp, result 0: derivatives differ from finite differences."),
        (1.0, 1.0, "value of f_jvp, result 0: it differs from f's value."),
    ],
)
def test_a_wrong_tangent_or_value_is_named(factor: float, shift: float, what: str):
    def wrong(args: tuple, tangents: tuple) -> tuple:
        value, moved = sw.jvp(sin, args, tangents)
        return add(value, np.float32(shift)), mul(moved, np.float32(factor))

    with pytest.raises(AssertionError) as error:
        check_jvp(sin, wrong, (X,), err_msg="of mine")
    assert str(error.value).startswith(f"of mine\n{what}\n  got: ")


def test_a_wrong_cotangent_is_named():
    def wrong(x: Any) -> tuple:
        return sin(x), lambda ct: (mul(ct, sin(x)),)

    with pytest.raises(AssertionError) as error:
        check_vjp(sin, wrong, (X,))
    assert str(error.value).startswith(
        "cotangents of f_vjp, inner product: derivatives differ from finite differences.\n"
    )


def test_one_mode_by_its_name():
    check_grads(sin, (X,), order=1, modes="rev")
    with pytest.raises(ValueError, match=r"modes must be among 'fwd' and 'rev'; got \['back'\]"):
        check_grads(sin, (X,), order=1, modes="back")


def test_derivatives_may_be_nan_where_differences_are():
    check_grads(sw.numpy.sqrt, (-1.0,), order=1)


def test_tolerances_per_dtype():
    x = np.float32([1, 2])

    @sw.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (square(*primals), 2.01 * primals[0] * tangents[0]))
    check_grads(square, (x,), 1, "fwd", atol={np.float32: 0.1, np.float16: 0.0}, rtol={})
    with pytest.raises(AssertionError):
        check_grads(square, (x,), 1, "fwd", atol={np.float32: 1e-4}, rtol={"float32": 1e-4})
