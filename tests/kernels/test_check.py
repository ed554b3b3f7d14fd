"""`check=True`: faulty kernels, with whole messages, and correct ones, which are silent."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.errors import KernelError
from shardwise.kernels import VMEM, Block, Element, call, program_id, when
from tests.helpers.errors import message
from tests.kernels.kernels import CASES, like

X = np.arange(256, dtype=np.float32).reshape(32, 8)
ROWS = Block((8, 8), lambda i: (i, 0))
UNWRITTEN = (
    "depend on memory that was not written: of scratch, of a result, or beyond the end of an "
    "argument. Write it first, or mask it."
)
MEMORY = [VMEM((8, 8), np.float32)]


def copy(x, out):
    out[...] = x[...]


def accumulate(x, out):
    out[...] = out[...] + x[...]


def first_three(x, out):
    @when(program_id(0) < 3)
    def _():
        out[...] = x[...]


def with_scratch(x, out, held):
    out[...] = x[...] + held[...]


def running(x, out, held):
    held[...] = jnp.where(program_id(0) == 0, 0.0, held[...]) + x[...]
    out[...] = held[...]


def total(x, out):
    out[...] = x[...].sum(0, keepdims=True)


def masked_total(x, out):
    inside = lax.broadcasted_iota(jnp.int32, x.shape, 0) < 32
    out[...] = jnp.where(inside, x[...], 0).sum(0, keepdims=True)


def launch(body, out=ROWS, shape=(32, 8), rows=ROWS, grid=4, **options):
    return call(body, like(*shape), grid=grid, in_specs=rows, out_specs=out, check=True, **options)


WHOLE, LINE = Block((64, 8), lambda i: (0, 0)), Block((1, 8), lambda i: (0, 0))
WRONG = [
    (
        launch(copy, rows=Block((8, 8), lambda i: (i + 1, 0))),
        "kernel copy: argument x, f32[32,8]: program (3,) has block (4, 0), but there are (4, 1) "
        "blocks of (8, 8) elements.",
    ),
    (
        launch(copy, rows=Block((Element(8), 8), lambda i: (9 * i, 0))),
        "kernel copy: argument x, f32[32,8]: program (3,) has the block of (8, 8) elements from "
        "(27, 0), which is outside of the array.",
    ),
    (
        launch(copy, Block((8, 8), lambda i: (i // 2, 0)), (16, 8), parallel=[0]),
        "kernel copy: out, f32[16,8]: programs (0,) and (1,) both write block (0, 0), and differ "
        "along a parallel axis of the grid: a race.",
    ),
    (
        launch(copy, Block((8, 8), lambda i: (i % 2, 0)), (16, 8)),
        "kernel copy: out, f32[16,8]: programs (0,) and (2,) both have block (0, 0), and others run "
        "in between: what the first one wrote is lost on hardware that keeps one block at a time. "
        "Order the axes of the grid so that the programs of one block follow each other.",
    ),
    (
        launch(copy, grid=3),
        "kernel copy: out, f32[32,8]: no program has block (3, 0), and 1 of 4 blocks are not "
        "visited, so that the result is not written there.",
    ),
    (
        launch(accumulate, Block((8, 8), lambda i: (0, 0)), (8, 8)),
        f"kernel accumulate: 64 elements of out, the first at (0, 0), {UNWRITTEN}",
    ),
    (
        launch(first_three),
        f"kernel first_three: 64 elements of out, the first at (24, 0), {UNWRITTEN}",
    ),
    (
        launch(with_scratch, scratch=MEMORY),
        f"kernel with_scratch: 256 elements of out, the first at (0, 0), {UNWRITTEN}",
    ),
    (
        launch(total, LINE, (1, 8), WHOLE, 1),
        f"kernel total: 8 elements of out, the first at (0, 0), {UNWRITTEN}",
    ),
    (
        launch(running, scratch=MEMORY, parallel=[0]),
        "kernel running: 192 elements of out, the first at (8, 0), depend on the order of programs "
        "along the parallel axes of the grid.",
    ),
]


@pytest.mark.parametrize("f, text", WRONG)
def test_errors(f, text):
    assert message(KernelError, f, X) == text


@pytest.mark.parametrize(
    "f",
    [
        launch(copy),
        launch(copy, parallel=[0]),
        launch(running, scratch=MEMORY),
        launch(masked_total, LINE, (1, 8), WHOLE, 1),
        launch(lambda x, y, out: copy(y, out), aliases={0: 0}, grid=2),
        launch(copy, rows=Block((Element(8), 8), lambda i: (7 * i, 0))),
        launch(copy, grid=(4,), name="named"),
    ],
)
def test_correct_kernels_are_silent(f):
    count = 2 if "lambda" in f.__name__ else 1
    f(*[X] * count)


def test_checked_values_are_those_of_the_kernel(monkeypatch):
    case = CASES["matmul"]
    from tests.kernels import kernels

    checked = lambda *args, **options: call(*args, check=True, **options)  # noqa: E731
    monkeypatch.setattr(kernels, "call", checked)
    np.testing.assert_array_equal(case.launch()(*case.args), sw.jit(call_of(case))(*case.args))
    assert message(ValueError, sw.jit(case.launch()), *case.args) == (
        "kernel matmul: check=True runs the kernel step by step or several times, so that it cannot "
        "be traced. Check it outside of `jit` and other transforms, or with the function around "
        "it: `kernels.checked(f)`."
    )


def call_of(case):
    from tests.kernels import kernels

    held, kernels.call = kernels.call, call
    try:
        return case.launch()
    finally:
        kernels.call = held


@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_memory_that_was_not_written_differs_in_small_floats(dtype):
    def body(x, out, held):
        out[...] = held[...] + x[...]

    scratch = [VMEM((8, 8), jnp.dtype(dtype))]
    f = call(body, like(8, 8, dtype=jnp.dtype(dtype)), scratch=scratch, check=True)
    assert message(KernelError, f, jnp.zeros((8, 8), dtype)) == (
        f"kernel body: 64 elements of out, the first at (0, 0), {UNWRITTEN}"
    )
