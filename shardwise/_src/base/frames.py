"""The frames that the threads of this process execute."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

_pausing = threading.RLock()  # one thread at a time disables and enables the collector

if hasattr(os, "register_at_fork"):  # not on Windows; a child is to have the collector enabled
    os.register_at_fork(
        before=_pausing.acquire, after_in_parent=_pausing.release, after_in_child=_pausing.release
    )


def frames_by_thread() -> dict[int, list[FrameType]]:
    """The frames of each thread by its identifier, the innermost frame first.

    Other threads go on, so they may have returned from frames by then.
    """
    with _no_collection():
        innermost = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        return {thread: _with_callers(frame) for thread, frame in innermost.items()}


def _with_callers(frame: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


@contextmanager
def _no_collection() -> Generator[None]:
    """Disables garbage collection in the block, on Python 3.11.

    It creates the objects of frames when they are requested, and may collect garbage whenever it
    creates an object. Finalizers that then run let other threads run; if one of these returns from
    the frame, the frame's object refers to freed memory. Later versions collect only between
    instructions.
    """
    if sys.version_info >= (3, 12):
        yield
        return
    with _pausing:
        enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if enabled:
                gc.enable()
