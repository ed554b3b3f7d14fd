"""Signal handlers wait while code runs that an exception from one of them would break.

    with uninterrupted():
        client = xc.make_cpu_client(...)

Python runs the handlers of signals in the main thread between any two of its instructions, and that
of Ctrl-C raises KeyboardInterrupt there. Most code may be left at any point. Two kinds may not:

* The import of an extension module. What it has registered in C++ stays, Python forgets the module,
  and the next import fails (`cannot load module more than once per process`) or ends the process.
* A call of jaxlib's that calls Python functions: importing modules, asking how a call is
  partitioned, visiting operations. The exception passes through C++ that is compiled without
  support for exceptions, or out of a function that may raise none, and the process is aborted.

In such a block a handler is noted, and called at the end of the block. If the same signal arrives
again meanwhile, its handler is called at once: a second Ctrl-C interrupts user code that runs in
a block and takes long. A long call of C++ itself runs no handlers at all until it returns.

Only the main thread runs handlers, so in other threads a block does nothing. A handler that is set
in a block stays. Handlers that are not functions of Python (the default action, none) are left
alone. A block takes some ten microseconds: dispatch of compiled programs has none.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType, ModuleType
from typing import Any, ClassVar

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")  # handlers may raise
_NUMBERS = tuple([int(getattr(signal, n)) for n in _NAMES if hasattr(signal, n)])


class _State:
    """Of the main thread. handlers: those that wait, by signal; noted: (signal, frame) of calls."""

    depth = 0
    handlers: ClassVar[dict[int, Callable[[int, FrameType | None], Any]]] = {}
    noted: ClassVar[dict[int, FrameType | None]] = {}


def _note(number: int, frame: FrameType | None) -> None:
    """The handler in a block; or after it, if code in the block has read it and set it again."""
    if number in _State.noted or not _State.depth:
        _State.noted.pop(number, None)
        _State.handlers[number](number, frame)
    else:
        _State.noted[number] = frame


class uninterrupted:
    """A block in which signal handlers wait; see above."""

    __slots__ = ("_is_main",)

    def __enter__(self) -> None:
        self._is_main = current_thread() is main_thread()
        if not self._is_main:
            return
        if not _State.depth:
            _hold()
        _State.depth += 1

    def __exit__(self, *_: object) -> None:
        if not self._is_main:
            return
        _State.depth -= 1
        if not _State.depth:
            _release()


def _hold() -> None:
    try:
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler) and handler is not _note:
                _State.handlers[number] = handler
                signal.signal(number, _note)
    except BaseException:  # a handler that does not wait yet
        _release()
        raise


def _release() -> None:
    """Sets the handlers again, and calls those whose signals have come."""
    try:
        for number, handler in _State.handlers.items():
            if signal.getsignal(number) is _note:
                signal.signal(number, handler)
    except BaseException:  # a handler that does not wait any more
        _release()
        raise
    _call_noted()


def _call_noted() -> None:
    """Calls the handlers of noted signals, each also if another one raises."""
    while _State.noted:
        number, frame = _State.noted.popitem()
        handler = signal.getsignal(number)
        try:
            if callable(handler):
                handler(number, frame)
            else:  # it was set in the block
                signal.raise_signal(number)
        finally:
            _call_noted()


def import_module(name: str) -> ModuleType:
    """`importlib.import_module` in a block: an interrupt is raised when the module is there."""
    with uninterrupted():
        return importlib.import_module(name)
