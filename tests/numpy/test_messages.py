"""Full messages of typical errors of new users: traced sizes, lists, axes, large integers."""

from __future__ import annotations

import os
import re

import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.base import errors

X = snp.arange(4.0)
N = snp.arange(3)
LIST = (
    "expected an array or a Python or NumPy scalar, got a list. Convert a sequence with "
    "`shardwise.numpy.asarray` first."
)
LARGE = (
    "the integer 1099511627776 does not fit into int32. Use a float, or 64-bit integers, "
    "which the flag enable_x64 turns on."
)


def message(kind, fun, *args):
    with pytest.raises(kind) as caught:
        fun(*args)
    assert type(caught.value) is kind
    return re.sub(re.escape(os.path.abspath(__file__)) + r":\d+", "FILE", str(caught.value))


SIZES = {
    "arange: stop": lambda n: snp.arange(n),
    "arange: start": lambda n: snp.arange(n, 9),
    "arange: step": lambda n: snp.arange(0, 9, n),
    "linspace: num": lambda n: snp.linspace(0, 1, n),
    "zeros: shape": lambda n: snp.zeros(n),
    "ones: shape": lambda n: snp.ones((2, n)),
    "reshape: shape": lambda n: snp.reshape(X, (n, 2)),
    "hanning: M": lambda n: snp.hanning(n),
}


@pytest.mark.parametrize("what", SIZES)
def test_a_traced_size(what):
    kind = errors.TracerIntegerConversionError
    if what.startswith(("arange", "linspace", "hanning")):
        kind = errors.ConcretizationTypeError
    assert message(kind, sw.jit(SIZES[what]), 3) == (
        f"{what} must be concrete, since the size of the result depends on it; got a traced "
        "~i32[], which is not known while tracing (jit of <lambda>, called at FILE (message)). The "
        "value depends on the argument n. Pass a Python number, or mark the argument static with "
        "`static_argnums`."
    )


COUNTS = {
    "unique: the number of distinct values": (snp.unique, "ar", "size"),
    "nonzero: the number of elements": (snp.nonzero, "a", "size"),
    "bincount: the length of the result": (snp.bincount, "x", "length"),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_size_that_depends_on_values(what):
    fun, name, argument = COUNTS[what]
    assert message(errors.ConcretizationTypeError, sw.jit(fun), N) == (
        f"{what} depends on the values of a traced i32[3], which is not known while tracing (jit "
        f"of {fun.__name__}, called at FILE (message)). The value depends on the argument {name}. "
        f"Pass `{argument}=`."
    )


@pytest.mark.parametrize("name", ["sum", "mean", "max", "sin", "sort", "cumsum", "std"])
def test_lists(name):
    fun = getattr(snp, name)
    assert message(TypeError, lambda: fun([1, 2])) == f"{name}: {LIST}"
    assert message(TypeError, sw.jit(lambda x: x + fun([1, 2])), 1.0) == f"{name}: {LIST}"


@pytest.mark.parametrize("name", ["argmax", "cumsum", "median"])
def test_axes(name):
    fun = getattr(snp, name)
    expected = f"{name}: axis must be an integer; got 'x'."
    assert message(TypeError, lambda: fun(X, axis="x")) == expected
    assert message(TypeError, sw.jit(lambda x: fun(x, axis="x")), X) == expected


@pytest.mark.parametrize("name", ["sum", "mean", "max", "all"])
def test_axes_that_may_be_names(name):
    fun = getattr(snp, name)
    expected = (
        f"shardwise.numpy.{name}: unbound axis name: x. The axes in scope are: none. To bind an "
        "axis name, wrap the call in a map: `shardwise.vmap(f, axis_name='x')` or "
        "`shardwise.shard_map`."
    )
    assert message(NameError, lambda: fun(X, axis="x")) == expected
    assert message(NameError, sw.jit(lambda x: fun(x, axis="x")), X) == expected
    expected = f"{name}: axis must be an integer; got 0.5."
    assert message(TypeError, lambda: fun(X, axis=0.5)) == expected


def test_a_count_that_is_no_integer():
    assert message(TypeError, snp.linspace, 0, 1, 5.0) == (
        "linspace: num must be an integer; got 5.0."
    )


@pytest.mark.parametrize(
    "name, fun",
    [
        ("add", lambda x: x + 2**40),
        ("subtract", lambda x: 2**40 - x),
        ("where", lambda x: snp.where(x > 1, 2**40, x)),
    ],
)
def test_integers_that_are_too_large(name, fun):
    assert message(OverflowError, fun, N) == f"{name}: {LARGE}"
    assert message(OverflowError, sw.jit(fun), N) == f"{name}: {LARGE}"


def test_integers_too_large_for_64_bits():
    with sw.enable_x64(True):
        assert message(OverflowError, lambda: snp.arange(3) + 2**70) == (
            f"add: the integer {2**70} does not fit into int64. Use a float."
        )
        assert (snp.arange(2) + 2**40).tolist() == [2**40, 2**40 + 1]


def test_large_integers_that_fit():
    assert sw.jit(lambda x: x + 2**40)(snp.float32(0)) == 2.0**40
    assert sw.jit(lambda: snp.full(2, 0xFFFFFFFF, snp.uint32))().tolist() == [2**32 - 1] * 2
