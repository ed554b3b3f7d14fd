"""`Frozen`: base class of shared, immutable values.

Assigning to an attribute raises an error with advice; a copy is the value itself. A
subclass sets its fields with `self.__dict__.update(...)`; `functools.cached_property` works too.
"""

from __future__ import annotations

from typing import Any, ClassVar, Never, Self


class Frozen:
    instead: ClassVar[str] = "make a new one"

    def __setattr__(self, name: str, value: Any) -> Never:
        kind = type(self).__name__
        raise AttributeError(f"cannot assign to {name!r}: a {kind} is immutable; {self.instead}.")

    def __delattr__(self, name: str) -> Never:
        kind = type(self).__name__
        raise AttributeError(f"cannot delete {name!r}: a {kind} is immutable; {self.instead}.")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
