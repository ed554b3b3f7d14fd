"""Samples of elementwise ops: arithmetic, elementary and special functions, bits, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special as sp
import scipy.stats

from shardwise.testing import Sample

SHAPE = (2, 4)
RNG = np.random.default_rng(7)


def between(low: float, high: float, dtype: Any = np.float32) -> np.ndarray:
    """Values spread over an interval, in random order."""
    values = np.linspace(low, high, 8)
    return RNG.permutation(values).reshape(SHAPE).astype(dtype)


def complex_between(low: float, high: float) -> np.ndarray:
    return (between(low, high) + 1j * between(low, high)).astype(np.complex64)


def whole(values: Any, dtype: Any = np.int32) -> np.ndarray:
    return np.asarray(values).astype(dtype).reshape(SHAPE)


WAVE = between(-2.3, 2.7)
UNIT = between(-0.83, 0.9)
POSITIVE = between(0.2, 3.1)
COMPLEX = complex_between(-1.3, 1.1)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e38], np.float32)
BF16 = WAVE.astype(ml_dtypes.bfloat16)
INTS = whole([-7, 3, 0, 5, 9, -2, 2, 7])
OTHER = whole([2, -3, 1, 5, 31, 4, -2, 3])
UNSIGNED = whole([0, 1, 2, 3, 250, 17, 128, 255], np.uint8)
BOOLS = whole([1, 0, 1, 1, 0, 0, 1, 0], bool)
EXACT = "values only: the first sample of the op is checked in all ways"


def real(fun: Callable | None, x: np.ndarray, **more: Any) -> list[Sample]:
    """A smooth function of real numbers."""
    return [Sample((x,), reference=fun, **more)]


def analytic(fun: Callable, x: np.ndarray, **more: Any) -> list[Sample]:
    """A smooth function of real and complex numbers."""
    z = (x + 0.3j * x[::-1]).astype(np.complex64)
    return [Sample((x,), reference=fun), Sample((z,), reference=fun, placed=False, **more)]


def flat(fun: Callable | None, *args: Any, **more: Any) -> Sample:
    """Only values are compared: integers, booleans, special values."""
    return Sample(args, reference=fun, order=0, batched=False, placed=False, why=EXACT, **more)


def quiet(fun: Callable) -> Callable:
    def silent(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return fun(*args)

    return silent


def pairs(fun: Callable, x: np.ndarray, y: np.ndarray) -> list[Sample]:
    """Two arrays; an array and a scalar, both ways."""
    return [
        Sample((x, y), reference=fun),
        Sample((x, y.dtype.type(1.5)), reference=fun, placed=False),
        Sample((x.dtype.type(0.7), y), reference=fun, placed=False),
    ]


def integer_pairs(fun: Callable, *more: tuple) -> list[Sample]:
    return [flat(quiet(fun), *args) for args in [(INTS, OTHER), *more]]


def sign_of(x: np.ndarray) -> np.ndarray:
    return x / np.abs(x)


def trunc_div(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.trunc(x / y).astype(x.dtype)


def lexicographic(which: int) -> Callable:
    def choose(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        pairs = [
            sorted([a, b], key=lambda z: (z.real, z.imag))[which]
            for a, b in zip(x.ravel(), y.ravel(), strict=True)
        ]
        return np.array(pairs).reshape(x.shape)

    return choose


ARITHMETIC = {
    "add": [
        *pairs(np.add, WAVE, POSITIVE),
        *integer_pairs(np.add, (BOOLS, BOOLS[::-1])),
        Sample((COMPLEX, COMPLEX[::-1]), reference=np.add, placed=False),
        Sample((BF16, BF16[::-1]), reference=np.add, placed=False),
    ],
    "sub": [*pairs(np.subtract, WAVE, POSITIVE), *integer_pairs(np.subtract)],
    "mul": [
        *pairs(np.multiply, WAVE, POSITIVE),
        *integer_pairs(np.multiply, (BOOLS, BOOLS[::-1])),
        Sample((COMPLEX, COMPLEX[::-1]), reference=np.multiply, placed=False),
    ],
    "div": [
        *pairs(np.divide, WAVE, POSITIVE),
        flat(trunc_div, INTS, OTHER),
        Sample((COMPLEX, COMPLEX[::-1] + 2), reference=np.divide, placed=False),
        flat(quiet(np.divide), SPECIAL, SPECIAL[::-1].copy(), tolerance=None),
    ],
    "rem": [*pairs(np.fmod, WAVE, POSITIVE), flat(np.fmod, INTS, OTHER)],
    "neg": [*analytic(np.negative, WAVE), flat(np.negative, INTS), flat(np.negative, UNSIGNED)],
    "square": [*analytic(np.square, WAVE), flat(np.square, INTS)],
    "one_minus_square": [*analytic(lambda x: 1 - x * x, WAVE), flat(lambda x: 1 - x * x, INTS)],
    "integer_pow": [
        *[
            Sample((POSITIVE,), {"y": y}, lambda x, y=y: x**y, placed=y == 3)
            for y in (3, 2, 1, -1, -2, 7)
        ],
        Sample((POSITIVE,), {"y": 0}, np.ones_like, placed=False),
        Sample((COMPLEX,), {"y": 3}, lambda x: x**3, placed=False),
        Sample((INTS,), {"y": 3}, lambda x: x**3, placed=False),
    ],
    "max": [
        *pairs(np.maximum, WAVE, POSITIVE),
        *integer_pairs(np.maximum),
        Sample((COMPLEX, COMPLEX[::-1]), reference=lexicographic(1), placed=False),
        flat(np.maximum, BOOLS, BOOLS[::-1]),
        flat(np.maximum, SPECIAL, SPECIAL[::-1]),
    ],
    "min": [
        *pairs(np.minimum, WAVE, POSITIVE),
        *integer_pairs(np.minimum),
        Sample((COMPLEX, COMPLEX[::-1]), reference=lexicographic(0), placed=False),
        flat(np.minimum, UNSIGNED, UNSIGNED[::-1]),
    ],
    "abs": [
        Sample((WAVE,), reference=np.abs),
        Sample((COMPLEX,), reference=np.abs, placed=False),
        flat(np.abs, INTS),
        flat(np.abs, SPECIAL),
    ],
    "sign": [
        Sample((WAVE,), reference=np.sign),
        Sample((COMPLEX,), reference=sign_of, placed=False),
        flat(np.sign, INTS),
        flat(np.sign, UNSIGNED),
        flat(np.sign, SPECIAL),
    ],
    "nextafter": [
        Sample(
            (WAVE, POSITIVE),
            reference=np.nextafter,
            order=0,
            why="the difference of neighbours is below the step",
        ),
        flat(np.nextafter, SPECIAL, np.float32(1)),
    ],
    "floor": [Sample((WAVE,), reference=np.floor), flat(np.floor, SPECIAL)],
    "ceil": [Sample((WAVE,), reference=np.ceil), flat(np.ceil, SPECIAL)],
    "round": [
        Sample((WAVE,), {"rounding_method": 1}, np.round),
        flat(lambda x: np.trunc(x + np.copysign(0.5, x)), between(-3.5, 3.5)),
        Sample(
            (between(-3.5, 3.5),),
            {"rounding_method": 1},
            np.round,
            order=0,
            placed=False,
            why="halves are where it jumps",
        ),
    ],
    "is_finite": [Sample((WAVE,), reference=np.isfinite), flat(np.isfinite, SPECIAL)],
}

ELEMENTARY = {
    "exp": [*analytic(np.exp, WAVE), flat(quiet(np.exp), SPECIAL)],
    "exp2": analytic(np.exp2, WAVE),
    "expm1": analytic(np.expm1, WAVE),
    "log": [*analytic(np.log, POSITIVE), flat(quiet(np.log), SPECIAL)],
    "log1p": analytic(np.log1p, POSITIVE),
    "logistic": analytic(lambda x: 1 / (1 + np.exp(-x)), WAVE),
    "pow": [
        *pairs(np.power, POSITIVE, WAVE),
        Sample((COMPLEX, COMPLEX[::-1]), reference=np.power, placed=False, tolerance=1e-4),
        Sample(
            (POSITIVE, INTS),
            reference=lambda x, y: np.float_power(x, y).astype(x.dtype),
            placed=False,
        ),
        flat(
            lambda x, y: np.array([1, 0, 0, 1], np.float32),
            np.array([0, 0, 0, 0], np.float32),
            np.array([0, 1, 2, 0], np.float32),
        ),
    ],
    "sqrt": analytic(np.sqrt, POSITIVE),
    "rsqrt": analytic(lambda x: 1 / np.sqrt(x), POSITIVE),
    "cbrt": real(np.cbrt, WAVE),
    "sin": analytic(np.sin, WAVE),
    "cos": analytic(np.cos, WAVE),
    "tan": analytic(np.tan, UNIT),
    "asin": analytic(np.arcsin, UNIT),
    "acos": analytic(np.arccos, UNIT),
    "atan": analytic(np.arctan, UNIT),
    "atan2": pairs(np.arctan2, WAVE, POSITIVE),
    "sinh": analytic(np.sinh, WAVE),
    "cosh": analytic(np.cosh, WAVE),
    "tanh": [*analytic(np.tanh, UNIT), Sample((BF16,), reference=None, placed=False)],
    "asinh": analytic(np.arcsinh, UNIT),
    "acosh": analytic(np.arccosh, between(1.3, 4.0)),
    "atanh": analytic(np.arctanh, UNIT),
    "real": [Sample((COMPLEX,), reference=np.real)],
    "imag": [Sample((COMPLEX,), reference=np.imag), Sample((COMPLEX[:, :3],), reference=np.imag)],
    "conj": [
        Sample((COMPLEX,), reference=np.conj),
        Sample((WAVE,), reference=lambda x: x.astype(np.complex64), placed=False),
    ],
    "complex": [
        Sample((WAVE, POSITIVE), reference=lambda x, y: x + 1j * y),
        Sample((np.float32(2), POSITIVE), reference=lambda x, y: x + 1j * y),
    ],
    "stop_gradient": [Sample((WAVE,), reference=lambda x: x, order=0, why="zero by definition")],
    "todense": analytic(lambda x: x, WAVE),
    "copy": [*analytic(lambda x: x, WAVE), flat(lambda x: x, INTS)],
    "name": [Sample((WAVE,), {"name": "wave"}, lambda x, **p: x)],
}

ORDERS = np.float32([1, 2, 3, 1, 2, 3, 1, 2]).reshape(SHAPE)


def slope_of_gammainc(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    a, x, h = a.astype(float), x.astype(float), 1e-5
    return (sp.gammainc(a + h, x) - sp.gammainc(a - h, x)) / (2 * h)


def slope_of_quantiles(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return -slope_of_gammainc(a, x) / scipy.stats.gamma(a.astype(float)).pdf(x)


NO_ORDER = "no derivative with respect to the order"
LOOP = "a loop that ends when all elements have converged; not all derivatives are known"


def incomplete(
    fun: Callable, order: int, *more: np.ndarray, tolerance: float = 2e-5
) -> list[Sample]:
    """A function of positive numbers, and more."""
    args = (POSITIVE, between(0.4, 4.4), *more)
    options = {"order": order, "why": LOOP, "communicates": True, "heavy": True}
    return [Sample(args, reference=fun, tolerance=tolerance, **options)]


SPECIAL_FUNCTIONS = {
    "erf": real(
        sp.erf,
        WAVE,
        communicates=True,
        why="XLA's partitioner does not know erf, also in jax: it gathers the operand",
    ),
    "erfc": real(sp.erfc, WAVE),
    "erf_inv": real(sp.erfinv, UNIT, tolerance=2e-5),
    "lgamma": real(sp.gammaln, POSITIVE, tolerance=2e-5),
    "digamma": real(sp.digamma, POSITIVE, tolerance=2e-5),
    "polygamma": [
        Sample((ORDERS, POSITIVE), reference=sp.polygamma, order=0, why=NO_ORDER, tolerance=2e-5)
    ],
    "zeta": [
        Sample((ORDERS + 1, POSITIVE), reference=sp.zeta, order=0, why=NO_ORDER, tolerance=2e-5)
    ],
    "logaddexp": [
        *pairs(np.logaddexp, WAVE, POSITIVE),
        Sample(
            (COMPLEX, COMPLEX[::-1]),
            placed=False,
            reference=lambda x, y: np.log(np.exp(x) + np.exp(y)),
        ),
        flat(quiet(np.logaddexp), SPECIAL, SPECIAL[::-1]),
    ],
    "sinc_derivative": [
        Sample((WAVE,), {"order": 0}, lambda x: np.sin(x) / x),
        Sample((WAVE,), {"order": 1}, lambda x: np.cos(x) / x - np.sin(x) / x**2, placed=False),
        Sample(
            (np.zeros(1, np.float32),),
            {"order": 2},
            lambda x: x - 1 / 3,
            order=0,
            placed=False,
            why="close to zero differences cancel",
        ),
    ],
    "gcd": [Sample((INTS, OTHER), reference=np.gcd, communicates=True, why=LOOP)],
    "igamma_grad_a": incomplete(slope_of_gammainc, 1, tolerance=1e-4),
    "random_gamma_grad": incomplete(slope_of_quantiles, 1, tolerance=1e-4),
    "bessel_i0e": real(sp.i0e, between(-9.3, 10.7)),
    "bessel_i1e": real(sp.i1e, between(-9.3, 10.7)),
    "igamma": incomplete(sp.gammainc, 1),
    "igammac": incomplete(sp.gammaincc, 1),
    "regularized_incomplete_beta": incomplete(sp.betainc, 0, between(0.1, 0.9)),
}


def shift_reference(fun: Callable, beyond: Callable) -> Callable:
    def shift(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        outside = (y < 0) | (y >= 32)
        return np.where(outside, beyond(x), fun(x, np.where(outside, 0, y))).astype(x.dtype)

    return shift


def _zeros(x: np.ndarray) -> np.ndarray:
    return np.zeros_like(x)


SHIFTS = whole([0, 1, 2, 3, 31, 32, 40, -1])
BITS = {
    "not": [
        Sample((UNSIGNED,), reference=np.invert),
        flat(np.invert, INTS),
        flat(np.invert, BOOLS),
    ],
    "and": [
        *integer_pairs(np.bitwise_and, (BOOLS, BOOLS[::-1])),
        Sample((INTS, OTHER), reference=np.bitwise_and),
    ],
    "or": [
        *integer_pairs(np.bitwise_or, (BOOLS, BOOLS[::-1])),
        Sample((INTS, OTHER), reference=np.bitwise_or),
    ],
    "xor": [
        *integer_pairs(np.bitwise_xor, (BOOLS, BOOLS[::-1])),
        Sample((INTS, np.int32(5)), reference=np.bitwise_xor),
    ],
    "population_count": [
        Sample(
            (INTS,),
            reference=np.vectorize(
                lambda x: bin(int(x) & 0xFFFFFFFF).count("1"), otypes=[np.int32]
            ),
        )
    ],
    "clz": [
        Sample(
            (INTS,),
            reference=np.vectorize(
                lambda x: 32 - (int(x) & 0xFFFFFFFF).bit_length(), otypes=[np.int32]
            ),
        )
    ],
    "shift_left": [Sample((INTS, SHIFTS), reference=shift_reference(np.left_shift, _zeros))],
    "shift_right_logical": [
        Sample(
            (INTS, SHIFTS),
            reference=shift_reference(
                lambda x, y: (x.view(np.uint32) >> y.astype(np.uint32)).view(np.int32), _zeros
            ),
        )
    ],
    "shift_right_arithmetic": [
        Sample(
            (INTS, SHIFTS),
            reference=shift_reference(np.right_shift, lambda x: np.where(x < 0, -1, 0)),
        )
    ],
}

COMPARED = np.where(BOOLS, WAVE, POSITIVE)


def comparison(fun: Callable, complex_too: bool = False) -> list[Sample]:
    return [
        Sample((COMPARED, WAVE), reference=fun),
        Sample((WAVE, np.float32(0.5)), reference=fun),
        flat(fun, INTS, OTHER),
        flat(fun, BOOLS, BOOLS[::-1]),
        flat(fun, SPECIAL, SPECIAL[::-1]),
        *([flat(fun, COMPLEX, np.where(BOOLS, COMPLEX, 1))] if complex_too else []),
    ]


COMPARISONS = {
    "eq": comparison(np.equal, True),
    "ne": comparison(np.not_equal, True),
    "lt": comparison(np.less),
    "le": comparison(np.less_equal),
    "gt": comparison(np.greater),
    "ge": comparison(np.greater_equal),
    "select_n": [
        Sample((BOOLS, WAVE, POSITIVE), reference=lambda p, x, y: np.where(p, y, x)),
        Sample((np.True_, WAVE, POSITIVE), reference=lambda p, x, y: y, placed=False),
        Sample(
            (BOOLS, WAVE, np.float32(2)), reference=lambda p, x, y: np.where(p, y, x), placed=False
        ),
        Sample(
            (whole([0, 1, 2, 2, 1, 0, 0, 1]), WAVE, POSITIVE, UNIT),
            placed=False,
            reference=lambda i, *cases: np.choose(i, cases),
        ),
        Sample(
            (BOOLS, COMPLEX, COMPLEX[::-1]),
            placed=False,
            reference=lambda p, x, y: np.where(p, y, x),
        ),
    ],
    "clamp": [
        Sample((np.float32(-1), WAVE, np.float32(1)), reference=lambda a, x, b: np.clip(x, a, b)),
        Sample(
            (WAVE - 0.4, UNIT, WAVE + 0.5), placed=False, reference=lambda a, x, b: np.clip(x, a, b)
        ),
        flat(lambda a, x, b: np.clip(x, a, b), np.int32(-2), INTS, np.int32(4)),
    ],
}

SAMPLES = ARITHMETIC | ELEMENTARY | SPECIAL_FUNCTIONS | BITS | COMPARISONS
