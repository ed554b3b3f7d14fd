"""Measurements that need a fresh process: `python -m benchmarks.child MEASUREMENT LIBRARY`.

The child prints one number. Times are CPU seconds of the child from before the first import of
the library, NumPy and jaxlib included; starting the interpreter is not counted.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import saved

# NumPy, jaxlib and benchmarks.gpt (which imports NumPy) are imported inside the measurements.
from benchmarks.libs import DEVICES, Lib, memory, peak_growth

ARRAYS = 10_000
# Machines by their size: for reports by their own compilers.
TARGETS = {
    "64_chips": "tpu-v5p:4x4x4",
    "512_chips": "tpu-v5p:8x8x8",
    "4096_chips": "tpu-v5p:16x16x16",
    "8192_gpus": "h100:1024x8",
}
TIMEOUT = 300  # seconds


def run_child(measurement: str, library: str, cache: str | None = None) -> float:
    """Starts a child and returns the number it prints.

    Args:
      measurement: a key of MEASUREMENTS.
      library: the package to import.
      cache: a folder for the persistent compilation cache; None leaves the cache off.

    Raises:
      RuntimeError: with the last line that the child wrote, if it fails.
    """
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed library has its bytecode
    for prefix in ("JAX_", "SHARDWISE_") if cache else ():
        environment[prefix + "ENABLE_COMPILATION_CACHE"] = "true"
        environment[prefix + "COMPILATION_CACHE_DIR"] = str(cache)
        environment[prefix + "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        environment[prefix + "PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", measurement, library],
        cwd=Path(__file__).parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise RuntimeError(f"child process: {lines[-1] if lines else done.returncode}")
    return float(done.stdout.split()[-1])


def import_only(lib: Lib) -> float:
    start = time.process_time()
    _ = lib.root, lib.np
    return time.process_time() - start


def first_op(lib: Lib) -> float:
    """Import and one eager op: work that a library cannot usefully defer."""
    start = time.process_time()
    lib.root.block_until_ready(lib.np.zeros(3) + 1)
    return time.process_time() - start


def trace_gpt(lib: Lib) -> float:
    """The first trace in a process; excludes import and placing the parameters."""
    from benchmarks import gpt

    config = gpt.TRACE
    arguments = lib.root.device_put((*gpt.initial(config), *gpt.batch(config)))
    step = lib.root.jit(gpt.make_step(lib, config))
    _ = lib.np, lib.lax, lib.nn
    start = time.process_time()
    step.trace(*arguments)
    return time.process_time() - start


def compile_gpt(lib: Lib) -> float:
    """From import to the result of the first step of a 2-layer GPT."""
    start = time.process_time()
    from benchmarks import gpt

    config = gpt.STEADY
    arguments = lib.root.device_put((*gpt.initial(config), *gpt.batch(config)))
    step = lib.root.jit(gpt.make_step(lib, config))
    lib.root.block_until_ready(step(*arguments))
    return time.process_time() - start


def array_maker(lib: Lib, devices: int) -> Callable[[], Any]:
    """Creates arrays as programs do: results of a jitted function, eight float32 each."""
    import numpy

    x = lib.root.device_put(numpy.ones(DEVICES, "float32"))
    if devices > 1:
        x = lib.root.device_put(x, lib.named(lib.mesh(d=devices), "d"))
    f = lib.root.jit(lambda x: x + 1)
    return lambda: f(x)


def python_bytes(lib: Lib, devices: int) -> float:
    import tracemalloc

    make = array_maker(lib, devices)
    keep = [make() for _ in range(100)]  # fills the caches
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    keep = [make() for _ in range(ARRAYS)]
    lib.root.block_until_ready(keep[-1])
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / ARRAYS


def resident_bytes(lib: Lib, devices: int) -> float:
    make = array_maker(lib, devices)
    keep = [make() for _ in range(100)]
    gc.collect()
    before = memory("VmRSS")
    keep += [make() for _ in range(ARRAYS)]
    lib.root.block_until_ready(keep[-1])
    gc.collect()
    return (memory("VmRSS") - before) / ARRAYS


PEAK_BYTES = 2**29  # size of the array whose creation is measured
MOVES = ("put", "reshard", "read")


def peak_callback(lib: Lib) -> float:
    """The process's peak memory growth while an array is created shard by shard."""
    import numpy

    place = lib.named(lib.mesh(d=DEVICES), "d")

    def make(rows: int) -> Any:
        shape = (rows, 2**20)

        def part(index: Any) -> Any:
            start, stop, _ = index[0].indices(rows)
            return numpy.full((stop - start, 2**20), start, "float32")

        return lib.root.block_until_ready(lib.root.make_array_from_callback(shape, place, part))

    make(DEVICES)  # loads lazy imports
    keep, grown = peak_growth(lambda: make(PEAK_BYTES // 2**22))
    assert keep.nbytes == PEAK_BYTES
    return grown


def peak_move(lib: Lib, kind: str) -> float:
    """Like `peak_callback`, while a host array is transferred, or a sharded array resharded or
    read; results count. The sources exist before, and are not counted. A computed array is not in
    the form that `device_put` makes.
    """
    import numpy

    put, block, mesh = lib.root.device_put, lib.root.block_until_ready, lib.mesh(d=DEVICES)
    rows, columns = lib.named(mesh, "d"), lib.named(mesh, None, "d")
    uses = {
        "put": lambda host, x: block(put(host, rows)),
        "reshard": lambda host, x: block(put(x, columns)),
        "read": lambda host, x: numpy.asarray(x),
    }

    def sources(width: int) -> tuple[Any, Any]:
        host = numpy.ones((2**10, width), "float32")
        return host, None if kind == "put" else block(put(host, rows) + 1)

    uses[kind](*sources(2**10))  # loads lazy imports
    host, x = sources(PEAK_BYTES // 2**12)
    keep, grown = peak_growth(lambda: uses[kind](host, x))
    assert keep.nbytes == PEAK_BYTES
    return grown


DROPPED = 10  # arrays of 1 GiB, one after another


def drop(lib: Lib, peak: bool) -> float:
    """Creating and dropping large arrays: CPU seconds for each, or the peak memory growth.

    The memory of each is reused for the next, or returned to the system; otherwise the growth is
    more than one array.
    """
    import numpy

    put, block = lib.root.device_put, lib.root.block_until_ready
    rows = lib.named(lib.mesh(d=DEVICES), "d")
    host = numpy.ones((2**10, 2**18), "float32")
    block(put(host, rows))  # lazy imports, and memory that is touched for the first time

    def repeated() -> float:
        start = time.process_time()
        for _ in range(DROPPED):
            block(put(host, rows))
        return (time.process_time() - start) / DROPPED

    seconds, grown = peak_growth(repeated)
    return grown if peak else seconds


def peak_of_plan(lib: Lib, measured: bool) -> float:
    """Bytes that a program needs to gather an array over 8 devices: measured, or predicted by
    `plan`."""
    import numpy

    put, block, mesh = lib.root.device_put, lib.root.block_until_ready, lib.mesh(d=DEVICES)
    rows, whole = lib.named(mesh, "d"), lib.named(mesh)
    step = lib.root.jit(lambda x: x + 1, out_shardings=rows)

    def source(width: int) -> Any:
        return step(put(numpy.ones((2**10, width), "float32"), rows))

    type(source(8)).is_ready = lambda x: False  # forces the transfer by a program
    block(put(source(8), whole))
    x = block(source(PEAK_BYTES // 8 // 2**12))
    if not measured:
        return lib.root.plan(x, whole).host_bytes
    keep, grown = peak_growth(lambda: block(put(x, whole)))
    assert keep.nbytes == PEAK_BYTES // 8
    return grown


def peak_of_report(lib: Lib) -> float:
    """Bytes of the largest process of a report for thousands of devices: this one, or one that it
    starts. The process is a new one, so nothing else counts."""
    from benchmarks.rows import reports

    reports.report_for_many(lib)()
    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return max(resource.getrusage(who).ru_maxrss for who in whose) * 1024.0


def report_for(lib: Lib, name: str, what: str) -> float:
    """Seconds or peak bytes of a report of a step for a machine that is not attached."""
    from benchmarks.rows.reports import new_step, structs

    machine = TARGETS[name]
    count = len(lib.root.targets.devices(machine))
    auto = (lib.sharding.AxisType.Auto,) * 2
    mesh = lib.sharding.AbstractMesh((count // 8, 8), ("data", "model"), axis_types=auto)
    arguments, step = structs(lib, mesh), new_step(lib)
    begin = time.perf_counter()
    lib.root.explain(step, machine=machine)(*arguments)
    took = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    return took if what == "seconds" else peak


def growth_of(lib: Lib, what: str) -> float:
    """The resident bytes by which a long-lived process grows while something is repeated, once its
    caches are full."""
    import numpy

    x = lib.root.device_put(numpy.ones(DEVICES, "float32"))
    f = lib.root.jit(lambda x: x + 1)

    def threads(first: int, count: int) -> None:
        for _ in range(count // 20):
            started = [threading.Thread(target=lambda: float(f(x)[0])) for _ in range(20)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()

    def operations(first: int, count: int) -> None:
        for i in range(count):
            lib.np.add(x, i % 7)

    def functions(first: int, count: int) -> None:
        for i in range(count):
            lib.root.jit(lambda x, by=i % 50: x * by)(x)

    def programs(first: int, count: int) -> None:
        for i in range(first, first + count):
            lib.root.jit(lambda x, by=float(i): x * by)(x)

    # How often before the growth is measured, and how often then.
    kinds = {
        "threads": (threads, 1000, 10_000),
        "operations": (operations, 10_000, 1_000_000),
        "functions": (functions, 1_000, 5_000),
        "programs": (programs, 4_500, 500),
    }
    repeat, before, count = kinds[what]
    repeat(0, before)
    gc.collect()
    start = memory("VmRSS")
    repeat(before, count)
    gc.collect()
    return float(max(memory("VmRSS") - start, 1 << 20))


GROWTHS = ("threads", "operations", "functions", "programs")
MEASUREMENTS: dict[str, Callable[[Lib], float]] = {
    "import_only": import_only,
    "first_op": first_op,
    "trace_gpt": trace_gpt,
    "compile_gpt": compile_gpt,
    "python_1": lambda lib: python_bytes(lib, 1),
    "python_8": lambda lib: python_bytes(lib, DEVICES),
    "resident_1": lambda lib: resident_bytes(lib, 1),
    "save_many": saved.many,
    "peak_callback": peak_callback,
    **{f"peak_{kind}": functools.partial(peak_move, kind=kind) for kind in MOVES},
    "drop_seconds": functools.partial(drop, peak=False),
    "drop_peak": functools.partial(drop, peak=True),
    "peak_planned": lambda lib: peak_of_plan(lib, measured=False),
    "peak_as_planned": lambda lib: peak_of_plan(lib, measured=True),
    "peak_report": peak_of_report,
    **{
        f"target_{what}_{name}": functools.partial(report_for, name=name, what=what)
        for name in TARGETS
        for what in ("seconds", "peak")
    },
    "resident_8": lambda lib: resident_bytes(lib, DEVICES),
    **{f"growth_{what}": functools.partial(growth_of, what=what) for what in GROWTHS},
    **{
        f"{kind}_{mib}": functools.partial(saved.rate, kind=kind, size=mib << 20)
        for kind in ("save", "restore")
        for mib in (512, 4096)
    },
    **{
        f"{kind}_peak": functools.partial(saved.peak, kind=kind, size=2 << 30)
        for kind in ("save", "restore")
    },
}

if __name__ == "__main__":
    name, library = sys.argv[1:]
    print(MEASUREMENTS[name](Lib(library, itertools.count(1000))))
