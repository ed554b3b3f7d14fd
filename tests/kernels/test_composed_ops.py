"""Ops that kernels compose of others, for GPUs and TPUs: their values are those of XLA, at extremes.

The programs that both write are also run by XLA, so that a difference is either in a program or in
how it is written.
"""

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise._src.core.infer import type_of
from shardwise._src.core.program import eval_program
from shardwise._src.kernels.emitted import composed_ops
from shardwise._src.ops.cumulative import cumsum
from shardwise.kernels import atomic_add, atomic_max, call, ds
from tests.helpers.targets import MACHINES, compiled
from tests.helpers.triton_numpy import triton_values
from tests.kernels.kernels import like
from tests.kernels.test_mosaic_values import any_block as any_block
from tests.kernels.test_mosaic_values import values as mosaic_values

FLOATS, BF16 = (np.dtype("float32"), np.dtype(ml_dtypes.bfloat16)), np.dtype(ml_dtypes.bfloat16)
INTEGERS = tuple([np.dtype(f"{u}int{n}") for u in ("", "u") for n in (8, 16, 32)])
SIGNED, UNARY, BINARY, POWER = INTEGERS[:3], 1, 2, 3


def without_sign(x):
    """Which of 0 and -0 is larger is not specified."""
    return jnp.where(x == 0, lax.full_like(x, 0), x)


CASES = {  # the function, its dtypes, and its operands
    "neg": (lax.neg, FLOATS + INTEGERS, UNARY),
    "square": (lax.square, FLOATS + SIGNED, UNARY),
    "one_minus_square": (lambda x: composed_ops.ew.one_minus_square(x), FLOATS, UNARY),
    **{
        f"integer_pow {y}": (lambda x, y=y: lax.integer_pow(x, y), FLOATS + SIGNED[y < 0 :], UNARY)
        for y in (0, 1, 2, 3, 7)
    },
    "integer_pow -1": (lambda x: lax.integer_pow(x, -1), FLOATS, UNARY),
    "integer_pow -3": (lambda x: lax.integer_pow(x, -3), FLOATS, UNARY),
    "sign": (lax.sign, FLOATS + INTEGERS, UNARY),
    "abs": (lax.abs, FLOATS + SIGNED, UNARY),
    "logistic": (lax.logistic, FLOATS, UNARY),
    "is_finite": (lambda x: lax.is_finite(x).astype(np.int32), FLOATS, UNARY),
    "clamp": (lambda x, y: without_sign(lax.clamp(y, x, y + 1)), FLOATS + SIGNED[2:], BINARY),
    "expm1": (lax.expm1, FLOATS, UNARY),
    "cosh": (lax.cosh, FLOATS, UNARY),
    "sinh": (lax.sinh, FLOATS, UNARY),
    "erf_inv": (lambda x: without_sign(lax.erf_inv(x)), FLOATS, UNARY),
    "div": (lax.div, FLOATS + INTEGERS, BINARY),
    "rem": (lax.rem, FLOATS + INTEGERS, BINARY),
    "div by a constant": (lambda x: lax.div(x, x.dtype.type(7)), INTEGERS, UNARY),
    "shift_left": (lax.shift_left, INTEGERS, BINARY),
    "shift_right_logical": (lax.shift_right_logical, INTEGERS, BINARY),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, INTEGERS, BINARY),
    "shift by a constant": (lambda x: x << 3 | lax.shift_right_logical(x, x.dtype.type(2)), INTEGERS, UNARY),
    "shift by many bits": (lambda x: lax.shift_left(x, x.dtype.type(32)), INTEGERS[2::3], UNARY),
    "population_count": (lax.population_count, INTEGERS, UNARY),
    "clz": (lax.clz, INTEGERS, UNARY),
    "pow by integers": (lax.pow, FLOATS, POWER),
}  # fmt: skip


def operands(dtype, kind):
    """Values of a dtype at extremes, in a row; of two operands, all pairs."""
    if dtype in FLOATS:
        special = [
            np.nan,
            np.inf,
            0.0,
            1e-30,
            1e-8,
            0.3,
            0.49,
            0.51,
            0.99,
            1,
            2.5,
            87,
            88.7,
            89,
            1e4,
        ]
        x = np.array([*special, *[-v for v in special]]).astype(dtype)
    else:
        ends, bits = np.iinfo(dtype), np.iinfo(dtype).bits
        near = [ends.min, ends.min + 1, ends.max, ends.max - 1, 0, 1, 2, 3, 5, bits - 1, bits, 77]
        x = np.array([*near, *[-1, -2, -bits] * (ends.min < 0)], dtype)
    y = np.array([-3, -1, 0, 1, 2, 5], np.int32) if kind == POWER else x
    found = [x] if kind == UNARY else [np.repeat(x, len(y)), np.tile(y, len(x))]
    size = -len(found[0]) % 128
    return [np.pad(v, (0, size), constant_values=1)[None] for v in found]


