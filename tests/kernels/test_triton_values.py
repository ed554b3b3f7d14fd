"""Values of kernels for GPUs: the text of each, run with NumPy, compared with the kernel on CPU."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.kernels import (
    VMEM,
    Block,
    Element,
    atomic_add,
    atomic_max,
    call,
    ds,
    library,
    load,
    num_programs,
    program_id,
    store,
    when,
)
from tests.helpers.everyday import everyday
from tests.helpers.triton_numpy import kernel_of, triton_values
from tests.kernels.kernels import CASES, INTEGERS, like, matmul, normal

BF16 = np.dtype(ml_dtypes.bfloat16)


def check(f, *args, **tolerance: Any):
    """Compares a function of launches on a GPU, with NumPy, and on CPU."""
    found, wanted = triton_values(f, *args), sw.tree.leaves(sw.jit(f)(*args))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        a, b = [np.asarray(x).astype("float64") for x in (a, b)]
        np.testing.assert_allclose(a, b, **{"rtol": 2e-5, "atol": 2e-6} | tolerance)


def elementwise(f, dtype: Any = np.float32):
    """A launch of a function of elements."""

    def body(*refs):
        *xs, out = refs
        out[...] = f(*[x[...] for x in xs])

    def launch(*xs):
        rows = Block((4, 8), lambda i: (i, 0))
        return call(body, like(8, 8, dtype=dtype), grid=2, in_specs=rows, out_specs=rows)(*xs)

    return launch


X = normal(8, 8)
SMALL = np.arange(-32, 32, dtype=np.int32).reshape(8, 8)

UNARY = {
    name: getattr(lax, name)
    for name in (
        *("neg", "sign", "abs", "floor", "ceil", "round", "is_finite", "exp", "exp2", "expm1"),
        *("log1p", "logistic", "tanh", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh"),
        *("erf", "erfc", "cbrt", "square", "rsqrt", "sqrt", "log", "asin", "acos", "atanh"),
    )
}


@pytest.mark.parametrize("name", everyday(UNARY, 6))
def test_functions_of_floats(name):
    def f(x):
        y = UNARY[name](
            jnp.abs(x) * 0.3 + 0.05 if name in ("rsqrt", "sqrt", "log", "atanh") else x * 0.3
        )
        return y.astype(np.float32)

    check(elementwise(f), X)


BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "eq": lambda x, y: lax.eq(x, y).astype(np.int32),
    "lt": lambda x, y: lax.lt(x, y).astype(np.int32),
    "ge": lambda x, y: lax.ge(x, y).astype(np.int32),
    "select": lambda x, y: jnp.where(x > y, x, y + y),
}


DTYPES = ["float32", "bfloat16", "float16", "int32", "uint8", "int64"]


@pytest.mark.parametrize(("name", "dtype"), everyday(itertools.product(BINARY, DTYPES), 10))
def test_functions_of_two_arrays(name, dtype):
    x, y = SMALL.astype(dtype), (SMALL.T // 3).astype(dtype)
    with sw.enable_x64(True):
        out = np.int32 if name in ("eq", "lt", "ge") else np.dtype(dtype)
        if name == "div" and np.dtype(dtype).kind not in "iu":
            y = y + np.asarray(0.5, dtype)
        if name == "rem" and np.dtype(dtype).kind not in "iu":
            y = np.abs(y) + np.asarray(0.75, dtype)
        check(elementwise(BINARY[name], out), x, y)


def nans(x):
    return jnp.where(x > 1, jnp.nan, x)


VALUES = {
    "clamp": (lambda x: lax.clamp(-0.5, x, 0.25), X),
    "extrema of NaN": (lambda x: jnp.nan_to_num(jnp.maximum(nans(x), -x) + jnp.minimum(x, nans(-x)), nan=7), X),
    "pow": (lambda x: jnp.abs(x) ** 1.5 + x**3 + lax.integer_pow(x, -2) + lax.pow(x, np.int32(3)), X),
    "sums": (lambda x: x + x.sum(0) * x.mean(1, keepdims=True) - x.sum(), X),
    "extrema": (lambda x: x.max(0) + x.min(1, keepdims=True) + x.prod(1, keepdims=True), X),
    "of NaN": (lambda x: jnp.isnan(nans(x).max(0)) + jnp.zeros_like(x), X),
    "all and any": (lambda x: ((x > -1).all(0) ^ (x > 1).any(1, keepdims=True)).astype(np.float32), X),
    "places": (lambda x: (x.argmax(0) + 10 * x.argmin(1, keepdims=True)).astype(np.float32), X),
    "places of equal elements": (lambda x: (jnp.round(x).argmax(1, keepdims=True) + nans(x).argmax(0)).astype(np.float32) + 0 * x, X),
    "running sums": (lambda x: jnp.cumsum(x, 1) + lax.cummax(x, 0, reverse=True) + jnp.cumprod(x, 0), X),
    "reshape": (lambda x: x.reshape(-1)[None].reshape(2, 2, 8).transpose(2, 0, 1).reshape(4, 8), X),
    "slices": (lambda x: jnp.pad(x[1:3, ::2], ((1, 1), (2, 2)), constant_values=3.0), X),
    "rev": (lambda x: x[::-1, ::-1], X),
    "concatenate": (lambda x: jnp.concatenate([x[:, :3], x[:, 5:], x[:, 3:5] * 2], 1), X),
    "split": (lambda x: sum(jnp.split(x, 2, 0), jnp.zeros((2, 8))).repeat(2, 0), X),
    "dynamic slices": (lambda x: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (1, program_id(0)), (2, 3)), (0, 4)), X),
    "iota": (lambda x: x + lax.broadcasted_iota(np.float32, (4, 8), 1) + jnp.arange(4)[:, None], X),
    "conversions": (lambda x: x.astype(BF16).astype(np.int8).astype(np.uint16).astype(np.float16).astype(np.float32) + (x != 0) + x.astype(bool).astype(np.float32), 3 * X),
    "float8": (lambda x: x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) + x.astype(ml_dtypes.float8_e5m2).astype(np.float32), X),
    "bits": (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, np.int32) ^ 5, np.float32), X),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x)[1], X),
    "reversed scan": (lambda x: lax.scan(lambda c, row: (c + row, c * 2), x[0], x, reverse=True)[1], X),
    "while": (lambda x: lax.while_loop(lambda s: s[0] < 3 + program_id(0), lambda s: (s[0] + 1, s[1] * 1.5), (0, x))[1], X),
    "while of a value": (lambda x: lax.while_loop(lambda y: y.sum() < 100, lambda y: jnp.abs(y) * 2 + 1, x), X),
    "cond": (lambda x: lax.cond(program_id(0) == 0, lambda x: x * 2, lambda x: x - 1, x), X),
    "switch": (lambda x: lax.switch(program_id(0) + 1, [lambda x: x, lambda x: -x, lambda x: x * x], x), X),
    "custom rules": (lambda x: nn.relu(x) + nn.softmax(x) + nn.gelu(x), X),
    "small products": (lambda x: x[:4, :4] @ x + (x @ jnp.ones(8))[:, None], X),
    "ops of other ops": (lambda x: jnp.logaddexp(x, -x) + jnp.sinc(x) + lax.lgamma(jnp.abs(x) + 0.1), X),
    "vjp inside": (lambda x: sw.grad(lambda y: (jnp.tanh(y) * y).sum())(x), X),
}  # fmt: skip


@pytest.mark.parametrize("name", everyday(VALUES, 18))
def test_values_of_bodies(name):
    f, x = VALUES[name]
    check(elementwise(f), x)


INTEGER = {
    "bits": lambda x: (x & 5) | (~x ^ 3),
    "shifts": lambda x: (x << 3) + (x >> 1) + lax.shift_right_logical(x, jnp.int32(30)) + (x << jnp.abs(x)),
    "counts": lambda x: lax.population_count(x) + lax.clz(x),
    "counts of bytes": lambda x: (lax.population_count(x.astype(np.int8)) + lax.clz(x.astype(np.uint8)).astype(np.int8)).astype(np.int32),
    "divisions": lambda x: lax.div(x, x // 5) + lax.rem(x, x // 7) + x // 3 + x % 4,
    "sums of bytes": lambda x: x.astype(np.int8).sum(1, keepdims=True).astype(np.int32) + x.max(0),
    "unsigned": lambda x: (x.astype(np.uint32) // 3 + x.astype(np.uint32).max(0)).astype(np.int32),
    "small products": lambda x: x[:, :4] @ x,
    "sign": lambda x: lax.sign(x) + lax.integer_pow(x, 3) + lax.clamp(jnp.int32(-3), x, jnp.int32(9)),
}  # fmt: skip


@pytest.mark.parametrize("name", everyday(INTEGER, 5))
def test_values_of_integers(name):
    check(elementwise(INTEGER[name], np.int32), SMALL)


@pytest.mark.parametrize("name", [*CASES, *INTEGERS])
def test_kernels_of_other_tests(name):
    case = (CASES | INTEGERS)[name]
    check(case.launch(), *case.args)


@pytest.mark.parametrize("name", everyday(CASES, 3))
def test_forward_mode_and_maps(name):
    case = CASES[name]
    f = case.launch()
    check(lambda *xs: sw.jvp(f, xs, tuple(map(jnp.cos, xs)))[1], *case.args, rtol=1e-4, atol=1e-4)
    check(sw.vmap(f), *[np.stack([x, 2 * x, -x]) for x in case.args], rtol=1e-4, atol=1e-5)


def product(m, n, k, blocks, dtype=np.float32, out=np.float32, parallel=("i", "j"), **options):
    a, b, c = blocks
    return call(
        matmul,
        like(m, n, dtype=out),
        grid=(("i", -(-m // a)), ("j", -(-n // b)), ("k", k // c)),
        in_specs=[Block((a, c), lambda i, j, k: (i, k)), Block((c, b), lambda i, j, k: (k, j))],
        out_specs=Block((a, b), lambda i, j, k: (i, j)),
        scratch=[VMEM((a, b), np.float32)],
        parallel=parallel,
        **options,
    )


PRODUCTS = {
    "float32": (product(64, 32, 48, (32, 16, 16)), np.float32, 1e-4),
    "bfloat16": (product(64, 32, 48, (32, 16, 16)), BF16, 4e-2),
    "float16": (product(64, 32, 48, (32, 16, 16)), np.float16, 1e-2),
    "ragged": (product(40, 24, 32, (16, 16, 16)), np.float32, 1e-4),
    "sizes that are not powers of two": (product(48, 40, 48, (24, 20, 24)), np.float32, 1e-4),
    "loops over all axes": (product(32, 32, 32, (16, 16, 16), parallel=()), np.float32, 1e-4),
    "one iteration": (product(32, 32, 16, (16, 16, 16)), np.float32, 1e-4),
}


@pytest.mark.parametrize("name", everyday(PRODUCTS, 4))
def test_products(name):
    f, dtype, tolerance = PRODUCTS[name]
    m, n = {"ragged": (40, 24), "sizes that are not powers of two": (48, 40)}.get(name, (64, 32))
    m, n = (32, 32) if name in ("loops over all axes", "one iteration") else (m, n)
    k = {"ragged": 32, "loops over all axes": 32, "one iteration": 16}.get(name, 48)
    x, y = normal(m, k).astype(dtype), normal(k, n).astype(dtype)
    check(f, x, y, rtol=tolerance, atol=tolerance)


def test_integer_products():
    def body(x, y, out):
        out[...] = lax.dot(x[...], y[...], preferred_element_type=np.int32)

    x = (np.arange(16 * 32) % 19 - 9).astype(np.int8).reshape(16, 32)
    check(call(body, like(16, 16, dtype=np.int32)), x, x.reshape(32, 16))


def flash(causal, size):
    def body(q, k, v, out):
        query, n = q[...], q.shape[0]
        first = program_id(1) * n

        def step(i, state):
            running_max, total, weighted_sum = state
            scores = lax.dot_general(query, k[ds(i * size, size)], (((1,), (1,)), ((), ())))
            if causal:
                rows = first + lax.broadcasted_iota(np.int32, scores.shape, 0)
                columns = i * size + lax.broadcasted_iota(np.int32, scores.shape, 1)
                scores = jnp.where(rows >= columns, scores, -1e30)
            new = jnp.maximum(running_max, scores.max(-1))
            weights, kept = jnp.exp(scores - new[:, None]), jnp.exp(running_max - new)
            weighted_sum = weighted_sum * kept[:, None] + weights @ v[ds(i * size, size)]
            return new, total * kept + weights.sum(-1), weighted_sum

        start = jnp.full((n,), -1e30), jnp.zeros((n,)), jnp.zeros(q.shape)
        steps = (first + n + size - 1) // size if causal else k.shape[0] // size
        _, total, weighted_sum = lax.fori_loop(0, steps, step, start)
        out[...] = weighted_sum / total[:, None]

    rows = Block((None, 16, 16), lambda b, i: (b, i, 0))
    whole = Block((None, 64, 16), lambda b, i: (b, 0, 0))
    return call(
        body,
        like(2, 64, 16),
        grid=(2, 4),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        parallel=(0, 1),
        name="flash",
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    args = [normal(2, 64, 16) for _ in range(3)]
    check(flash(causal, 16), *args, rtol=1e-4, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("causal", [False, True])
def test_derivatives_of_attention(causal):
    args = [normal(2, 64, 16) for _ in range(3)]
    moved = [np.cos(x) for x in args]
    check(lambda *xs: sw.jvp(flash(causal, 16), xs, tuple(moved)), *args, rtol=1e-3, atol=1e-3)


def layer_norm(x, scale, out):
    row = x[...]
    mean = row.mean(-1, keepdims=True)
    spread = ((row - mean) ** 2).mean(-1, keepdims=True)
    out[...] = (row - mean) * lax.rsqrt(spread + 1e-5) * scale[...]


def test_layer_norm_of_rows_that_are_no_power_of_two():
    rows, whole = Block((3, 24), lambda i: (i, 0)), Block((24,), lambda i: (0,))
    f = call(layer_norm, like(8, 24), grid=3, in_specs=[rows, whole], out_specs=rows, parallel=[0])
    check(f, normal(8, 24), normal(24), rtol=1e-4, atol=1e-5)


def test_atomic_accesses_return_the_elements_from_before():
    def body(x, out, olds, top):
        @when(program_id(0) == 0)
        def _():
            out[...], top[...] = jnp.zeros_like(out[...]), jnp.zeros_like(top[...])

        olds[0] = atomic_add(out, x[0] % 4, x[0])
        atomic_max(top, ds(0, 2), jnp.stack([x[0], -x[0]]))

    each = Block((1,), lambda i: (i,))
    outs = like(4, dtype=np.int32), like(8, dtype=np.int32), like(2, dtype=np.int32)
    f = call(body, outs, grid=8, in_specs=each, out_specs=(Block(), each, Block()))
    check(f, np.array([5, 1, 2, 9, 6, 13, 3, 0], np.int32))


def test_atomic_sums_of_floats_with_masks():
    def body(x, out):
        atomic_add(out, ..., x[...], mask=x[...] > 0)

    rows = Block((8,), lambda i: (i,))
    spec = {"in_specs": (rows, Block()), "out_specs": Block(), "aliases": {1: 0}}
    f = call(lambda x, _, out: body(x, out), like(8), grid=3, **spec)
    check(f, normal(24), np.zeros(8, np.float32))


def test_results_that_turns_of_a_loop_share():
    def body(x, total, last, rows):
        @when(program_id(0) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += x[...]
        rows[...] = total[...]
        last[...] = x[...] * 2

    each = Block((4,), lambda i: (i,))
    one = Block((4,), lambda i: (0,))
    outs = like(4), like(4), like(20)
    f = call(body, outs, grid=5, in_specs=each, out_specs=(one, one, each))
    check(f, normal(20))


def test_results_that_loops_leave_and_visit_again():
    def body(x, out):
        @when(program_id(0) == 0)
        def _():
            out[...] = jnp.zeros_like(out)

        out[...] += x[...] * (1 + program_id(0))

    x = Block((4, None), lambda i, j: (j, i))
    f = call(body, like(12), grid=(3, 3), in_specs=x, out_specs=Block((4,), lambda i, j: (j,)))
    check(f, normal(12, 3))


def test_scratch_memory_in_parts():
    def body(x, out, held, count):
        count[...] = jnp.zeros_like(count)
        held[...] = x[...]
        held[ds(program_id(0), 2), 1:4] = x[2:4, 0:3] * 2
        count[0] = held[1, 2] + 1.0
        store(held, (slice(0, 4, 2), slice(None)), x[:2], mask=x[:2] > 0)
        out[...] = held[...] + count[0] + load(held, ds(0, 4), mask=x[...] > 0, other=9.0)

    rows = Block((4, 8), lambda i: (i, 0))
    scratch = [VMEM((4, 8), np.float32), VMEM((1,), np.float32)]
    check(call(body, like(8, 8), grid=2, in_specs=rows, out_specs=rows, scratch=scratch), X)


def test_blocks_that_overlap_and_extend_beyond_the_array():
    def body(x, out):
        out[...] = x[1:-1] * 2 + jnp.where(jnp.arange(6) + program_id(0) * 6 > 0, x[:-2], 0)

    x = Block((Element(8, (1, 5)),), lambda i: (6 * i - 1,))
    out = Block((6,), lambda i: (i,))
    check(call(body, like(16), grid=3, in_specs=x, out_specs=out, parallel=[0]), normal(16))


def test_booleans_scalars_and_several_dimensions():
    def body(flags, n, x, out, found):
        k = n[0] + n[1]
        out[...] = jnp.where(flags[...], x[...] * k, 0)
        found[...] = flags[...] ^ (x[...] > 0)

    rows = Block((1, 3, 4), lambda i, n: (i, 0, 0))
    outs = like(2, 3, 4), like(2, 3, 4, dtype=bool)
    f = call(
        lambda n, flags, x, *outs: body(flags, n, x, *outs),
        outs,
        grid=2,
        in_specs=[rows, rows],
        out_specs=rows,
        prefetch=1,
        parallel=[0],
    )
    x = normal(2, 3, 4)
    check(f, np.array([2, 3], np.int32), x > 0.5, x)


def test_grids_of_many_axes_and_of_one_program():
    def body(x, out):
        ids = [program_id(d) for d in range(5)]
        out[...] = x[...] + sum(10**d * i for d, i in enumerate(ids)) + num_programs(1)

    block = Block((None, None, None, None, 4), lambda a, b, c, d, e: (a, b, c, d, e))
    x = np.zeros((2, 1, 3, 2, 8), np.float32)
    f = call(
        body, like(*x.shape), grid=(2, 1, 3, 2, 2), in_specs=block, out_specs=block,
        parallel=range(5),
    )  # fmt: skip
    check(f, x)
    check(call(lambda x, out: out.set(x[...] + 1), like(8)), normal(8))


def test_arguments_that_results_alias():
    def body(x, y, out):
        out[...] += x[...]

    rows = Block((3,), lambda i: (i,))
    f = call(body, like(8), grid=3, in_specs=(rows, rows), out_specs=rows, aliases={1: 0})
    check(f, normal(8), normal(8))


def grad_of(f):
    return sw.grad(lambda x, *rest: (f(x, *rest) * jnp.cos(x)).sum())


ROWS, SIZES = normal(24, 100), np.array([16, 16, 25, 7], np.int32)
HEADS, WEIGHTS = normal(1, 48, 2, 24), normal(4, 32, 32)
LIBRARY = {
    "softmax": (library.softmax, (ROWS,)),
    "derivative of softmax": (grad_of(library.log_softmax), (ROWS,)),
    "attention": (lambda q: library.flash_attention(q, q, q, is_causal=True), (HEADS,)),
    "derivative of attention": (grad_of(lambda q: library.flash_attention(q, q, q)), (HEADS,)),
    "grouped products": (lambda x, n: library.grouped_matmul(x, WEIGHTS, n), (normal(64, 32), SIZES)),
    "derivative of grouped products": (
        grad_of(lambda x, n: library.grouped_matmul(x, WEIGHTS, n)),
        (normal(64, 32), SIZES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", everyday(LIBRARY, 3))
def test_kernels_of_the_library(name):
    f, args = LIBRARY[name]
    check(f, *args, rtol=1e-3, atol=1e-4)


def test_arguments_that_are_read_after_results_that_replace_them():
    def body(x, out):
        out[...] = x[...] * 2
        out[...] += x[...]

    rows = Block((4,), lambda i: (i,))
    f = call(body, like(8), grid=2, in_specs=rows, out_specs=rows, aliases={0: 0})
    check(f, normal(8))
    shifted = Block((4,), lambda i: (1 - i,))
    f = call(body, like(8), grid=2, in_specs=shifted, out_specs=rows, aliases={0: 0})
    check(f, normal(8))


def test_a_vector_of_indices():
    def body(at, x, out):
        out[...] = x[at[...]] + x[:, at[:4]][:8].sum(1, keepdims=True)

    at = np.array([3, 1, 15, 0, 7, 7, 2, 9], np.int32)
    check(call(body, like(8, 16)), at, normal(16, 16))


@pytest.mark.parametrize("first", [0, 2])
def test_turns_up_to_a_limit_are_a_loop_without_branches(first):
    def body(limits, x, out, total):
        step = program_id(1)

        @when(step == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        @when(step + first < limits[program_id(0)] if first else step <= limits[program_id(0)])
        def _():
            total[...] += x[...] * (1 + step)

        @when(step == 3)
        def _():
            out[...] = total[...]

    f = call(
        body,
        like(6, 8),
        grid=(6, 4),
        in_specs=Block((None, 8), lambda i, k, limits: (k, 0)),
        out_specs=Block((None, 8), lambda i, k, limits: (i, 0)),
        scratch=[VMEM((8,), np.float32)],
        prefetch=1,
        parallel=[0],
    )
    args = np.array([-3, 0, 1, 3, 4, 9], np.int32), normal(4, 8)
    check(f, *args)
    assert "scf.if" not in kernel_of(f, *args).text


def test_float8_is_exact():
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    wide = every.astype(np.float32)
    halves = np.concatenate([wide, (wide[1:] + wide[:-1]) / 2, [463.9, 464.1, np.inf, 1e-30, -0.0]])
    halves = halves.astype(np.float32)
    up = call(lambda x, out: out.set(x[...].astype(np.float32)), like(256))
    down = call(
        lambda x, out: out.set(x[...].astype(every.dtype)), like(halves.size, dtype=every.dtype)
    )
    np.testing.assert_array_equal(triton_values(up, every)[0], wide)
    found, wanted = triton_values(down, halves)[0], halves.astype(every.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_float8(dtype):
    x = (np.arange(32 * 32) % 7 - 3).reshape(32, 32).astype(getattr(ml_dtypes, dtype))
    check(
        call(
            lambda x, out: out.set(lax.dot(x[...], x[...], preferred_element_type=np.float32)),
            like(32, 32),
        ),
        x,
    )
