"""Creation functions: messages, other objects, copies. `calls` has values, against jax's."""

from __future__ import annotations

import collections
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise._src.core.infer import type_of
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.stage import stage
from tests.helpers.errors import messages


class NAType:
    """The missing value of pandas."""

    def __repr__(self):
        return "<NA>"


class Column:
    def __array__(self, dtype=None, copy=None):
        return np.array([True, NAType()], object)


test_messages = messages(
    """
snp.zeros(2.0)
    TypeError: zeros: a shape must consist of concrete integers; got 2.0.
snp.zeros((2, -1))
    ShapeError: zeros: the sizes of a shape must not be negative; got (2, -1).
sw.lax.full((2, -1), 0.0)
    ShapeError: full: the sizes of a shape must not be negative; got (2, -1).
sw.lax.broadcast(1.0, (-1,))
    ShapeError: broadcast: the sizes of a shape must not be negative; got (-1,).
sw.lax.iota("float32", -1)
    ShapeError: iota: the sizes of a shape must not be negative; got (-1,).
sw.jit(lambda: sw.lax.broadcasted_iota("int32", (2, -1), 0))()
    ShapeError: broadcasted_iota: the sizes of a shape must not be negative; got (2, -1).
sw.lax.expand_dims(snp.ones(2), (0, -3))
    ValueError: expand_dims: dimensions must be distinct; got (0, -3).
snp.bincount(snp.array([1]), length=-1)
    ShapeError: bincount: the sizes of a shape must not be negative; got (-1,).
snp.zeros_like([1])
    TypeError: zeros_like: expected an array or a Python or NumPy scalar, got a list. Convert a
    sequence with `shardwise.numpy.asarray` first.
snp.array([None])
    ValueError: None cannot be an element of an array. Use nan for a missing number.
snp.array("a")
    TypeError: array: array elements must be numbers or booleans; got 'a' of type str. Encode
    strings as integers first.
snp.array(Column())
    ValueError: <NA> cannot be an element of an array. Use nan for a missing number.
snp.array({1})
    TypeError: array: array elements must be numbers or booleans; got {1} of type set.
snp.array([snp.ones(2), snp.ones(3)])
    ValueError: array: the arrays in a sequence must have the same shape; got (2,) and (3,).
snp.array([1], order="X")
    ValueError: order must be 'K', 'A', 'C' or 'F'; got 'X'.
snp.arange(True)
    TypeError: arange does not support booleans. Pass dtype=int.
snp.linspace(0, 1, -1)
    ValueError: linspace: num must not be negative; got -1.
snp.tril(snp.ones(3))
    ValueError: tril takes matrices; got f32[3].
snp.diag(snp.ones((1, 1, 1)))
    ValueError: diag takes a vector or a matrix; got f32[1,1,1].
snp.meshgrid(snp.ones(2), indexing="ab")
    ValueError: meshgrid takes indexing='xy' or 'ij'; got 'ab'.
snp.array(300, dtype=np.uint8)
    OverflowError: array: Python integer 300 out of bounds for uint8
""",
    globals(),
)


def test_64_bits_are_announced() -> None:
    with pytest.warns(UserWarning, match="Explicitly requested dtype float64 in zeros"):
        assert snp.zeros(2, "float64").dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        snp.zeros(2, float)


def test_tracers_in_sequences() -> None:
    def fun(x: Any) -> list[Any]:
        return [snp.array([[x, 1], [2.0, x]]), snp.full((2,), x), snp.zeros_like(x)]

    program, _ = stage(fun, [type_of(np.float32(0))])
    outs = [np.asarray(v) for v in program(EAGER.array(np.float32(5)))]
    np.testing.assert_array_equal(outs[0], [[5, 1], [2, 5]])
    np.testing.assert_array_equal(outs[1], [5, 5])
    np.testing.assert_array_equal(outs[2], 0)


class Wrapped:
    """An object of another library that supports one protocol."""

    def __init__(self, protocol: str):
        value = np.arange(3, dtype=np.float32)
        made = {"__jax_array__": lambda: snp.asarray(value), "__array__": lambda *a, **k: value}
        self.__class__ = type("Other", (), {protocol: lambda s, *a, **k: made[protocol]()})


