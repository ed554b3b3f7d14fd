"""Rows that need a separate process for each sample."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks import group
from benchmarks.child import run_child
from benchmarks.libs import Lib
from benchmarks.runner import Row


def child_row(name: str, goal: float, measurement: str, **more: Any) -> Row:
    """A row whose samples are each measured by a new child process."""
    return Row(
        name, goal, lambda lib: lambda: run_child(measurement, lib.name), kind="value", **more
    )


def warm_cache(lib: Lib) -> Callable[[], float]:
    """A first process fills a cache on disk; the measured processes find all programs there."""
    folder = tempfile.TemporaryDirectory(prefix="benchmarks-cache-")
    run_child("compile_gpt", lib.name, cache=folder.name)
    return lambda: run_child("compile_gpt", lib.name, cache=folder.name)


def between(measurement: str) -> Callable[[Lib], Callable[[], float]]:
    """Two processes with four devices each, which stay for all samples."""
    return lambda lib: group.Group(measurement, lib.name, 2, 4).sample


ROWS = (
    child_row("process.import", 0.3, "import_only", rounds=9),
    child_row("process.first_op", 0.5, "first_op", rounds=7),
    child_row("process.first_trace", 0.15, "trace_gpt", rounds=5),
    child_row("process.cold_cache", 0.75, "compile_gpt", rounds=5),
    Row("process.warm_cache", 0.45, warm_cache, kind="value", rounds=5),
    Row("hosts.allgather_16MiB", 0.2, between("allgather"), kind="value"),
    Row("hosts.barrier", 0.3, between("barrier"), kind="value"),
    Row("hosts.broadcast", 0.3, between("broadcast"), kind="value"),
    Row("hosts.broadcast_16MiB", 0.3, between("broadcast_large"), kind="value"),
    Row("hosts.jit_call", 1.05, between("jit_call"), kind="value"),
    Row("hosts.jit_dispatch", 1.05, between("jit_dispatch"), kind="value"),
    Row("hosts.first_call", 1.0, between("first_call"), kind="value"),
    Row(
        "hosts.early_worker",
        0.1,
        lambda lib: lambda: group.early_worker(lib.name),
        kind="value",
        rounds=5,
    ),
    Row(
        "hosts.start_of_8",
        1.0,
        lambda lib: lambda: group.start_of_all(lib.name),
        kind="value",
        rounds=3,
    ),
)
