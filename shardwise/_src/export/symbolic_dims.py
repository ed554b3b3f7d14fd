"""Symbolic dimensions: sizes that become known when an exported program is called.

    a, b = symbolic_shape("a, 2*b", constraints=["a >= 3"])
    a * b // 2 + 1          # arithmetic returns dimensions, as polynomials in normal form
    a + 1 > 2               # True: decided for all sizes that the constraints allow
    a > b                   # InconclusiveDimensionOperation: it depends

Variables are at least 1. Comparisons are decided by bounds on the difference of both sides; `==`
of sides that may or may not be equal is False, as in JAX. Undecidable comparisons raise.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.export.terms import (
    factors_of,
    leading,
    over,
    sum_key,
    sum_text,
    term_key,
    times,
)
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.create import dim_value
from shardwise._src.types.dtypes import is_integer, max_value
from shardwise._src.types.symbolic import Symbolic

INF = math.inf


class Unwritten(Exception):
    """A dimension would be written into the text of a module."""


_UNWRITTEN: ContextVar[frozenset[Any]] = ContextVar("unwritten", default=frozenset())


@contextmanager
def unwritten(scopes: Iterable[Any]) -> Iterator[None]:
    """Dimensions of these scopes have no text within this block: they must be lowered as values."""
    token = _UNWRITTEN.set(frozenset(scopes))
    try:
        yield
    finally:
        _UNWRITTEN.reset(token)


class _NoNumber(InconclusiveDimensionOperation, TypeError):
    """The error types that Python and NumPy expect for a value that is not an integer."""


_NoNumber.__name__ = _NoNumber.__qualname__ = InconclusiveDimensionOperation.__name__


# A factor is the name of a variable, or (operation, left, right). A term is a sorted tuple of
# factors with their powers; a dimension is a sum of terms with coefficients.

_MAX_EXTREMES = 4  # limit on splitting into cases
_MAX_STEPS = 32  # limit on the terms of a quotient


class Dim(Symbolic):
    """A symbolic dimension. Combines with integers and dimensions of the same scope."""

    __slots__ = ("terms", "scope", "key", "_text")
    __array_priority__ = 1000

    def __init__(self, terms: Mapping[tuple, int], scope: Any):
        self.terms = tuple(sorted(terms.items(), key=lambda t: term_key(t[0]), reverse=True))
        self.key = sum_key(self.terms)
        self.scope = scope
        self._text = sum_text(self.terms)

    @property
    def alone(self) -> Any:
        """The factor, if the dimension consists of a single one; else None."""
        if len(self.terms) == 1 and self.terms[0][1] == 1:
            factors = self.terms[0][0]
            if len(factors) == 1 and factors[0][1] == 1:
                return factors[0][0]
        return None

    def variables(self) -> set[str]:
        """The names of the variables in it."""
        found: set[str] = set()
        for factors, _ in self.terms:
            for factor, _ in factors:
                sides = () if isinstance(factor, str) else factor[1:]
                found |= {factor} if isinstance(factor, str) else set()
                found = found.union(*[s.variables() for s in sides if isinstance(s, Dim)])
        return found

    def at(self, sizes: Mapping[str, Any]) -> Any:
        """Its value for given sizes of the variables, which may be dimensions of another scope."""
        return self.mapped(lambda factor: _factor_at(factor, sizes))

    def mapped(self, value_of: Callable[[Any], Any]) -> Any:
        """Its value if each factor has the value that a function returns."""
        total: Any = 0
        for factors, count in self.terms:
            product: Any = count
            for factor, power in factors:
                product = product * value_of(factor) ** power
            total = total + product
        return total

    def line(self, name: str) -> tuple[int, int]:
        """Slope and constant, if the dimension is a linear function of one variable; else 0, 0."""
        terms = dict(self.terms)
        found = terms.pop(((name, 1),), 0), terms.pop((), 0)
        return (0, 0) if terms else found

    def __str__(self) -> str:
        if self.scope in _UNWRITTEN.get():
            raise Unwritten
        return self._text

    __repr__ = __str__

    # Not an integer, and must not be used as one.
    def __index__(self) -> int:
        raise _NoNumber(
            f"an integer is required, but the symbolic dimension {self} has no value "
            "before an exported function is called. Inside an exported function, use it as the "
            "size of a dimension, or in arithmetic with arrays."
        )

    __int__ = __float__ = __index__  # type: ignore[assignment]

    def __bool__(self) -> bool:
        low, high = bounds(self)
        if low > 0 or high < 0:
            return True
        raise InconclusiveDimensionOperation(
            f"whether {self} is 0 depends on the sizes of symbolic dimensions. Add a "
            f"constraint: '{self} >= 1', or '{self} == 0'."
        )

    # -- in programs --

    @property
    def least(self) -> float:
        return bounds(self)[0]

    def as_array(self, dtype: Any) -> Any:
        if is_integer(dtype) and dtype.itemsize < 4 and bounds(self)[1] > max_value(dtype):
            raise InconclusiveDimensionOperation(
                f"the value of the symbolic dimension {self} may not fit into {dtype}. Use int32, "
                "or bound it with a constraint."
            )
        return convert_element_type(dim_value(dim=self), dtype=dtype, weak=False)

    def __jax_array__(self) -> Any:
        return dim_value(dim=self)

    def cut(self, part: slice, size: Any) -> tuple[Any, Any, int]:
        step = 1 if part.step is None else operator.index(part.step)
        if step == 0:
            raise ValueError("slice step cannot be zero")
        last = size - 1
        if step > 0:
            start = _inside(part.start, size, 0, 0, size)
            stop = _inside(part.stop, size, size, 0, size)
            count = (stop - start + step - 1) // step
        else:
            start = _inside(part.start, size, last, -1, last)
            stop = _inside(part.stop, size, -1, -1, last)
            count = (start - stop - step - 1) // -step
        return start, max_dim(count, 0), step

    def __hash__(self) -> int:
        return hash(self._text)

    # -- arithmetic --

    def _other(self, other: Any) -> Any:
        if isinstance(other, Dim):
            if other.scope is not self.scope:
                raise ValueError(
                    f"the symbolic dimensions {self} and {other} have different scopes: create "
                    "them with one call of `shardwise.export.symbolic_shape`, or pass `scope`."
                )
            return other
        try:
            return operator.index(other)
        except TypeError:
            return None

    def __add__(self, other: Any) -> Any:
        other = self._other(other)
        if other is None:
            return NotImplemented
        return _made(self.scope, (*self.terms, *_terms_of(other)))

    def __mul__(self, other: Any) -> Any:
        other = self._other(other)
        if other is None:
            return NotImplemented
        pairs = [(times(a, b), m * n) for a, m in self.terms for b, n in _terms_of(other)]
        return _made(self.scope, pairs)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __pow__(self, power: int) -> Any:
        return functools.reduce(operator.mul, [self] * operator.index(power), 1)

    def __floordiv__(self, other: Any) -> Any:
        return self._apart(other, "floordiv")

    def __mod__(self, other: Any) -> Any:
        return self._apart(other, "mod")

    def __rfloordiv__(self, other: Any) -> Any:
        return _operation("floordiv", other, self, self.scope)

    def __rmod__(self, other: Any) -> Any:
        return _operation("mod", other, self, self.scope)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def _apart(self, other: Any, name: str) -> Any:
        """Quotient or remainder; terms that a number divides exactly are split off."""
        other = self._other(other)
        if other is None:
            return NotImplemented
        if isinstance(other, Dim):
            whole = _quotient(self, other)
            if whole is not None:
                return whole if name == "floordiv" else 0
            return _operation(name, self, other, self.scope)
        if other == 0:
            raise ZeroDivisionError(f"the symbolic dimension {self} is divided by zero.")
        even = {t: n // other for t, n in self.terms if n % other == 0 and t}
        rest = _made(self.scope, [(t, n) for t, n in self.terms if t not in even])
        left = _made(self.scope, even.items())
        if not isinstance(rest, Dim):
            return rest // other + left if name == "floordiv" else rest % other
        found = _operation(name, rest, other, self.scope)
        return found + left if name == "floordiv" else found

    # -- comparisons --

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dim) or other.scope is not self.scope:
            return False
        return self.terms == other.terms or bounds(self - other) == (0, 0)

    def __ge__(self, other: Any) -> bool:
        return self._decided(other, ">=", self - other, 0)

    def __gt__(self, other: Any) -> bool:
        return self._decided(other, ">", self - other, 1)

    def __le__(self, other: Any) -> bool:
        return self._decided(other, "<=", other - self, 0)

    def __lt__(self, other: Any) -> bool:
        return self._decided(other, "<", other - self, 1)

    def _decided(self, other: Any, sign: str, difference: Any, least: int) -> bool:
        low, high = bounds(difference)
        if low >= least:
            return True
        if high < least:
            return False
        fits = {">": f">= {other + 1}", "<": f"<= {other - 1}"}.get(sign, f"{sign} {other}")
        raise InconclusiveDimensionOperation(
            f"whether {self} {sign} {other} depends on the sizes of symbolic dimensions. Add a "
            f"constraint, as in symbolic_shape(..., constraints=['{self} {fits}'])."
        )


def _inside(n: Any, size: Any, default: Any, low: Any, high: Any) -> Any:
    """A slice bound, normalized to count from the front and clamped to the valid range."""
    if n is None:
        return default
    n = n if isinstance(n, Dim) else operator.index(n)
    return max_dim(min_dim(n + size if n < 0 else n, high), low)


def _terms_of(x: Any) -> tuple[tuple[tuple, int], ...]:
    return x.terms if isinstance(x, Dim) else (((), x),)


def _made(scope: Any, terms: Iterable[tuple[tuple, int]]) -> Any:
    """A dimension from terms, or a number if no variable remains."""
    total: dict[tuple, int] = {}
    for factors, count in terms:
        total[factors] = total.get(factors, 0) + count
    for factors, (count, value) in scope.multiples.items():
        turns, rest = divmod(total.get(factors, 0), count)
        if turns and not rest:
            del total[factors]
            for own, n in _terms_of(value):
                total[own] = total.get(own, 0) + n * turns
    total = {t: n for t, n in total.items() if n}
    if not any(total):
        return total.get((), 0)
    return Dim(total, scope)


def of_factor(factor: Any, scope: Any) -> Any:
    """The dimension of one factor, or the value that a constraint substitutes for it."""
    if factor in scope.equal:
        return scope.equal[factor]
    return Dim({((factor, 1),): 1}, scope)


def _operation(name: str, left: Any, right: Any, scope: Any) -> Any:
    if isinstance(left, Dim) or isinstance(right, Dim):
        return of_factor((name, left, right), scope)
    return OPERATIONS[name](left, right)


def _quotient(x: Dim, by: Dim) -> Any:
    """x / by if the quotient is a polynomial, by long division; else None."""
    order = factors_of(by.terms, x.terms)
    factors, count = leading(by.terms, order)
    found, rest = 0, x
    for _ in range(_MAX_STEPS):
        own, n = leading(_terms_of(rest), order)
        term = over(own, factors)
        if term is None or n % count:
            return None
        part = _made(x.scope, [(term, n // count)])
        found, rest = found + part, rest - by * part
        if not isinstance(rest, Dim) and rest == 0:
            return found
    return None


def max_dim(d1: Any, d2: Any) -> Any:
    """The larger of two sizes: an integer, or a symbolic dimension if one of them is symbolic."""
    return _extreme("max", d1, d2)


def min_dim(d1: Any, d2: Any) -> Any:
    """The smaller of two sizes: an integer, or a symbolic dimension if one of them is symbolic."""
    return _extreme("min", d1, d2)


def _extreme(name: str, a: Any, b: Any) -> Any:
    if not (isinstance(a, Dim) or isinstance(b, Dim)):
        return max(a, b) if name == "max" else min(a, b)
    low, high = bounds(a - b)
    if low >= 0 or high <= 0:
        return a if (low >= 0) == (name == "max") else b
    scope = next(x.scope for x in (a, b) if isinstance(x, Dim))
    return _operation(name, a, b, scope)


def _factor_at(factor: Any, sizes: Mapping[str, Any]) -> Any:
    if isinstance(factor, str):
        return sizes[factor]
    name, *sides = factor
    left, right = (s.at(sizes) if isinstance(s, Dim) else s for s in sides)
    return OPERATIONS[name](left, right)


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": max_dim,
    "min": min_dim,
}


# -- bounds --


def bounds(x: Any) -> tuple[float, float]:
    """Lower and upper bound of a size."""
    if not isinstance(x, Dim):
        return x, x
    low, high = _beyond_least(x)
    for c in (*x.scope.positive, *_known_of(x)):  # each is at least 0, so that x >= x - k * c
        for k in _factors_against(x, c):
            less = x - c * k
            part = _interval(less) if isinstance(less, Dim) else (less, less)
            low, high = (max(low, part[0]), high) if k > 0 else (low, min(high, part[1]))
    extremes = [*dict.fromkeys([f for f in _factors_of(x) if f[0] in ("max", "min")])]
    if 0 < len(extremes) <= _MAX_EXTREMES:  # the first one equals one of its two sides
        (a, b), (c, d) = (bounds(_replaced(x, extremes[0], side)) for side in extremes[0][1:])
        low, high = max(low, min(a, c)), min(high, max(b, d))
    return low, high


def _factors_of(x: Dim) -> list[tuple]:
    """Its factors that are operations, in order."""
    return [f for term, _ in x.terms for f, _ in term if not isinstance(f, str)]


def _replaced(x: Dim, factor: tuple, value: Any) -> Any:
    """A dimension with a value substituted for a factor."""
    return x.mapped(lambda f: value if f == factor else of_factor(f, x.scope))


def _known_of(x: Dim) -> list[Dim]:
    """Nonnegative expressions that follow from the quotients, remainders and extremes in x."""
    found = []
    for factor in dict.fromkeys(_factors_of(x)):
        name, left, right = factor
        if name in ("max", "min"):
            own, sign = of_factor(factor, x.scope), 1 if name == "max" else -1
            found += [(own - left) * sign, (own - right) * sign]
        if name not in ("floordiv", "mod") or bounds(right)[0] < 1:
            continue
        own = of_factor(factor, x.scope)
        if name == "mod":
            found.append(right - 1 - own)
            continue
        rest = _operation("mod", left, right, x.scope)
        low, high = (0, right - 1) if isinstance(rest, Dim) else (rest, rest)
        found += [left - right * own - low, right * own - left + high]
    return [c for c in found if isinstance(c, Dim)]


def _factors_against(x: Dim, c: Dim) -> list[int]:
    """Multiples of a constraint that cancel a term of x."""
    own = dict(x.terms)
    return sorted({own[t] // n for t, n in c.terms if t in own and own[t] % n == 0})


def _beyond_least(x: Dim) -> tuple[float, float]:
    """Bounds of x, tightened by rewriting it in terms of each factor's excess over its lower bound:
    a*b - b becomes (a - 1) * b.
    """
    ends = {f: _factor_bounds(f, x.scope) for factors, _ in x.terms for f, _ in factors}
    low, high = _interval(x, ends)
    least = [a for a, _ in ends.values()]
    if len(x.terms) > 1 and -INF not in least and not x.scope.equal.keys() & ends.keys():
        moved = x
        for f, a in zip(ends, least, strict=True):
            moved = _replaced(moved, f, of_factor(f, x.scope) + int(a))
        part = _interval(moved, {f: (0, b - a) for f, (a, b) in ends.items()})
        low, high = max(low, part[0]), min(high, part[1])
    return low, high


def _interval(x: Dim, ends: Mapping[Any, tuple[float, float]] | None = None) -> tuple[float, float]:
    """Bounds of x from the bounds of its factors."""
    low, high = 0.0, 0.0
    for factors, count in x.terms:
        a, b = 1.0, 1.0
        for factor, power in factors:
            own = _factor_bounds(factor, x.scope) if ends is None else ends[factor]
            for _ in range(power):
                corners = [_product(p, q) for p in (a, b) for q in own]
                a, b = min(corners), max(corners)
        a, b = sorted((_product(a, count), _product(b, count)))
        low, high = low + a, high + b
    return low, high


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _factor_bounds(factor: Any, scope: Any) -> tuple[float, float]:
    if isinstance(factor, str):
        return _variable_bounds(factor, scope)
    name, left, right = factor
    (a, b), (c, d) = bounds(left), bounds(right)
    if name in ("max", "min"):
        pick = max if name == "max" else min
        return pick(a, c), pick(b, d)
    if name == "mod":
        return (0, d - 1) if c > 0 else (c + 1, 0) if d < 0 else (-INF, INF)
    if c <= 0:
        return -INF, INF
    ends = [
        -INF if p == -INF else INF if p == INF else 0 if q == INF else p // q
        for p in (a, b)
        for q in (c, d)
    ]
    if INF in (c, d) and a < 0:
        ends.append(-1)
    return min(ends), max(ends)


def _variable_bounds(name: str, scope: Any) -> tuple[float, float]:
    """From the constraints that involve only this variable."""
    low, high = 1.0, INF
    for c in scope.positive:
        slope, rest = c.line(name)
        if slope > 0:
            low = max(low, -(rest // slope))
        elif slope < 0:
            high = min(high, rest // -slope)
    return low, high
