"""At exit, a process waits for running programs of XLA's CPU backend.

The backend runs them on its own threads; C++ exit handlers destroy objects that these use (such as
oneDNN's kernels), and the process would end with a segmentation fault. If the result of a program
was dropped, there is no buffer to wait for. Programs over several devices are recorded in
`CPU_WINDOW`; programs that one thread launches on one device run in order, so that a final program,
launched here, ends after them. Not covered are programs on one device that other threads launched
and whose results were dropped. XLA's waits ignore signals, so Ctrl-C during them ends the process
immediately.

Daemon threads that compute are ended first, by SystemExit: otherwise Python ends such threads when
they return from XLA, and C++ aborts the process if a thread is ended inside of it.
"""

from __future__ import annotations

import atexit
import ctypes
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.frames import frames_by_thread
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
_PATIENCE = 5.0  # seconds for daemon threads that compute to return
_AGAIN = 1.0  # seconds after which SystemExit is sent again to a thread that continues
_LOOKS = 5  # consecutive checks that must find no thread computing
_waited_for: list[_jax.Client] = []  # clients, at the end of this process
# CPU devices that have run single-device programs, and factories of their result handlers.
_alone: dict[_jax.Device, Callable[[Any, Any], _jax.ResultHandler]] = {}


class _Flag(NamedTuple):
    """The type of `_LAST`'s result, as jaxlib reads it."""

    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] = np.dtype(np.bool_)
    weak_type: bool = False


def runs_alone(
    device: _jax.Device, result_handler: Callable[[Any, Any], _jax.ResultHandler]
) -> None:
    """Records that a single-device program runs on a device of a CPU client.

    result_handler: returns the handler for a type and a placement.
    """
    _alone[device] = result_handler


def drain(client: _jax.Client) -> None:
    """Waits for the programs that this thread launched on a CPU client, and for all live arrays.

    Errors are ignored, as users of the results will see them.
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


def _launched_last(client: _jax.Client, device: _jax.Device) -> _jax.ArrayImpl:
    options = xc.CompileOptions()
    options.device_assignment = xc.DeviceAssignment.create(np.array([[device.id]], np.int32))
    last = client.compile_and_load(_LAST, [device], options)
    # Uses a handler, since jaxlib imports jax, if installed, to disassemble results.
    here = _jax.GSPMDSharding(_jax.DeviceList((device,)), xc.HloSharding.replicate())
    (raw,) = last.execute_sharded([]).consume_with_handlers([_alone[device](_Flag(), here)])
    return raw


@contextmanager
def _ended_by_interrupts() -> Generator[None]:
    """Lets Ctrl-C end the process without a traceback, unless the program has its own handler."""
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
    """Ends the daemon threads that are executing this library; those that do not end in time
    continue."""
    until, asked, looks = time.monotonic() + _PATIENCE, dict[int, float](), 0
    while (others := _daemons()) and looks < _LOOKS and (now := time.monotonic()) < until:
        frames = frames_by_thread()
        for thread in others:
            within = thread in asked or _is_within(frames.get(thread, []))
            if within and now - asked.get(thread, 0) >= _AGAIN:
                asked[thread] = now
                end = ctypes.py_object(SystemExit)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), end)
        looks = 0 if asked.keys() & others else looks + 1
        time.sleep(0.001)


def _daemons() -> set[int]:
    """The identifiers of daemon threads that are not our own."""
    found = [t for t in threading.enumerate() if t.daemon and not t.name.startswith(_PACKAGE)]
    return {t.ident for t in found if t.ident is not None}


def _is_within(frames: list[FrameType]) -> bool:
    modules = [str(frame.f_globals.get("__name__")) for frame in frames]
    return any(module.partition(".")[0] == _PACKAGE for module in modules)


def drain_all() -> None:
    with _ended_by_interrupts():
        _end_daemons()
        for client in _waited_for:
            drain(client)


def waits_for(client: _jax.Client) -> None:
    """Drains the client when this process exits, or, with several processes, once it has left."""
    _waited_for.append(client)
    atexit.register(lambda: processes.link() or drain_all())


forgotten_by_fork(_waited_for.clear)
