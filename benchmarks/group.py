"""Measurements between real processes: `python -m benchmarks.group MEASUREMENT LIBRARY ...`.

A `Group` is a set of persistent processes on loopback with virtual CPU devices, so that the groups
of two libraries can alternate. Each line sent to it requests one sample; process 0 prints a number.
"""

from __future__ import annotations

import importlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy

from benchmarks.libs import Lib

TIMEOUT = 120  # seconds for one line of a process
MIB = 1 << 20


class Group:
    """Processes joined by a library's `distributed.initialize`."""

    def __init__(self, measurement: str, library: str, count: int, devices: int):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{sock.getsockname()[1]}"
        environment = dict(os.environ)
        environment.pop("XLA_FLAGS", None)
        for prefix in ("JAX_", "SHARDWISE_"):
            environment[prefix + "NUM_CPU_DEVICES"] = str(devices)
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.group", measurement, library, address,
                 str(count), str(rank)],
                cwd=Path(__file__).parent.parent, env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for rank in range(count)
        ]  # fmt: skip

    def tell(self, rank: int) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write("go\n")
        stdin.flush()

    def number(self, rank: int) -> float:
        """The next number that a process prints; skips other lines."""
        process = self.processes[rank]
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("value "):
                return float(line.split()[1])
        lines = [line for line in process.stderr.read().splitlines() if line.strip()]
        raise RuntimeError(f"process {rank}: {lines[-1] if lines else 'ended'}")

    def sample(self) -> float:
        for rank in range(len(self.processes)):
            self.tell(rank)
        return self.number(0)

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __del__(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()


def early_worker(library: str) -> float:
    """Seconds from process 0's call of initialize to the return of a worker that came earlier."""
    with closing(Group("join", library, 2, 1)) as group:
        for rank in range(2):
            group.number(rank)  # the library is imported
        group.tell(1)
        time.sleep(0.3)
        group.tell(0)
        begin = group.number(0)
        group.number(0)
        group.number(1)
        return group.number(1) - begin


def start_of_all(library: str, count: int = 8) -> float:
    """Seconds from the start of some processes until each has its first device."""
    begin = time.time()
    with closing(Group("start", library, count, 1)) as group:
        return max(group.number(rank) for rank in range(count)) - begin


# -------------------------------------------------------------------------- in the processes


def utils(library: str) -> Any:
    return importlib.import_module(f"{library}.experimental.multihost_utils")


def allgather(lib: Lib, rank: int) -> Callable[[], Any]:
    value = numpy.full(16 * MIB // 4, rank, "float32")
    return lambda: utils(lib.name).process_allgather(value)


def barrier(lib: Lib, rank: int) -> Callable[[], Any]:
    return lambda: utils(lib.name).sync_global_devices("here")


def broadcast(lib: Lib, rank: int) -> Callable[[], Any]:
    tree = {"step": rank, "seeds": numpy.arange(8) + rank, "rate": numpy.float32(0.1)}
    return lambda: utils(lib.name).broadcast_one_to_all(tree)


def broadcast_large(lib: Lib, rank: int) -> Callable[[], Any]:
    value = numpy.full(16 * MIB // 4, rank, "float32")
    return lambda: utils(lib.name).broadcast_one_to_all(value)


def jit_call(lib: Lib, rank: int) -> Callable[[], Any]:
    """A cached call; each waits for its result, because all processes must take part."""
    x = whole(lib, 1024)
    f = lib.root.jit(lambda x: x + 1)
    return lambda: lib.root.block_until_ready(f(x))


def jit_dispatch(lib: Lib, rank: int) -> Callable[[], Any]:
    """The same, with the result of each as the argument of the next."""
    f = lib.root.jit(lambda x: x + 1)
    state = [whole(lib, 1024)]

    def call() -> None:
        state[0] = f(state[0])

    return call


def first_call(lib: Lib, rank: int) -> Callable[[], Any]:
    """A new program: traced, compiled, compared between the processes, run."""
    x = whole(lib, 1024)
    numbers = itertools.count(1)

    def call() -> None:
        scale = 1.0 + next(numbers) * 1e-6
        lib.root.block_until_ready(lib.root.jit(lambda x: (x * scale).sum())(x))

    return call


def whole(lib: Lib, size: int) -> Any:
    place = lib.named(lib.mesh(x=lib.root.device_count()), "x")
    value = numpy.ones(size, "float32")
    return lib.root.make_array_from_callback(value.shape, place, value.__getitem__)


REPEATED: dict[str, tuple[Callable[[Lib, int], Callable[[], Any]], int]] = {
    "allgather": (allgather, 1),
    "barrier": (barrier, 20),
    "broadcast": (broadcast, 10),
    "broadcast_large": (broadcast_large, 1),
    "jit_call": (jit_call, 50),
    "jit_dispatch": (jit_dispatch, 200),
    "first_call": (first_call, 3),
}


def say(value: float) -> None:
    print(f"\nvalue {value!r}", flush=True)


def main(measurement: str, library: str, address: str, count: str, rank: str) -> None:
    lib = Lib(library, itertools.count(1000))
    _ = lib.root.distributed.initialize  # loads all of the library that it needs
    if measurement == "join":
        say(0.0)
        sys.stdin.readline()
        say(time.time())
    lib.root.distributed.initialize(address, int(count), int(rank))
    if measurement == "join":
        say(time.time())
        return
    if measurement == "start":
        lib.root.local_devices()
        say(time.time())
        sys.stdin.readline()
        return
    setup, times = REPEATED[measurement]
    call = setup(lib, int(rank))
    for _ in range(3):
        call()
    for _ in sys.stdin:
        utils(library).sync_global_devices("sample")
        begin, out = time.perf_counter(), None
        for _ in range(times):
            out = call()
        lib.root.block_until_ready(out)
        if rank == "0":
            say((time.perf_counter() - begin) / times)


if __name__ == "__main__":
    main(*sys.argv[1:])
