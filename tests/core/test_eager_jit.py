"""Public functions whose eager calls run as one program: `core.fused.eager_jit`."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import nn
from shardwise._src.core.fused import eager_jit, is_plain
from shardwise._src.running.eager import EAGER
from tests.helpers.errors import COPY
from tests.helpers.everyday import everyday

VECTOR = np.linspace(-2, 3, 6, dtype=np.float32)
MATRIX = VECTOR.reshape(2, 3)
CALLS = {
    "allclose": lambda x, m: jnp.allclose(x, x),
    "append": lambda x, m: jnp.append(x, x),
    "atleast_3d": lambda x, m: jnp.atleast_3d(x),
    "block": lambda x, m: jnp.block([[m, m], [m, m]]),
    "broadcast_arrays": lambda x, m: jnp.broadcast_arrays(m, m[0]),
    "column_stack": lambda x, m: jnp.column_stack([x, x]),
    "corrcoef": lambda x, m: jnp.corrcoef(m),
    "delete": lambda x, m: jnp.delete(x, 2),
    "diagonal": lambda x, m: jnp.diagonal(m, 1),
    "digitize": lambda x, m: jnp.digitize(m, x),
    "dstack": lambda x, m: jnp.dstack([m, m]),
    "geomspace": lambda x, m: jnp.geomspace(1.0, 8.0, 4),
    "hstack": lambda x, m: jnp.hstack([m, m]),
    "gradient": lambda x, m: jnp.gradient(m),
    "linspace": lambda x, m: jnp.linspace(0.0, 1.0, 5),
    "logspace": lambda x, m: jnp.logspace(0.0, 1.0, 5),
    "nanmean": lambda x, m: jnp.nanmean(m, 1),
    "pad": lambda x, m: jnp.pad(m, ((1, 0), (0, 2))),
    "polymul": lambda x, m: jnp.polymul(x, x),
    "roll": lambda x, m: jnp.roll(m, 2),
    "softmax": lambda x, m: nn.softmax(m, 0),
    "vstack": lambda x, m: jnp.vstack([x, x]),
}


def as_written(fun, *args):
    """The result under `jit`, where functions run as written."""
    return sw.jit(fun)(*args)


@pytest.mark.parametrize("name", everyday(CALLS, 10))
def test_it_is_one_program_of_the_same_values(name, monkeypatch):
    x, m = jnp.asarray(VECTOR), jnp.asarray(MATRIX)
    expected = as_written(CALLS[name], x, m)
    first = CALLS[name](x, m)
    runs = []
    for key, run in list(EAGER.cache.items()):
        monkeypatch.setitem(EAGER.cache, key, lambda a, run=run: (runs.append(0), run(a))[1])
    again = CALLS[name](x, m)
    for found in (first, again):
        for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(expected), strict=True):
            assert a.dtype == b.dtype and a.weak_type == b.weak_type
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert len(runs) == 1 + (name == "broadcast_arrays")  # and m[0]


@eager_jit(arrays=1)
def scaled(x, by=1, *, name="plain", dtype=None):
    if by == 7:
        raise ValueError(f"by must not be {by}.")
    if dtype == "float16":
        warnings.warn("half", UserWarning, stacklevel=1)
    CALLED.append(type(x).__name__)
    return x * by


CALLED = []


@pytest.fixture(autouse=True)
def nothing_called():
    CALLED.clear()


def test_a_call_is_staged_once_for_its_static_arguments_and_their_types():
    x = jnp.arange(3.0)
    for by, times in ((2, 1), (2, 1), (True, 2), (1, 3)):
        np.testing.assert_array_equal(scaled(x, by), np.arange(3.0) * by)
        assert len(CALLED) == times
    scaled(x, by=2)
    scaled(x.astype(int), 2)
    assert len(CALLED) == 5 and "Array" not in CALLED


def test_what_is_not_plain_runs_as_it_is_written():
    x = jnp.arange(3.0)
    for _ in range(2):
        scaled(x, 2.0)
        scaled(x, jnp.float32(2))
        scaled([1, 2], 2)
        scaled(VECTOR, 2)
        scaled(x, 2, dtype="float32")
    assert CALLED == ["Array", "Array", "list", "ndarray", "Array"] * 2


def test_under_a_transform_it_runs_as_it_is_written():
    sw.jit(scaled)(jnp.arange(3.0))
    sw.vmap(scaled)(jnp.arange(3.0))
    assert len(CALLED) == 2
    np.testing.assert_array_equal(sw.grad(lambda x: scaled(x, 3))(2.0), 3.0)


def test_its_errors_are_those_of_the_function_as_it_is_written():
    for _ in range(2):
        with pytest.raises(ValueError) as caught:
            scaled(jnp.arange(3.0), 7)
        assert str(caught.value) == "by must not be 7."
        assert caught.value.__context__ is None


def test_warnings_of_dtypes_come_at_each_call():
    for _ in range(2):
        with pytest.warns(UserWarning, match="half"):
            scaled(jnp.arange(3.0), 2, dtype="float16")


def test_a_deleted_array_is_refused():
    x = jnp.arange(3.0)
    scaled(x, 2)
    x.delete()
    with pytest.raises(RuntimeError) as caught:
        scaled(x, 2)
    why = "has been deleted: `delete()` was called on it."
    assert str(caught.value) == f"array of type f32[3] {why} {COPY}"


@pytest.mark.parametrize("plain", [3, True, None, (1, (2, None)), "clip", "left", ()])
def test_plain(plain):
    assert is_plain(plain)


@pytest.mark.parametrize("other", [1.0, "float32", "F", np.int8, np.dtype("int8"), (1, 2.0), [1]])
def test_not_plain(other):
    assert not is_plain(other)


def test_host_operands_are_put_and_found_again():
    x = jnp.arange(6.0)
    for host in (VECTOR, VECTOR.astype(np.float64)):
        for found in (x + host, host + x, jnp.where(host > 0, x, host)):
            assert found.dtype == np.float32
        np.testing.assert_allclose(x - host, np.arange(6) - VECTOR)
    held = VECTOR.copy()
    total = x + held
    held[:] = 0  # the array holds a copy
    np.testing.assert_allclose(total, np.arange(6) + VECTOR)
