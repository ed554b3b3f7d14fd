"""Operators, methods, conversions and text of arrays, against jax's and NumPy's."""

from __future__ import annotations

import copy
import operator
from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import shardwise.numpy as snp
from shardwise._src.arrays.array import Array
from shardwise._src.core.infer import type_of
from shardwise._src.placement.device_put import device_put
from shardwise._src.running.eager import EAGER
from shardwise._src.runtime import backend
from shardwise._src.transforms.stage import stage
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.errors import message, messages
from tests.helpers.everyday import everyday
from tests.helpers.oracle import as_jax, cases, same

X = np.array([[1.5, -2.0, 0.25], [4.0, 5.0, -6.0]], np.float32)
I = np.array([[1, -2, 3], [4, 5, -6]], np.int32)  # noqa: E741


def both(x: Any) -> tuple[Any, Any]:
    return snp.asarray(x), jnp.asarray(x)


# -- operators --

ARITHMETIC = "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split()
BITS = "and_ or_ xor lshift rshift".split()


@pytest.mark.parametrize("name", everyday(ARITHMETIC, 2))
def test_arithmetic_operators(name: str) -> None:
    fun = getattr(operator, name)
    x, y = both(X)
    other, their = both(np.abs(X) + 1)
    for a, b in (
        (other, their),
        (2, 2),
        (0.5, 0.5),
        (np.float32(3), np.float32(3)),
        (np.abs(X), np.abs(X)),
    ):
        same(fun(x, a), fun(y, b), f"x {name} {a!r}", 5.0)
        if name != "pow" or a is other:
            same(fun(a, x), fun(b, y), f"{a!r} {name} x", 5.0)


@pytest.mark.parametrize("name", BITS)
def test_bit_operators(name: str) -> None:
    fun = getattr(operator, name)
    x, y = both(np.abs(I))
    same(fun(x, 2), fun(y, 2))
    same(fun(3, x), fun(3, y))
    same(fun(x, x), fun(y, y))


def test_other_operators() -> None:
    x, y = both(X)
    i, j = both(I)
    for a, b in (
        (-x, -y),
        (+x, +y),
        (abs(x), abs(y)),
        (~i, ~j),
        (x @ x.T, y @ y.T),
        (X @ x.T, X @ y.T),
        (round(x, 1), round(y, 1)),
        (x**2, y**2),
        (2**i, 2**j),
    ):
        same(a, b)
    for a, b in zip(divmod(i, 4), divmod(j, 4), strict=True):
        same(a, b)


def test_round_without_digits_gives_integers() -> None:
    for value in (np.float32(2.6), X):
        rounded = round(snp.asarray(value))
        assert rounded.dtype == np.int32
        np.testing.assert_array_equal(rounded, np.round(value))
    assert round(snp.float32(2.66), 1).dtype == np.float32


def test_numpy_arrays_on_the_left() -> None:
    x = snp.asarray(X)
    for value in (X, np.float32(2), np.float64(2)):
        assert isinstance(value + x, Array)
        assert isinstance(value < x, Array)


def test_equal_scalars_are_not_mixed_up() -> None:
    x = snp.zeros(2)
    for _ in range(2):
        np.testing.assert_array_equal(np.signbit(snp.multiply(snp.ones(2), -0.0)), True)
        np.testing.assert_array_equal(np.signbit(snp.multiply(snp.ones(2), 0.0)), False)
        assert (snp.ones(2, int) + True).dtype == np.int32
        assert (snp.ones(2, bool) + True).dtype == bool
        assert (snp.ones(2, bool) + 1).dtype == np.int32
        assert (snp.ones(2, int) + 1.0).dtype == np.float32
        assert np.isnan(np.asarray(x + float("nan"))).all()
        parts = [np.asarray(snp.zeros(2) + z).imag for z in (1 + 0j, 1 - 0j)]
        assert parts[0].dtype == parts[1].dtype
    assert not np.signbit(np.asarray(snp.asarray(1 + 0j)).imag)
    assert np.signbit(np.asarray(snp.asarray(complex(1, -0.0))).imag)


