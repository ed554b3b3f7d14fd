"""Kernels on CPU: jax's interpreter (`interpret=True`) in the first column, shardwise's program in
the second.

`kernels.check` compares a checked launch with an unchecked one, both of shardwise.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy

from benchmarks.libs import Lib
from benchmarks.runner import Fresh, Row

RNG = numpy.random.default_rng(0)
TILE, KEYS = 128, 64  # of the product; keys in a turn of attention


def normal(lib: Lib, *shape: int) -> Any:
    return lib.root.device_put(RNG.standard_normal(shape).astype("float32"))


def pallas(lib: Lib) -> Any:
    return importlib.import_module(f"{lib.name}.experimental.pallas")


def like(lib: Lib, *shape: int) -> Any:
    return lib.root.ShapeDtypeStruct(shape, numpy.float32)


def softmax_launch(lib: Lib, rows: int = 1024, **options: Any) -> Callable[[Any], Any]:
    pl, jnp = pallas(lib), lib.np

    def softmax(x: Any, out: Any) -> None:
        powers = jnp.exp(x[...] - jnp.max(x[...], -1, keepdims=True))
        out[...] = powers / jnp.sum(powers, -1, keepdims=True)

    block = pl.BlockSpec((8, 1024), lambda i: (i, 0))
    specs = {"in_specs": [block], "out_specs": block, "interpret": True}
    return pl.pallas_call(softmax, like(lib, rows, 1024), grid=(rows // 8,), **specs, **options)


def matmul_launch(lib: Lib) -> Callable[[Any, Any], Any]:
    pl, jnp = pallas(lib), lib.np
    tpu = importlib.import_module(f"{lib.name}.experimental.pallas.tpu")

    def matmul(x: Any, y: Any, out: Any, total: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            total[...] = jnp.zeros(total.shape, jnp.float32)

        total[...] += x[...] @ y[...]

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            out[...] = total[...]

    def block(index: Callable[..., Any]) -> Any:
        return pl.BlockSpec((TILE, TILE), index)

    return pl.pallas_call(
        matmul,
        like(lib, 512, 512),
        grid=(4, 4, 4),
        in_specs=[block(lambda i, j, k: (i, k)), block(lambda i, j, k: (k, j))],
        out_specs=block(lambda i, j, k: (i, j)),
        scratch_shapes=[tpu.VMEM((TILE, TILE), jnp.float32)],
        interpret=True,
    )


def flash_launch(lib: Lib, scale: float = 0.125) -> Callable[[Any, Any, Any], Any]:
    pl, jnp = pallas(lib), lib.np

    def flash(q: Any, k: Any, v: Any, out: Any) -> None:
        query = q[...] * scale

        def step(i: Any, state: Any) -> Any:
            top, total, mixed = state
            keys, values = k[pl.ds(i * KEYS, KEYS), :], v[pl.ds(i * KEYS, KEYS), :]
            scores = query @ keys.T
            new = jnp.maximum(top, scores.max(-1))
            weights, kept = jnp.exp(scores - new[:, None]), jnp.exp(top - new)
            mixed = mixed * kept[:, None] + weights @ values
            return new, total * kept + weights.sum(-1), mixed

        n, d = query.shape
        zeros = jnp.zeros((n,), jnp.float32), jnp.zeros((n, d), jnp.float32)
        start = (jnp.full((n,), -1e30, jnp.float32), *zeros)
        _, total, mixed = lib.lax.fori_loop(0, k.shape[0] // KEYS, step, start)
        out[...] = mixed / total[:, None]

    rows = pl.BlockSpec((None, 64, 64), lambda b, i: (b, i, 0))
    head = pl.BlockSpec((None, 512, 64), lambda b, i: (b, 0, 0))
    specs = {"in_specs": [rows, head, head], "out_specs": rows, "interpret": True}
    return pl.pallas_call(flash, like(lib, 8, 512, 64), grid=(8, 8), **specs)


def softmax(lib: Lib) -> Callable[[], Any]:
    f, x = lib.root.jit(softmax_launch(lib)), normal(lib, 1024, 1024)
    return lambda: f(x)


def matmul(lib: Lib) -> Callable[[], Any]:
    f, x, y = lib.root.jit(matmul_launch(lib)), normal(lib, 512, 512), normal(lib, 512, 512)
    return lambda: f(x, y)


def heads(lib: Lib) -> list[Any]:
    return [normal(lib, 8, 512, 64) for _ in range(3)]


def flash(lib: Lib) -> Callable[[], Any]:
    f, operands = lib.root.jit(flash_launch(lib)), heads(lib)
    return lambda: f(*operands)


def eager(lib: Lib) -> Callable[[], Any]:
    """A small launch outside of `jit`."""
    f, x = softmax_launch(lib, rows=16), normal(lib, 16, 1024)
    return lambda: f(x)


def trace_flash(lib: Lib) -> Fresh:
    operands = heads(lib)

    def fresh() -> Callable[[], Any]:
        scale = 0.125 + next(lib.sizes) * 1e-9  # differs each time: no cached trace
        return lambda: lib.root.jit(flash_launch(lib, scale)).lower(*operands)

    return fresh


def check(lib: Lib) -> Callable[[], Any]:
    ours = Lib("shardwise", lib.sizes)
    kernels = importlib.import_module("shardwise.kernels")
    block = kernels.Block((8, 1024), lambda i: (i, 0))
    np, is_checked = ours.np, lib.name == "shardwise"

    def softmax(x: Any, out: Any) -> None:
        powers = np.exp(x[...] - np.max(x[...], -1, keepdims=True))
        out[...] = powers / np.sum(powers, -1, keepdims=True)

    options = {"in_specs": [block], "out_specs": block, "parallel": [0], "check": is_checked}
    f, x = (
        kernels.call(softmax, like(ours, 1024, 1024), grid=128, **options),
        normal(ours, 1024, 1024),
    )
    return lambda: ours.root.block_until_ready(f(x))


ROWS = (
    Row("kernels.softmax", 0.2, softmax, clock="wall"),
    Row("kernels.matmul", 0.2, matmul, clock="wall"),
    # half of jax's time are products of blocks, which are the same
    Row("kernels.flash", 0.20, flash, clock="wall"),
    Row("kernels.eager", 1.2, eager),
    Row("kernels.trace_flash", 0.3, trace_flash, kind="fresh"),
    Row("kernels.check", 4.0, check, clock="wall"),
)
