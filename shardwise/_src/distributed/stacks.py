"""Where the threads of this process are, in the lines of the user's program.

A line is named as `file:12 (name)`. Frames of libraries are left out, or told of by their number.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from shardwise._src.base.config import traceback_filtering
from shardwise._src.messages.source import is_own

THREAD = "shardwise-watch"  # the one of this library, which is left out
_STDLIB = sysconfig.get_path("stdlib")
_PACKAGES = ("site-packages", "dist-packages")


def _is_library(frame: FrameType) -> bool:
    """Whether a frame is of this library, of Python, or of an installed package."""
    file = frame.f_code.co_filename
    if file.startswith("<"):  # made by `exec`, as parts of Python are
        return frame.f_globals.get("__name__") != "__main__"
    return is_own(file) or file.startswith(_STDLIB) or _is_package(file)


def _is_package(file: str) -> bool:
    return any(name in file for name in _PACKAGES) and not is_own(file)


def _frames(thread: int | None) -> Iterator[FrameType]:
    """The frames of a thread, the innermost first."""
    frame = sys._current_frames().get(thread or 0)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(file: str, line: int | None, name: str) -> str:
    return f"{file}:{line} ({name})"


def user_line(thread: int | None) -> str:
    """The line of the user's program that a thread is at; "" before and after it.

    That of an installed package where no other frame is the user's.
    """
    package = ""
    for frame in _frames(thread):
        file = frame.f_code.co_filename
        if not _is_library(frame):
            return _place(file, frame.f_lineno, frame.f_code.co_name)
        if not package and _is_package(file):
            package = _place(file, frame.f_lineno, frame.f_code.co_name)
    return package


def line_raised(trace: Any) -> str:
    """The innermost line of the user's program in a traceback."""
    found = [entry for entry in traceback.walk_tb(trace) if not _is_library(entry[0])]
    if not found:
        return ""
    frame, line = found[-1]
    return _place(frame.f_code.co_filename, line, frame.f_code.co_name)


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of libraries; the whole, if nothing would be left."""
    if traceback_filtering.value == "off":
        return trace
    entries, entry = [], trace
    while entry is not None:
        if not _is_library(entry.tb_frame):
            entries.append(entry)
        entry = entry.tb_next
    kept = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept or trace


def stacks(main: int | None) -> str:
    """The stacks of the threads of this process in which there is a line of the user's.

    The outermost frame is the first; those of libraries are counted, and the last of them named.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    parts: list[str] = []
    for ident in sorted(found, key=lambda ident: (ident != main, ident)):
        lines = _told(list(_frames(ident))[::-1])
        if ident == main or (lines and names.get(ident) != THREAD):
            parts.append(f"  thread {names.get(ident, '?')}:\n" + "".join(lines))
    return "".join(parts)


def _told(frames: list[FrameType]) -> list[str]:
    """A line for each frame of the user's, and for those of libraries in between; [] of none."""
    lines: list[str] = []
    folded: list[FrameType] = []
    for frame in frames:
        file = frame.f_code.co_filename
        if _is_library(frame):
            folded.append(frame)
            continue
        if lines and folded:
            lines.append(_folded(folded))
        folded = []
        source = linecache.getline(file, frame.f_lineno).strip()
        lines.append(f"    {_place(file, frame.f_lineno, frame.f_code.co_name)}: {source}\n")
    if lines and folded:
        lines.append(_folded(folded))
    return lines


def _folded(frames: list[FrameType]) -> str:
    last = frames[-1].f_code
    module = frames[-1].f_globals.get("__name__", "?")
    what = "a frame" if len(frames) == 1 else f"{len(frames)} frames"
    return f"    … {what} of libraries, to {module}.{last.co_qualname}\n"


def in_a_line(text: str) -> str:
    """The first line of a text, and how many follow."""
    first, *others = text.splitlines() or [""]
    if not others:
        return first
    return f"{first} ({len(others)} more line{'s' if others[1:] else ''})"
