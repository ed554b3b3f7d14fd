"""The end of a process waits for programs that still run, as far as XLA's CPU backend runs them.

That runs them on threads of its own; C++'s exit handlers take away what these use (the kernels that
oneDNN makes, for one), and the process would end with a segmentation fault. Whoever drops the
result of a program has nothing to wait for. Programs over several devices `CPU_WINDOW` holds; those
that one thread launches on one device run in their order, so that a last one there, launched here,
ends after them. Left out are programs on one device that other threads launched, and whose results
nobody holds. XLA's waits hear nothing of signals: Ctrl-C meanwhile ends the process at once.
"""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
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
_waited_for: list[Any] = []  # clients, at the end of this process
_alone: dict[Any, None] = {}  # devices of CPUs that have had programs of their own


def runs_alone(device: Any) -> None:
    """A device of a CPU client gets a program that runs on no other."""
    _alone[device] = None


def settle(client: Any) -> None:
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
    [[raw]] = last.execute_sharded([]).disassemble_into_single_device_arrays()
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


def settle_all() -> None:
    with _ended_by_interrupts():
        for client in _waited_for:
            settle(client)


def waits_for(client: Any) -> None:
    """This process settles the client at its end; one of several does so once it has left them."""
    _waited_for.append(client)
    atexit.register(lambda: processes.link() or settle_all())


forgotten_by_fork(_waited_for.clear)
