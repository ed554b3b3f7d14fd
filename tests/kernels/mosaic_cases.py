"""Kernels in sizes that TPUs have, for the tests of Mosaic's text."""

from __future__ import annotations

from typing import Any

import numpy as np

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.experimental.pallas import multiple_of
from shardwise.kernels import (
    ANY,
    SMEM,
    VMEM,
    Block,
    CompilerParams,
    CostEstimate,
    Element,
    SemaphoreType,
    call,
    cdiv,
    ds,
    emit_pipeline,
    load,
    make_async_copy,
    num_programs,
    program_id,
    run_scoped,
    semaphore_read,
    semaphore_signal,
    semaphore_wait,
    store,
    when,
)
from tests.kernels.kernels import Case, like, matmul, normal, softmax

BF16 = np.dtype(jnp.bfloat16)
RNG = np.random.default_rng(1)
ROWS = Block((8, 128), lambda i: (i, 0))


def in_blocks(m: int, n: int, k: int, dtype: Any = np.float32) -> Any:
    """A product with an accumulator in scratch memory."""
    a, b = Block((m, k), lambda i, j, k: (i, k)), Block((k, n), lambda i, j, k: (k, j))

    def launch(x: Any, y: Any) -> Any:
        shape = x.shape[0], y.shape[1]
        return call(
            matmul if dtype == np.float32 else matmul_narrow,
            like(*shape, dtype=dtype),
            grid=(("i", shape[0] // m), ("j", shape[1] // n), ("k", x.shape[1] // k)),
            in_specs=[a, b],
            out_specs=Block((m, n), lambda i, j, k: (i, j)),
            scratch=[VMEM((m, n), np.int32 if x.dtype == np.int8 else np.float32)],
            parallel=("i", "j"),
            cost=CostEstimate(2 * shape[0] * shape[1] * x.shape[1], 0, x.nbytes + y.nbytes),
        )(x, y)

    return launch


def matmul_narrow(x: Any, y: Any, out: Any, total: Any) -> None:
    @when(program_id("k") == 0)
    def _() -> None:
        total[...] = jnp.zeros_like(total[...])

    total[...] += lax.dot_general(
        x[...], y[...], (((1,), (0,)), ((), ())), preferred_element_type=total.dtype
    )

    @when(program_id("k") == num_programs("k") - 1)
    def _() -> None:
        out[...] = total[...].astype(out.dtype)


def layer_norm(x: Any, scale: Any, out: Any) -> None:
    rows = x[...]
    mean = jnp.mean(rows, -1, keepdims=True)
    centered = rows - mean
    variance = jnp.mean(centered * centered, -1, keepdims=True)
    out[...] = centered * lax.rsqrt(variance + 1e-6) * scale[...]


def attention(causal: bool) -> Any:
    def body(q: Any, k: Any, v: Any, out: Any) -> None:
        query, block = q[...], 128
        n, d = query.shape
        row = program_id(1) * n + lax.broadcasted_iota(np.int32, (n, block), 0)

        def step(i: Any, state: Any) -> Any:
            running_max, total, weighted_sum = state
            keys, values = k[ds(i * block, block)], v[ds(i * block, block)]
            scores = lax.dot_general(query, keys, (((1,), (1,)), ((), ())))
            if causal:
                column = i * block + lax.broadcasted_iota(np.int32, (n, block), 1)
                scores = jnp.where(row >= column, scores, -1e30)
            new = jnp.maximum(running_max, scores.max(-1, keepdims=True))
            weights, kept = jnp.exp(scores - new), jnp.exp(running_max - new)
            total = total * kept + weights.sum(-1, keepdims=True)
            return new, total, weighted_sum * kept + weights @ values

        start = jnp.full((n, 1), -1e30), jnp.zeros((n, 1)), jnp.zeros((n, d))
        last = program_id(1) + 1 if causal else cdiv(k.shape[0], block)
        _, total, weighted_sum = lax.fori_loop(0, last, step, start)
        out[...] = weighted_sum / total

    rows = Block((None, 128, 128), lambda b, i: (b, i, 0))
    whole = Block((None, 256, 128), lambda b, i: (b, 0, 0))
    return call(
        body, like(2, 256, 128), grid=(2, 2), in_specs=[rows, whole, whole], out_specs=rows,
        parallel=(0, 1),
    )  # fmt: skip


def attended(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, k)
    if causal:
        n = q.shape[1]
        scores = jnp.where(np.arange(n)[:, None] >= np.arange(n), scores, -1e30)
    return nn.softmax(scores, -1) @ v


def gathered(rows: Any, x: Any, out: Any) -> None:
    out[...] = x[...] * (1 + rows[program_id(0)]).astype(np.float32)


def tripled(x: Any, out: Any) -> None:
    row = 8 * program_id(0) + lax.broadcasted_iota(np.int32, (8, 128), 0)
    store(out, ..., load(x, ..., mask=row < 20) * 3, mask=row < 20)


def branches(flag: Any, x: Any, out: Any) -> None:
    rows = x[...]
    out[...] = lax.cond(flag[0] > 3, lambda a: a * 2, lambda a: a + 1, rows)
    steps, last = lax.while_loop(
        lambda s: s[0] < flag[1], lambda s: (s[0] + 1, s[1] * 0.5), (jnp.int32(0), rows)
    )
    out[...] += last + steps.astype(np.float32)
    total, _ = lax.scan(lambda s, _: (jnp.sin(s) + 1.0, None), rows, None, length=5)
    out[...] -= total


def sums(x: Any, rows: Any, best: Any, total: Any) -> None:
    @when(program_id(0) == 0)
    def _() -> None:
        total[0, 0] = 0.0

    values = x[...]
    total[0, 0] += jnp.sum(values)
    rows[...] = jnp.concatenate([values[:, 64:], values[:, :64]], 1)
    best[...] = jnp.broadcast_to(jnp.argmax(values, -1, keepdims=True), best.shape).astype(np.int32)


def steps(x: Any, out: Any) -> None:
    out[ds(0, 4, 2)] = x[ds(1, 4, 2)]
    out[ds(1, 4, 2)] = -x[ds(0, 4, 2)]
    out[7:] += 1.0


def windows(x: Any, out: Any) -> None:
    out[...] = x[:8] + 2 * x[8:]


def elements(x: Any, out: Any) -> None:
    y = x[...]
    out[...] = (
        jnp.tanh(y) + jnp.sign(y) + nn.sigmoid(y) + jnp.expm1(y) + jnp.log1p(y * y) + y**3
        + jnp.floor(y) + jnp.abs(-y) + jnp.clip(y, -1, 1) + jnp.round(y)
    )  # fmt: skip


def flags(x: Any, y: Any, out: Any) -> None:
    even = (x[...] & 1) == 0
    out[...] = jnp.where(jnp.any(even & ~y[...], -1, keepdims=True), even, y[...])


def quantized(x: Any, out: Any) -> None:
    out[...] = jnp.round(jnp.clip(x[...] * 16, -127, 127)).astype(np.int8)


def dequantized(x: Any, y: Any, out: Any) -> None:
    wide = x[...].astype(np.float32) + y[...].astype(np.float32)
    out[...] = wide.astype(out.dtype)


def shifted(x: Any, out: Any) -> None:
    out[...] = out[...] + x[...]


def transposed(x: Any, out: Any) -> None:
    out[...] = x[...].T.reshape(128, 8, 16).sum(1)


def squared(x: Any, out: Any) -> None:
    out[...] = x[...] * x[...]


def buffered(x: Any, out: Any, buffers: Any, semaphores: Any) -> None:
    """The sum of blocks of rows, which are copied from HBM to two buffers."""

    def copy(i: Any) -> Any:
        slot = lax.rem(i, 2)
        return make_async_copy(x.at[ds(i * 8, 8)], buffers.at[slot], semaphores.at[slot])

    copy(jnp.int32(0)).start()
    out[...] = jnp.zeros(out.shape)

    def step(i: Any, _: Any) -> None:
        when(i < 2)(copy(i + 1).start)
        copy(i).wait()
        out[...] += buffers[lax.rem(i, 2)]

    lax.fori_loop(0, 3, step, None)


def summed_by_copies() -> Any:
    scratch = [VMEM((2, 8, 128), np.float32), SemaphoreType.DMA((2,))]
    return call(buffered, like(8, 128), in_specs=Block(space=ANY), scratch=scratch)


def piped(x: Any, y: Any, out: Any) -> None:
    """A product of matrices in HBM."""
    emit_pipeline(
        product,
        grid=(("i", 2), ("k", 2)),
        in_specs=[Block((128, 128), lambda i, k: (i, k)), Block((128, 128), lambda i, k: (k, 0))],
        out_specs=[Block((128, 128), lambda i, k: (i, 0))],
    )(x, y, out)


def product(x: Any, y: Any, out: Any) -> None:
    @when(program_id("k") == 0)
    def _() -> None:
        out[...] = jnp.zeros(out.shape)

    out[...] += x[...] @ y[...]


def matmul_in_hbm() -> Any:
    whole = Block(space=ANY)
    return call(piped, like(256, 128), in_specs=whole, out_specs=whole)


def scoped(x: Any, out: Any) -> None:
    def inner(held: Any, semaphore: Any) -> None:
        held[...] = x[...] * 2
        held[0] = x[1]
        semaphore_signal(semaphore, 3)
        semaphore_wait(semaphore, 2)
        out[...] = held[...] + semaphore_read(semaphore).astype(np.float32)
        semaphore_wait(semaphore, 1)

    run_scoped(inner, VMEM((8, 128), np.float32), SemaphoreType.REGULAR)


def narrow(places: Any, x: Any, y: Any, out: Any) -> None:
    """Arithmetic in int8, bfloat16 from a traced row, one of three branches, NaN."""
    rows = y[ds(multiple_of(places[1], 16), 32)]
    small = lax.shift_right_arithmetic(x[...] + np.int8(3), np.int8(1)) * jnp.maximum(x[...], 0)
    found = lax.switch(
        places[0], [lambda a: a, lambda a: a + 1, lambda a: a * 2], rows + small.astype(rows.dtype)
    )
    wide = jnp.roll(found.astype(np.float32), 3, 1)
    out[...] = jnp.where(jnp.isnan(wide) | (wide != wide), 0.0, wide)


def narrow_wanted(places: Any, x: Any, y: Any) -> Any:
    small = lax.shift_right_arithmetic(x + np.int8(3), np.int8(1)) * jnp.maximum(x, 0)
    found = y[places[1] : places[1] + 32] + small.astype(BF16)
    return jnp.roll((found * 2).astype(np.float32), 3, 1)


def shifts(places: Any, x: Any, out: Any) -> None:
    rolled = jnp.roll(jnp.roll(x[...], places[0], 1), places[1], 0)
    sums = jnp.cumsum(rolled, 1) + lax.cumsum(x[...], 0, reverse=True)
    out[...] = lax.dynamic_slice(sums, (places[0], 0), (16, 128))


def shifts_wanted(places: Any, x: Any) -> Any:
    rolled = jnp.roll(jnp.roll(x, places[0], 1), places[1], 0)
    return (jnp.cumsum(rolled, 1) + lax.cumsum(x, 0, reverse=True))[5:21]


def unsigned(x: Any, y: Any, out: Any) -> None:
    wide = jnp.max(x[...], 1, keepdims=True) - jnp.min(x[...], 1, keepdims=True)
    odd = lax.shift_right_logical(x[...], np.uint32(31)) ^ jnp.max(y[...]).astype(np.uint32)
    out[...] = jnp.where(x[...] < np.uint32(2**31), wide, -odd)


def unsigned_wanted(x: Any, y: Any) -> Any:
    wide = jnp.max(x, 1, keepdims=True) - jnp.min(x, 1, keepdims=True)
    odd = lax.shift_right_logical(x, np.uint32(31)) ^ jnp.max(y).astype(np.uint32)
    return jnp.where(x < np.uint32(2**31), wide, -odd)


def products(x: Any, y: Any, out: Any, vector: Any) -> None:
    out[...] = lax.dot_general(x[...], y[...], (((2,), (2,)), ((0,), (0,))), precision="highest")
    out[...] += x[...] @ y[1]
    vector[...] = (x[0] @ y[0, 0])[None] + jnp.pad(y[1, :, :64], ((0, 0), (32, 32)))[:1]


def products_wanted(x: Any, y: Any) -> Any:
    vector = (x[0] @ y[0, 0])[None] + jnp.pad(y[1, :, :64], ((0, 0), (32, 32)))[:1]
    return jnp.einsum("bij,bkj->bik", x, y) + x @ y[1], vector


def growing(n: Any, x: Any) -> Any:
    f = call(
        lambda x, out: store(out, ..., x[...] * num_programs(0)),
        like(32, 128), grid=(n,), in_specs=[ROWS], out_specs=ROWS, name="growing",
    )  # fmt: skip
    return f(x)


def rows_of(body: Any, *more: Any, out: Any = None, count: int = 3, **p: Any) -> Any:
    out = like(8 * count, 128) if out is None else out
    return call(body, out, grid=count, in_specs=[ROWS, *more], out_specs=ROWS, **p)


def _many() -> Any:
    outs = like(24, 128), like(24, 128, dtype=np.int32), like(1, 1)
    whole = Block((1, 1), lambda i: (0, 0), SMEM)
    return call(sums, outs, grid=3, in_specs=[ROWS], out_specs=(ROWS, ROWS, whole))


def _summed(x: Any) -> Any:
    best = jnp.broadcast_to(jnp.argmax(x, -1, keepdims=True), x.shape).astype(np.int32)
    return jnp.concatenate([x[:, 64:], x[:, :64]], 1), best, jnp.sum(x)[None, None]


def _branched(s: Any, x: Any) -> Any:
    y = jnp.where(s[0] > 3, x * 2, x + 1) + x * 0.5 ** s[1] + s[1]
    for _ in range(5):
        x = jnp.sin(x) + 1.0
    return y - x


X = normal(24, 128)
Q, K, V = (normal(2, 256, 128) / 8 for _ in range(3))
PICKED = np.array([2, 0, 2, 1], np.int32)
PLACES = np.array([5, 16], np.int32)  # the last branch, and a row
INT8 = RNG.integers(-9, 9, (2, 128, 128)).astype(np.int8)
CASES: dict[str, Case] = {
    "softmax": Case(lambda: rows_of(softmax, parallel=[0]), lambda x: nn.softmax(x, -1), (X,)),
    "matmul": Case(lambda: in_blocks(128, 128, 128), jnp.matmul, (normal(256, 256), normal(256, 128))),
    "matmul_bf16": Case(
        lambda: in_blocks(128, 128, 128, BF16), jnp.matmul,
        (normal(128, 256).astype(BF16), normal(256, 128).astype(BF16)),
    ),
    "matmul_int8": Case(
        lambda: in_blocks(128, 128, 128, np.int32),
        lambda x, y: jnp.matmul(x, y, preferred_element_type=np.int32), (INT8[0], INT8[1]),
    ),
    "layer_norm": Case(
        lambda: rows_of(layer_norm, Block((1, 128), lambda i: (0, 0))),
        lambda x, s: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6) * s,
        (X, normal(1, 128)),
    ),
    "flash": Case(lambda: attention(False), attended, (Q, K, V)),
    "flash_causal": Case(lambda: attention(True), lambda *a: attended(*a, causal=True), (Q, K, V)),
    "gather": Case(
        lambda: lambda x: call(
            gathered, like(32, 128), grid=4, in_specs=[Block((8, 128), lambda i, r: (r[i], 0))],
            out_specs=Block((8, 128), lambda i, r: (i, 0)), prefetch=1,
        )(PICKED, x),
        lambda x: jnp.asarray(x).reshape(3, 8, 128)[PICKED].reshape(32, 128)
        * (1 + np.repeat(PICKED, 8)[:, None].astype(np.float32)),
        (X,),
    ),
    "ragged": Case(lambda: rows_of(tripled, out=like(20, 128)), lambda x: 3 * x, (X[:20],)),
    "branches": Case(
        lambda: lambda x: call(
            branches, like(8, 128), in_specs=[Block(space=SMEM), Block()],
        )(np.array([5, 3], np.int32), x),
        lambda x: _branched(np.array([5, 3], np.int32), x), (X[:8],),
    ),
    "sums": Case(_many, _summed, (X,)),
    "strided": Case(
        lambda: call(steps, like(8, 128)),
        lambda x: jnp.stack([x[1::2], -x[::2]], 1).reshape(8, 128).at[-1].add(1.0), (X[:8],),
    ),
    "windows": Case(
        lambda: call(
            windows, like(16, 128), grid=2,
            in_specs=[Block((Element(16), Element(128)), lambda i: (8 * i, 0))], out_specs=ROWS,
        ),
        lambda x: x[:16] + 2 * x[8:], (X,),
    ),
    "elements": Case(
        lambda: rows_of(elements),
        lambda y: jnp.tanh(y) + jnp.sign(y) + nn.sigmoid(y) + jnp.expm1(y) + jnp.log1p(y * y) + y**3
        + jnp.floor(y) + jnp.abs(-y) + jnp.clip(y, -1, 1) + jnp.round(y),
        (X,),
    ),
    "flags": Case(
        lambda: rows_of(flags, ROWS, out=like(24, 128, dtype=bool)),
        lambda x, y: jnp.where(jnp.any((x % 2 == 0) & ~y, -1, keepdims=True), x % 2 == 0, y),
        (RNG.integers(0, 9, (24, 128)).astype(np.int32), X > 1.5),
    ),
    "quantized": Case(
        lambda: call(
            quantized, like(64, 128, dtype=np.int8), grid=2,
            in_specs=[Block((32, 128), lambda i: (i, 0))],
            out_specs=Block((32, 128), lambda i: (i, 0)),
        ),
        lambda x: jnp.round(jnp.clip(x * 16, -127, 127)).astype(np.int8), (normal(64, 128),),
    ),
    "dequantized": Case(
        lambda: call(dequantized, like(32, 128, dtype=BF16)),
        lambda x, y: (x.astype(np.float32) + y.astype(np.float32)).astype(BF16),
        (INT8[0, :32], normal(32, 128).astype(BF16)),
    ),
    "aliased": Case(
        lambda: lambda x: rows_of(lambda x, y, o: shifted(x, o), ROWS, aliases={1: 0}, name="added")(
            x, jnp.cos(x)
        ),
        lambda x: jnp.cos(x) + x, (X,),
    ),
    "transposed": Case(
        lambda: call(transposed, like(128, 16)), lambda x: x.T.reshape(128, 8, 16).sum(1),
        (normal(128, 128),),
    ),
    "mapped": Case(
        lambda: sw.vmap(rows_of(squared)), lambda x: x * x, (normal(2, 24, 128),)
    ),
    "tangents": Case(
        lambda: lambda x: sw.jvp(rows_of(softmax), (x,), (jnp.cos(x),))[1],
        lambda x: sw.jvp(lambda y: nn.softmax(y, -1), (x,), (jnp.cos(x),))[1], (X,),
    ),
    "copies": Case(summed_by_copies, lambda x: x.reshape(3, 8, 128).sum(0), (X,)),
    "pipeline": Case(matmul_in_hbm, jnp.matmul, (normal(256, 256), normal(256, 128))),
    "scoped": Case(
        lambda: call(scoped, like(8, 128)),
        lambda x: jnp.asarray(2 * x).at[0].set(x[1]) + 1, (X[:8],),
    ),
    "narrow": Case(
        lambda: lambda x, y: call(
            narrow, like(32, 128), in_specs=[Block(space=SMEM), Block(), Block()]
        )(PLACES, x, y),
        lambda x, y: narrow_wanted(PLACES, x, y),
        (INT8[1, :32], normal(64, 128).astype(BF16)),
    ),
    "shifts": Case(
        lambda: lambda x: call(shifts, like(16, 128), in_specs=[Block(space=SMEM), Block()])(
            PLACES, x
        ),
        lambda x: shifts_wanted(PLACES, jnp.asarray(x)), (X,),
    ),
    "unsigned": Case(
        lambda: call(unsigned, like(8, 128, dtype=np.uint32)), unsigned_wanted,
        (RNG.integers(0, 2**32, (8, 128), np.uint32), RNG.integers(0, 256, (32, 128), np.uint8)),
    ),
    "products": Case(
        lambda: call(products, (like(2, 128, 128), like(1, 128))), products_wanted,
        (normal(2, 128, 128), normal(2, 128, 128)),
    ),
    "dynamic": Case(lambda: lambda x: growing(jnp.int32(4), x), lambda x: 4 * x, (normal(32, 128),)),
    "limited": Case(
        lambda: rows_of(softmax, params=CompilerParams(vmem_limit_bytes=2**20, has_side_effects=True)),
        lambda x: nn.softmax(x, -1), (X,),
    ),
}  # fmt: skip
