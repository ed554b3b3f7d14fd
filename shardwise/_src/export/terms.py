"""Sums of products, which represent symbolic dimensions: their order, text form and quotients.

A factor is the name of a variable, or (operation, left, right). A term is a sorted tuple of
factors with their powers; a sum has a coefficient for each term.

Sums are printed as in JAX: the largest term first, the smallest factor of a term first. A variable
has the size 1, an operation one more than its operands, and each factor and term adds 1; things of
equal size are in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Terms = Sequence[tuple[tuple, int]]


def factor_key(factor: Any) -> tuple[int, str, tuple]:
    """Sort key of factors."""
    if isinstance(factor, str):
        return 1, factor, ()
    sides = tuple([x.key if hasattr(x, "key") else sum_key([((), x)]) for x in factor[1:]])
    return 1 + sum([size for size, _ in sides]), factor[0], sides


def term_key(factors: tuple) -> tuple[int, tuple]:
    """Sort key of terms."""
    keys = tuple([(factor_key(f), power) for f, power in reversed(factors)])
    return sum([1 + power * key[0] for key, power in keys]), keys


def sum_key(terms: Terms) -> tuple[int, tuple]:
    """Sort key of sums."""
    keys = tuple([(term_key(factors), count) for factors, count in terms])
    return sum([1 + abs(count) * key[0] for key, count in keys]), keys


def times(a: tuple, b: tuple) -> tuple:
    """The product of two terms."""
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda row: factor_key(row[0])))


def over(a: tuple, b: tuple) -> tuple | None:
    """The quotient of two terms, or None if it is not a term."""
    found = times(a, tuple([(factor, -power) for factor, power in b]))
    if any(power < 0 for _, power in found):
        return None
    return tuple([(factor, power) for factor, power in found if power])


def leading(terms: Terms, factors: Sequence[Any]) -> tuple[tuple, int]:
    """The term with the highest power of the first factor; among equals, of the next one."""
    return max(terms, key=lambda row: [dict(row[0]).get(f, 0) for f in factors])


def factors_of(*sums: Terms) -> list[Any]:
    """All factors of sums."""
    return list(dict.fromkeys([f for terms in sums for term, _ in terms for f, _ in term]))


def factor_text(factor: Any) -> str:
    """`max(a, 2*b)`, or the name of a variable."""
    if isinstance(factor, str):
        return factor
    sides = [getattr(x, "_text", x) for x in factor[1:]]
    return f"{factor[0]}({sides[0]}, {sides[1]})"


def sum_text(terms: Terms) -> str:
    """`b^2 + 2*a - 1`."""
    texts = []
    for factors, count in terms:
        parts = [factor_text(f) + (f"^{p}" if p > 1 else "") for f, p in factors]
        if abs(count) != 1 or not parts:
            parts.insert(0, str(abs(count)))
        texts.append((" - " if count < 0 else " + ") + "*".join(parts))
    return "".join(texts).removeprefix(" + ").strip()
