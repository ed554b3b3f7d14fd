"""Accuracy of functions: `accuracy=` of `lax.exp` and similar functions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from shardwise._src.base.lazy import public


@public("shardwise.lax")
class AccuracyMode(enum.Enum):
    """The most accurate implementation available, or the default one."""

    HIGHEST = 1
    DEFAULT = 2


@public("shardwise.lax")
@dataclass(frozen=True)
class Tolerance:
    """An error bound: absolute, relative, in units in the last place."""

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    def __post_init__(self) -> None:
        if self.atol < 0.0 or self.rtol < 0.0 or self.ulps < 0:
            raise ValueError(f"Tolerance: atol, rtol and ulps must not be negative; got {self}.")


Accuracy: TypeAlias = Tolerance | AccuracyMode | None


def check_accuracy(accuracy: Accuracy, name: str) -> None:
    """Both modes are valid: XLA has one implementation of each function on CPU and GPU."""
    mode = getattr(accuracy, "name", None)
    if accuracy is None or mode in AccuracyMode.__members__:
        return
    if isinstance(accuracy, Tolerance):
        raise NotImplementedError(
            f"{name}: XLA chooses implementations by a Tolerance on TPU only; got {accuracy}. "
            "Leave accuracy out, or give AccuracyMode.HIGHEST."
        )
    raise TypeError(
        f"{name}: accuracy must be None, an AccuracyMode or a Tolerance; got {accuracy!r}."
    )