def test_strangers_are_given_way() -> None:
    class Stranger:
        def __radd__(self, other: Any) -> str:
            return "mine"

    assert snp.ones(2) + Stranger() == "mine"
    for other in ([1, 2], "a", None):
        with pytest.raises(TypeError) as caught:
            snp.ones(2) + other
        kind = type(other).__name__
        assert str(caught.value) == f"unsupported operand type(s) for +: 'Array' and '{kind}'"
    for other in ([1, 2], (1,), {1}, {}):
        for sign, f in (("==", lambda x, o=other: x == o), ("!=", lambda x, o=other: o != x)):
            assert message(TypeError, lambda f=f: f(snp.ones(2))) == (
                f"unsupported operand type(s) for {sign}: 'Array' and {type(other).__name__!r}. "
                "Compare with `shardwise.numpy.asarray(...)` of it."
            )
    assert (snp.ones(2) == "a") is False and (snp.ones(2) != None) is True  # noqa: E711
    assert (
        message(TypeError, lambda: -snp.ones(2, bool))
        == "negative: takes numeric operands; got bool[2]."
    )
    with pytest.raises(TypeError) as caught:
        snp.ones(2) + snp.ones(3)
    assert str(caught.value) == (
        "add: shapes (2,) and (3,) do not broadcast together: from the last dimension backwards, "
        "sizes must be equal or 1."
    )
    assert caught.value.__context__ is None or not isinstance(caught.value.__context__, KeyError)


# -- attributes and methods --

CALLS = """
x.T; x.mT; x.real; x.imag; x.astype(int); x.copy(); x.view(np.int32); x.view(np.int8); x.conj()
x.round(1); x.clip(0, 2); x.sum(); x.sum(1, keepdims=True); x.prod(0); x.max(-1); x.min(); x.ptp()
x.any(); x.all(1); x.argmax(); x.argmin(1); x.mean(0); x.var(ddof=1); x.std(axis=1); x.cumsum(1)
x.cumprod(); x.sort(0); x.argsort(); x.reshape(3, 2); x.reshape((3, -1)); x.reshape(-1); x.ravel()
x.flatten(); x.transpose(); x.transpose(1, 0); x.transpose((1, 0)); x.swapaxes(0, 1)
x[None].squeeze(); x.repeat(2, axis=1); x.diagonal(1); x.dot(x.T); x.trace()
x.take(np.array([0, 2]), axis=1); x.compress(np.array([True, False, True]), axis=1)
x.ravel().searchsorted(2.0); x.nonzero(); x[0]; x[:, 1:]; x[np.array([1, 0])]; x.at[0].set(1.0)
"""


@pytest.mark.parametrize("text", everyday(cases(CALLS), 7))
def test_methods(text: str) -> None:
    as_jax(text, {"x": X}, 2e-6)


def test_facts() -> None:
    x, y = both(X)
    for name in "shape ndim size itemsize nbytes weak_type dtype".split():
        assert getattr(x, name) == getattr(y, name), name
    assert len(x) == 2 and not isinstance(x, Hashable)
    assert [float(v) for v in snp.arange(3)] == [0, 1, 2]
    assert 5.0 in x.reshape(-1) and 7.0 not in x.reshape(-1)
    assert x.__array_namespace__() is snp
    assert snp.asarray(1.0).weak_type
    np.testing.assert_array_equal(np.asarray(copy.deepcopy(x)), X)


# -- conversions --


def test_scalars() -> None:
    assert float(snp.asarray(2.5)) == 2.5 and int(snp.asarray(2.5)) == 2
    assert complex(snp.asarray(1 + 2j)) == 1 + 2j
    assert bool(snp.ones((1, 1))) and not snp.asarray(0)
    assert [10, 20, 30][snp.asarray(1)] == 20 and hex(snp.asarray(255)) == "0xff"
    assert oct(snp.asarray(8)) == "0o10"
    assert f"{snp.asarray(2.5):.2f}" == "2.50" and f"{snp.arange(2)}" == "[0 1]"
    assert snp.asarray(X).item(1, 0) == 4.0 and type(snp.asarray(2).item()) is int
    assert snp.asarray(I).tolist() == I.tolist() and snp.asarray(X).tobytes() == X.tobytes()
    half = snp.asarray(np.array([0.5, 2], ml_dtypes.bfloat16))
    assert half.tolist() == [0.5, 2.0] and type(half.tolist()[0]) is float
    assert type(half.item(0)) is float


