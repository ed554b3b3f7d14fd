"""Host callbacks of compiled programs: launching such programs, and waiting for the calls.

A program on one device is launched like any other. An exception in a callback fails its results;
the program's *token* becomes ready when the calls are over, and `effects_barrier` waits for all
tokens.

A launch on several devices waits for the program, and raises the callback's exception immediately.
One device makes the calls while the others wait for it to send the results. If it failed, they
would wait forever, or until XLA ends the process; so callbacks never fail: after an error, blank
results are sent until the program ends. They change from call to call, so that loops which wait for
a result end. If a loop does not end, the callback does fail, and with it the process.
"""

from __future__ import annotations

import atexit
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxlib import _jax

from shardwise._src.base.errors import Documented
from shardwise._src.runtime import processes
from shardwise._src.runtime.forks import forgotten_by_fork

LIMIT = 32  # launches whose calls may be pending
ENDLESS = 60.0  # seconds after an error until a program that still makes calls is aborted
PATIENCE = 10**6  # seconds that devices wait for one in a call; XLA's default is too short
_log = logging.getLogger("shardwise.callbacks")
JaxRuntimeError = _jax.JaxRuntimeError


class CallbackError(Documented, JaxRuntimeError):
    """A host callback of a compiled program failed; `__cause__` is the exception that it raised."""


class _Here(threading.local):
    """The number of devices of the program whose callback this thread is running; 0 if none."""

    devices = 0


_here = _Here()


@contextmanager
def _inside(devices: int) -> Generator[None]:
    before, _here.devices = _here.devices, max(devices, _here.devices)
    try:
        yield
    finally:
        _here.devices = before


