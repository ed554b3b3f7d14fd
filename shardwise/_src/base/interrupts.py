"""Defers signal handlers during code that an exception from a handler would break.

    with uninterrupted():
        client = xc.make_cpu_client(...)

Python runs signal handlers in the main thread between any two bytecode instructions, and the
handler of Ctrl-C raises KeyboardInterrupt there. Most code can be interrupted at any point. Two
kinds cannot:

* The import of an extension module. Its C++ registrations remain, Python drops the module, and the
  next import fails (`cannot load module more than once per process`) or ends the process.
* A jaxlib call that calls Python functions: to import modules, to partition custom calls, to visit
  operations. The exception passes through C++ that is compiled without support for exceptions, or
  out of a noexcept function, and the process is aborted.

In such a block a signal is recorded, and its handler is called at the end of the block. If the same
signal arrives again in the block, its handler is called immediately: a second Ctrl-C interrupts
user code that runs in a block and takes long. A long C++ call runs no handlers until it returns.

Only the main thread runs handlers, so in other threads a block does nothing. A handler that is set
in a block remains set. Handlers that are not Python functions (the default action, none) are left
alone. A block takes about ten microseconds: dispatch of compiled programs has none.
"""

from __future__ import annotations

import importlib
import signal
from collections.abc import Callable
from threading import current_thread, main_thread
from types import FrameType, ModuleType
from typing import Any, cast

_NAMES = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")  # handlers may raise
_NUMBERS = tuple([int(getattr(signal, n)) for n in _NAMES if hasattr(signal, n)])

Handler = Callable[[int, FrameType | None], Any]


class _State:
    """The state of the main thread."""

    def __init__(self) -> None:
        self.depth = 0  # of nested blocks
        self.handlers: dict[int, Handler] = {}  # deferred handlers
        self.noted: dict[int, FrameType | None] = {}  # frames in which signals arrived
        self.cancel: Callable[[], object] | None = None  # called on Ctrl-C


_state = _State()


def _note(number: int, frame: FrameType | None) -> None:
    """The handler in a block; also after it, if code in the block has saved and restored it."""
    if number in _state.noted or not _state.depth:
        _state.noted.pop(number, None)
        _state.handlers[number](number, frame)
    else:
        _state.noted[number] = frame
        if number == signal.SIGINT and _state.cancel is not None:
            _state.cancel()


class uninterrupted:
    """A block in which signal handlers are deferred; see above.

    cancel: called on Ctrl-C, so that a long block ends early. Only Python's own handler of Ctrl-C
        is deferred in such a block; others run normally.
    """

    __slots__ = ("_cancel", "_is_main", "_more")

    def __init__(self, cancel: Callable[[], object] | None = None) -> None:
        self._cancel = cancel

    def __enter__(self) -> None:
        self._is_main = current_thread() is main_thread()
        if not self._is_main:
            return
        self._more: list[int] = []  # signals deferred in this block, but not around it
        if not _state.depth:
            _hold(self._cancel)
            return
        _state.depth += 1
        if self._cancel is None and _state.cancel is not None:
            try:
                _hold_handlers(self._more, is_all=True)
            except BaseException:  # from a handler that was not deferred yet
                _state.depth -= 1
                _release_some(self._more)
                raise

    def __exit__(self, *_: object) -> None:
        if not self._is_main:
            return
        if _state.depth > 1:
            _state.depth -= 1
            _release_some(self._more)
        else:
            _release()


def _hold(cancel: Callable[[], object] | None) -> None:
    try:
        _state.depth, _state.cancel = 1, cancel
        _hold_handlers([], is_all=cancel is None)
    except BaseException:  # from a handler that was not deferred yet
        _release()
        raise


def _hold_handlers(held: list[int], is_all: bool) -> None:
    """Defers the handlers of all signals, or Python's own of Ctrl-C; adds signals to `held`."""
    for number in _NUMBERS:
        handler = signal.getsignal(number)
        waits = callable(handler) if is_all else handler is signal.default_int_handler
        if waits and handler is not _note:
            _state.handlers[number] = cast(Handler, handler)
            held.append(number)
            signal.signal(number, _note)


def _release_some(numbers: list[int]) -> None:
    """`_release` for some signals, in a block in which the others remain deferred."""
    try:
        while numbers:
            number = numbers[-1]
            if signal.getsignal(number) is _note:
                signal.signal(number, _state.handlers[number])
            handler = _state.handlers[numbers.pop()]
            if number in _state.noted:
                handler(number, _state.noted.pop(number))
    except BaseException:  # of a handler
        _release_some(numbers)
        raise


def _release() -> None:
    """Restores the handlers, and calls those whose signals have arrived."""
    try:
        for number, handler in _state.handlers.items():
            if signal.getsignal(number) is _note:
                signal.signal(number, handler)
        _state.depth, _state.cancel = 0, None
        _call_noted()
    except BaseException:  # from a handler: finish the others first
        _release()
        raise


def _call_noted() -> None:
    """Calls the handlers of recorded signals, each even if another one raises."""
    while _state.noted:
        number, frame = _state.noted.popitem()
        handler = signal.getsignal(number)
        try:
            if callable(handler):
                handler(number, frame)
            else:  # it was set in the block
                signal.raise_signal(number)
        finally:
            _call_noted()


def import_module(name: str) -> ModuleType:
    """`importlib.import_module` in a block: an interrupt is raised after the import."""
    with uninterrupted():
        return importlib.import_module(name)
