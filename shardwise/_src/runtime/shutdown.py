"""The end of a process waits for programs that still run, as far as XLA's CPU backend runs them.

That runs them on threads of its own; C++'s exit handlers take away what these use (the kernels that
oneDNN makes, for one), and the process would end with a segmentation fault. Whoever drops the
result of a program has nothing to wait for. Programs over several devices `CPU_WINDOW` holds; those
that one thread launches on one device run in their order, so that a last one there, launched here,
ends after them. Left out are programs on one device that other threads launched, and whose results
nobody holds. XLA's waits hear nothing of signals: Ctrl-C meanwhile ends the process at once.

Daemon threads that compute are ended first, by SystemExit: Python ends such threads when they come
back from XLA, and C++ ends the process with an abort, when it is asked to end a thread within it.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.runtime import processes
from shardwise._src.runtime.forks import forgotten_by_fork
from shardwise._src.runtime.in_flight import CPU_WINDOW

_LAST = """module @last {
  func.func public @main() -> tensor<i1> {
    %0 = stablehlo.constant dense<true> : tensor<i1>
    return %0 : tensor<i1>
  }
}"""
_PACKAGE = __name__.partition(".")[0]
_PATIENCE = 5.0  # seconds in which daemon threads that compute come back from what they do
_AGAIN = 1.0  # seconds after which a thread that goes on is told again
_LOOKS = 5  # at threads, a moment apart, in which none may be found to compute
_waited_for: list[Any] = []  # clients, at the end of this process
# Devices of CPUs that have had programs of their own, and what makes handlers of their results.
_alone: dict[Any, Callable[[Any, Any], Any]] = {}


class _Flag(NamedTuple):
    """The type of `_LAST`'s result, as jaxlib reads it."""

    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.bool_)
    weak_type: bool = False


def runs_alone(device: Any, result_handler: Callable[[Any, Any], Any]) -> None:
    """A device of a CPU client gets a program that runs on no other.

    result_handler: of a type and a placement.
    """
    _alone[device] = result_handler


def drain(client: Any) -> None:
    """Waits for the programs that this thread launched on a CPU client, and for all live arrays.

    What they fail with is left to those that want the results.
    """
    CPU_WINDOW.settle()
    with suppress(RuntimeError):
        for raw in client.live_arrays():
            with suppress(RuntimeError):  # it was deleted, or its program failed
                raw.block_until_ready()
        local = set(client.local_devices())
        lasts = [_launched_last(client, device) for device in list(_alone) if device in local]
        for raw in lasts:
            raw.block_until_ready()


def _launched_last(client: Any, device: Any) -> Any:
    options = xc.CompileOptions()
    options.device_assignment = xc.DeviceAssignment.create(np.array([[device.id]], np.int32))
    last = client.compile_and_load(_LAST, [device], options)
    # By a handler: jaxlib imports jax, where it is installed, to take results apart.
    here = _jax.GSPMDSharding(_jax.DeviceList((device,)), xc.HloSharding.replicate())
    (raw,) = last.execute_sharded([]).consume_with_handlers([_alone[device](_Flag(), here)])
    return raw


@contextmanager
def _ended_by_interrupts() -> Generator[None]:
    """Ctrl-C ends the process here, without a traceback, unless the program has its own handler."""
    handler = signal.getsignal(signal.SIGINT)
    if (
        handler is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _end_daemons() -> None:
    """Ends the daemon threads that are found within this library; those that do not end in time go
    on."""
    until, told, looks = time.monotonic() + _PATIENCE, dict[int, float](), 0
    while (others := _daemons()) and looks < _LOOKS and (now := time.monotonic()) < until:
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        for thread in others:
            known = thread in told
            if (known or _is_within(frames.get(thread))) and now - told.get(thread, 0) >= _AGAIN:
                told[thread] = now
                end = ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), end)
        looks = 0 if told.keys() & others else looks + 1
        time.sleep(0.001)


def _daemons() -> set[int]:
    """The identifiers of daemon threads that are not our own."""
    found = [t for t in threading.enumerate() if t.daemon and not t.name.startswith(_PACKAGE)]
    return {t.ident for t in found if t.ident is not None}


def _is_within(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
            return True
        frame = frame.f_back
    return False


def drain_all() -> None:
    with _ended_by_interrupts():
        _end_daemons()
        for client in _waited_for:
            drain(client)


def waits_for(client: Any) -> None:
    """This process settles the client at its end; one of several does so once it has left them."""
    _waited_for.append(client)
    atexit.register(lambda: processes.link() or drain_all())


forgotten_by_fork(_waited_for.clear)
