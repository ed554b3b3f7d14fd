"""Elementwise ops and casts against jax's: special points, sub-32-bit floats, casts."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import shardwise as sw
from shardwise._src.core.fused import fused
from shardwise._src.core.op import OPS
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type, reduce_precision
from shardwise._src.ops.special import incomplete, special_functions
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.transpose import transpose
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday

F32 = np.float32


def host(x: Any) -> np.ndarray:
    value = np.asarray(x)
    return value.astype(F32) if value.dtype.name in ("bfloat16", "float16") else value


def gradients(op: Any, *args: np.ndarray, **params: Any) -> list[Any]:
    """Gradients of the sum of the real part, as in jax.grad, which does not conjugate."""
    outs, linear = linearize(lambda *xs: [op(*xs, **params)], [EAGER.array(a) for a in args])
    t = outs[0].aval
    ct = EAGER.array(np.ones(t.shape, t.dtype))
    return transpose(linear.program, linear.captured, [ct])


def their_gradients(fun: Any, *args: np.ndarray) -> Any:
    def real(*xs: Any) -> Any:
        out = fun(*xs)
        return (out.real if np.iscomplexobj(out) else out).sum()

    return jax.grad(real, argnums=tuple(range(len(args))))(*args)


# -- gradients at kinks, zeros and infinities --

AT = np.array([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0], F32)
ONE = [
    "abs",
    "sign",
    "square",
    "sqrt",
    "rsqrt",
    "cbrt",
    "exp2",
    "logistic",
    "tanh",
    "atan",
    "asinh",
    "acosh",
    "asin",
    "log1p",
    "expm1",
    "erf",
    "erfc",
    "erf_inv",
    "lgamma",
    "bessel_i0e",
    "bessel_i1e",
    "floor",
]


def named(name: str) -> Any:
    return next(getattr(m, name) for m in (ew, special_functions, incomplete) if hasattr(m, name))


TWO = ["add", "sub", "mul", "div", "max", "min", "rem", "pow", "atan2"]
LEFT = np.array([2.0, 1.5, 0.0, 1.0, 3.0, 0.5], F32)
RIGHT = np.array([0.5, 1.5, 2.0, 0.0, -1.0, 3.0], F32)


def test_gradient_of_clamp() -> None:
    low, high = np.full(6, -0.5, F32), np.full(6, 1.0, F32)
    expected = their_gradients(lax.clamp, low, AT, high)
    for found, wanted in zip(gradients(ew.clamp, low, AT, high), expected, strict=True):
        np.testing.assert_array_equal(host(found), wanted)


@pytest.mark.parametrize("y", [-2, -1, 0, 1, 2, 3, 7])
def test_integer_pow(y: int) -> None:
    expected = np.asarray(lax.integer_pow(AT, y))
    np.testing.assert_allclose(host(ew.integer_pow(EAGER.array(AT), y=y)), expected, rtol=1e-6)
    if y:
        wanted = their_gradients(lambda x: lax.integer_pow(x, y), AT)[0]
        np.testing.assert_allclose(host(gradients(ew.integer_pow, AT, y=y)[0]), wanted, rtol=1e-6)


Z = np.array([1 + 2j, -0.5 + 0.3j, 0.2 - 1j], np.complex64)
COMPLEX = "abs exp log sin tan sqrt tanh conj real imag square".split()
CASES = [  # name, operands, tolerance
    *[(name, [AT[AT >= -1] if name == "acosh" else AT], 2e-5) for name in ONE],
    *[(name, [LEFT, RIGHT], 3e-5) for name in TWO],
    *[(name, [Z], 1e-5) for name in COMPLEX],
    *[(name, [np.abs(LEFT) + 0.5, np.abs(RIGHT) + 0.5], 3e-5) for name in ("igamma", "igammac")],
]


def test_gradients() -> None:
    """In one program. (jax differentiates acosh beyond -1, where it is NaN.)"""

    def of(library: Any) -> Any:
        def gradient(name: str, args: Any) -> Any:
            def real(*xs: Any) -> Any:
                return library.numpy.real(getattr(library.lax, name)(*xs)).sum()

            return library.grad(real, tuple(range(len(args))))(*args)

        names = [name for name, *_ in CASES]
        return library.jit(lambda given: list(map(gradient, names, given)))([c[1] for c in CASES])

    for (name, _, tol), found, wanted in zip(CASES, of(sw), of(jax), strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=tol, atol=1e-6, err_msg=name)


def test_gradient_of_a_complex_sign() -> None:
    """jax returns zero; z / |z| rotates with z."""
    step = 1e-3
    turned = np.sign(Z.astype(complex) + step) - np.sign(Z.astype(complex) - step)
    found = host(gradients(ew.sign, Z)[0])
    np.testing.assert_allclose(found.real, turned.real / (2 * step), rtol=1e-3)


def test_select_n_with_several_cases() -> None:
    which = np.array([0, 2, 1, 3, 2], np.int32)
    cases = [np.full(5, float(i), F32) + np.arange(5, dtype=F32) for i in range(4)]
    args = [EAGER.array(a) for a in (which, *cases)]
    np.testing.assert_array_equal(host(ew.select_n(*args)), lax.select_n(which, *cases))
    found = gradients(ew.select_n, which, *cases)
    for i, g in enumerate(found):
        np.testing.assert_array_equal(host(g), which == i)


# -- sub-32-bit floats --

NARROW = "sin exp log1p tanh erf erfc erf_inv lgamma digamma bessel_i0e bessel_i1e logistic".split()


@pytest.mark.parametrize("name", everyday(NARROW, 3))
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats(name: str, dtype: str) -> None:
    x = np.array([0.125, 0.5, 0.75], F32).astype(dtype)
    found = named(name)(EAGER.array(x))
    assert found.dtype == x.dtype
    expected = np.asarray(getattr(lax, name)(x)).astype(F32)
    np.testing.assert_allclose(host(found), expected, rtol=2e-2)


# -- casts --

SOURCES = {
    "bool": [True, False, True, True],
    "int4": [-8, 3, 0, 7],
    "int8": [-128, 5, 0, 127],
    "uint8": [0, 7, 200, 255],
    "int32": [-(2**31), 300, 0, 2**31 - 1],
    "uint32": [0, 300, 2**31, 2**32 - 1],
    "float8_e4m3fn": [-0.5, 448, 0, 3.25],
    "float8_e5m2": [-0.5, 1e4, 0, 3.0],
    "bfloat16": [-1.5, 300, 0, 1e9],
    "float16": [-1.5, 300, 0, 6e4],
    "float32": [-1.5, 300.7, np.nan, 1e10],
    "complex64": [1 + 2j, -300, 0, 3.5j],
}


def test_casts_between_all_pairs() -> None:
    values = {n: np.array(v).astype(np.dtype(n)) for n, v in SOURCES.items() if n != "int4"}
    values["int4"] = np.array(SOURCES["int4"], ml_dtypes.int4)
    pairs = [(a, b) for a in SOURCES for b in SOURCES]

    def run(*xs: Any) -> list[Any]:
        return [
            convert_element_type(x, dtype=np.dtype(b)) for x, (_, b) in zip(xs, pairs, strict=True)
        ]

    found = fused(run, arrays=len(pairs))(*[EAGER.array(values[a]) for a, _ in pairs])

    @jax.jit
    def theirs(xs: Any) -> Any:
        return [x.astype(b) for x, (_, b) in zip(xs, pairs, strict=True)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs([values[a] for a, _ in pairs])
    for (a, b), x, y in zip(pairs, found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(
            np.asarray(x).astype(complex), np.asarray(y).astype(complex), err_msg=f"{a} to {b}"
        )


@pytest.mark.parametrize(
    "source, target, shape",
    [
        ("float32", "int32", (3,)),
        ("float32", "uint8", (3,)),
        ("int16", "int32", (3, 2)),
        ("int8", "float32", (2, 4)),
        ("uint32", "bfloat16", (2,)),
        ("int8", "int4", (3,)),
    ],
)
def test_bitcasts(source: str, target: str, shape: tuple) -> None:
    x = np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(source)
    found = bitcast_convert_type(EAGER.array(x), dtype=np.dtype(target))
    expected = np.asarray(lax.bitcast_convert_type(x, target))
    assert found.shape == expected.shape
    np.testing.assert_array_equal(host(found).astype(complex), expected.astype(complex))


def test_reduce_precision() -> None:
    found = reduce_precision(EAGER.array(AT / 3), exponent_bits=5, mantissa_bits=3)
    np.testing.assert_array_equal(host(found), lax.reduce_precision(AT / 3, 5, 3))


# -- messages --

X, B = EAGER.array(AT), EAGER.array(AT > 0)
I = EAGER.array(np.arange(6, dtype=np.int32))  # noqa: E741
test_messages = messages(
    """
