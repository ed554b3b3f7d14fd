"""Registers, shared memory and spills of kernels for GPUs, next to those of jax's Pallas kernels.

    python benchmarks/kernel_resources.py [--machine h100] [names…]

Both are compiled by the same XLA compiler for a GPU that is not attached (`shardwise[compile-cuda]`),
and their PTX is assembled by `ptxas -v`, which must be on the path. Each row is one process, since
XLA writes what it compiles to a folder that its flags name.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def softmax(p: Any, np_: Any, x: Any, out: Any) -> None:
    row = x[...]
    exponentials = np_.exp(row - row.max(-1, keepdims=True))
    out[...] = exponentials / exponentials.sum(-1, keepdims=True)


def product(p: Any, np_: Any, x: Any, y: Any, out: Any) -> None:
    """A product whose iterations are a loop inside of the kernel, as kernels for GPUs are written."""
    size = 32

    def step(k: Any, total: Any) -> Any:
        a, b = p.read(x, (slice(None), p.ds(k * size, size))), p.read(y, (p.ds(k * size, size),))
        return total + p.dot(a, b)

    zero = np_.zeros(out.shape, np.float32)
    out[...] = p.loop(0, x.shape[1] // size, step, zero).astype(out.dtype)


def product_of_iterations(p: Any, np_: Any, x: Any, y: Any, out: Any, total: Any) -> None:
    """The same, with iterations that are an axis of the grid, and the sum in scratch memory; jax has no
    scratch memory in kernels for GPUs."""
    from shardwise.kernels import num_programs, program_id, when

    @when(program_id(2) == 0)
    def _() -> None:
        total[...] = np_.zeros(total.shape)

    total[...] += p.dot(x[...], y[...])

    @when(program_id(2) == num_programs(2) - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def flash(p: Any, np_: Any, q: Any, k: Any, v: Any, out: Any) -> None:
    query, size = q[...], 64

    def step(i: Any, state: Any) -> Any:
        running_max, total, weighted_sum = state
        scores = p.dot(query, p.read(k, (p.ds(i * size, size),)).T)
        new = np_.maximum(running_max, scores.max(-1))
        weights, kept = np_.exp(scores - new[:, None]), np_.exp(running_max - new)
        values = p.read(v, (p.ds(i * size, size),))
        weighted_sum = weighted_sum * kept[:, None] + p.dot(weights.astype(values.dtype), values)
        return new, total * kept + weights.sum(-1), weighted_sum

    n = query.shape[0]
    start = np_.full((n,), -1e30), np_.zeros((n,)), np_.zeros(query.shape)
    _, total, weighted_sum = p.loop(0, k.shape[0] // size, step, start)
    out[...] = (weighted_sum / total[:, None]).astype(out.dtype)


# name → body, grid, and for each operand and the result: shape, block, index of the program's ids
def cases() -> dict[str, Any]:
    rows = ((8, 1024), lambda i: (i, 0))
    q = ((None, 64, 64), lambda b, i: (b, i, 0))
    whole = ((None, 512, 64), lambda b, i: (b, 0, 0))
    found: dict[str, Any] = {"softmax": (softmax, (128,), "float32", [((1024, 1024), *rows)] * 2)}
    for dtype in ("float32", "bfloat16"):
        left, right = ((64, 512), lambda i, j: (i, 0)), ((512, 64), lambda i, j: (0, j))
        out = ((64, 64), lambda i, j: (i, j))
        blocks = [((512, 512), *b) for b in (left, right, out)]
        found[f"matmul {dtype}"] = (product, (8, 8), dtype, blocks)
        steps = [
            ((512, 512), (64, 32), lambda i, j, k: (i, k)),
            ((512, 512), (32, 64), lambda i, j, k: (k, j)),
            ((512, 512), (64, 64), lambda i, j, k: (i, j)),
        ]
        found[f"matmul grid {dtype}"] = (product_of_iterations, (8, 8, 16), dtype, steps)
        blocks = [((8, 512, 64), *b) for b in (q, whole, whole, q)]
        found[f"flash {dtype}"] = (flash, (8, 8), dtype, blocks)
    return found


def text_of_ours(name: str, machine: str) -> str:
    import shardwise as sw
    from shardwise import numpy as jnp

    _, grid, dtype, specs = cases()[name]
    place = sw.sharding.SingleDeviceSharding(sw.targets.devices(machine)[0])
    shapes = [shape for shape, *_ in specs[:-1]]
    args = [sw.ShapeDtypeStruct(shape, jnp.dtype(dtype), sharding=place) for shape in shapes]
    return sw.jit(launch_of_ours(name, specs, grid)).lower(*args).as_text()


def launch_of_ours(name: str, specs: Sequence[Any], grid: tuple[int, ...]) -> Callable[..., Any]:
    """The launch of a case over these arrays."""
    import shardwise as sw
    from shardwise import kernels, lax
    from shardwise import numpy as jnp

    class Names:
        ds, loop = kernels.ds, lax.fori_loop
        read = staticmethod(lambda ref, index: ref[index])
        dot = staticmethod(lambda x, y: jnp.dot(x, y, preferred_element_type=np.float32))

    body, _, dtype, _ = cases()[name]
    blocks = [kernels.Block(block, index) for _, block, index in specs]
    return kernels.call(
        lambda *refs: body(Names, jnp, *refs),
        sw.ShapeDtypeStruct(specs[-1][0], jnp.dtype(dtype)),
        grid=grid,
        in_specs=blocks[:-1],
        out_specs=blocks[-1],
        scratch=[kernels.VMEM((64, 64), np.float32)] if len(grid) == 3 else (),
        parallel=(0, 1) if len(grid) == 3 else range(len(grid)),
        name="kernel",
    )


def text_of_jax(name: str, machine: str) -> str:
    import jax
    import jax.numpy as jnp

    _, grid, dtype, specs = cases()[name]
    args = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, *_ in specs[:-1]]
    traced = jax.jit(launch_of_jax(name, specs, grid)).trace(*args)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def launch_of_jax(name: str, specs: Sequence[Any], grid: tuple[int, ...]) -> Callable[..., Any]:
    """The same by Pallas, with the options that launches have here by default."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    class Names:
        ds, loop = pallas.ds, jax.lax.fori_loop
        read = staticmethod(lambda ref, index: ref[index])
        dot = staticmethod(lambda x, y: jnp.dot(x, y, preferred_element_type=np.float32))

    body, _, dtype, _ = cases()[name]
    blocks = [pallas.BlockSpec(block, index) for _, block, index in specs]
    return pallas.pallas_call(
        lambda *refs: body(Names, jnp, *refs),
        jax.ShapeDtypeStruct(specs[-1][0], jnp.dtype(dtype)),
        grid=grid[::-1],
        in_specs=[_reversed(b) for b in blocks[:-1]],
        out_specs=_reversed(blocks[-1]),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
        name="kernel",
    )


