"""Facts about the values in a random program, which bound the differences between two runs.

Sharding reorders sums and changes the fusion of kernels. So each
value of a program has a bound on its finite elements, and one on how much two correct runs may
differ. Integers stay exact in any order while the sum of all absolute values has an exact
float; most programs have only these. If a sum is inexact, its error is the usual bound, terms ×
epsilon × magnitude, which each step propagates. Discontinuous steps (sort, compare, round) take
exact values only. NaN and infinities follow the same rules in every order, and have no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Fact:
    """Facts about one value.

    bound: on the absolute value of finite elements; inf if they are unbounded.
    whole: whether all finite elements are integers.
    error: by how much two correct runs may differ.
    signs: a zero has the same sign in every correct run, except that -0 may become 0 when it is
      moved between devices; so the signs of computed zeros are unknown.
    """

    bound: float = inf
    whole: bool = False
    error: float = 0.0
    signs: bool = True


@dataclass(frozen=True)
class Var:
    """A value of a program."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    fact: Fact

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def kind(self) -> str:
        return kind(self.dtype)

    @property
    def exact(self) -> bool:
        return self.fact.error == 0


Rule = Callable[[np.dtype], Fact]


class Unfit(Exception):
    """The available values do not suit a step."""


def unfit_if(condition: object) -> None:
    if condition:
        raise Unfit


def kind(dtype: np.dtype) -> str:
    """b, i, u, f or c."""
    if dtype.kind == "V" or dtype.name == "bfloat16":
        return "f"
    return dtype.kind


def epsilon(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(np.float32 if kind(dtype) == "c" else dtype).eps)


def largest(dtype: np.dtype) -> float:
    if kind(dtype) in "biu":
        return 1.0 if kind(dtype) == "b" else float(np.iinfo(dtype).max)
    return float(ml_dtypes.finfo(np.float32 if kind(dtype) == "c" else dtype).max)


def settled(fact: Fact, dtype: np.dtype, rounds: float = 0) -> Fact:
    """Facts about a result of this dtype with so many roundings of its bound, in any order."""
    if kind(dtype) in "biu":
        bound = fact.bound if fact.bound <= largest(dtype) else inf
        return Fact(bound, whole=True)
    exact = fact.whole and fact.error == 0 and fact.bound <= 2 / epsilon(dtype)
    if not rounds or exact:
        return fact
    if fact.bound > largest(dtype) / 16:
        raise Unfit("may overflow in one order, and not in another")
    return replace(fact, whole=False, error=fact.error + rounds * epsilon(dtype) * fact.bound)


def moved(*xs: Var, signs: bool = True) -> Rule:
    """Only elements of the operands."""
    facts = [x.fact for x in xs]
    found = Fact(
        max(f.bound for f in facts), all(f.whole for f in facts), max(f.error for f in facts),
        signs and all(f.signs for f in facts),
    )  # fmt: skip
    return lambda dtype: settled(found, dtype)


def known(bound: float, *, whole: bool = True, error: float = 0.0, signs: bool = True) -> Rule:
    return lambda dtype: settled(Fact(bound, whole, error, signs), dtype)


def summed(x: Var, terms: int, factor: float = 1.0) -> Rule:
    """Sums of so many elements, each times at most an integer factor."""
    most = max(terms, 1) * factor
    fact = Fact(x.fact.bound * most, x.fact.whole, x.fact.error * most, signs=False)
    return lambda dtype: settled(fact, dtype, rounds=terms + 2)


def product(x: Var, y: Var, terms: int = 1) -> Rule:
    """Sums of products."""
    f, g = x.fact, y.fact
    if inf in (f.bound, g.bound) and "f" in kind(x.dtype) + kind(y.dtype):
        raise Unfit("anything times anything")
    n = max(terms, 1)
    fact = Fact(
        n * f.bound * g.bound, f.whole and g.whole,
        n * (f.bound * g.error + f.error * (g.bound + g.error)),
        signs=False,
    )  # fmt: skip
    return lambda dtype: settled(fact, dtype, rounds=n + 2)
