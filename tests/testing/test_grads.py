"""check_grads passes right derivatives and names the wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwise._src.base.config import enable_x64
from shardwise._src.core.op import OPS, Op
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.elementwise import add, complex, cos, imag, mul, real, sin
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
    op = Op("wrong", type_rule=sin.type_rule, lower=sin.lower,
            jvp=lambda op, ps, ts: (sin(*ps), mul(ts[0], add(cos(*ps), np.float32(1)))))
    yield op
    del OPS["wrong"]


@pytest.mark.parametrize(
    ("mode", "message"),
    [("fwd", "jvp of f, result 0: derivatives differ from finite differences.\n  came:     "),
     ("rev", "vjp of f, inner product: derivatives differ from finite differences.\n  came:")],
)
def test_wrong_derivatives(wrong: Op, mode: str, message: str):
    with pytest.raises(AssertionError) as caught:
        check_grads(wrong, (X,), order=1, modes=(mode,))
    assert str(caught.value).startswith(message)
    check_grads(wrong, (X,), order=0)


def test_wrong_second_derivative(wrong: Op):
    op = Op("outer", type_rule=sin.type_rule, lower=sin.lower,
            jvp=lambda op, ps, ts: (sin(*ps), mul(ts[0], wrong(add(*ps, np.float32(np.pi / 2))))))
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
