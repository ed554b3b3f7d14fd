"""Rows that need a process of their own for each sample."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from benchmarks.child import run_child
from benchmarks.libs import Lib
from benchmarks.runner import Row


def fresh_process(measurement: str) -> Callable[[Lib], Callable[[], float]]:
    def setup(lib: Lib) -> Callable[[], float]:
        return lambda: run_child(measurement, lib.name)

    return setup


def warm_cache(lib: Lib) -> Callable[[], float]:
    """A first process fills a cache on disk; the measured ones find everything there."""
    folder = tempfile.TemporaryDirectory(prefix="benchmarks-cache-")
    run_child("compile_gpt", lib.name, cache=folder.name)
    return lambda: run_child("compile_gpt", lib.name, cache=folder.name)


ROWS = (
    Row("process.import", 0.5, fresh_process("import_only"), kind="value", rounds=9),
    Row("process.first_op", 0.5, fresh_process("first_op"), kind="value", rounds=7),
    Row("process.first_trace", 0.3, fresh_process("trace_gpt"), kind="value", rounds=5),
    Row("process.warm_cache", 0.5, warm_cache, kind="value", rounds=5),
)
