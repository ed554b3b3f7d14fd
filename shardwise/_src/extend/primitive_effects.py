"""Effects of user-defined primitives, under JAX's names.

    class Log:
        pass

    mlir.lowerable_effects.add_type(Log)
    log = Primitive("log")
    log.def_effectful_abstract_eval(lambda x: (x, {Log()}))

An equation with effects is retained even if its results are unused, and its program has them in
`effects`. Their calls are not ordered: rules of ordered calls use `io_callback(ordered=True)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardwise._src.base.lazy import public


@public("shardwise.interpreters.mlir")
class EffectTypeSet:
    """Classes of effects."""

    def __init__(self) -> None:
        self._types: set[type] = set()

    def __repr__(self) -> str:
        return f"EffectTypeSet({', '.join(sorted(t.__name__ for t in self._types))})"

    def add_type(self, effect_type: type) -> None:
        """Adds a class."""
        self._types.add(effect_type)

    def contains(self, eff: Any) -> bool:
        """Whether an effect is an instance of one of the classes."""
        return isinstance(eff, tuple(self._types))

    def filter_in(self, effects: Iterable[Any]) -> list[Any]:
        """The effects that are instances of the classes."""
        return [e for e in effects if self.contains(e)]

    def filter_not_in(self, effects: Iterable[Any]) -> list[Any]:
        """The effects that are not."""
        return [e for e in effects if not self.contains(e)]


lowerable_effects = EffectTypeSet()  # of programs that may be compiled
