"""`flatten_util.ravel_pytree`: values, dtypes, derivatives, equality, errors."""

import jax.flatten_util
import numpy as np
import pytest

import shardwise as sw
from shardwise.flatten_util import ravel_pytree
from tests.helpers.composed import close, everywhere
from tests.helpers.errors import message

TREE = {"a": np.arange(3), "b": [1.5, np.ones((2, 2), np.complex64), np.zeros((0, 2), bool)]}


def test_values_and_way_back():
    flat, unravel = ravel_pytree(TREE)
    wanted, back = jax.flatten_util.ravel_pytree(TREE)
    close(flat, wanted)
    assert flat.dtype == wanted.dtype
    for x, y in zip(sw.tree.leaves(unravel(flat)), jax.tree.leaves(back(wanted)), strict=True):
        assert x.dtype == y.dtype
        close(x, y)
    assert unravel == ravel_pytree(TREE)[1] and hash(unravel) == hash(ravel_pytree(TREE)[1])


def test_one_dtype_takes_any():
    _, unravel = ravel_pytree((np.ones(2, np.float32), np.float32(3)))
    assert [x.dtype for x in unravel(np.arange(3))] == [np.int32] * 2


def test_without_leaves():
    flat, unravel = ravel_pytree({"none": ()})
    assert flat.shape == (0,) and flat.dtype == np.float32 and unravel(flat) == {"none": ()}


@pytest.mark.sweep
def test_places_and_derivatives():
    x = np.linspace(-1, 1, 14).reshape(7, 2)
    everywhere(lambda x, y: ravel_pytree((x * 2, [y]))[0] ** 2, x, x[0])
    everywhere(lambda v: ravel_pytree((x, x[0]))[1](v)[0] ** 2, np.arange(16.0))


def test_messages():
    flat, unravel = ravel_pytree(TREE)
    assert (
        message(ValueError, unravel, flat[:4])
        == "unravel takes a vector of 8 elements; got shape (4,)."
    )
    assert message(TypeError, unravel, flat.real) == (
        "unravel takes a vector of complex64, to which the leaves were promoted; got float32."
    )
