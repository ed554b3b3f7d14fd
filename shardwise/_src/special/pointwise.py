"""Tools for elementwise functions: a common dtype and shape, derivatives, series.

    @with_derivatives(lambda out, x: 1 - 2 * x * out)
    def _dawsn(x): ...

    dawsn(x) = wide(_dawsn, x)

`_dawsn` gets float32 or float64 arrays of one shape and uses operators; lower-precision floats are
cast to float32 and back. Coefficients are computed by formulas, so there are few tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shardwise._src.base.caches import cached
from shardwise._src.base.errors import DtypeError
from shardwise._src.core.infer import is_array, type_of
from shardwise._src.custom.custom_calls import SymbolicZero
from shardwise._src.custom.custom_jvp import custom_jvp
from shardwise._src.messages.called import public_call
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.shapes import expand_dims
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim
from shardwise._src.ops.special.special_functions import FLOAT32
from shardwise._src.types.dtypes import complex_dtype, is_complex
from shardwise._src.values.convert import broadcast_to, cast, operand_shape, promote_inexact

EULER = 0.57721566490153286


def wide(fun: Callable, *args: Any, name: str = "", allow_complex: bool = False) -> Any:
    """`fun` with floats of at least 32 bits and one shape; results have the argument precision."""
    args = tuple(promote_inexact(*args))
    t = type_of(args[0])
    weak = all(type_of(a).weak_type for a in args)
    if is_complex(t.dtype) and not allow_complex:
        raise DtypeError(f"{name or public_call()} takes real numbers; got {t.str_short(True)}.")
    shape = operand_shape([type_of(a).shape for a in args])
    dtype = t.dtype if t.dtype.itemsize >= 4 else FLOAT32
    out = fun(*[_spread(cast(a, dtype, weak), shape) for a in args])
    outs = [
        cast(o, t.dtype if t.dtype.itemsize < 4 else type_of(o).dtype, weak)
        for o in (out if isinstance(out, tuple) else (out,))
    ]
    return tuple(outs) if isinstance(out, tuple) else outs[0]


def _spread(x: Any, shape: tuple) -> Any:
    """`x` broadcast to this shape; host values become arrays."""
    if is_array(x):
        return broadcast_to(x, shape)
    dims = tuple(range(len(shape) - type_of(x).ndim, len(shape)))
    return broadcast_in_dim(x, shape=shape, dims=dims)


def with_derivatives(*partials: Callable | str | None) -> Callable[[Callable], Callable]:
    """A function with the derivatives `partial(result, *args)`, one for each argument.

    A string instead of a partial names a nondifferentiable argument. None: zero derivative.
    """

    def mark(fun: Callable) -> Callable:
        marked = custom_jvp(fun)

        def rule(primals: Any, tangents: Any) -> Any:
            out = marked(*primals)
            total: list[Any] = []
            for partial, t in zip(partials, tangents, strict=True):
                if isinstance(t, SymbolicZero) or partial is None:
                    continue
                if isinstance(partial, str):
                    raise NotImplementedError(
                        f"{fun.__name__.strip('_')} has no derivative with respect to {partial}. "
                        "Use stop_gradient on it if it is a constant."
                    )
                slopes = partial(out, *primals)
                slopes = slopes if isinstance(slopes, tuple) else (slopes,)
                terms = [slope * t for slope in slopes]
                total = [a + b for a, b in zip(total, terms, strict=True)] if total else terms
            outs = out if isinstance(out, tuple) else (out,)
            total = total or [SymbolicZero.from_primal_value(o) for o in outs]
            return out, tuple(total) if isinstance(out, tuple) else total[0]

        marked.defjvp(rule, symbolic_zeros=True)
        return marked

    return mark


def by_dtype(x: Any, single: Any, double: Any) -> Any:
    """A number of terms, or a bound, for the precision of `x`."""
    return double if type_of(x).dtype in (np.float64, np.complex128) else single


def eps(x: Any) -> float:
    return float(np.finfo(type_of(x).dtype).eps)


def as_complex(z: Any) -> Any:
    dtype = type_of(z).dtype
    return z if is_complex(dtype) else cast(z, complex_dtype(dtype), type_of(z).weak_type)


def horner(coefficients: Sequence[float], x: Any, reach: float = 1.0) -> Any:
    """c₀ + c₁ x + c₂ x² + …, without trailing terms below the precision at |x| = reach."""
    sizes = [abs(c) * reach**k for k, c in enumerate(coefficients)]
    used = [i for i, size in enumerate(sizes) if size > eps(x) / 64 * max(sizes)]
    total = x * 0 + coefficients[used[-1]]
    for c in reversed(coefficients[: used[-1]]):
        total = total * x + c
    return total


def nested(ratios: Sequence[float], x: Any) -> Any:
    """1 + r₀ x (1 + r₁ x (1 + …)): a power series by the ratios of its coefficients."""
    total = x * 0 + 1.0
    for r in reversed(ratios):
        total = total * (x * r) + 1.0
    return total


def over_nodes(rule: tuple[Any, Any], term: Callable, *xs: Any) -> Any:
    """The sum of w · term(t, *xs) over the nodes t and weights w of a quadrature rule.

    The nodes are a last dimension, which XLA reduces while it is computed: a loop in one kernel.
    """
    dtype: Any = type_of(xs[0]).dtype
    t, w = [np.asarray(values).astype(dtype) for values in rule]
    return (term(t, *[expand_dims(x, -1) for x in xs]) * w).sum(-1)


def signed_pi(f: Callable, x: Any) -> Any:
    """f(π x) for f sine or tangent, with the multiples of π subtracted first."""
    n = ew.round(x, rounding_method=1)
    value = f((x - n) * math.pi)
    return value if f is ew.tan else where(n * 0.5 == ew.floor(n * 0.5), value, -value)


def exp_of_square(x: Any, factor: float) -> Any:
    """exp(factor · x²), compensated for the rounding of x²; factor is ± a power of 2."""
    return _exp_of_square(factor)(x)


@cached(8)
def _exp_of_square(factor: float) -> Callable[[Any], Any]:
    """Uses expm1, because XLA merges a product of two exponentials into one."""

    def slope(out: Any, x: Any) -> Any:
        return where(out == 0.0, 0.0, 2.0 * factor * x * out)  # 0, not NaN, at infinity

    @with_derivatives(slope)
    def exp_of_square(x: Any) -> Any:
        head = ew.floor(x * 64.0) / 64.0
        head = where(ew.is_finite(head), head, x)
        rest = where(head == x, 0.0, (x - head) * (x + head))
        power = ew.exp(head * head * factor)
        return power + where(rest == 0.0, 0.0, power * ew.expm1(rest * factor))

    return exp_of_square


@cached(64)
def bernoulli_numbers(count: int) -> tuple[float, ...]:
    """B₂, B₄, … B_2count, from tangent numbers (Brent and Harvey 2011, Algorithm 2).

    B_2k = (-1)^(k-1) 2k T_k / (4^k (4^k - 1)). Those that overflow are infinite.
    """
    tangents = [math.factorial(k) for k in range(count)]
    for k in range(1, count):
        for j in range(k, count):
            tangents[j] = (j - k) * tangents[j - 1] + (j - k + 2) * tangents[j]
    found = []
    for k, t in enumerate(tangents, 1):
        exact = Fraction((-1) ** (k - 1) * 2 * k * t, 4**k * (4**k - 1))
        try:
            found.append(float(exact))
        except OverflowError:
            found.append(math.inf if exact > 0 else -math.inf)
    return tuple(found)