ew.neg(B)
    TypeError: [neg] takes numeric operands; got bool[6].
ew.sin(I)
    TypeError: [sin] takes floating or complex operands; got i32[6].
ew.add(X, I)
    TypeError: [add] operands must have equal dtypes; got f32[6] and i32[6]. The functions of
    shardwise.numpy promote.
ew.mul(X, EAGER.array(AT[:3]))
    TypeError: [mul] operands must have equal shapes or be scalars; got f32[6] and f32[3]. The
    functions of shardwise.numpy broadcast.
ew.integer_pow(I, y=-1)
    TypeError: [integer_pow] takes numbers, and integers to powers of at least 0; got i32[6] to
    the power -1.
ew.pow(I, I)
    TypeError: [pow] takes a floating or complex base, and an exponent of its dtype or integer;
    got i32[6] and i32[6]. For integer bases use integer_pow.
ew.select_n(X, X, X)
    TypeError: [select_n] the selector must be boolean or int32; got f32[6].
ew.select_n(B, X, X, X)
    TypeError: [select_n] a boolean selector needs 2 cases; got 3.
ew.clamp(B, B, B)
    TypeError: [clamp] takes integer or floating operands; got bool[6], bool[6] and bool[6].
bitcast_convert_type(B, dtype=np.dtype("int8"))
    TypeError: [bitcast_convert_type] cannot reinterpret the bits of bool[6] as int8: booleans and
    complex numbers convert only to themselves.
