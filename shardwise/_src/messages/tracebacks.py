"""Tracebacks that show the user's lines: frames of the library are left out.

Between a call of `grad`, `jit` or `scan` and the line of the user's function that fails there are
some ten frames of this library. `hides_frames` takes them out of what is raised through a function.
The innermost frame stays, also where it is the library's. The flag `traceback_filtering` switches
this off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from shardwise._src.base.config import traceback_filtering
from shardwise._src.messages.source import is_own

P = ParamSpec("P")
R = TypeVar("R")


def hides_frames(fun: Callable[P, R]) -> Callable[P, R]:
    """Marks a function that users call, and that calls theirs."""

    @functools.wraps(fun)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise  # as it is now: this adds no frame

    return call


def hide_frames(error: Exception) -> None:
    """Takes the library's frames out of an error's traceback, but for the innermost of all."""
    if traceback_filtering.value == "off":
        return
    entries: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept: TracebackType | None = None
    for entry in reversed(entries):
        if entry is entries[-1] or not is_own(entry.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept
