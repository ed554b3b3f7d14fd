"""Symbolic dimensions: sizes that are known when an exported program is called.

    a, b = symbolic_shape("a, 2*b", constraints=["a >= 3"])
    a * b // 2 + 1          # arithmetic gives dimensions, as polynomials in a normal form
    a + 1 > 2               # True: decided for all sizes that the constraints allow
    a > b                   # InconclusiveDimensionOperation: it depends

Variables are at least 1. A comparison is decided by bounds of the difference of its sides; `==` of
sides that only may be equal is False, as in JAX. What cannot be decided raises.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardwise._src.types.symbolic import Symbolic

INF = math.inf


class InconclusiveDimensionOperation(TypeError):
    """A comparison of symbolic dimensions that holds for some sizes and not for others."""


# A factor is the name of a variable, or (operation, left, right). A term is a tuple of factors with
# their powers, in order; a dimension is a sum of terms with coefficients.
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min,
}


class Dim(Symbolic):
    """A symbolic dimension. Whole numbers and dimensions of the same scope go together with it."""

    __slots__ = ("terms", "scope", "_text")
    __array_priority__ = 1000

    def __init__(self, terms: Mapping[tuple, int], scope: Any):
        self.terms = tuple(sorted(terms.items(), key=_order))
        self.scope = scope
        self._text = _sum_text(self.terms)

    @property
    def alone(self) -> Any:
        """The one factor that this is; or None."""
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
        """Its value for sizes of the variables, which may be dimensions of another scope."""
        total: Any = 0
        for factors, count in self.terms:
            product: Any = count
            for factor, power in factors:
                product = product * _factor_at(factor, sizes) ** power
            total = total + product
        return total

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    # Not a whole number; and nothing takes it for one.
    def __index__(self) -> int:
        raise InconclusiveDimensionOperation(
            f"a whole number is needed, and the symbolic dimension {self} is none before an "
            "exported function is called. Arrays and programs here have shapes of numbers: export "
            "for each, or export from JAX, whose symbolic exports are called here."
        )

    __int__ = __float__ = __bool__ = __index__  # type: ignore[assignment]

    def __hash__(self) -> int:
        return hash(self._text)

    # -- arithmetic --

    def _other(self, other: Any) -> Any:
        if isinstance(other, Dim):
            if other.scope is not self.scope:
                raise ValueError(
                    f"the symbolic dimensions {self} and {other} are of different scopes: make "
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
        pairs = [(_times(a, b), m * n) for a, m in self.terms for b, n in _terms_of(other)]
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

    def _apart(self, other: Any, name: str) -> Any:
        """Quotient or remainder: of the terms that a number divides by themselves."""
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
        if isinstance(other, Dim):
            return other.scope is self.scope and self.terms == other.terms
        return False

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
        raise InconclusiveDimensionOperation(
            f"whether {self} {sign} {other} depends on the sizes of symbolic dimensions. Say what "
            f"they are with constraints, as in symbolic_shape(..., constraints=['{self} {sign} "
            f"{other}'])."
        )


def _order(row: tuple[tuple, int]) -> Any:
    factors = row[0]
    return -sum(power for _, power in factors), [(_factor_text(f), p) for f, p in factors]


def _terms_of(x: Any) -> tuple[tuple[tuple, int], ...]:
    return x.terms if isinstance(x, Dim) else (((), x),)


def _times(a: tuple, b: tuple) -> tuple:
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda row: _factor_text(row[0])))


def _made(scope: Any, terms: Iterable[tuple[tuple, int]]) -> Any:
    """A dimension of terms, or a number where no variable is left."""
    total: dict[tuple, int] = {}
    for factors, count in terms:
        total[factors] = total.get(factors, 0) + count
    total = {t: n for t, n in total.items() if n}
    if not any(total):
        return total.get((), 0)
    return Dim(total, scope)


def of_factor(factor: Any, scope: Any) -> Any:
    """The dimension of one factor, or what a constraint says to take for it."""
    if factor in scope.equal:
        return scope.equal[factor]
    return Dim({((factor, 1),): 1}, scope)


def _operation(name: str, left: Any, right: Any, scope: Any) -> Any:
    if isinstance(left, Dim) or isinstance(right, Dim):
        return of_factor((name, left, right), scope)
    return _OPERATIONS[name](left, right)


def _quotient(x: Dim, by: Dim) -> Any:
    """x / by where it divides evenly, term by term, by a single term; else None."""
    if x == by:
        return 1
    if len(by.terms) != 1:
        return None
    ((factors, count),) = by.terms
    found = []
    for own, n in x.terms:
        powers = dict(own)
        for factor, power in factors:
            powers[factor] = powers.get(factor, 0) - power
        if n % count or min(powers.values(), default=0) < 0:
            return None
        found.append((tuple([(f, p) for f, p in powers.items() if p]), n // count))
    return _made(x.scope, found)


def max_dim(a: Any, b: Any) -> Any:
    """The larger of two sizes."""
    return _extreme("max", a, b)


def min_dim(a: Any, b: Any) -> Any:
    """The smaller of two sizes."""
    return _extreme("min", a, b)


def _extreme(name: str, a: Any, b: Any) -> Any:
    if not (isinstance(a, Dim) or isinstance(b, Dim)):
        return _OPERATIONS[name](a, b)
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
    if name in ("max", "min"):
        return _extreme(name, left, right)
    return _OPERATIONS[name](left, right)


# -- bounds --


def bounds(x: Any) -> tuple[float, float]:
    """What a size is at least, and at most."""
    if not isinstance(x, Dim):
        return x, x
    low, high = _interval(x)
    for c in x.scope.positive:  # each is at least 0, so that x >= x - k * c
        for k in _factors_against(x, c):
            less = x - c * k
            part = _interval(less) if isinstance(less, Dim) else (less, less)
            low, high = (max(low, part[0]), high) if k > 0 else (low, min(high, part[1]))
    return low, high


def _factors_against(x: Dim, c: Dim) -> list[int]:
    """Multiples of a constraint that take a term away from x."""
    own = dict(x.terms)
    found = {own[t] // n for t, n in c.terms if t in own and own[t] % n == 0}
    return sorted(found)


def _interval(x: Dim) -> tuple[float, float]:
    low, high = 0.0, 0.0
    for factors, count in x.terms:
        a, b = 1.0, 1.0
        for factor, power in factors:
            ends = _factor_bounds(factor, x.scope)
            for _ in range(power):
                corners = [_product(p, q) for p in (a, b) for q in ends]
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
    ends = [-INF if p == -INF else INF if p == INF else 0 if q == INF else p // q
            for p in (a, b) for q in (c, d)]
    if INF in (c, d) and a < 0:
        ends.append(-1)
    return min(ends), max(ends)


def _variable_bounds(name: str, scope: Any) -> tuple[float, float]:
    """By the constraints that are about this variable alone."""
    low, high = 1.0, INF
    for c in scope.positive:
        terms = dict(c.terms)
        slope, rest = terms.pop(((name, 1),), 0), terms.pop((), 0)
        if terms or not slope:
            continue
        if slope > 0:
            low = max(low, -(rest // slope))
        else:
            high = min(high, rest // -slope)
    return low, high


# -- text --


def _factor_text(factor: Any) -> str:
    if isinstance(factor, str):
        return factor
    return f"{factor[0]}({factor[1]}, {factor[2]})"


def _sum_text(terms: tuple[tuple[tuple, int], ...]) -> str:
    texts = []
    for factors, count in terms:
        parts = [_factor_text(f) + (f"^{p}" if p > 1 else "") for f, p in factors]
        if abs(count) != 1 or not parts:
            parts.insert(0, str(abs(count)))
        texts.append((" - " if count < 0 else " + ") + "*".join(parts))
    text = "".join(texts)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]
