"""The checker can fail: each kind of wrong op is reported, with the check that found it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from shardwise._src.core.op import OPS, Op
from shardwise._src.ops import families
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum
from shardwise._src.ops.elementwise import cos, mul, neg, sin
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dims import Dims
from shardwise.testing import CheckFailure, Sample, check_op

X = np.linspace(0.1, 1.2, 8, dtype=np.float32).reshape(2, 4)
Y = np.linspace(1.5, 0.5, 8, dtype=np.float32).reshape(2, 4)
SIN = [Sample((X,), reference=np.sin)]


@contextlib.contextmanager
def removed_after() -> Iterator[None]:
    """Removes the ops that the block adds to the table."""
    before = set(OPS)
    try:
        yield
    finally:
        for name in set(OPS) - before:
            del OPS[name]


def copy_of(op: Op, name: str = "wrong", **changed: Any) -> Op:
    """A copy of an op with some fields changed. Rules that bind the op use the copy."""
    with removed_after():
        return dataclasses.replace(op, name=name, **changed)


def wrong_sine(**changed: Any) -> Op:
    with removed_after():
        op = families.unary(
            "wrong", families.INEXACT, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x))
        )
    return copy_of(op, **changed)


def wrong_sum(**changed: Any) -> Op:
    return copy_of(reduce_sum, **changed)


def report_of(op: Op, samples: list[Any]) -> str:
    before = set(OPS)
    with pytest.raises(CheckFailure) as caught:
        check_op(op, samples)
    assert set(OPS) == before
    return str(caught.value)


def checks_of(op: Op, samples: list[Any]) -> set[str]:
    """The names of the checks that failed, without the details behind them."""
    with pytest.raises(CheckFailure) as caught:
        check_op(op, samples)
    return {f.check.partition(" (")[0] for f in caught.value.failures}


def test_right_ops_pass():
    check_op(wrong_sine(), SIN)
    samples = [Sample((X,), {"axes": (0,)}, lambda x: x.sum(0)), ((X,), {"axes": ()})]
    check_op(reduce_sum, samples)


def test_wrong_value():
    assert checks_of(wrong_sine(), [Sample((X,), reference=np.cos)]) == {"value"}


def test_the_whole_report():
    x = np.array([0.5, 1.0], np.float32)
    report = report_of(wrong_sine(), [Sample((x,), reference=np.cos)])
    assert report == (
        "1 fault in op 'wrong'\n"
        "  value (result 0): sample 0 (f32[2])\n"
        "      got:      [0.479426, 0.841471] float32\n"
        "      expected: [0.877583, 0.540302] float32"
    )


def test_wrong_jvp():
    def jvp(op: Op, primals: Any, tangents: Any) -> tuple:
        return sin(*primals), mul(tangents[0], sin(*primals))

    assert checks_of(wrong_sine(jvp=jvp), SIN) == {"jvp", "transpose"}


def test_wrong_second_derivative():
    """The first derivative is correct, but is computed by an op whose derivative is wrong."""
    wrong_cosine = copy_of(cos, jvp=lambda ps, ts: (cos(*ps), mul(ts[0], sin(*ps))))

    def jvp(op: Op, primals: Any, tangents: Any) -> tuple:
        return sin(*primals), mul(tangents[0], wrong_cosine(*primals))

    assert checks_of(wrong_sine(jvp=jvp), SIN) == {"jvp of jvp"}


def test_missing_and_raising_jvp():
    assert checks_of(wrong_sine(jvp=None), SIN) == {"missing field"}

    def jvp(op: Op, primals: Any, tangents: Any) -> tuple:
        raise RuntimeError("not today")

    report = report_of(wrong_sine(jvp=jvp), SIN)
    assert "jvp: sample 0 (f32[2,4])\n      got:      RuntimeError: not today" in report


def itself(op: Op, ps: list, ts: list, **p: Any) -> tuple:
    """The jvp rule of a linear op."""
    return op(*ps, **p), op(*ts, **p)


def test_wrong_transpose():
    def transpose(op: Op, ct: Any, x: Any, *, axes: tuple) -> list:
        kept = tuple(i for i in range(x.aval.ndim) if i not in axes)
        return [neg(broadcast_in_dim(ct, shape=x.aval.shape, dims=kept))]

    op = wrong_sum(transpose=transpose, batch=None, jvp=itself)
    found = checks_of(op, [Sample((X,), {"axes": (0,)})])
    assert found == {"missing field", "transpose", "transpose of operands"}


def test_transpose_that_leaves_an_operand_out():
    """A rule that returns None for an operand in which the op is linear."""
    op = copy_of(mul, transpose=families.linear_transpose(lambda ct, x, y: mul(ct, y), None))
    report = report_of(op, [Sample((X, Y))])
    assert "transpose of operands (1,): sample 0" in report
    assert "transpose of operands (0,)" not in report


def test_missing_transpose():
    op = wrong_sum(transpose=None, jvp=itself)
    report = report_of(op, [Sample((X,), {"axes": (0,)})])
    assert (
        "missing field: (f32[2,4]) axes=(0,)\n"
        "      got:      transpose=None\n"
        "      expected: a `transpose` rule: the linearization of wrong contains wrong"
    ) in report


def test_transposed_cotangent_of_wrong_shape():
    op = wrong_sum(transpose=lambda op, ct, x, *, axes: [ct])
    assert "transpose of operands" in checks_of(op, [Sample((X,), {"axes": (0,)})])


def batch_at_front(op: Op, mapped: Any, args: list, dims: list, **params: Any) -> tuple:
    """Wrong: assumes that the batch dimension is the first, wherever it is."""
    return op(*args, **params), 0


def test_wrong_batch():
    op = copy_of(mul, batch=batch_at_front)
    square = np.arange(9, dtype=np.float32).reshape(3, 3)  # so that no shape reveals it
    found = checks_of(op, [Sample((square, square + 1))])
    assert found == {"batch dimensions", "batch of batch"}


def test_batch_that_is_wrong_only_when_the_dimension_is_last():
    op = wrong_sine(batch=batch_at_front)
    report = report_of(op, SIN)
    assert "batch dimensions (2,)" in report
    assert "batch dimensions (0,)" not in report


def test_missing_batch():
    assert checks_of(wrong_sine(batch=None), SIN) == {"missing field"}


def test_dims_that_share_what_is_not_shared():
    """A reversal works along its dimension; a rule that denies this needs communication."""

    def lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
        return e.let(f"stablehlo.reverse {x}, dims = [0] : {e.ty(outs[0])}")

    with removed_after():
        op = families.unary(
            "wrong",
            families.INEXACT,
            lower=lower,
            jvp="linear",
            transpose=lambda ct, x: op(ct),
            batch=None,
        )
    report = report_of(op, [Sample((np.arange(8, dtype=np.float32),), batched=False, why="-")])
    assert "factor 'a' needs communication: sample 0 (f32[8])" in report
    assert "got:      all-to-all" in report or "got:      collective-permute" in report


def test_missing_rule_in_dims():
    op = wrong_sine(dims=lambda op, x: Dims((("a", None),), (("a", None),)))
    report = report_of(op, SIN)
    assert "missing rule: operand 0, dimension 1: sample 0 (f32[2,4])" in report
    check_op(op, [Sample((X,), reference=np.sin, unnamed=((0, 1),), why="a test")])


def test_dims_that_drop_a_factor():
    op = wrong_sine(dims=lambda op, x: Dims((("a", "b"),), (("a", None),), "add"))
    report = report_of(op, SIN)
    assert "combine='add' over factor 'b'" in report or "placement: factor 'b'" in report


def test_dims_that_swap_factors_of_the_result():
    square = np.arange(16, dtype=np.float32).reshape(4, 4)
    op = wrong_sine(dims=lambda op, x: Dims((("a", "b"),), (("b", "a"),)))
    report = report_of(op, [Sample((square,))])
    assert "placement: factor 'a', sharding of result 0" in report


def test_wrong_combine():
    op = wrong_sum(dims=lambda op, x, *, axes: Dims((("a", "b"),), (("b",),), "max"))
    found = checks_of(op, [Sample((X,), {"axes": (0,)})])
    assert found == {"dims: combine='max' over factor 'a'"}


def test_contraction_without_combine():
    op = wrong_sum(dims=lambda op, x, *, axes: Dims((("a", "b"),), (("b",),)))
    assert checks_of(op, [Sample((X,), {"axes": (0,)})]) == {"dims: contracted factor 'a'"}


@pytest.mark.parametrize(
    ("dims", "check"),
    [
        (Dims((("a",),), (("a", "b"),)), "dims: dimensions of each operand"),
        (Dims((("a", "b"),), (("a",),)), "dims: dimensions of each result"),
        (Dims((("a", "a"),), (("a", "a"),)), "dims: sizes of factor 'a'"),
    ],
)
def test_malformed_dims(dims: Dims, check: str):
    assert checks_of(wrong_sine(dims=lambda op, x: dims), SIN) == {check}


def test_missing_dims():
    assert checks_of(wrong_sine(dims=None), SIN) == {"missing field"}


@pytest.mark.parametrize(
    "rule",
    [
        lambda op, x: array_type(x.shape[::-1], x.dtype),
        lambda op, x: array_type(x.shape, np.dtype("i4")),
    ],
)
def test_wrong_type(rule: Callable):
    """Inference and lowering disagree: nothing compiles."""
    op = wrong_sine(type_rule=rule, jvp=None, batch=None, dims=None)
    assert "value" in checks_of(op, SIN)


def test_type_rule_that_raises():
    found = report_of(wrong_sine(), [Sample((np.arange(3, dtype=np.int32),))])
    assert "TypeError: [wrong] takes floating or complex operands; got i32[3]." in found


def test_missing_lowering():
    found = checks_of(wrong_sine(lower=None, instruction=None), SIN)
    assert found == {"missing field", "value"}


def test_leaving_checks_out_needs_a_reason():
    with pytest.raises(ValueError) as caught:
        Sample((X,), order=0)
    assert str(caught.value) == "(f32[2,4]) skips checks; give the reason in `why`."
