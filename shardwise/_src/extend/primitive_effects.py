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

from collections.abc import Iterable, Mapping, Sequence
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


@public("shardwise.interpreters.mlir")
class TokenSet:
    """A token for each of some effects, immutable."""

    __slots__ = ("_tokens",)

    def __init__(self, tokens: Mapping[Any, Any] | None = None):
        self._tokens = dict(tokens or {})

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"TokenSet({self._tokens})"

    def get(self, effect: Any) -> Any:
        """The token of an effect. Raises KeyError if it has none."""
        return self._tokens[effect]

    def items(self) -> tuple[tuple[Any, Any], ...]:
        """Pairs of effects and tokens, in order."""
        return tuple(self._tokens.items())

    def effects(self) -> set[Any]:
        """The effects."""
        return {*self._tokens}

    def subset(self, effects: Sequence[Any]) -> TokenSet:
        """The tokens of some of the effects."""
        return TokenSet({e: self._tokens[e] for e in effects})

    def update_tokens(self, tokens: TokenSet) -> TokenSet:
        """The set with other tokens for some of its effects, in the same order."""
        if not len(tokens):
            return self
        return TokenSet({e: tokens._tokens.get(e, token) for e, token in self.items()})
