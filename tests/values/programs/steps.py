"""The steps of random programs: a table of functions that write an expression.

A step takes a `Draw`, picks its operands, and returns an expression as text and the rule for its
result, or a list of rules if it has several. It raises `Unfit` where no operands suit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.values.programs.draw import Draw
from tests.values.programs.facts import Rule

Written = tuple[str, Rule | list[Rule]]


@dataclass(frozen=True)
class Step:
    """linear: moves or adds elements, so that a derivative counts them."""

    name: str
    write: Callable[[Draw], Written]
    weight: float
    linear: bool


STEPS: dict[str, Step] = {}


def step(weight: float = 1.0, linear: bool = False) -> Callable[[Any], Any]:
    def enter(write: Callable[[Draw], Written]) -> Callable[[Draw], Written]:
        STEPS[write.__name__] = Step(write.__name__, write, weight, linear)
        return write

    return enter
