"""Kernels for tests: each with its launch, arguments, and the function that it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.kernels import (
    VMEM,
    Block,
    Element,
    atomic_add,
    call,
    cdiv,
    ds,
    load,
    num_programs,
    program_id,
    run_scoped,
    store,
    when,
)

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """launch: makes the function of a kernel. wanted: the same function without one."""

    launch: Callable[[], Callable[..., Any]]
    wanted: Callable[..., Any]
    args: tuple[Any, ...]


def like(*shape: int, dtype: Any = np.float32) -> Any:
    return sw.ShapeDtypeStruct(shape, np.dtype(dtype))


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x: Any, out: Any) -> None:
    exponentials = jnp.exp(x[...] - jnp.max(x[...], -1, keepdims=True))
    out[...] = exponentials / jnp.sum(exponentials, -1, keepdims=True)


def softmax_of_rows() -> Any:
    rows = Block((8, 32), lambda i: (i, 0))
    return call(softmax, like(24, 32), grid=3, in_specs=[rows], out_specs=rows, parallel=[0])


def matmul(x: Any, y: Any, out: Any, total: Any) -> None:
    @when(program_id("k") == 0)
    def _() -> None:
        total[...] = jnp.zeros(total.shape)

    total[...] += x[...] @ y[...]

    @when(program_id("k") == num_programs("k") - 1)
    def _() -> None:
        out[...] = total[...]


def matmul_in_blocks() -> Any:
    return call(
        matmul,
        like(16, 24),
        grid=(("i", 2), ("j", 3), ("k", 4)),
        in_specs=[Block((8, 8), lambda i, j, k: (i, k)), Block((8, 8), lambda i, j, k: (k, j))],
        out_specs=Block((8, 8), lambda i, j, k: (i, j)),
        scratch=[VMEM((8, 8), np.float32)],
        parallel=("i", "j"),
    )


def flash(q: Any, k: Any, v: Any, out: Any) -> None:
    query = q[...]

    def step(i: Any, state: Any) -> Any:
        running_max, total, weighted_sum = state
        keys, values = k[ds(i * 4, 4)], v[ds(i * 4, 4)]
        scores = query @ keys.T
        new = jnp.maximum(running_max, scores.max(-1))
        weights, kept = jnp.exp(scores - new[:, None]), jnp.exp(running_max - new)
        return (
            new,
            total * kept + weights.sum(-1),
            weighted_sum * kept[:, None] + weights @ values,
        )

    n, d = query.shape
    start = jnp.full((n,), -1e30), jnp.zeros((n,)), jnp.zeros((n, d))
    _, total, weighted_sum = lax.fori_loop(0, cdiv(k.shape[0], 4), step, start)
    out[...] = weighted_sum / total[:, None]


def flash_attention() -> Any:
    rows = Block((None, 4, 8), lambda b, i: (b, i, 0))
    whole = Block((None, 16, 8), lambda b, i: (b, 0, 0))
    return call(flash, like(2, 12, 8), grid=(2, 3), in_specs=[rows, whole, whole], out_specs=rows)


def windows(x: Any, out: Any) -> None:
    out[...] = x[:-2] + 2 * x[1:-1] - x[2:]


def sums_of_windows() -> Any:
    taken = Block((Element(10, padding=(1, 1)),), lambda i: (8 * i - 1,))
    return call(windows, like(24), grid=3, in_specs=[taken], out_specs=Block((8,), lambda i: (i,)))


def ragged(x: Any, out: Any) -> None:
    column = 4 * program_id(1) + jnp.arange(4)
    store(out, ..., load(x, ..., mask=column < 10) * 3)


def ragged_rows() -> Any:
    block = Block((None, 4), lambda i, j: (i, j))
    return call(ragged, like(5, 10), grid=(5, 3), in_specs=[block], out_specs=block)


def gathered(rows: Any, x: Any, out: Any) -> None:
    out[...] = x[...] * (1 + rows[program_id(0)])


def gather_rows() -> Any:
    x = Block((None, 8), lambda i, rows: (rows[i], 0))
    out = Block((None, 8), lambda i, rows: (i, 0))
    return call(gathered, like(4, 8), grid=4, in_specs=[x], out_specs=out, prefetch=1)


def histogram(x: Any, out: Any) -> None:
    @when(program_id(0) == 0)
    def _() -> None:
        out[...] = jnp.zeros_like(out[...])

    def step(i: Any, _: Any) -> Any:
        atomic_add(out, x[i], 1)
        return 0

    lax.fori_loop(0, 6, step, 0)


def counts() -> Any:
    x = Block((6,), lambda i: (i,))
    return call(histogram, like(5, dtype=np.int32), grid=4, in_specs=[x], out_specs=Block())


def strided(x: Any, out: Any) -> None:
    out[::2] = x[ds(1, 4, 2)]
    out[1::2] = -x[::2]
    out[-1] += 1.0


def swapped_pairs() -> Any:
    return call(strided, like(8))


def scaled(x: Any, out: Any) -> None:
    def inner(held: Any) -> None:
        held[...] = x[...] * 2
        held[0] = x[1]
        out[...] += held[...]

    run_scoped(inner, VMEM((4,), np.float32))


def added_in_place() -> Any:
    block = Block((4,), lambda i: (i,))
    f = call(
        lambda x, y, out: scaled(x, out),
        like(12),
        grid=3,
        in_specs=[block, block],
        out_specs=block,
        aliases={1: 0},
        name="added",
    )
    return lambda x: f(x, jnp.cos(x))


def _scaled(x: Any) -> Any:
    y = 2 * jnp.reshape(x, (3, 4))
    return jnp.cos(x) + y.at[:, 0].set(x.reshape(3, 4)[:, 1]).reshape(12)


ROWS = np.array([2, 0, 2, 1], np.int32)
CASES = {
    "softmax": Case(softmax_of_rows, lambda x: nn.softmax(x, -1), (normal(24, 32),)),
    "matmul": Case(matmul_in_blocks, jnp.matmul, (normal(16, 32), normal(32, 24))),
    "flash": Case(
        flash_attention,
        lambda q, k, v: nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k), -1) @ v,
        (normal(2, 12, 8), normal(2, 16, 8), normal(2, 16, 8)),
    ),
    "windows": Case(
        sums_of_windows, lambda x: jnp.pad(x, 1)[:-2] + 2 * x - jnp.pad(x, 1)[2:], (normal(24),)
    ),
    "ragged": Case(ragged_rows, lambda x: 3 * x, (normal(5, 10),)),
    "prefetched": Case(
        lambda: lambda x: gather_rows()(ROWS, x),
        lambda x: jnp.asarray(x)[ROWS] * (1 + ROWS[:, None].astype(np.float32)),
        (normal(3, 8),),
    ),
    "strided": Case(
        swapped_pairs,
        lambda x: jnp.stack([x[1::2], -x[::2]], 1).reshape(8).at[-1].add(1.0),
        (normal(8),),
    ),
    "aliased": Case(added_in_place, _scaled, (normal(12),)),
}
INTEGERS = {
    "counts": Case(
        counts,
        lambda x: jnp.bincount(x, length=5).astype(np.int32),
        (RNG.integers(0, 5, 24).astype(np.int32),),
    )
}
