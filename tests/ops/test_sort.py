"""Sorting: order of zeros, NaN and complex numbers against jax."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from shardwise._src.ops.sort import sort, top_k
from shardwise._src.running.eager import EAGER
from tests.helpers.eager import pulled_back
from tests.helpers.errors import messages

RNG = np.random.default_rng(1)
X = RNG.permutation(6).reshape(2, 3).astype(np.float32)
Y = RNG.normal(size=(2, 3)).astype(np.float32)
SPECIAL = np.array([1, -np.nan, 0.0, np.inf, -0.0, np.nan, -np.inf, -1, 0.0], np.float32)


def run_sort(*xs, **params):
    return [np.asarray(r) for r in sort(*[EAGER.array(x) for x in xs], **params)]


def test_top_k_of_booleans():
    values, places = top_k(EAGER.array(np.array([False, True, False])), k=2)
    assert np.asarray(values).tolist() == [True, False]
    assert np.asarray(places).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_zeros_are_equal_and_nans_are_last(dtype):
    x = SPECIAL.astype(dtype)
    order = np.arange(len(x), dtype=np.int32)
    came = run_sort(x, order, dimension=0)
    wanted = lax.sort((jnp.asarray(x), jnp.asarray(order)), num_keys=1)
    for c, w in zip(came, wanted, strict=True):
        np.testing.assert_array_equal(c.view(np.uint8), np.asarray(w).view(np.uint8))


@pytest.mark.parametrize("dtype", ["float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e4m3b11fnuz"])
def test_nans_that_are_written_as_negative_zeros_are_last(dtype):
    x = np.array([1, np.nan, -2, 0, np.nan, 4], np.float32)
    order = np.arange(len(x), dtype=np.int32)
    found, places = run_sort(x.astype(getattr(ml_dtypes, dtype)), order, dimension=0)
    np.testing.assert_array_equal(found.astype(np.float32), np.sort(x))
    np.testing.assert_array_equal(places, np.argsort(x, stable=True))
    largest, places = top_k(EAGER.array(x.astype(getattr(ml_dtypes, dtype))), k=3)
    assert str(largest.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(largest).astype(np.float32), [np.nan, np.nan, 4])
    np.testing.assert_array_equal(places, [1, 4, 5])


def test_several_keys_are_compared_in_turn():
    a = RNG.integers(0, 3, 40).astype(np.int32)
    b = RNG.integers(0, 3, 40).astype(np.float32)
    order = np.arange(40, dtype=np.int32)
    came = run_sort(a, b, order, dimension=0, num_keys=2)
    np.testing.assert_array_equal(came[2], np.lexsort((b, a)))


def test_complex_numbers_are_in_lexicographic_order():
    z = RNG.choice([1, -0.0, 0.0, np.nan, 2], 30) + 1j * RNG.choice([1, -1, np.nan, 0.0], 30)
    z = z.astype(np.complex64)
    (came,) = run_sort(z, dimension=0)
    np.testing.assert_array_equal(came, np.asarray(lax.sort(jnp.asarray(z))))


def test_equal_values_keep_their_tangents_in_order():
    x = np.array([2, 1, 2, 1], np.float32)
    ct = np.array([1, 2, 3, 4], np.float32)
    _, (grad,) = pulled_back(lambda a: sort(a, dimension=0)[0], [x], ct)
    np.testing.assert_array_equal(np.asarray(grad), jax.vjp(jnp.sort, x)[1](ct)[0])


ARRAY = EAGER.array(X)
test_messages = messages(
    """
sort(ARRAY, EAGER.array(Y[:1]), dimension=0)
    TypeError: [sort] operands must have equal shapes; got f32[2,3] and f32[1,3].
sort(ARRAY, dimension=2)
    ValueError: [sort] dimension must be one of the 2 dimensions of f32[2,3]; got 2.
sort(ARRAY, dimension=0, num_keys=2)
    ValueError: [sort] num_keys must be from 1 to 1; got 2.
sort(dimension=0)
    TypeError: [sort] takes at least one operand; got none.
top_k(ARRAY, k=4)
    ValueError: [top_k] k must be from 0 to the size of the last dimension of f32[2,3]; got 4.
""",
    globals(),
)
