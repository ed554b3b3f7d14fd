"""Reverse mode of kernels as kernels: values against the functions that they compute."""

from __future__ import annotations

import math

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels, lax
from shardwise import numpy as jnp
from shardwise._src.control.expand import expanded
from shardwise._src.runtime.platforms import CUDA, TPU
from shardwise.kernels import (
    VMEM,
    Block,
    BoundedSlice,
    Element,
    call,
    ds,
    num_programs,
    program_id,
    when,
)
from tests.helpers.targets import compiled, needs_cuda, needs_tpu
from tests.helpers.triton_numpy import triton_values
from tests.kernels.kernels import CASES, like, normal
from tests.kernels.test_mosaic_values import values as mosaic_values
from tests.kernels.test_transforms import close, total


def dense_tanh(x, w, out, acc):
    k = program_id(2)

    @when(k == 0)
    def _():
        acc[...] = jnp.zeros(acc.shape)

    acc[...] += x[...] @ w[...]

    @when(k == num_programs(2) - 1)
    def _():
        out[...] = jnp.tanh(acc[...])


def dense(parallel=()):
    return call(
        dense_tanh, like(8, 12), grid=(2, 3, 2),
        in_specs=[Block((4, 8), lambda i, j, k: (i, k)), Block((8, 4), lambda i, j, k: (k, j))],
        out_specs=Block((4, 4), lambda i, j, k: (i, j)), scratch=[VMEM((4, 4), np.float32)],
        parallel=parallel,
    )  # fmt: skip


def scale_norm(x, scale, out):
    y = x[...] - jnp.mean(x[...], -1, keepdims=True)
    out[...] = y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-3) * scale[...]


def norm(rows, block):
    return call(
        scale_norm, like(rows, 8), grid=-(-rows // block),
        in_specs=[Block((block, 8), lambda i: (i, 0)), Block()],
        out_specs=Block((block, 8), lambda i: (i, 0)),
    )  # fmt: skip


def norm_of(x, scale):
    y = x - jnp.mean(x, -1, keepdims=True)
    return y * lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-3) * scale


def running(x, out, last, state):
    """out: products of cumulative sums of rows and these rows; last: the final sum."""

    @when(program_id(0) == 0)
    def _():
        state[...] = jnp.zeros(state.shape)

    state[...] = state[...] + jnp.sin(x[...])
    out[...] = state[...] * x[...]
    last[...] = state[...]


def running_sums():
    rows = Block((1, 4), lambda i: (i, 0))
    return call(
        running, (like(5, 4), like(1, 4)), grid=5, in_specs=rows,
        out_specs=(rows, Block((1, 4), lambda i: (0, 0))), scratch=[VMEM((1, 4), np.float32)],
    )  # fmt: skip


def running_sums_of(x):
    sums = jnp.cumsum(jnp.sin(x), 0)
    return sums * x, sums[-1:]


def update(x, y, out):
    out[...] = jnp.sin(out[...]) * y[...] + x[...]


def updated(blocks):
    """Updates some blocks of a result that begins as `x`, from other blocks of `x`."""
    return call(
        update, like(12), grid=blocks, aliases={0: 0},
        in_specs=[Block((4,), lambda i: (2,)), Block((4,), lambda i: (i,))],
        out_specs=Block((4,), lambda i: (i,)),
    )  # fmt: skip


def updated_of(blocks):
    def run(x, y):
        head, last = x[: 4 * blocks], x[8:]
        new = jnp.sin(head).reshape(blocks, 4) * y[: 4 * blocks].reshape(blocks, 4) + last
        return jnp.concatenate([new.ravel(), x[4 * blocks :]])

    return run


def repeated(x, out):
    @when(program_id(1) == 0)
    def _():
        out[...] = x[...]

    out[...] = jnp.cos(out[...])


def repeats():
    return call(
        repeated, like(6), grid=(3, 4), in_specs=Block((2,), lambda i, j: (i,)),
        out_specs=Block((2,), lambda i, j: (i,)),
    )  # fmt: skip


def windows_with_ends(x, out):
    out[...] = jnp.sum(x[...] ** 2, keepdims=True)


def overlapping():
    return call(
    windows_with_ends, like(6), grid=6,
        in_specs=Block((Element(3, (1, 1)),), lambda i: (i - 1,)),
        out_specs=Block((1,), lambda i: (i,)),
    )  # fmt: skip


def parts_of_rows(x, out):
    for row in range(3):
        out[row, :] = x[row, :] * x[(row + 1) % 3, :]


def shared(x, table, out):
    out[...] = jnp.tanh(x[...]) * table[...]


