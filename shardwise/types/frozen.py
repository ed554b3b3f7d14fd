"""`Frozen`: base of values that are made once, shared by everyone and never change.

Assigning to an attribute raises and says what to do instead; copies are the value itself. A
subclass fills its fields with `self.__dict__.update(...)`; `functools.cached_property` works too.
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


def listed(items: Any, joint: str = "and") -> str:
    """`'x', 'y' and 'z'`, for messages."""
    texts = [repr(item) for item in items]
    if len(texts) < 2:
        return "".join(texts) or "none"
    return f"{', '.join(texts[:-1])} {joint} {texts[-1]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 device`, `2 devices`, for messages."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
