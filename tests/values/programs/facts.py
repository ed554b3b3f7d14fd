"""What is known of the values in a random program, so that it is known how equal two runs must be.

Sums are reordered when they are divided over devices, and kernels are fused differently. So each
value of a program carries a bound on its finite elements, and one on how far two correct runs may
be apart. Whole numbers stay exact in any order while the sum of all absolute values has an exact
float; most programs have only these. Where a sum is not exact its error is the usual bound, terms ×
epsilon × magnitude, carried on by each step. Steps that jump (sort, compare, round) take exact
values only. NaN and infinities follow the same rules in every order, and have no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Fact:
    """Of one value.

    bound: of the absolute value of finite elements; inf where they may be anything.
    whole: all finite elements are whole numbers.
    error: by how much two correct runs may differ.
    signs: a zero has the same sign in every correct run, but that -0 may become 0 where it is
      moved between devices; so it is unknown of what is computed.
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
    """The values at hand do not suit a step."""


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
    """What holds of a result of this dtype that rounds so many times its bound, in some order."""
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
    """Elements of the operands, and no others."""
    facts = [x.fact for x in xs]
    found = Fact(
        max(f.bound for f in facts), all(f.whole for f in facts), max(f.error for f in facts),
        signs and all(f.signs for f in facts),
    )  # fmt: skip
    return lambda dtype: settled(found, dtype)


def known(bound: float, *, whole: bool = True, error: float = 0.0, signs: bool = True) -> Rule:
    return lambda dtype: settled(Fact(bound, whole, error, signs), dtype)


def summed(x: Var, terms: int, factor: float = 1.0) -> Rule:
    """Sums of so many elements, each times at most a whole factor."""
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
