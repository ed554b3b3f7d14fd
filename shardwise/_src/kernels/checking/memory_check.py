"""`check="memory"`: runs a kernel in memory that records accesses: see `check_memory`.

The parts: `shadow_memory` (who wrote and read each element), `memory_machine` (devices, copies,
semaphores), `memory_interpreter` (runs the body), `memory_errors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.program import Program
from shardwise._src.effects.callback import host_context
from shardwise._src.kernels.checking.memory_interpreter import is_plain, run_devices
from shardwise._src.kernels.checking.memory_machine import Machine
from shardwise._src.kernels.checking.shadow_memory import Buffer, differ
from shardwise._src.kernels.launch_checks import check_blocks
from shardwise._src.kernels.launch_record import Launch

SEED = 0  # of the second order in which devices run


def check_memory(
    body: Program,
    maps: Sequence[Program],
    launch: Launch,
    operands: Sequence[Sequence[Any]],
    axes: Mapping[Any, int] | None = None,
) -> list[list[Any]]:
    """Raises a `KernelError` for the first error; returns the results of each device.

    operands: of each device. axes: of the mesh, names to sizes; None for one device outside of a
    mesh.

    Errors are:
    - accesses outside of a ref, also by arrays of indices;
    - elements of results that are not written, or that depend on memory that was not written or on
      what is beyond the end of an array; likewise conditions, indices and amounts;
    - races: two accesses of one element, of copies, devices or programs that differ along a
      parallel axis, of which one writes and neither waits for the other;
    - copies that no device waits for; semaphores that are not 0 at their end; deadlocks.
    """
    if axes is None or all(map(is_plain, maps)):
        check_blocks(maps, launch, operands[0], by_element=True)
    machine = Machine(launch, axes)
    with host_context().entered():
        _run(machine, body, maps, operands)
        if len(operands) > 1:
            _run(Machine(launch, axes, SEED), body, maps, operands)
    return [[*map(_result, device.results)] for device in machine.devices]


def _run(machine: Machine, body: Program, maps: Sequence[Program], operands: Any) -> None:
    run_devices(machine, body, maps, operands)
    for device in machine.devices:
        buffers = [*device.arguments, *device.buffers.values()]
        machine.check_end(buffers, device.end_clock(), "at the end of the kernel")
    for device in machine.devices:
        for buffer in device.results:
            bad = np.flatnonzero(differ(buffer.a, buffer.b) & buffer.inside)
            if len(bad):
                event = machine.events[buffer.writer[bad[0]]]
                raise machine.errors.result(buffer, int(bad[0]), event)


def _result(buffer: Buffer) -> Any:
    return eval_trace().new_array(buffer.a[buffer.inside].reshape(buffer.type.shape))
