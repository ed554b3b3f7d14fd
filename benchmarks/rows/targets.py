"""Reports of a step for machines that are not attached, by their own compilers.

The other library has no reports: its column contains the limits. Each row runs in a new process.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.child import TARGETS, run_child
from benchmarks.libs import Lib
from benchmarks.runner import Row

SECONDS, BYTES = 60.0, float(4 << 30)  # limits, for 4,096 devices


def in_a_process(measurement: str, limit: float) -> Callable[[Lib], Callable[[], float]]:
    def setup(lib: Lib) -> Callable[[], float]:
        if lib.name != "shardwise":
            return lambda: limit
        return lambda: run_child(measurement, lib.name)

    return setup


def rows_for(name: str) -> list[Row]:
    seconds = in_a_process(f"target_seconds_{name}", SECONDS)
    peak = in_a_process(f"target_peak_{name}", BYTES)
    return [
        Row(f"targets.{name}_seconds", 1.0, seconds, kind="value", rounds=1),
        Row(f"targets.{name}_memory", 1.0, peak, kind="value", unit="B", rounds=1),
    ]


ROWS = tuple(row for name in TARGETS for row in rows_for(name))