def launched(f, xs):
    def body(*refs):
        *ins, out = refs
        out[...] = f(*[x[...] for x in ins])

    out = sw.eval_shape(f, *xs)
    return call(body, like(*out.shape, dtype=out.dtype), name="composed")


def check(found, wanted, dtype):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    if dtype in INTEGERS:
        np.testing.assert_array_equal(found, wanted)
        return
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=8e-3 if dtype == BF16 else 1e-5, atol=1e-37)
    zero = b == 0
    np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("any_block")
def test_values(name, target):
    f, dtypes, kind = CASES[name]
    run = triton_values if target == "gpu" else mosaic_values
    for dtype in dtypes:
        xs = operands(dtype, kind)
        (found,) = run(launched(f, xs), *xs)
        check(found, sw.jit(f)(*xs), dtype)


@pytest.mark.parametrize("name", [n for n in CASES if {*INTEGERS} <= {*CASES[n][1]}])
def test_values_of_64_bits(name):
    f, _, kind = CASES[name]
    with sw.enable_x64(True):
        for dtype in map(np.dtype, ("int64", "uint64")):
            xs = operands(dtype, kind)
            (found,) = triton_values(launched(f, xs), *xs)
            np.testing.assert_array_equal(found, sw.jit(f)(*xs))


@pytest.mark.sweep
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", CASES)
def test_compiled(name, machine):
    f, dtypes, kind = CASES[name]
    for dtype in dtypes:
        xs = operands(dtype, kind)
        compiled(launched(f, xs), machine, *xs)


@pytest.mark.parametrize("op", composed_ops.COMPOSED, ids=lambda op: op.name)
def test_programs_in_place_of_ops(op):
    """All that the two tables have are tested: here by XLA, at plain values."""
    (x,) = operands(FLOATS[0], UNARY)
    params = {"y": 3} if op is composed_ops.ew.integer_pow else {"axis": 1} if op is cumsum else {}
    xs = (x - 1, x, x + 1) if op is lax.clamp_p else (np.nan_to_num(x) if op is cumsum else x,)
    program = composed_ops.composed(op, [type_of(v) for v in xs], params)
    assert program is not None
    (found,) = sw.jit(lambda *vs: eval_program(program, vs))(*xs)
    if op is not cumsum:
        check(found, op(*xs, **params), FLOATS[0])


@pytest.mark.parametrize("where", ["even", "none", "all"])
def test_masked_atomic_accesses_return_the_elements_from_before(where):
    keep = {"even": np.arange(8) % 2 == 0, "none": np.zeros(8, bool), "all": np.ones(8, bool)}[
        where
    ]

    def body(x, mask, start, out, olds, tops):
        out[...] = start[...]
        olds[...] = atomic_add(out, ..., x[...], mask=mask[...])
        tops[...] = atomic_max(out, ..., x[...] * 2, mask=~mask[...])

    f = call(body, tuple([like(8, dtype=np.int32)] * 3), name="masked")
    args = np.arange(8, dtype=np.int32) - 3, keep, np.full(8, 4, np.int32)
    for a, b in zip(triton_values(f, *args), sw.jit(f)(*args), strict=True):
        np.testing.assert_array_equal(a, b)


def test_masked_atomic_accesses_beyond_the_end():
    """Nothing is read there, which the evaluation on NumPy checks."""

    def body(first, out, olds):
        out[...], i = jnp.arange(8), first[0]
        olds[...] = atomic_add(out, ds(i, 4), jnp.full(4, 9), mask=i + jnp.arange(4) < 8)

    f = call(body, (like(8, dtype=np.int32), like(4, dtype=np.int32)), name="beyond")
    found, olds = triton_values(f, np.array([6], np.int32))
    assert found.tolist() == [0, 1, 2, 3, 4, 5, 15, 16] and olds[:2].tolist() == [6, 7]
