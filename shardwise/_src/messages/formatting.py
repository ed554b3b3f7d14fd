"""Formatting for messages: values, lists and counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any


def short_repr(x: Any) -> str:
    """A value and its class, or the type of a traced value, for messages."""
    if hasattr(x, "aval") and hasattr(x, "interpreter"):
        return f"a traced {x.aval.str_short(True)}"
    return f"{brief(x)} of type {type(x).__name__}"


def to_register(x: Any) -> str:
    """Advice for an object of a user's class that is treated as a leaf: the end of a message."""
    kind = type(x)
    plain = kind.__module__ in ("builtins", "types", "numpy") or isinstance(x, type | Enum)
    if plain or callable(x) or kind.__module__.partition(".")[0] == "shardwise":
        return ""
    how = "register_dataclass" if is_dataclass(kind) else "register_pytree_node_class"
    return f" If it contains arrays, register its class: `shardwise.tree_util.{how}`."


def brief(x: Any) -> str:
    """The repr of a value, truncated to 60 characters."""
    text = repr(x)
    return text if len(text) <= 60 else text[:57] + "..."


def as_json(x: Any) -> Any:
    """A value, or its repr if JSON cannot represent it, such as NaN and infinity."""
    exact = type(x) in (str, int, bool) or (type(x) is float and math.isfinite(x))
    return x if exact else repr(x)


def plain_text(text: str) -> str:
    """A string that is safe to print to a terminal, with ? for unprintable characters. For text
    from other processes or files."""
    return "".join([c if c.isprintable() else "?" for c in text])


def join(items: Iterable[Any], joint: str = "and") -> str:
    """`'x', 'y' and 'z'`, for messages."""
    return joined([repr(item) for item in items], joint) or "none"


def joined(texts: Sequence[str], joint: str = "and") -> str:
    """`x, y and z`, for messages."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} {joint} {texts[-1]}"


def in_bytes(n: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def columns(rows: Sequence[Sequence[str]], sides: str = "") -> list[str]:
    """The lines of a table. sides: `<` or `>` for each column, `<` for those that are missing."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = list(zip(sides.ljust(len(widths), "<"), widths, strict=True))
    padded = [[f"{x:{side}{n}}" for x, (side, n) in zip(row, aligned, strict=True)] for row in rows]
    return ["  ".join(cells).rstrip() for cells in padded]


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """`1 device`, `2 devices`, for messages."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