LAUNCHES = {
    "carried": (dense, lambda x, w: jnp.tanh(x @ w), (normal(8, 16), normal(16, 12))),
    "carried, axes declared": (
        lambda: dense((0, 1)), lambda x, w: jnp.tanh(x @ w),
        (normal(8, 16), normal(16, 12)),
    ),
    "sums over programs": (lambda: norm(8, 2), norm_of, (normal(8, 8), normal(8))),
    "ragged": (lambda: norm(7, 4), norm_of, (normal(7, 8), normal(8))),
    "running sums": (running_sums, running_sums_of, (normal(5, 4),)),
    "aliased": (lambda: updated(3), updated_of(3), (normal(12), normal(12))),
    "aliased in part": (lambda: updated(2), updated_of(2), (normal(12), normal(12))),
    "results read again": (
        repeats, lambda x: jnp.cos(jnp.cos(jnp.cos(jnp.cos(x)))), (normal(6),),
    ),
    "parts of blocks": (
        lambda: call(parts_of_rows, like(6, 4), grid=2, in_specs=Block((3, 4), lambda i: (i, 0)),
                     out_specs=Block((3, 4), lambda i: (i, 0))),
        lambda x: jnp.concatenate([p * jnp.roll(p, -1, 0) for p in (x[:3], x[3:])]),
        (normal(6, 4),),
    ),
    "blocks shared by several": (
        lambda: call(shared, like(12), grid=6,
                     in_specs=[Block((2,), lambda i: (i,)), Block((2,), lambda i: (i // 3,))],
                     out_specs=Block((2,), lambda i: (i,))),
        lambda x, t: jnp.tanh(x) * jnp.concatenate([t[:2]] * 3 + [t[2:]] * 3),
        (normal(12), normal(4)),
    ),
    "sums in place": (
        lambda: call(
            lambda x, w, out: out.set(jnp.sin(x[...] @ w[...])), like(256, 64), grid=(64, 4),
            in_specs=[Block((1, 8), lambda i, j: (4 * i + j, 0)), Block()],
            out_specs=Block((1, 64), lambda i, j: (4 * i + j, 0)),
        ),
        lambda x, w: jnp.sin(x @ w), (normal(256, 8), normal(8, 64)),
    ),
    "one program": (lambda: call(shared, like(4)), lambda x, t: jnp.tanh(x) * t,
                    (normal(4), normal(4))),
}  # fmt: skip


def scalar(f):
    """A scalar of all results of a function, which weighs their elements differently."""

    def run(*xs):
        leaves = sw.tree.leaves(f(*xs))
        return sum(jnp.sum(jnp.sin(y) * jnp.arange(y.size).reshape(y.shape)) for y in leaves)

    return run


def ops_of(f, *args):
    found, rest = [], [sw.make_jaxpr(f)(*args)]
    while rest:
        for eqn in rest.pop().eqns:
            found.append(eqn.op.name)
            rest += eqn.programs()
    return found


@pytest.mark.parametrize("name", LAUNCHES)
def test_gradients_are_kernels(name):
    make, wanted, args = LAUNCHES[name]
    f, numbers = make(), tuple(range(len(args)))
    gradient = sw.grad(scalar(f), numbers)
    expected = sw.grad(scalar(wanted), numbers)(*args)
    largest = max([float(jnp.abs(x).max()) for x in expected])  # what it sums is as large
    close(gradient(*args), expected, atol=1e-4 + 1e-6 * largest)
    names = ops_of(gradient, *args)
    assert names.count("kernel_call") == 2
    assert not {"kernel_loop", "differentiated_loop", "while_loop", "scan"} & {*names}


@pytest.mark.parametrize("name", LAUNCHES)
def test_second_derivatives_are_kernels(name):
    make, wanted, args = LAUNCHES[name]

    def along(f):
        """The gradient of the gradient's product with a vector."""
        inner = lambda x: jnp.vdot(sw.grad(scalar(f))(x, *args[1:]), np.cos(args[0]))  # noqa: E731
        return sw.grad(inner)

    close(along(make())(args[0]), along(wanted)(args[0]), rtol=2e-3, atol=2e-3)
    names = ops_of(along(make()), args[0])
    assert "kernel_call" in names
    assert not {"kernel_loop", "differentiated_loop", "while_loop", "scan"} & {*names}


@pytest.mark.parametrize("name", ["carried", "aliased in part", "running sums"])
def test_forward_over_reverse_and_maps(name):
    make, wanted, args = LAUNCHES[name]
    f, numbers = make(), tuple(range(len(args)))
    moved = [
        sw.jvp(sw.grad(scalar(g), numbers), args, tuple(map(np.cos, args)))[1] for g in (f, wanted)
    ]
    close(*moved, rtol=2e-3, atol=2e-3)
    many = [np.stack([x, -x, 2 * x]) for x in args]
    close(*[sw.vmap(sw.grad(scalar(g), numbers))(*many) for g in (f, wanted)], atol=1e-3)
    linear = [sw.linearize(g, *args)[1](*args) for g in (f, wanted)]
    close(*linear, atol=1e-4)


def doubled_rows(x, out):
    j = program_id("j")

    @when(program_id("k") == 0)
    def _():
        out[j] = jnp.zeros(())

    out[j] = out[j] * 2 + x[program_id("k"), j]


@pytest.mark.parametrize("parallel", [("j",), ()])
def test_parallel_axes_after_others(parallel):
    f = call(doubled_rows, like(2), grid=(("k", 3), ("j", 2)), parallel=parallel)
    np.testing.assert_array_equal(
        sw.grad(lambda x: f(x).sum())(normal(3, 2)), [[4, 4], [2, 2], [1, 1]]
    )


def reciprocals(x, w, out, state):
    @when(program_id(1) == 0)
    def _():
        state[...] = 1 / x[...]

    @when(program_id(1) == 1)
    def _():
        out[...] = state[...] * w[...]


def products_of_reciprocals(x, w):
    f = call(
        reciprocals, like(10, 4), grid=(2, 2), in_specs=[Block((8, 4), lambda i, j: (i, 0)), Block()],
        out_specs=Block((8, 4), lambda i, j: (i, 0)), scratch=[VMEM((8, 4), np.float32)],
    )  # fmt: skip
    return f(x, w)


def test_saved_memory_of_ragged_blocks():
    x, w = np.float32(np.random.default_rng(0).uniform(1, 2, (10, 4))), normal(4)
    gradient = sw.grad(lambda w: products_of_reciprocals(x, w).sum())
    close(gradient(w), (1 / x).sum(0))


def test_checks_of_gradients_that_save_memory():
    x, w = np.ones((10, 4), np.float32), normal(4)
    gradient = sw.grad(lambda w: products_of_reciprocals(x, w).sum())
    for level in ("blocks", "memory"):
        close(kernels.checked(gradient, level=level)(w), np.full(4, 10))


def roots(x, out, other, state):
    state[...] = jnp.sqrt(x[...])
    out[...] = x[...] ** 2
    other[...] = jnp.sqrt(x[...])


def test_results_and_memory_that_are_not_used():
    f = call(roots, (like(4), like(4)), grid=2, in_specs=Block((2,), lambda i: (i,)),
             out_specs=(Block((2,), lambda i: (i,)),) * 2, scratch=[VMEM((2,), np.float32)])  # fmt: skip
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(sw.grad(lambda x: f(x)[0].sum())(x), 2 * x)


def test_many_contributions_of_small_floats():
    rows = Block((1,), lambda i: (i,))
    out = like(1024, dtype=jnp.bfloat16)
    f = call(shared, out, grid=1024, in_specs=[rows, Block((1,), lambda i: (0,))], out_specs=rows)
    x = jnp.full(1024, 20, jnp.bfloat16)  # tanh(20) = 1
    assert sw.grad(lambda t: f(x, t).astype("float32").sum())(jnp.ones(1, jnp.bfloat16))[0] == 1024


# -- on GPUs and TPUs --


def rows_of(size, last=128):
    return Block((size, last), lambda i: (i, 0))


HARDWARE = {
    "sums over programs": (
        lambda: call(
            scale_norm, like(27, 128), grid=2, in_specs=[rows_of(16), Block()],
            out_specs=rows_of(16),
        ),
        norm_of, (normal(27, 128), normal(128)),
    ),
    "carried": (
        lambda: call(
            dense_tanh, like(32, 128), grid=(2, 1, 2),
            in_specs=[Block((16, 128), lambda i, j, k: (i, k)),
                      Block((128, 128), lambda i, j, k: (k, j))],
            out_specs=Block((16, 128), lambda i, j, k: (i, j)),
            scratch=[VMEM((16, 128), np.float32)], parallel=(0, 1),
        ),
        lambda x, w: jnp.tanh(x @ w), (normal(32, 256) / 9, normal(256, 128)),
    ),
    "running sums": (
        lambda: call(
            running, (like(24, 128), like(8, 128)), grid=3, in_specs=rows_of(8),
            out_specs=(rows_of(8), Block((8, 128), lambda i: (0, 0))),
            scratch=[VMEM((8, 128), np.float32)],
        ),
        lambda x: (
            (jnp.cumsum(jnp.sin(x).reshape(3, 8, 128), 0) * x.reshape(3, 8, 128)).reshape(x.shape),
            jnp.sin(x).reshape(3, 8, 128).sum(0),
        ),
        (normal(24, 128),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARDWARE)
@pytest.mark.parametrize("run", [triton_values, mosaic_values])
def test_gradients_on_hardware(name, run):
    make, wanted, args = HARDWARE[name]
    numbers = tuple(range(len(args)))

    def gradient(f):
        return sw.grad(
            lambda *xs: sum(jnp.sum(jnp.sin(y)) for y in sw.tree.leaves(f(*xs))), numbers
        )

    close(run(gradient(make()), *args), gradient(wanted)(*args), atol=1e-3)


@needs_cuda
def test_compiled_for_gpus():
    make, _, args = LAUNCHES["carried"]
    text = compiled(sw.grad(scalar(make()), (0, 1)), "h100", *args).as_text()
    assert text.count("__gpu$xla.gpu.triton") == 2 and "while(" not in text


@needs_tpu
def test_compiled_for_tpus():
    make, _, args = HARDWARE["carried"]
    text = compiled(sw.grad(scalar(make()), (0, 1)), "tpu-v5e", *args).as_text()
    assert text.count("tpu_custom_call") == 2 and "while(" not in text


def in_loops(x, out):
    step = lambda k, total: total + jnp.sin(x[ds(k * 8, 8), :])  # noqa: E731
    out[...] = lax.fori_loop(0, 2, step, jnp.zeros((8, 128)))


def half(x, out):
    out[...] = x[...] / 2


def visited_again(x, out):
    out[...] = jnp.sin(out[...]) + x[...]


SLICES = Block((BoundedSlice(8), 128), lambda i: (ds(i * 4, 4), 0))
AGAIN = Block((8, 128), lambda i: (i % 2, 0))
WITHOUT = {
    "loops": (
        lambda: call(in_loops, like(8, 128), in_specs=Block()), (16, 128), TPU,
        "The reverse mode of kernel in_loops cannot be compiled for 'tpu' as a kernel: [scan] over "
        "arrays is not supported by Mosaic, the compiler of kernels for TPUs.",
    ),
    "slices": (
        lambda: call(half, like(8, 128), grid=2, in_specs=SLICES, out_specs=SLICES), (8, 128), CUDA,
        "The reverse mode of kernel half cannot be compiled for 'cuda' as a kernel: the block of "
        "argument 0 has a BoundedSlice.",
    ),
    "blocks visited again": (
        lambda: call(
            visited_again, like(16, 128), grid=4, in_specs=rows_of(8), out_specs=AGAIN
        ),
        (32, 128), CUDA,
        "The reverse mode of kernel visited_again cannot be compiled for 'cuda' as a kernel: "
        "programs with the same block of result 0 do not follow each other.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT)
def test_gradients_that_are_loops_are_errors_on_hardware(name):
    make, shape, platform, text = WITHOUT[name]
    x = np.zeros(shape, np.float32)
    gradient = sw.grad(lambda x: jnp.sum(make()(x)))
    gradient(x)
    with pytest.raises(NotImplementedError) as error:
        expanded(sw.make_jaxpr(gradient)(x), platform)
    advice = (
        "Define the derivative by `custom_vjp` around the function that launches the kernel; or "
        "differentiate it on CPUs, where this is a loop."
    )
    assert str(error.value).partition("\n")[0] == f"{text} {advice}"


# -- others --


def test_overlapping_blocks_with_padding():
    f, x = overlapping(), normal(6)
    inner = sw.jacrev(f)(x)[1:-1]
    wanted = np.zeros((4, 6), np.float32)
    for row in range(4):
        wanted[row, row : row + 3] = 2 * x[row : row + 3]
    close(inner, wanted)


def test_the_transpose_of_a_linear_kernel():
    case = CASES["matmul"]
    x, y = case.args
    back = sw.linear_transpose(lambda x: case.launch()(x, y), x)
    ct = normal(16, 24)
    close(back(ct)[0], ct @ y.T, atol=1e-4)
    assert ops_of(back, ct).count("kernel_call") == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_blocks_and_grids(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    blocks = rng.integers(1, 4, rank)
    counts = rng.integers(1, 4, rank)
    shape = [max(1, n * b - rng.integers(0, b)) for n, b in zip(counts, blocks, strict=True)]
    order = rng.permutation(rank)
    repeats = int(rng.integers(1, 3))
    grid = (*[int(counts[d]) for d in order], repeats)
    place = [int(np.flatnonzero(order == d)[0]) for d in range(rank)]
    rows = Block([int(b) for b in blocks], lambda *ids: [ids[p] for p in place])

    def body(x, y, out):
        @when(program_id(rank) == 0)
        def _():
            out[...] = x[...]

        out[...] = jnp.sin(out[...] * y[...])

    f = call(body, like(*shape), grid=grid, in_specs=[rows, rows], out_specs=rows)

    def wanted(x, y):
        for _ in range(repeats):
            x = jnp.sin(x * y)
        return x

    args = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    close(sw.grad(total(f), (0, 1))(*args), sw.grad(total(wanted), (0, 1))(*args), atol=1e-4)
    assert math.prod(grid) == np.prod(counts) * repeats
