"""Both libraries on an attached GPU: `python -m benchmarks.gpu [--json FILE] [NAMES]`.

Each library runs in separate processes, in turns, since a process has one client of a GPU; a row is
the least time of all rounds, in milliseconds of elapsed time, and the ratio of both. Kernels are
those of `kernel_resources.py`, with one source for both libraries; rows `library.*` have no
counterpart in jax, and are compared with the row that their line names.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gpt, kernel_resources
from benchmarks.libs import Lib

LIBRARIES = ("shardwise", "jax")
TURNS = 2
CONFIG = gpt.Config(layers=6, width=512, heads=8, vocabulary=8192, length=512, batch=16)

Call = Callable[[], Any]


def normal(lib: Lib, *shape: int, dtype: str = "float32") -> Any:
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return lib.root.device_put(lib.np.asarray(values).astype(dtype))


def milliseconds(lib: Lib, call: Call, count: int, rounds: int = 5) -> float:
    """Of one of `count` calls that are queued together; the least of the rounds."""
    for _ in range(3):
        lib.root.block_until_ready(call())
    found = []
    for _ in range(rounds):
        start, result = time.perf_counter(), None
        for _ in range(count):
            result = call()
        lib.root.block_until_ready(result)
        found.append((time.perf_counter() - start) / count * 1e3)
    return min(found)


def kernel(name: str, *specs: tuple, grid: tuple[int, ...]) -> Callable[[Lib], Call]:
    """A kernel of `kernel_resources` over larger arrays."""

    def setup(lib: Lib) -> Call:
        make = {"shardwise": kernel_resources.launch_of_ours, "jax": kernel_resources.launch_of_jax}
        dtype = kernel_resources.cases()[name][2]
        f = lib.root.jit(make[lib.name](name, specs, grid))
        args = [normal(lib, *shape, dtype=dtype) for shape, *_ in specs[:-1]]
        return lambda: f(*args)

    return setup


def blocked(make: Callable[[Lib], Call]) -> Callable[[Lib], Call]:
    """Calls that wait for their results."""

    def setup(lib: Lib) -> Call:
        call = make(lib)
        return lambda: lib.root.block_until_ready(call())

    return setup


def add_one(lib: Lib, x: Any = None) -> Call:
    f, x = lib.root.jit(lambda x: x + 1), normal(lib, 8) if x is None else x
    return lambda: f(x)


def of_numpy(lib: Lib) -> Call:
    return add_one(lib, np.ones(8, np.float32))


def eager(lib: Lib) -> Call:
    x = normal(lib, 8)
    return lambda: lib.np.sin(x)


def to_device(lib: Lib) -> Call:
    x = np.ones((4096, 4096), np.float32)
    return lambda: lib.root.device_put(x)


def to_host(lib: Lib) -> Call:
    x, f = normal(lib, 4096, 4096), lib.root.jit(lambda x: x + 1)
    return lambda: np.asarray(f(x))


def gpt_step(lib: Lib) -> Call:
    state, data = gpt.initial(CONFIG), lib.root.device_put(gpt.batch(CONFIG))
    state = [*lib.root.device_put(state)]
    step = lib.root.jit(gpt.make_step(lib, CONFIG), donate_argnums=(0, 1))

    def call() -> Any:
        *state[:], loss = step(*state, *data)
        return loss

    return call


def attention(how: str | None, is_gradient: bool = False) -> Callable[[Lib], Call]:
    """bfloat16, 8 sequences of 2,048, 16 heads of 64. how: None is the kernel of the library."""

    def setup(lib: Lib) -> Call:
        args = [normal(lib, 8, 2048, 16, 64, dtype="bfloat16") for _ in range(3)]

        def f(q: Any, k: Any, v: Any) -> Any:
            if how is None:
                library = importlib.import_module("shardwise.kernels.library")
                return library.flash_attention(q, k, v, is_causal=True)
            return lib.nn.dot_product_attention(q, k, v, is_causal=True, implementation=how)

        total = lib.root.grad(lambda *xs: f(*xs).astype("float32").sum(), argnums=(0, 1, 2))
        run = lib.root.jit(total if is_gradient else f)
        return lambda: run(*args)

    return setup


def of_library(name: str, *shapes: tuple[int, ...], dtype: str = "float32") -> Any:
    """A function of `kernels.library`, or of a module of the library, such as `nn.softmax`."""

    def setup(lib: Lib) -> Call:
        module, _, function = f"shardwise.{name}".rpartition(".")
        f = lib.root.jit(getattr(importlib.import_module(module), function))
        args = [normal(lib, *shape, dtype=dtype) for shape in shapes]
        return lambda: f(*args)

    return setup


def _rows() -> dict[str, tuple[Callable[[Lib], Call], int]]:
    """name → setup, calls in a round. Names with `library.` run here only."""
    strips = ((8192, 1024), (8, 1024), lambda i: (i, 0))
    whole = (2048, 2048)
    product = (
        (whole, (64, 2048), lambda i, j: (i, 0)),
        (whole, (2048, 64), lambda i, j: (0, j)),
        (whole, (64, 64), lambda i, j: (i, j)),
    )
    q = ((64, 2048, 64), (None, 64, 64), lambda b, i: (b, i, 0))
    k = ((64, 2048, 64), (None, 2048, 64), lambda b, i: (b, 0, 0))
    square = [(4096, 4096)] * 2
    found: dict[str, Any] = {
        "jit.queued": (add_one, 1000),
        "jit.blocked": (blocked(add_one), 500),
        "jit.numpy_blocked": (blocked(of_numpy), 500),
        "eager.sin_blocked": (blocked(eager), 500),
        "device_put.64MiB": (blocked(to_device), 5),
        "asarray.64MiB": (to_host, 5),
        "gpt.step": (gpt_step, 10),
        "kernel.softmax": (kernel("softmax", strips, strips, grid=(1024,)), 30),
    }
    for dtype in ("float32", "bfloat16"):
        found[f"kernel.matmul_{dtype}"] = (kernel(f"matmul {dtype}", *product, grid=(32, 32)), 30)
        found[f"kernel.flash_{dtype}"] = (kernel(f"flash {dtype}", q, k, k, q, grid=(64, 32)), 30)
    for how in ("xla", "cudnn"):
        found[f"attention.{how}"] = (attention(how), 10)
        found[f"attention.{how}_gradient"] = (attention(how, is_gradient=True), 10)
    found["library.attention"] = (attention(None), 10)
    found["library.attention_gradient"] = (attention(None, is_gradient=True), 10)
    for n in (1024, 4096, 16384):
        of_rows = (2**25 // n, n)
        found[f"library.softmax_{n}"] = (of_library("kernels.library.softmax", of_rows), 30)
        found[f"library.of_xla_softmax_{n}"] = (of_library("nn.softmax", of_rows), 30)
    for dtype in ("float32", "bfloat16"):
        names = {"": "kernels.library.matmul", "of_xla_": "numpy.matmul"}
        for prefix, name in names.items():
            setup = of_library(name, *square, dtype=dtype)
            found[f"library.{prefix}matmul_{dtype}"] = (setup, 30)
    return found


def measure(library: str, names: list[str]) -> dict[str, float | str]:
    """Milliseconds of each row, or what it raised."""
    lib, found = Lib(library, itertools.count(1000)), {}
    for name, (setup, count) in _rows().items():
        if not any(fnmatch(name, pattern) for pattern in names):
            continue
        if name.startswith("library.") and library != "shardwise":
            continue
        try:
            found[name] = milliseconds(lib, setup(lib), count)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return found


def least(turns: list[dict[str, float | str]], name: str) -> float | str | None:
    values = [turn[name] for turn in turns if name in turn]
    numbers = [v for v in values if isinstance(v, float)]
    return min(numbers) if numbers else (values or [None])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="rows, as globs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=LIBRARIES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.names)))
        return
    turns: dict[str, list[Any]] = {library: [] for library in LIBRARIES}
    for library in LIBRARIES * TURNS:
        command = [sys.executable, "-m", "benchmarks.gpu", "--one", library, *args.names]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr[-2000:])
        turns[library].append(json.loads(done.stdout.splitlines()[-1]))
    rows = {name: [least(turns[lib], name) for lib in LIBRARIES] for name in turns["shardwise"][0]}
    print(f"{'ms':32}{'ours':>10}{'jax':>10}{'ratio':>8}")
    for name, values in rows.items():
        texts = [f"{v:.4f}" if isinstance(v, float) else str(v or "") for v in values]
        ours, theirs = values
        ratio = ""
        if isinstance(ours, float) and isinstance(theirs, float):
            ratio = f"{ours / theirs:.2f}"
        print(f"{name:32}{texts[0]:>10}{texts[1]:>10}{ratio:>8}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
