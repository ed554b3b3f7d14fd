"""Locates the threads of this process in the lines of the user's program.

A line is shown as `file:12 (name)`. Library frames are left out, or only counted.
"""

from __future__ import annotations

import itertools
import linecache
import sysconfig
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any

from shardwise._src.base.config import traceback_filtering
from shardwise._src.base.frames import frames_by_thread
from shardwise._src.messages.source import is_own

THREAD = "shardwise-watch"  # the thread of this library, which is left out
_STDLIB = sysconfig.get_path("stdlib")
_PACKAGES = ("site-packages", "dist-packages")


def _is_library(frame: FrameType) -> bool:
    """Whether a frame is of this library, of Python, or of an installed package."""
    file = frame.f_code.co_filename
    if file.startswith("<"):  # made by `exec`, as are parts of Python
        return frame.f_globals.get("__name__") != "__main__"
    return is_own(file) or file.startswith(_STDLIB) or _is_package(file)


def _is_package(file: str) -> bool:
    return any(name in file for name in _PACKAGES) and not is_own(file)


def _place(frame: FrameType, line: int | None = None) -> str:
    """`file:12 (name)`, by default for the current line of a frame."""
    code = frame.f_code
    return f"{code.co_filename}:{line or frame.f_lineno} ({code.co_name})"


def user_line(thread: int | None) -> str:
    """The line of the user's program that a thread executes; "" before and after the program.

    If there is no frame of the user's code, the line of an installed package.
    """
    package = ""
    for frame in frames_by_thread().get(thread or 0, ()):
        if not _is_library(frame):
            return _place(frame)
        if not package and _is_package(frame.f_code.co_filename):
            package = _place(frame)
    return package


def line_raised(trace: Any) -> str:
    """The innermost line of the user's program in a traceback."""
    found = [entry for entry in traceback.walk_tb(trace) if not _is_library(entry[0])]
    return _place(*found[-1]) if found else ""


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without library frames; the full traceback if nothing would be left."""
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
    """The stacks of the threads of this process that contain a line of the user's program.

    The outermost frame is the first; library frames are counted, and the last of them is named.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = frames_by_thread()
    parts: list[str] = []
    for ident in sorted(found, key=lambda ident: (ident != main, ident)):
        lines = _told(found[ident][::-1])
        if ident == main or (lines and names.get(ident) != THREAD):
            parts.append(f"  thread {names.get(ident, '?')}:\n" + "".join(lines))
    return "".join(parts)


def _told(frames: list[FrameType]) -> list[str]:
    """A line for each user frame, and for each run of library frames in between; [] if none."""
    lines: list[str] = []
    for is_folded, run in itertools.groupby(frames, _is_library):
        if is_folded:
            lines += [_folded([*run])] if lines else []
            continue
        for frame in run:
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            lines.append(f"    {_place(frame)}: {source}\n")
    return lines


def _folded(frames: list[FrameType]) -> str:
    last = frames[-1].f_code
    module = frames[-1].f_globals.get("__name__", "?")
    what = "a frame" if len(frames) == 1 else f"{len(frames)} frames"
    return f"    … {what} in libraries, up to {module}.{last.co_qualname}\n"


def in_a_line(text: str) -> str:
    """The first line of a string, and the number of lines that follow."""
    first, *others = text.splitlines() or [""]
    if not others:
        return first
    return f"{first} ({len(others)} more line{'s' if others[1:] else ''})"
