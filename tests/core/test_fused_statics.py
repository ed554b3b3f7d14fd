"""Static arguments of fused functions: cached however they are passed, and keyed by type too."""

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.core.fused import fused
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.running import plan

runs = []


@fused(arrays=1)
def scaled(x, factor=1, power=1):
    runs.append((factor, power))
    return ew.mul(x, lit(factor, x))


@pytest.fixture
def x():
    runs.clear()
    return sw.device_put(np.arange(3, dtype="float32"))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: scaled(x, 2),
        lambda x: scaled(x, factor=2),
        lambda x: scaled(x=x, factor=2),
        lambda x: scaled(x, 2, power=3),
        lambda x: scaled(x, 2, power=[1]),
    ],
)
def test_a_second_call_runs_no_python(x, call):
    first = call(x)
    count = len(runs)
    np.testing.assert_array_equal(call(x), first)
    assert len(runs) == count


def test_equal_numbers_of_other_types_are_other_arguments(x):
    for factor in (1, 1.0, True):
        scaled(x, factor, power=7)
        scaled(x, power=7, factor=factor)
    assert [type(f) for f, _ in runs] == [int, int, float, float, bool, bool]


def test_small_programs_give_what_optimised_ones_do(monkeypatch):
    host = np.linspace(0.1, 3, 1500).astype("float32")
    small = np.asarray(sw.numpy.exp(sw.device_put(host)))
    monkeypatch.setattr(plan, "SMALL", 0)
    whole = np.asarray(sw.jit(lambda v: sw.numpy.exp(v) * 1)(sw.device_put(host)))
    np.testing.assert_allclose(small, whole, rtol=1e-6)


def test_zeros_of_either_sign_are_different_statics():
    times = fused(lambda x, s=1.0: ew.mul(x, lit(s, x)))
    x = sw.numpy.ones(2)
    found = [np.signbit(np.asarray(times(x, s=s))).tolist() for s in (0.0, -0.0, 0.0)]
    assert found == [[False, False], [True, True], [False, False]]