def _reversed(spec: Any) -> Any:
    """With the axes of the grid in the order in which jax makes them axes of Triton's grid."""
    index = spec.index_map
    return type(spec)(spec.block_shape, lambda *ids: index(*ids[::-1]))


MAKERS: dict[str, Callable[[str, str], str]] = {"ours": text_of_ours, "jax": text_of_jax}


def compile_one(who: str, name: str, machine: str) -> None:
    import shardwise as sw
    from shardwise._src.runtime.compiler import modules

    text = MAKERS[who](name, machine)
    devices: Any = tuple(sw.targets.devices(machine)[:1])
    from jaxlib import _jax

    from shardwise._src.runtime.compiler.shardy import in_context, parsed

    with in_context():
        devices[0].client.compile(
            parsed(text), _jax.DeviceList(devices), modules.compile_options(devices)
        )


def measured(who: str, name: str, machine: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"XLA_FLAGS": f"--xla_dump_to={folder}"}
        command = [sys.executable, __file__, "--one", who, "--machine", machine, name]
        run = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True)
        thunks = [*Path(folder).glob("*thunk_sequence.txt")]
        if run.returncode or not thunks:
            return "failed: " + run.stderr.strip()[-300:]
        shared = re.search(r"kCustomKernel.*shared_memory: (\d+) bytes", thunks[0].read_text())
        texts = [p.read_text() for p in Path(folder).glob("*.ptx")]
        (ptx,) = [p for p in Path(folder).glob("*.ptx") if ".entry kernel" in p.read_text()]
        target = re.search(r"\.target (\w+)", ptx.read_text())
        assert shared and target and texts
        made = subprocess.run(
            ["ptxas", "-v", f"-arch={target[1]}", "-o", "/dev/null", str(ptx)],
            capture_output=True,
            text=True,
        ).stderr
    numbers = [re.search(p, made) for p in (r"Used (\d+) registers", r"(\d+) bytes spill stores")]
    registers, spills = [m[1] if m else "?" for m in numbers]
    return f"{registers:>9} {shared[1]:>13} {spills:>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--machine", default="h100")
    parser.add_argument("--one", choices=MAKERS)
    args = parser.parse_args()
    if args.one:
        compile_one(args.one, " ".join(args.names), args.machine)
        return
    print(f"{'kernel':22}{'':6}registers shared memory  spills")
    for name in args.names or cases():
        for who in ["ours"] if "grid" in name else MAKERS:
            print(f"{name:22}{who:6}{measured(who, name, args.machine)}", flush=True)


if __name__ == "__main__":
    main()
