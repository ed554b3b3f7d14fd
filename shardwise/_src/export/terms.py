"""Sums of products, which represent symbolic dimensions: their order and text form.

A factor is the name of a variable, or (operation, left, right). A term is a sorted tuple of
factors with their powers; a sum has a coefficient for each term.
"""

from __future__ import annotations

from typing import Any


def order(row: tuple[tuple, int]) -> Any:
    """Sort key of terms: highest powers first."""
    factors = row[0]
    return -sum(power for _, power in factors), [(factor_text(f), p) for f, p in factors]


def times(a: tuple, b: tuple) -> tuple:
    """The product of two terms."""
    powers = dict(a)
    for factor, power in b:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda row: factor_text(row[0])))


def factor_text(factor: Any) -> str:
    """`max(a, 2*b)`, or the name of a variable."""
    if isinstance(factor, str):
        return factor
    sides = [getattr(x, "_text", x) for x in factor[1:]]
    return f"{factor[0]}({sides[0]}, {sides[1]})"


def sum_text(terms: tuple[tuple[tuple, int], ...]) -> str:
    """`2*a + b^2 - 1`."""
    texts = []
    for factors, count in terms:
        parts = [factor_text(f) + (f"^{p}" if p > 1 else "") for f, p in factors]
        if abs(count) != 1 or not parts:
            parts.insert(0, str(abs(count)))
        texts.append((" - " if count < 0 else " + ") + "*".join(parts))
    text = "".join(texts)
    return text[3:] if text.startswith(" + ") else "-" + text[3:]
