"""Reductions, statistics, sorting: maps, traces, errors. `calls` has their values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.base.config import enable_x64
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases, names
from tests.numpy.calls import TABLES


@pytest.mark.parametrize("name", ["sum", "mean", "var", "cumsum", "argmax", "bincount", "median"])
def test_with_64_bits(name):
    x = np.array([3, 1, 2])
    with enable_x64(True), jax.enable_x64(True):
        came, wanted = getattr(swnp, name)(x), getattr(jnp, name)(x)
        assert came.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(came), wanted)


VMAPPED = "m.sum(x); m.argmax(x); m.var(x); m.median(x); m.sort(x); m.cumsum(x); m.digitize(x, r)"


@pytest.mark.parametrize("expression", everyday(cases(VMAPPED), 2))
def test_vmap_is_a_loop(expression):
    found = names(sw, TABLES)
    rows = np.asarray(sw.vmap(lambda x: eval(expression, found | {"x": x}), 1)(found["x"]))
    wanted = [np.asarray(eval(expression, found | {"x": found["x"][:, j]})) for j in range(3)]
    np.testing.assert_allclose(rows, np.stack(wanted), rtol=1e-6)


def test_under_a_trace_sizes_must_be_given():
    i = swnp.asarray(TABLES["i"])
    values, counts = sw.jit(lambda i: swnp.unique(i, return_counts=True, size=5))(i)
    np.testing.assert_array_equal(np.asarray(values), [0, 1, 2, 3, 0])
    np.testing.assert_array_equal(np.asarray(counts), [1, 2, 1, 2, 0])
    np.testing.assert_array_equal(
        np.asarray(sw.jit(lambda i: swnp.bincount(i, length=4))(i)), [1, 2, 1, 2]
    )
    np.testing.assert_array_equal(
        np.asarray(sw.jit(lambda v: swnp.histogram(v, 3)[0])(i)), np.histogram(TABLES["i"], 3)[0]
    )


def test_partitions_meet_their_contract():
    v = TABLES["v"]
    for kth in (0, 3, -1):
        came = np.asarray(swnp.partition(v, kth))
        assert came[kth] == np.sort(v)[kth]
        assert (came[:kth] <= came[kth]).all() or kth == -1
        np.testing.assert_array_equal(v[np.asarray(swnp.argpartition(v, kth))], came)


test_messages = messages(
    """
m.sum(x, 2)
    AxisError: sum: axis 2 is out of bounds for array of dimension 2
m.sum(x, (0, -2))
    ValueError: sum: duplicate value in 'axis': (0, -2)
m.max(e)
    ValueError: zero-size array to reduction operation max which has no identity
m.max(x, where=b)
    ValueError: reduction operation max does not have an identity, so to use a where mask one has
    to specify 'initial'
m.sum(x, where=y)
    ValueError: sum: where must be boolean; got f32[2,3].
m.sum(x, initial=y)
    ValueError: sum: initial must be a scalar; got f32[2,3].
m.sum(x, out=x)
    NotImplementedError: sum: `out` is not supported, as arrays are immutable. Use the result.
m.argmax(e)
    ValueError: attempt to get argmax of an empty sequence
m.argmax(x, (0, 1))
    TypeError: argmax: axis must be an integer or None; got (0, 1).
m.var(x, ddof=1, correction=1)
    ValueError: var: pass ddof or correction, not both; got 1 and 1.
m.average(x, weights=w)
    TypeError: average: axis must be given where the shapes of a and weights differ: (2, 3) and
    (4,).
m.quantile(x, 0.5, method='best')
    ValueError: quantile: method must be one of ('linear', 'lower', 'higher', 'midpoint',
    'nearest', 'inverted_cdf'); got 'best'.
m.median(c)
    ValueError: median: complex numbers have no order; got c64[2,3].
m.cumulative_sum(x)
    ValueError: cumulative_sum: axis must be given for f32[2,3].
m.diff(x, -1)
    ValueError: diff: n must not be negative; got -1.
m.convolve(x, v)
    ValueError: convolve takes vectors; got shapes (2, 3) and (7,).
m.sort(x, kind='heapsort')
    TypeError: sort: kind and order are not supported. Use stable=True or stable=False.
m.searchsorted(x, v)
    ValueError: searchsorted: a must be a vector; got f32[2,3].
m.searchsorted(v, v, 'up')
    ValueError: searchsorted: side must be 'left' or 'right'; got 'up'.
m.partition(v, 7)
    ValueError: partition: kth=7 is out of bounds for 7 elements.
m.bincount(v)
    TypeError: bincount: x must be a vector of integers; got f32[7].
m.unique(i[:0], size=2)
    ValueError: unique: there are no elements, so fill_value must be given for a size other than 0;
    got size 2.
m.interp(v, r, v)
    ValueError: interp: xp and fp must be vectors of the same size; got f32[4] and f32[7].
""",
    names(sw, TABLES),
)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_complex_extremes_are_those_of_numpy(name):
    x = np.array([[1 + 2j, 3, 3 + 1j, 2], [1, 1 - 5j, np.nan, np.nan * 1j]], np.complex64)
    for axis in (None, 0, 1):
        found = getattr(swnp, name)(x, axis)
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, axis))
    found = getattr(sw.lax, name)(x, 1, np.uint8)
    np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(x, 1).astype(np.uint8))


def test_complex_numbers_are_found_in_their_order():
    a, v = np.array([1, 1 + 2j, 3, 3 + 5j]), np.array([1, 1 + 3j, 3, 7, 0, 3 - 1j])
    for side in ("left", "right"):
        found = swnp.searchsorted(a, v, side)
        np.testing.assert_array_equal(np.asarray(found), np.searchsorted(a, v, side))


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles_at_infinities(method):
    """For an integer rank they are the elements, infinities too; NumPy's may be NaN."""
    x = np.array([[np.inf, 1, 2, np.inf], [-np.inf, 0, 3, -np.inf]], np.float32)
    for rank in range(4):
        wanted = np.sort(x, 1)[:, rank]
        for name in ("quantile", "nanquantile"):
            found = getattr(swnp, name)(x, np.float32(rank / 3), 1, method=method)
            np.testing.assert_array_equal(np.asarray(found), wanted)


def test_lists_are_refused():
    for name in ("sum", "mean", "sort", "cumsum"):
        with pytest.raises(TypeError, match="expected an array"):
            getattr(swnp, name)([1, 2, 3])
