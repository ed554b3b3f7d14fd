"""Words for messages: lists and counts."""

from __future__ import annotations

from typing import Any


def listed(items: Any, joint: str = "and") -> str:
    """`'x', 'y' and 'z'`, for messages."""
    texts = [repr(item) for item in items]
    if len(texts) < 2:
        return "".join(texts) or "none"
    return f"{', '.join(texts[:-1])} {joint} {texts[-1]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 device`, `2 devices`, for messages."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
