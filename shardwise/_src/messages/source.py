"""Where in the user's program a value came from.

`user_site()` walks out of shardwise's own frames and returns the code object and instruction of
the caller; the line is worked out only when an error or a location needs it. Where it comes to a
function that runs a program again, equation by equation (`replays`), it returns the line that the
equation came from: what a transform makes of a program keeps the lines of that program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import local
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.warn import PACKAGE

# Frames that are not the user's. A function of NumPy that is given a traced value asks for its
# value, and the line to name is the one that called it.
_NOT_THE_USERS = (PACKAGE, np.__file__.removesuffix("__init__.py"))

# By file, since the hash of a text is kept, and that of code is not. None: of a file of our own
# in which some functions run programs again.
_own: dict[str, bool | None] = {}
_replaying: set[CodeType] = set()

Site = tuple[CodeType, int]
F = TypeVar("F", bound=Callable[..., Any])


class _Replay(local):
    """Where the equation came from that the innermost function that replays is at, by thread."""

    site: Site | None = None


replay = _Replay()


def replays(fun: F) -> F:
    """Says that a function runs a program again, and sets `replay.site` at each equation.

    It sets that back in the end, whatever happens.
    """
    _replaying.add(fun.__code__)
    _own[fun.__code__.co_filename] = None
    return fun


def user_site(depth: int = 1) -> Site | None:
    """The innermost frame that is not shardwise's own, or what stands in for it (see above)."""
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage] (the fast way)
    own = _own
    while frame is not None:
        code = frame.f_code
        inside = own.get(code.co_filename, own)
        if inside is not True:
            if inside is own:
                inside = own[code.co_filename] = code.co_filename.startswith(_NOT_THE_USERS)
            if inside is False:
                return code, frame.f_lasti
            if inside is None and code in _replaying and replay.site is not None:
                return replay.site
        frame = frame.f_back
    return None


def is_own(file: str) -> bool:
    """Whether a file is one of shardwise's own."""
    return file.startswith(PACKAGE)


def line_of(site: Site | None) -> tuple[str, int, str]:
    """(file, line, function) of a site; ('<unknown>', 0, '') where there is none."""
    if site is None:
        return "<unknown>", 0, ""
    code, instruction = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
            break
    return code.co_filename, line, code.co_name


def describe(site: Site | None) -> str:
    """`file.py:12 (name)`."""
    file, line, function = line_of(site)
    return f"{file}:{line} ({function})" if function else f"{file}:{line}"
