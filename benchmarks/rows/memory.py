"""Memory that arrays need in addition to their data, measured in a child process.

`peak` is the maximum growth of the process while a 512 MiB array over 8 devices is created, moved
or read. `drop` rows create ten arrays of 1 GiB one after another, and drop each. `growth` rows show by
how much a process grows, at least 1 MiB: by 10,000 threads, a million operations, 5,000 new functions,
500 new programs, once caches are full.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.child import GROWTHS, run_child
from benchmarks.libs import Lib
from benchmarks.rows.processes import child_row
from benchmarks.runner import Row


def planned(lib: Lib) -> Callable[[], float]:
    """The peak that `shardwise.plan` predicts; instead of the other library, the measured peak."""
    what = "peak_planned" if lib.name == "shardwise" else "peak_as_planned"
    return lambda: run_child(what, "shardwise")


# `python` counts what the interpreter allocates (tracemalloc); `resident` is the growth of the
# process: runtime buffers, which both libraries need, and the eight words of data included.
ROWS = (
    child_row("memory.python_1", 1.0, "python_1", unit="B", rounds=1),
    child_row("memory.python_8", 1.0, "python_8", unit="B", rounds=1),
    child_row("memory.resident_1", 1.0, "resident_1", unit="B", rounds=3),
    child_row("memory.resident_8", 1.0, "resident_8", unit="B", rounds=3),
    child_row("memory.callback_peak", 0.6, "peak_callback", unit="B", rounds=3),
    child_row("memory.put_peak", 1.1, "peak_put", unit="B", rounds=3),
    child_row("memory.reshard_peak", 0.6, "peak_reshard", unit="B", rounds=3),
    child_row("memory.drop_seconds", 0.6, "drop_seconds", rounds=3),
    child_row("memory.drop_peak", 1.1, "drop_peak", unit="B", rounds=3),
    Row("memory.planned_peak", 1.1, planned, kind="value", unit="B", rounds=3),
    child_row("memory.read_peak", 1.05, "peak_read", unit="B", rounds=3),
    *[
        child_row(f"memory.growth_{what}", 2.0, f"growth_{what}", unit="B", rounds=1)
        for what in GROWTHS
    ],
)