def reject_inside() -> None:
    """Raises if two programs over several devices would wait for each other."""
    if _here.devices > 1:
        raise RuntimeError(
            "a host callback of a program over several devices cannot run another program over "
            "several devices: the devices are waiting for the callback. Compute its values with "
            "NumPy, or in the program."
        )


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integer dtype that represents a real float dtype; other dtypes unchanged."""
    if dtype.kind == "f" or dtype.name.startswith(("bfloat", "float8")):
        return np.dtype(f"uint{8 * dtype.itemsize}")
    return dtype


def _bits(x: np.ndarray) -> np.ndarray:
    return x.view(bits_of(x.dtype))


class HostCalls:
    """The host functions of one compiled program.

    functions: take NumPy arrays and return a tuple of them; with `title`, for messages; `results`;
               and, for several devices, `blank(n)`, which returns placeholder results.
    devices:   number of devices of the program.
    span:      their processes, if several.
    ordered:   whether some calls must come after all calls of programs launched before.
    """

    __slots__ = ("entries", "_span", "_ordered", "_lock", "_failure", "_blanks", "_end")

    def __init__(
        self, functions: Sequence[Any], devices: int, span: tuple[int, ...] | None, ordered: bool
    ):
        guard = self._alone if devices == 1 else functools.partial(self._among, devices)
        self._span = span if span and any([f.results for f in functions]) else None
        self.entries = [functools.partial(guard, f) for f in functions]
        self._ordered = ordered
        self._lock = None if devices == 1 else threading.Lock()
        self._failure: CallbackError | None = None
        self._blanks, self._end = 0, 0.0  # blank results since the failure; when to abort

    # -- called by the program --

    @staticmethod
    def _alone(function: Any, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        try:
            with _inside(1):
                return function(*values)
        except BaseException as error:
            failure = _failure_of(function, error)
            _pending.failed(failure)
            # jaxlib shows the traceback and the message of this exception, but no cause.
            raise CallbackError(str(failure)).with_traceback(error.__traceback__) from None

    def _among(self, devices: int, function: Any, *values: np.ndarray) -> tuple[np.ndarray, ...]:
        if self._failure is None:
            try:
                with _inside(devices):
                    return tuple(map(_bits, function(*values)))
            except BaseException as error:
                self._failure = _failure_of(function, error)
                self._blanks, self._end = 0, time.monotonic() + ENDLESS
                _log.debug("%s", self._failure, exc_info=error)
        self._blanks += 1
        if self._blanks > 100 and time.monotonic() > self._end:
            _log.critical("%s. The program keeps calling it: the process exits.", self._failure)
            raise self._failure
        return tuple(map(_bits, function.blank(self._blanks)))

    # -- launching --

    def launch(
        self,
        raw: _jax.LoadedExecutable,
        buffers: Sequence[_jax.ArrayImpl],
        handlers: Sequence[_jax.ResultHandler],
    ) -> list[Any]:
        """Starts the program; on several devices, also waits for it and raises its failure."""
        if self._ordered and not _here.devices:
            _pending.wait(ordered=True)
        if self._lock is None:
            return self._start(raw, buffers, handlers)
        reject_inside()
        with self._lock:
            self._failure = None
            results, token = _launched(raw, buffers, handlers)
            token.block_until_ready()
            failure, self._failure = self._failure, None
        told = [] if self._span is None else _told(self._span, failure)
        if failure is not None:
            raise failure
        for text in filter(None, told):
            raise CallbackError(text)
        return results

    def _start(
        self,
        raw: _jax.LoadedExecutable,
        buffers: Sequence[_jax.ArrayImpl],
        handlers: Sequence[_jax.ResultHandler],
    ) -> list[Any]:
        try:
            results, token = _launched(raw, buffers, handlers)
        except _jax.JaxRuntimeError as error:  # it ran synchronously
            known = _pending.shown_by(error)
            if isinstance(known.__cause__, KeyboardInterrupt):  # the main thread ran the function
                raise known.__cause__ from None
            raise known from known.__cause__
        _pending.add(token, self._ordered)
        return results


def _told(span: tuple[int, ...], failure: CallbackError | None) -> list[str]:
    """The failure messages of all processes of a program, after all have run it."""
    gate = processes.gate()
    if gate is None:
        return []
    link = processes.link()
    own = "" if failure is None or link is None else f"{failure} (in process {link.index})"
    return gate.meet("the end of host functions", span=span, payload=own)


def _launched(
    raw: _jax.LoadedExecutable,
    buffers: Sequence[_jax.ArrayImpl],
    handlers: Sequence[_jax.ResultHandler],
) -> tuple[list[Any], _jax.ShardedToken]:
    results = raw.execute_sharded(buffers, with_tokens=True)
    token = results.consume_token()
    return results.consume_with_handlers(handlers), token


def _failure_of(function: Any, error: BaseException) -> CallbackError:
    title, text = getattr(function, "title", "a host function"), str(error)
    if not text.startswith(title):
        text = f"{title}: it raised {type(error).__name__}: {text}"
    new = CallbackError(text)
    new.__cause__ = error
    return new


class _Pending:
    """Launches on one device whose calls may be pending."""

    def __init__(self) -> None:
        self.tokens: deque[tuple[_jax.ShardedToken, bool]] = deque()
        self._failures: deque[CallbackError] = deque(maxlen=LIMIT)

    def add(self, token: _jax.ShardedToken, ordered: bool) -> None:
        self.tokens.append((token, ordered))
        while len(self.tokens) > LIMIT:
            self._wait_for_one()

    def failed(self, failure: CallbackError) -> None:
        self._failures.append(failure)

    def wait(self, ordered: bool = False) -> None:
        """Waits until all calls, or all ordered calls, are over."""
        while self.tokens and (not ordered or any([o for _, o in list(self.tokens)])):
            self._wait_for_one()

    def _wait_for_one(self) -> None:
        try:
            token, _ = self.tokens.popleft()
            token.block_until_ready()
        except IndexError:
            return  # another thread took the last one
        except _jax.JaxRuntimeError:
            return  # `failed` was called; any other failure of a program fails its results

    def shown_by(self, error: Exception) -> Exception:
        """The callback failure behind jaxlib's error, removed from the list; else the error."""
        for failure in reversed(list(self._failures)):
            if str(failure) in str(error):
                self._failures.remove(failure)
                return failure
        return error

    def raise_failure(self) -> None:
        failures = list(self._failures)
        self._failures.clear()
        if failures:
            raise failures[0]


_pending = _Pending()
forgotten_by_fork(_pending.tokens.clear)


def effects_barrier() -> None:
    """Waits until all host callbacks of launched programs are over.

    Raises:
      CallbackError: if one of these functions raised an exception since the last barrier.
    """
    if _here.devices:
        raise RuntimeError(
            "effects_barrier() inside a host callback would wait for that callback itself. Call it "
            "in the code that called the program."
        )
    _pending.wait()
    _pending.raise_failure()


@atexit.register
def _wait_at_exit() -> None:
    """Waits for pending calls, and logs failures that were not raised."""
    _pending.wait()
    try:
        _pending.raise_failure()
    except CallbackError as error:
        _log.error("%s", error, exc_info=error.__cause__)