special_functions.lgamma(I)
    TypeError: [lgamma] takes floating operands; got i32[6].
""",
    globals(),
)


def test_no_derivative_in_an_order() -> None:
    assert message(
        NotImplementedError, gradients, special_functions.zeta, LEFT + 1.5, LEFT + 1
    ) == (
        "[zeta] has no derivative with respect to its exponent. Use stop_gradient on it if it is a "
        "constant."
    )


def test_every_elementwise_op_batches_and_lowers() -> None:
    for op in OPS.values():
        if op.pointwise:
            assert op.batch is not None and op.lower is not None and op.dims is not None, op.name


@pytest.mark.parametrize(("x", "y"), [(True, False), (False, True), (True, True), (False, False)])
def test_powers_are_weak_where_both_operands_are(x: bool, y: bool) -> None:
    weak, strong = EAGER.array(2.0), EAGER.array(np.float32(2))
    found = ew.pow(weak if x else strong, weak if y else strong)
    assert found.aval.weak_type == (x and y)


def test_logaddexp_of_infinities() -> None:
    x = np.array([np.inf, -np.inf, np.inf, -np.inf, 1, np.nan], F32)
    y = np.array([np.inf, -np.inf, -np.inf, 1, np.inf, -np.inf], F32)
    found = special_functions.logaddexp(EAGER.array(x), EAGER.array(y))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(host(found), np.logaddexp(x, y), rtol=1e-6)
