"""Names of logical axes, and their parser.

    parse("batch seq embed")                  # ("batch", "seq", "embed")
    parse("batch seq (heads head)")           # ("batch", "seq", ("heads", "head"))
    sides("batch seq, seq embed -> batch embed")

A dimension is a name; in patterns of `rearrange` also a group of names in parentheses, major first,
or `1`. `_` is an anonymous dimension: of any size, with any sharding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from shardwise._src.messages.formatting import join

ANY = "_"
NONE = ""  # in the op `axes`: no name, and not the previous axis
Word = str
Part = Word | tuple[Word, ...]  # () is a dimension of size 1
_TOKEN = re.compile(r"\s*([()]|\S[^\s()]*)")


class Parameter(str):
    """Logical axes of a parameter, or of a similarly stored value."""

    __slots__ = ()


def parse(text: Any, who: str, patterned: bool = False) -> tuple[Any, ...]:
    """Parses a string of logical axes; with groups and ones if `patterned`.

    Raises:
      TypeError: if it is not a string. ValueError: for an invalid or repeated name.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"{who}: logical axes must be a string such as 'batch embed'; got {text!r} of type "
            f"{type(text).__name__}."
        )
    parts: list[Part] = []
    group: list[Word] | None = None
    for token in _TOKEN.findall(text):
        if patterned and token == "(" and group is None:
            group = []
        elif patterned and token == ")" and group is not None:
            parts.append(tuple(group))
            group = None
        elif patterned and token == "1" and group is None:
            parts.append(())
        elif token.isidentifier():
            (parts if group is None else group).append(token)
        else:
            allowed = "names, `1` and groups such as (heads head)" if patterned else "names"
            raise ValueError(
                f"{who}: {token!r} in {text!r} is not an axis name. Expected {allowed}."
            )
    if group is not None:
        raise ValueError(f"{who}: a group in {text!r} is not closed.")
    found = [word for word in flat(parts) if word != ANY]
    twice = sorted({word for word in found if found.count(word) > 1})
    if twice:
        raise ValueError(
            f"{who}: {text!r} has {join(twice)} twice. The axes of a value must have different "
            "names; rename one of them."
        )
    return tuple(parts)


def sides(pattern: Any, who: str) -> tuple[str, str]:
    """The two sides of the arrow of a pattern."""
    if not isinstance(pattern, str) or pattern.count("->") != 1:
        raise ValueError(
            f"{who}: a pattern must have one arrow, as in 'batch embed -> batch'; got {pattern!r}."
        )
    left, right = pattern.split("->")
    return left.strip(), right.strip()


def flat(parts: Iterable[Part]) -> list[Word]:
    """The logical axes of dimensions, including those in groups."""
    return [w for part in parts for w in ((part,) if isinstance(part, str) else part)]
