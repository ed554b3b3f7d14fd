"""`NamedShape`: the shape of values that also have named axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex, cast

from shardwise._src.base.lazy import public
from shardwise._src.types.frozen import Frozen


@public("shardwise.core")
class NamedShape(Frozen):
    """Sizes of dimensions, and sizes of named axes.

        random.normal(key, NamedShape(3, i=8))     # f32[3], with different numbers for each i

    Dimensions are positional, in order. Names are keywords, or keys of a dict passed as the last
    positional argument if they are not identifiers. Without names it equals a tuple.
    """

    instead = "make a new one with NamedShape(...)"
    positional: tuple[int, ...]
    _named: tuple[tuple[Any, int], ...]

    def __init__(self, *sizes: Any, **named: int):
        names: dict[Any, int] = {}
        if sizes and isinstance(sizes[-1], Mapping):
            names.update(cast("Mapping[Any, int]", sizes[-1]))
            sizes = sizes[:-1]
        names.update(named)
        rows = sorted(names.items(), key=lambda pair: repr(pair[0]))
        self.__dict__.update(positional=sizes, _named=tuple(rows))

    @property
    def names(self) -> tuple[Any, ...]:
        return tuple([name for name, _ in self._named])

    def named_items(self) -> Iterable[tuple[Any, int]]:
        """Names with sizes, in an order independent of the order of the arguments."""
        return self._named

    @property
    def rank(self) -> int:
        return len(self.positional) + len(self._named)

    @property
    def positional_rank(self) -> int:
        return len(self.positional)

    @property
    def named_rank(self) -> int:
        return len(self._named)

    @property
    def total(self) -> int:
        """The number of elements, over all indices."""
        return math.prod([*self.positional, *[n for _, n in self._named]])

    def __getitem__(self, axis: Any) -> int:
        """The size of a dimension, by number, or of an axis, by name."""
        for name, size in self._named:
            if name == axis:
                return size
        if not isinstance(axis, SupportsIndex):
            raise KeyError(f"{self!r} has no axis {axis!r}")
        return self.positional[axis]

    def __len__(self) -> int:
        return len(self.positional)

    def __iter__(self) -> Any:
        return iter(self.positional)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, NamedShape):
            return (self.positional, self._named) == (other.positional, other._named)
        return not self._named and self.positional == other

    def __hash__(self) -> int:
        return hash((self.positional, self._named)) if self._named else hash(self.positional)

    def __repr__(self) -> str:
        parts = [*map(str, self.positional), *[f"{name}={size}" for name, size in self._named]]
        return f"NamedShape({', '.join(parts)})"
