"""Rows that need a separate process for each sample."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from benchmarks import group
from benchmarks.child import run_child
from benchmarks.libs import Lib
from benchmarks.runner import Row


def fresh_process(measurement: str) -> Callable[[Lib], Callable[[], float]]:
    def setup(lib: Lib) -> Callable[[], float]:
        return lambda: run_child(measurement, lib.name)

    return setup


def warm_cache(lib: Lib) -> Callable[[], float]:
    """A first process fills a cache on disk; the measured processes find all programs there."""
    folder = tempfile.TemporaryDirectory(prefix="benchmarks-cache-")
    run_child("compile_gpt", lib.name, cache=folder.name)
    return lambda: run_child("compile_gpt", lib.name, cache=folder.name)


def between(measurement: str) -> Callable[[Lib], Callable[[], float]]:
    """Two processes with four devices each, which stay for all samples."""

    def setup(lib: Lib) -> Callable[[], float]:
        return group.Group(measurement, lib.name, 2, 4).sample

    return setup


ROWS = (
    Row("process.import", 0.5, fresh_process("import_only"), kind="value", rounds=9),
    Row("process.first_op", 0.5, fresh_process("first_op"), kind="value", rounds=7),
    Row("process.first_trace", 0.3, fresh_process("trace_gpt"), kind="value", rounds=5),
    Row("process.warm_cache", 0.5, warm_cache, kind="value", rounds=5),
    Row("hosts.allgather_16MiB", 0.2, between("allgather"), kind="value"),
    Row("hosts.barrier", 0.3, between("barrier"), kind="value"),
    Row("hosts.broadcast", 0.3, between("broadcast"), kind="value"),
    Row("hosts.broadcast_16MiB", 0.3, between("broadcast_large"), kind="value"),
    Row("hosts.jit_call", 1.1, between("jit_call"), kind="value"),
    Row("hosts.jit_dispatch", 1.1, between("jit_dispatch"), kind="value"),
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
