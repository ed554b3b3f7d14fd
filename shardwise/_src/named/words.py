"""Words for dimensions, and how they are read.

    parse("batch seq embed")                  # ("batch", "seq", "embed")
    parse("batch seq (heads head)")           # ("batch", "seq", ("heads", "head"))
    sides("batch seq, seq embed -> batch embed")

A dimension is a word; in patterns of `rearrange` also a group of words in parentheses, the major
one first, or `1`. `_` is a dimension that nobody speaks of: of any size, split as it comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from shardwise._src.messages.words import join

ANY = "_"
NONE = ""  # in the op `axes`: no word, and not the axis that was
Word = str
Part = Word | tuple[Word, ...]  # () is a dimension of size 1
_TOKEN = re.compile(r"\s*([()]|\S[^\s()]*)")


class Parameter(str):
    """Words of a parameter, or of what is kept like one."""

    __slots__ = ()


def parse(text: Any, who: str, patterned: bool = False) -> tuple[Any, ...]:
    """The words of a text; with groups and ones where `patterned`.

    Raises:
      TypeError: for what is no text. ValueError: for a word that is none, or that comes twice.
    """
    if not isinstance(text, str):
        raise TypeError(
            f"{who}: words for axes are a text such as 'batch embed'; got {text!r} of type "
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
            allowed = "words, `1` and groups such as (heads head)" if patterned else "words"
            raise ValueError(f"{who}: {token!r} in {text!r} is no word. Axes are {allowed}.")
    if group is not None:
        raise ValueError(f"{who}: a group in {text!r} is not closed.")
    found = [word for word in flat(parts) if word != ANY]
    twice = sorted({word for word in found if found.count(word) > 1})
    if twice:
        raise ValueError(
            f"{who}: {text!r} has {join(twice)} twice. Each axis of a value has a word of its "
            "own; give one of them another."
        )
    return tuple(parts)


def sides(pattern: Any, who: str) -> tuple[str, str]:
    """What stands before and behind the arrow of a pattern."""
    if not isinstance(pattern, str) or pattern.count("->") != 1:
        raise ValueError(
            f"{who}: a pattern has one arrow, as in 'batch embed -> batch'; got {pattern!r}."
        )
    left, right = pattern.split("->")
    return left.strip(), right.strip()


def flat(parts: Iterable[Part]) -> list[Word]:
    """The words of dimensions, those of groups too."""
    return [w for part in parts for w in ((part,) if isinstance(part, str) else part)]
