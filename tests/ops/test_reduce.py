"""Reductions and running folds: ties, NaN and errors against jax."""

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from shardwise._src.autodiff.grad import jvp
from shardwise._src.ops import cumulative, reduce
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.running.eager import EAGER
from tests.helpers.eager import pulled_back
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

I32 = np.dtype(np.int32)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype(np.float32)


@pytest.mark.parametrize("name", ["reduce_max", "reduce_min", "reduce_prod"])
@pytest.mark.parametrize(
    "values",
    everyday(
        [[1, 3, 3, 2], [0, 2, 0, 5], [0, 2, 3, 5], [np.nan, 1, 2, 3], [np.inf, np.inf, 0, 1]], 3
    ),
)
def test_gradients_at_ties_zeros_and_nans_are_those_of_jax(name, values):
    x = np.array(values, np.float32)
    value, (grad,) = pulled_back(lambda a: getattr(reduce, name)(a, axes=(0,)), [x], np.float32(2))
    wanted, pull = jax.vjp(lambda a: getattr(lax, name)(a, (0,)), x)
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_allclose(grad, pull(jnp.float32(2))[0], rtol=1e-6)


@pytest.mark.parametrize("n", [3, 5])
def test_derivatives_of_a_product_of_odd_size(n):
    x = np.arange(2, 2 + n, dtype=np.float32)
    _, (grad,) = pulled_back(lambda a: reduce.reduce_prod(a, axes=(0,)), [x], np.float32(1))
    np.testing.assert_allclose(grad, np.prod(x) / x, rtol=1e-6)
    along = np.cos(x)
    _, slope = jvp(lambda a: reduce.reduce_prod(a, axes=(0,)), (x,), (along,))
    np.testing.assert_allclose(slope, (np.prod(x) / x * along).sum(), rtol=1e-5)


CUMULATIVE = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


@pytest.mark.parametrize(
    ("name", "reverse"), everyday(itertools.product(CUMULATIVE, [False, True]), 1)
)
def test_cumulative_gradients_are_those_of_jax(name, reverse):
    x = np.array([1, 0, 3, 3, 3, 2, 3, 0, 1], np.float32)
    ct = np.arange(1, 10, dtype=np.float32)
    op = getattr(cumulative, name)
    value, (grad,) = pulled_back(lambda a: op(a, axis=0, reverse=reverse), [x], ct)
    wanted, pull = jax.vjp(lambda a: getattr(lax, name)(a, 0, reverse), x)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(grad, pull(ct)[0], rtol=1e-5)


def test_cumlogsumexp_of_infinities():
    x = np.array([-np.inf, -np.inf, 1, np.inf, 2], np.float32)
    ones = np.ones(3, "f")
    value, (grad,) = pulled_back(lambda a: cumulative.cumlogsumexp(a, axis=0), [x[:3]], ones)
    np.testing.assert_allclose(value, x[:3])
    np.testing.assert_allclose(grad, [1, 0, 1])
    found = cumulative.cumlogsumexp(EAGER.array(x), axis=0)
    np.testing.assert_allclose(np.asarray(found), lax.cumlogsumexp(x))


def test_long_running_sums_are_exact_for_integers():
    x = RNG.integers(-9, 9, 100_003).astype(np.int32)
    found = np.asarray(cumulative.cumsum(EAGER.array(x), axis=0))
    np.testing.assert_array_equal(found, np.cumsum(x))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.uint32, np.bool_])
def test_extremes_of_every_dtype(dtype):
    x = np.array([[1, 0, 3], [2, 3, 0]]).astype(dtype)
    for op, reference in [(reduce.reduce_max, np.max), (reduce.reduce_min, np.min)]:
        found = np.asarray(op(EAGER.array(x), axes=(0,)))
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, reference(x, 0))
    empty = np.asarray(reduce.reduce_max(EAGER.array(x[:0]), axes=(0,)))
    np.testing.assert_array_equal(empty, lax.reduce_max(x[:0], (0,)))


def test_complex_extremes_are_lexicographic():
    x = np.array([1 + 2j, 1 - 2j, 0 + 9j, 1 + 1j], np.complex64)
    assert np.asarray(reduce.reduce_max(EAGER.array(x), axes=(0,))) == 1 + 2j
    assert np.asarray(reduce.reduce_min(EAGER.array(x), axes=(0,))) == 0 + 9j
    assert np.asarray(reduce.reduce_prod(EAGER.array(x), axes=(0,))) == np.prod(x)


def test_places_of_nans_and_ties():
    x = np.array([[1, 5, 5], [2, np.nan, np.nan], [0, -0.0, 0]], np.float32)
    for op, reference in [(reduce.argmax, np.argmax), (reduce.argmin, np.argmin)]:
        found = np.asarray(op(EAGER.array(x), axes=(1,), index_dtype=I32))
        np.testing.assert_array_equal(found, reference(x, 1))


ARRAY = EAGER.array(X)
test_messages = messages(
    """
reduce.reduce_max(ARRAY, axes=(2,))
    ShapeError: [reduce_max] axes must be distinct and within the 2 dimensions of f32[2,3]; got
    (2,).
reduce_sum(ARRAY, axes=(0, 0))
    ShapeError: [reduce_sum] axes must be distinct and within the 2 dimensions of f32[2,3]; got (0,
    0).
reduce.reduce_and(ARRAY, axes=(0,))
    TypeError: [reduce_and] takes boolean or integer operands; got f32[2,3].
reduce.argmax(ARRAY, axes=(0, 1), index_dtype=I32)
    ValueError: [argmax] takes one axis of nonzero size; got axes (0, 1) of f32[2,3].
reduce.argmin(EAGER.array(X[:0]), axes=(0,), index_dtype=I32)
    ValueError: [argmin] takes one axis of nonzero size; got axes (0,) of f32[0,3].
reduce.argmax(ARRAY, axes=(0,), index_dtype=X.dtype)
    TypeError: [argmax] index_dtype must be an integer type; got f32.
cumulative.cumsum(ARRAY, axis=-1)
    ValueError: [cumsum] axis must be one of the 2 dimensions of f32[2,3]; got -1.
cumulative.cummax(EAGER.array(X.astype(np.complex64)), axis=0)
    TypeError: [cummax] takes real operands; got c64[2,3].
""",
    globals() | {"reduce_sum": reduce_sum},
)