@pytest.mark.parametrize("protocol", ["__jax_array__", "__array__"])
def test_foreign_objects(protocol: str) -> None:
    other = Wrapped(protocol)
    for result in (
        snp.asarray(other),
        snp.add(other, 0),
        snp.zeros(3) + other,
        other + snp.zeros(3) if protocol == "__jax_array__" else snp.asarray(other),
    ):
        np.testing.assert_array_equal(np.asarray(result), [0, 1, 2])
    program, _ = stage(lambda x: [x + other, snp.sin(other)], [type_of(np.float32(0))])
    np.testing.assert_array_equal(np.asarray(program(EAGER.array(np.float32(1)))[0]), [1, 2, 3])


def test_copies() -> None:
    x = snp.ones(3)
    assert snp.asarray(x) is x
    assert snp.asarray(x, dtype=np.float32) is x
    assert snp.array(x) is not x
    assert snp.asarray(x, copy=True) is not x
    made = snp.asarray(1.5)
    made.delete()  # must not evict the scalar while other calls use it
    assert float(snp.asarray(1.5) + 1.5) == 3.0
    host = np.zeros(3, np.float32)
    held = snp.asarray(host)
    host[0] = 1
    np.testing.assert_array_equal(np.asarray(held), 0)


def test_equality_of_arrays() -> None:
    x, y = snp.array([1.0, np.nan]), snp.array([1.0, np.nan])
    assert not snp.array_equal(x, y) and snp.array_equal(x, y, equal_nan=True)
    assert not snp.array_equal(snp.ones(2), snp.ones(3))
    assert snp.array_equal([1, 2], [1, 2]) and snp.array_equiv(snp.ones((2, 2)), 1)
    assert not snp.array_equiv(snp.ones(2), snp.ones(3))
    pairs = [(1.0, 1.0 + 1e-6), (1e10, 1.00001e10), (np.inf, np.inf), (np.nan, np.nan), (1, 2)]
    a, b = (np.array(v, np.float32) for v in zip(*pairs, strict=True))
    for equal_nan in (False, True):
        np.testing.assert_array_equal(
            np.asarray(snp.isclose(a, b, equal_nan=equal_nan)),
            np.asarray(jnp.isclose(a, b, equal_nan=equal_nan)),
        )
    assert snp.allclose(snp.ones(2), 1) and snp.isclose(3, 3)


def test_named_tuples_are_sequences():
    Pair = collections.namedtuple("Pair", ["low", "high"])
    rows = [Pair(1, 2), Pair(3, 4)]
    np.testing.assert_array_equal(sw.numpy.asarray(rows), [[1, 2], [3, 4]])
    assert sw.numpy.shape(rows) == (2, 2) and sw.numpy.asarray(Pair(1.5, 2)).dtype == np.float32
    found = sw.jit(lambda x: sw.numpy.array([Pair(1, x), Pair(3, 4)]))(5)
    np.testing.assert_array_equal(found, [[1, 5], [3, 4]])
    np.testing.assert_array_equal(sw.numpy.zeros(2).at[:].set(Pair(3, 4)), [3, 4])


def test_float0_has_numpys_arrays():
    zero = np.zeros(2, sw.float0)
    for found in (
        snp.zeros(2, sw.float0),
        snp.ones(2, sw.float0),
        snp.empty((2,), sw.float0),
        snp.full(2, 0, sw.float0),
        snp.zeros_like(zero),
        snp.full_like(snp.ones(2), 0, sw.float0),
        sw.lax.full((2,), 0, sw.float0),
        sw.lax.full_like(snp.ones(2), 0, sw.float0),
    ):
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape) == (sw.float0, (2,))


def test_fillers_beyond_the_default_integers() -> None:
    high = np.uint32(0x85A308D3)
    np.testing.assert_array_equal(snp.full(2, 0x85A308D3, "uint32"), [high, high])
    np.testing.assert_array_equal(snp.full_like(np.zeros(1, "u4"), 0x85A308D3), [high])
    np.testing.assert_array_equal(snp.full(1, 1 << 40, float), [1 << 40])
    with pytest.raises(OverflowError):
        snp.full(2, 1 << 40)
