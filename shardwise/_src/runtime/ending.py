"""The end of a process waits for programs that still run, as far as XLA's CPU backend runs them.

That runs them on threads of its own; C++'s exit handlers take away what these use (the kernels that
oneDNN makes, for one), and the process would end with a segmentation fault. Whoever drops the
result of a program has nothing to wait for; but the programs that one thread launches run in their
order on each device, so that a last one, launched here, ends after them. Left out are programs that
other threads launched, and whose results nobody holds.
"""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Any

from jaxlib import xla_client as xc

from shardwise._src.runtime import processes
from shardwise._src.runtime.forks import forgotten_by_fork
from shardwise._src.runtime.in_flight import CPU_WINDOW

_LAST = """module @last attributes {{mhlo.num_replicas = {} : i32}} {{
  func.func public @main() -> tensor<i1> {{
    %0 = stablehlo.constant dense<true> : tensor<i1>
    return %0 : tensor<i1>
  }}
}}"""
_waited_for: list[Any] = []  # clients, at the end of this process


def settle(client: Any) -> None:
    """Waits for the programs that this thread launched on a CPU client, and for all live arrays.

    What they fail with is left to those that want the results.
    """
    CPU_WINDOW.settle()
    with suppress(RuntimeError):
        for raw in client.live_arrays():
            with suppress(RuntimeError):  # it was deleted, or its program failed
                raw.block_until_ready()
        devices = client.local_devices()
        options = xc.CompileOptions()
        options.num_replicas = len(devices)
        last = client.compile_and_load(_LAST.format(len(devices)), devices, options)
        for results in last.execute_sharded([]).disassemble_into_single_device_arrays():
            for raw in results:
                raw.block_until_ready()


def settle_all() -> None:
    for client in _waited_for:
        settle(client)


def waits_for(client: Any) -> None:
    """This process settles the client at its end; one of several does so once it has left them."""
    _waited_for.append(client)
    atexit.register(lambda: processes.link() or settle_all())


forgotten_by_fork(_waited_for.clear)
