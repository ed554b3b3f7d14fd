"""Memory that arrays need in addition to their data, measured in a child process.

`peak` is the maximum growth of the process while a 512 MiB array over 8 devices is created, moved
or read. `drop` rows create ten arrays of 1 GiB one after another, and drop each.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.child import run_child
from benchmarks.libs import Lib
from benchmarks.rows.processes import fresh_process
from benchmarks.runner import Row


def planned(lib: Lib) -> Callable[[], float]:
    """The peak that `shardwise.plan` predicts; instead of the other library, the measured peak."""
    what = "peak_planned" if lib.name == "shardwise" else "peak_as_planned"
    return lambda: run_child(what, "shardwise")


# `python` counts what the interpreter allocates (tracemalloc); `resident` is the growth of the
# process: runtime buffers, which both libraries need, and the eight words of data included.
ROWS = (
    Row("memory.python_1", 0.5, fresh_process("python_1"), kind="value", unit="B", rounds=1),
    Row("memory.python_8", 0.5, fresh_process("python_8"), kind="value", unit="B", rounds=1),
    Row("memory.resident_1", 0.5, fresh_process("resident_1"), kind="value", unit="B", rounds=3),
    Row("memory.resident_8", 0.5, fresh_process("resident_8"), kind="value", unit="B", rounds=3),
    Row(
        "memory.callback_peak",
        0.6,
        fresh_process("peak_callback"),
        kind="value",
        unit="B",
        rounds=3,
    ),
    Row("memory.put_peak", 1.1, fresh_process("peak_put"), kind="value", unit="B", rounds=3),
    Row(
        "memory.reshard_peak", 0.6, fresh_process("peak_reshard"), kind="value", unit="B", rounds=3
    ),
    Row("memory.drop_seconds", 0.6, fresh_process("drop_seconds"), kind="value", rounds=3),
    Row("memory.drop_peak", 1.1, fresh_process("drop_peak"), kind="value", unit="B", rounds=3),
    Row("memory.planned_peak", 1.1, planned, kind="value", unit="B", rounds=3),
    Row("memory.read_peak", 1.05, fresh_process("peak_read"), kind="value", unit="B", rounds=3),
)