test_messages = messages(
    """
bool(snp.ones(2))
    ValueError: the truth value of an array of type f32[2], with 2 elements, is ambiguous. Use
    x.any() or x.all(), or x.size > 0.
bool(snp.ones(0))
    ValueError: the truth value of an array of type f32[0], with 0 elements, is ambiguous. Use
    x.any() or x.all(), or x.size > 0.
int(snp.ones(1))
    TypeError: only a 0-d array of numbers can be converted to int; got f32[1].
float(snp.asarray(1j))
    TypeError: a complex array cannot be converted to float; use x.real.
[1][snp.asarray(0.0)]
    TypeError: only a 0-d integer array can be used as an index; got ~f32[].
hash(snp.ones(1))
    TypeError: unhashable type: 'Array'
len(snp.asarray(1))
    TypeError: len() of a 0-d array; its size is 1.
iter(snp.asarray(1))
    TypeError: iteration over a 0-d array. Use x.item() or x[()].
operator.setitem(snp.ones(2), 0, 1)
    TypeError: Array cannot be changed in place. For a new array with the elements changed, write x
    = x.at[idx].set(value).
operator.delitem(snp.ones(2), 0)
    TypeError: elements of Array cannot be deleted in place. For a new array without them, write x
    = shardwise.numpy.delete(x, idx).
""",
    globals(),
)


# -- repr: as in jax --

SHOWN = [
    1.0,
    3,
    True,
    2 - 1j,
    np.float32(0.1),
    X,
    I,
    X > 0,
    X.astype(np.float16),
    X.astype(complex),
    X.astype(ml_dtypes.bfloat16),
    np.zeros((0,), np.float32),
    np.zeros((2, 0, 3), np.int8),
    np.arange(30, dtype=np.float32),
    np.arange(23, dtype=np.float32),
    np.arange(24),
    np.arange(2000, dtype=np.float32),
    np.arange(24.0, dtype=np.float32).reshape(2, 3, 4),
    np.array([np.nan, np.inf, -0.0, 1e-20], np.float32),
    np.linspace(0, 1, 9, dtype=np.float32),
]


@pytest.mark.parametrize("value", SHOWN, ids=[str(i) for i in range(len(SHOWN))])
def test_text(value: Any) -> None:
    x, y = both(value)
    assert repr(x) == repr(y)
    assert str(x) == str(y)


def test_line_ends_of_text() -> None:
    for n in range(1, 40):
        x, y = both(np.full(n, 1.5, np.float32))
        assert repr(x) == repr(y)


def test_text_of_a_deleted_array() -> None:
    x = snp.ones(3)
    x.delete()
    assert repr(x) == "Array(deleted, shape=(3,), dtype=float32)"
    with pytest.raises(RuntimeError, match=r"array of type f32\[3\] has been deleted"):
        x + 1


def test_tracers_have_operators_too() -> None:
    def fun(x: Any) -> list[Any]:
        return [(2.0 - x) @ x.T + x.sum(), x[0], x.at[0].set(1), x.reshape(-1).T, *x]

    program, _ = stage(fun, [type_of(X)])
    found = program(EAGER.array(X))
    expected = jax.jit(
        lambda x: [(2.0 - x) @ x.T + x.sum(), x[0], x.at[0].set(1), x.reshape(-1).T, *x]
    )(X)
    for a, b in zip(found, expected, strict=True):
        same(a, b)


def test_scalars_join_arrays_where_they_are() -> None:
    devices = backend.local_devices()
    sharding = NamedSharding(Mesh(np.array(devices, object), ("x",)), PartitionSpec("x"))
    x = device_put(np.arange(16, dtype=np.float32), sharding)
    for result in (x * 2.0, 1 - x, x + np.float32(1)):
        assert result.sharding == sharding
    y = device_put(np.ones(3, np.float32), devices[3])
    assert (y + 1.0).devices() == (2 - y).devices() == {devices[3]}
