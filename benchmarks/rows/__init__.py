"""All rows, in the order of the report."""

from benchmarks.rows import (
    arrays,
    calls,
    compiling,
    kernels,
    loops,
    maps,
    memory,
    processes,
    reports,
    saving,
    shardings,
    steps,
    targets,
    transforms,
)
from benchmarks.runner import Row

ROWS: tuple[Row, ...] = (
    *calls.ROWS,
    *arrays.ROWS,
    *shardings.ROWS,
    *transforms.ROWS,
    *compiling.ROWS,
    *kernels.ROWS,
    *steps.ROWS,
    *loops.ROWS,
    *maps.ROWS,
    *memory.ROWS,
    *processes.ROWS,
    *saving.ROWS,
    *reports.ROWS,
    *targets.ROWS,
)
