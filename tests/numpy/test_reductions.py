"""Reductions, statistics, scans, sorting and counting: each call against jax.numpy.

A case is an expression, evaluated with `m` as shardwise.numpy and as jax.numpy, and with the arrays
below. Values, dtypes and weak types must agree.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise._src.base.config import enable_x64
from tests.helpers.everyday import everyday
from tests.helpers.oracle import cases

RNG = np.random.default_rng(3)
NAN = np.nan
VALUES = {
    "x": RNG.normal(size=(2, 3)).astype(np.float32),
    "y": RNG.normal(size=(2, 3)).astype(np.float32),
    "cube": RNG.normal(size=(2, 3, 4)).astype(np.float32),
    "v": RNG.normal(size=7).astype(np.float32),
    "w": np.array([1, 2, 0, 3], np.float32),
    "i": np.array([3, 1, 2, 3, 0, 1], np.int32),
    "i8": np.array([[100, 100, 3], [-100, 2, 7]], np.int8),
    "u8": np.array([200, 100, 3], np.uint8),
    "b": np.array([[True, False, True], [False, False, True]]),
    "h": (RNG.normal(size=3000) * 30).astype(np.float16),
    "c": (RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))).astype(np.complex64),
    "n": np.array([[1, NAN, 3], [NAN, NAN, NAN], [2, 0, NAN]], np.float32),
    "e": np.zeros((0, 3), np.float32),
    "r": np.array([0, 1, 3, 4], np.float32),
}


def names(module, asarray):
    found = {k: asarray(v) for k, v in VALUES.items()}
    found["bf"] = asarray(VALUES["h"]).astype("bfloat16")
    found["weak"] = module.broadcast_to(2.0, (2, 2))
    return found | {"m": module, "np": np}


def leaves(result):
    return list(result) if isinstance(result, tuple | list) else [result]


def compare(expression, tolerance=2e-6):
    came = leaves(eval(expression, names(swnp, swnp.asarray)))
    wanted = leaves(eval(expression, names(jnp, jnp.asarray)))
    assert len(came) == len(wanted)
    for c, w in zip(came, wanted, strict=True):
        assert (c.shape, c.dtype, c.weak_type) == (w.shape, w.dtype, w.weak_type), expression
        loose = 2e-2 if c.dtype.name in ("bfloat16", "float16") else tolerance
        np.testing.assert_allclose(
            np.asarray(c, complex), np.asarray(w, complex), rtol=loose, atol=loose
        )


REDUCTIONS = """
m.sum(x); m.sum(x, 0); m.sum(x, axis=-1, keepdims=True); m.sum(cube, axis=(0, -1))
m.sum(x, axis=()); m.sum(cube, axis=[0, 1]); m.sum(x, dtype=int); m.sum(x, dtype="float16")
m.sum(x, 1, bool); m.sum(i8); m.sum(i8, promote_integers=False); m.sum(u8); m.sum(b)
m.sum(b, axis=()); m.sum(c, 1); m.sum(h); m.sum(bf); m.sum(bf, dtype=np.float32); m.sum(e)
m.sum(e, 0); m.sum(weak); m.sum(3); m.sum(2.5); m.sum(True); m.sum(x, where=x > 0)
m.sum(x, initial=2); m.sum(i8, initial=2.5); m.sum(x, 0, where=b, initial=1, keepdims=True)
m.sum(x, where=b[0]); m.sum(np.arange(3)); m.prod(x); m.prod(i8, 0); m.prod(b); m.prod(h[:5])
m.prod(e, 0); m.prod(x, where=b, initial=3); m.prod(c, keepdims=True)
m.prod(u8, dtype=np.float32); m.max(x); m.max(x, 0); m.max(n); m.max(b, 0); m.max(c); m.max(weak)
m.max(i8, keepdims=True); m.max(e, 1); m.max(x, initial=0.5)
m.max(x, where=b, initial=-9, axis=1); m.max(e, 0, initial=2); m.min(x); m.min(u8); m.min(n, 0)
m.min(bf); m.min(c, 1); m.amin(x, 1); m.amax(x, 1); m.max(5); m.ptp(x); m.ptp(i8, 0)
m.ptp(x, -1, keepdims=True); m.any(x > 5); m.any(b, 0); m.any(c, 1); m.any(e); m.all(b, 1)
m.all(e); m.all(x, keepdims=True); m.any(b, where=~b); m.all(b, where=b, axis=0); m.any(n, 0)
m.all(1.0); m.count_nonzero(b); m.count_nonzero(i8, 0, keepdims=True); m.count_nonzero(n)
m.argmax(x); m.argmax(x, 0); m.argmax(n, 1); m.argmin(n); m.argmin(x, -1, keepdims=True)
m.argmax(b, 0); m.argmax(x, keepdims=True); m.argmax(4.0); m.argmin(i8, axis=0); m.argmax(bf)
"""
STATISTICS = """
m.mean(x); m.mean(x, 0); m.mean(i8); m.mean(b); m.mean(c, 1); m.mean(h); m.mean(bf); m.mean(weak)
m.mean(x, axis=(), keepdims=True); m.mean(x, where=b); m.mean(i8, dtype=np.float16); m.mean(e, 0)
m.mean(x, where=b, axis=0, keepdims=True); m.mean(x, dtype=int); m.mean(2); m.var(x); m.var(x, 0)
m.var(x, ddof=1); m.var(x, correction=0.5); m.var(i8, 1); m.var(c); m.var(h); m.var(x, ddof=6)
m.var(x, ddof=9); m.var(x, where=b); m.var(x, where=b, ddof=9); m.var(x, mean=0.5)
m.var(x, axis=(0, 1), keepdims=True); m.std(x); m.std(x, 1); m.std(i8); m.std(bf); m.std(c, 0)
m.std(x, 0, where=b); m.var(x, 1, mean=m.mean(x, 1, keepdims=True), where=b); m.var(weak)
m.average(x); m.average(x, 0); m.average(i8, returned=True); m.average(x, weights=y)
m.average(x, 1, weights=y[0], returned=True); m.average(i, weights=i); m.average(x, weights=b)
m.average(x, 0, weights=y[:, 0], keepdims=True); m.average(c, weights=x)
m.average(cube, (2, 0), weights=m.ones((4, 2)) + w[:, None]); m.nansum(n); m.nansum(n, 1)
m.nansum(i8, 0); m.nansum(b); m.nanprod(n, 0); m.nanprod(n, where=n > 1); m.nanmax(n)
m.nanmax(n, 1); m.nanmax(n, 0, keepdims=True); m.nanmin(n, 1); m.nanmin(i8)
m.nanmax(n, initial=9.0); m.nanmin(n, 1, initial=9, where=n > 1); m.nanmax(b); m.nanmean(n)
m.nanmean(n, 1); m.nanmean(i8, 1); m.nanmean(n, 0, where=n > 0); m.nanvar(n); m.nanvar(n, 1)
m.nanvar(n, 1, ddof=1); m.nanstd(n, 0, keepdims=True); m.nanstd(i8); m.nanvar(x)
m.nanargmax(n, 1); m.nanargmin(n, 0); m.nanargmax(n); m.nanargmin(i8, 0, keepdims=True); m.cov(x)
m.cov(x, y); m.cov(v); m.cov(x, rowvar=False); m.cov(x, bias=True); m.cov(x, ddof=2)
m.cov(x, fweights=i[:3]); m.cov(x, aweights=w[:3]); m.cov(c); m.cov(i8); m.cov(v, v * v)
m.cov(x, fweights=i[:3], aweights=w[1:] + 1, ddof=1); m.corrcoef(x); m.corrcoef(c); m.corrcoef(v)
m.corrcoef(x.T, rowvar=False); m.corrcoef(v, v * v); m.median(x); m.median(x, 0); m.median(i8, 1)
m.median(n, 0); m.median(h); m.nanmedian(n, 1); m.median(cube, (0, 2), keepdims=True)
m.nanmedian(n); m.nanmedian(i8); m.quantile(x, 0.3); m.quantile(x, m.array([0.1, 0.9]), axis=1)
m.quantile(i8, 0.25, 0); m.quantile(v, 0.77, method="lower"); m.quantile(v, 0.77, method="higher")
m.quantile(b, 0.5); m.quantile(v, 0.77, method="nearest"); m.quantile(v, 0.77, method="midpoint")
m.quantile(n, 0.5, 1); m.quantile(cube, m.array([0.0, 1.0]), axis=(0, 2), keepdims=True)
m.percentile(x, 30.0); m.percentile(x, m.array([5.0, 50.0]), 0); m.nanquantile(n, 0.6)
m.nanquantile(n, 0.6, 1); m.nanpercentile(n, m.array([10.0, 60.0]), 0, keepdims=True)
m.quantile(h, 0.5)
"""
SCANS = """
m.cumsum(x); m.cumsum(x, 1); m.cumsum(i8, 0); m.cumsum(b, 1); m.cumsum(h[:9]); m.cumsum(e, 0)
m.cumsum(x, 0, dtype=int); m.cumsum(c, -1); m.cumsum(2.0); m.cumprod(x); m.cumprod(b, 0)
m.cumprod(i8, 1); m.cumprod(u8, dtype=np.float32); m.nancumsum(n); m.nancumsum(n, 1)
m.nancumprod(n, 0); m.nancumsum(i8, 0); m.cumulative_sum(v); m.cumulative_sum(x, axis=1)
m.cumulative_sum(i8, axis=0, include_initial=True); m.cumulative_prod(u8, include_initial=True)
m.cumulative_sum(b, axis=1); m.cumulative_prod(x, axis=-1); m.cumsum(weak, 1); m.diff(x)
m.diff(x, axis=0); m.diff(x, n=2); m.diff(x, n=0); m.diff(b); m.diff(i8, 5); m.diff(x, prepend=1)
m.diff(x, append=y, axis=0); m.diff(i8, prepend=0.5, append=1); m.diff(c); m.ediff1d(x)
m.ediff1d(i, to_end=7); m.ediff1d(i, m.array([1, 2]), 5); m.ediff1d(v, to_begin=0); m.trapezoid(x)
m.trapezoid(i8, axis=0); m.trapezoid(x, dx=0.5); m.trapezoid(x, y, axis=1)
m.trapezoid(cube, r[:3], axis=1); m.trapezoid(c, dx=2); m.interp(v, r, w); m.interp(0.5, r, w)
m.interp(v, r, w, left=-1, right=9); m.interp(v, r, c.ravel()[:4]); m.interp(x, r, w, period=5)
m.interp(v * 9, r, w, left="extrapolate"); m.interp(i, r, w); m.convolve(v, w)
m.convolve(v, w, "same"); m.convolve(w, v, "valid"); m.convolve(i, i[:2])
m.convolve(c[0], w, "same"); m.correlate(v, w); m.correlate(v, w, "same")
m.correlate(w, v, "full"); m.correlate(c[0], c[1], "full"); m.correlate(w, v, "same")
m.correlate(w[:3], v, "same"); m.correlate(w[:3], v); m.convolve(v, w[:3], "same")
m.correlate(v, w[:3], "same"); m.convolve(w[:3], v, "same")
"""
SORTING = """
m.sort(x); m.sort(x, 0); m.sort(x, None); m.sort(n, 1); m.sort(i8, descending=True); m.sort(c)
m.sort(n, 0, descending=True); m.sort(b); m.sort(bf[:20]); m.sort(x, stable=False); m.sort(weak)
m.argsort(x); m.argsort(i); m.argsort(i, descending=True); m.argsort(n, 1); m.argsort(x, None)
m.argsort(x, 0, descending=True); m.argsort(i, dtype=np.uint8); m.argsort(n, 0, descending=True)
m.lexsort((i, i[::-1])); m.lexsort(x); m.lexsort((x, y), axis=0); m.sort_complex(i)
m.sort_complex(c); m.searchsorted(r, v); m.searchsorted(r, r, side="right")
m.searchsorted(r, x, "right"); m.searchsorted(r, 2); m.searchsorted(i[:1], i)
m.searchsorted(r[:0], v); m.searchsorted(r, n); m.searchsorted(r, v, method="compare_all")
m.searchsorted(r, n, "right", method="compare_all"); m.searchsorted(w, v, sorter=m.argsort(w))
m.searchsorted(m.sort(n[0]), n, "right"); m.digitize(x, r); m.digitize(x, r, right=True)
m.digitize(x, r[::-1]); m.digitize(i, r[::-1], True); m.digitize(x, r[:0]); m.digitize(2, r)
m.bincount(i); m.bincount(i, length=3); m.bincount(i, minlength=9); m.bincount(i, v[:6])
m.bincount(i - 2); m.bincount(i[:0]); m.bincount(u8); m.bincount(i, i); m.histogram(v)
m.histogram(i, 3); m.histogram(v, r); m.histogram(v, 4, (-1, 1)); m.histogram(x, 5)
m.histogram(v, 4, density=True); m.histogram(v, r, weights=v * v); m.histogram(i, 3, weights=i)
m.histogram(v, r, density=True); m.histogram(w[:1], 2); m.histogram_bin_edges(v, 3)
m.histogram2d(v, v * v, 3); m.histogram2d(v, v * v, [r, 2], density=True); m.unique(i)
m.unique(i, True, True, True); m.unique(n); m.unique(n, equal_nan=False); m.unique(x)
m.unique(i, size=2, return_counts=True); m.unique(i, True, True, True, size=6)
m.unique(i, True, True, True, size=9); m.unique(i, size=7, fill_value=9)
m.unique(b, axis=0, return_inverse=True); m.unique(i[:0])
m.unique(i.reshape(3, 2) % 2, axis=0, return_index=True, return_counts=True)
m.unique(i.reshape(3, 2) % 2, axis=1, size=4, fill_value=5)
m.unique(i.reshape(2, 3), return_inverse=True); m.unique_all(i); m.unique_counts(n)
m.unique_inverse(i); m.unique_values(b); m.unique(x, size=0)
"""


@pytest.mark.parametrize("expression", everyday(cases(REDUCTIONS), 4))
def test_reductions_are_those_of_jax(expression):
    compare(expression)


@pytest.mark.parametrize("expression", everyday(cases(STATISTICS), 5))
def test_statistics_are_those_of_jax(expression):
    compare(expression, 2e-5)


@pytest.mark.parametrize("expression", everyday(cases(SCANS), 7))
def test_scans_are_those_of_jax(expression):
    compare(expression, 1e-5)


@pytest.mark.parametrize("expression", everyday(cases(SORTING), 4))
def test_sorting_and_counting_are_those_of_jax(expression):
    compare(expression)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "cumsum", "argmax", "bincount", "median"])
def test_with_64_bits(name):
    x = np.array([3, 1, 2])
    with enable_x64(True), jax.enable_x64(True):
        came, wanted = getattr(swnp, name)(x), getattr(jnp, name)(x)
        assert came.dtype == wanted.dtype
        np.testing.assert_allclose(np.asarray(came), wanted)


GRADIENTS = """
m.sum(x, 0, where=b); m.prod(x); m.max(x, 1); m.mean(x); m.var(x); m.std(x, 0)
m.average(x, weights=y); m.cov(x); m.corrcoef(x); m.median(x, 1); m.quantile(x, 0.3)
m.cumsum(x, 1); m.cumprod(x, 0); m.diff(x, n=2); m.trapezoid(x, y); m.interp(x, r, w)
m.convolve(x[0], x[1]); m.sort(x, 0); m.sort(x, descending=True); m.partition(x, 1); m.ptp(x, 0)
m.histogram(v, r, weights=x.ravel()[:7])[0]; m.nanmean(m.where(b, x, np.nan))
m.nanvar(m.where(b, x, np.nan)); m.nanmax(m.where(b, x, np.nan), 1); m.var(x, where=b)
m.bincount(i, x.ravel())
"""


@pytest.mark.parametrize("expression", everyday(cases(GRADIENTS), 1))
def test_gradients_are_those_of_jax(expression):
    def loss(module, asarray):
        found = names(module, asarray)
        found["v"] = found["v"][:6]
        return lambda x: module.sum(eval(expression, found | {"x": x}) ** 2)

    came = sw.grad(loss(swnp, swnp.asarray))(swnp.asarray(VALUES["x"]))
    wanted = jax.grad(loss(jnp, jnp.asarray))(jnp.asarray(VALUES["x"]))
    np.testing.assert_allclose(np.asarray(came), wanted, rtol=2e-4, atol=2e-5)


VMAPPED = "m.sum(x); m.argmax(x); m.var(x); m.median(x); m.sort(x); m.cumsum(x); m.digitize(x, r)"


@pytest.mark.parametrize("expression", everyday(cases(VMAPPED), 2))
def test_vmap_is_a_loop(expression):
    found = names(swnp, swnp.asarray)
    rows = np.asarray(sw.vmap(lambda x: eval(expression, found | {"x": x}), 1)(found["x"]))
    wanted = [np.asarray(eval(expression, found | {"x": found["x"][:, j]})) for j in range(3)]
    np.testing.assert_allclose(rows, np.stack(wanted), rtol=1e-6)


def test_under_a_trace_sizes_must_be_given():
    i = swnp.asarray(VALUES["i"])
    values, counts = sw.jit(lambda i: swnp.unique(i, return_counts=True, size=5))(i)
    np.testing.assert_array_equal(np.asarray(values), [0, 1, 2, 3, 0])
    np.testing.assert_array_equal(np.asarray(counts), [1, 2, 1, 2, 0])
    np.testing.assert_array_equal(
        np.asarray(sw.jit(lambda i: swnp.bincount(i, length=4))(i)), [1, 2, 1, 2]
    )
    np.testing.assert_array_equal(
        np.asarray(sw.jit(lambda v: swnp.histogram(v, 3)[0])(i)), np.histogram(VALUES["i"], 3)[0]
    )


def test_partitions_meet_their_contract():
    v = VALUES["v"]
    for kth in (0, 3, -1):
        came = np.asarray(swnp.partition(v, kth))
        assert came[kth] == np.sort(v)[kth]
        assert (came[:kth] <= came[kth]).all() or kth == -1
        np.testing.assert_array_equal(v[np.asarray(swnp.argpartition(v, kth))], came)


MESSAGES = [
    ("m.sum(x, 2)", ValueError, "sum: axis 2 is out of bounds for array of dimension 2"),
    ("m.sum(x, (0, -2))", ValueError, "sum: duplicate value in 'axis': (0, -2)"),
    ("m.max(e)", ValueError,
     "zero-size array to reduction operation max which has no identity"),
    ("m.max(x, where=b)", ValueError,
     "reduction operation max does not have an identity, so to use a where mask one has to "
     "specify 'initial'"),
    ("m.sum(x, where=y)", ValueError, "sum: where must be boolean; got f32[2,3]."),
    ("m.sum(x, initial=y)", ValueError, "sum: initial must be a scalar; got f32[2,3]."),
    ("m.sum(x, out=x)", NotImplementedError,
     "sum: `out` is not supported, as arrays are immutable. Use the result."),
    ("m.argmax(e)", ValueError, "attempt to get argmax of an empty sequence"),
    ("m.argmax(x, (0, 1))", TypeError,
     "argmax: axis must be an integer or None; got (0, 1)."),
    ("m.var(x, ddof=1, correction=1)", ValueError,
     "var: pass ddof or correction, not both; got 1 and 1."),
    ("m.average(x, weights=w)", TypeError,
     "average: axis must be given where the shapes of a and weights differ: (2, 3) and (4,)."),
    ("m.quantile(x, 0.5, method='best')", ValueError,
     "quantile: method must be one of ('linear', 'lower', 'higher', 'midpoint', 'nearest', "
     "'inverted_cdf'); got 'best'."),
    ("m.median(c)", ValueError, "median: complex numbers have no order; got c64[2,3]."),
    ("m.cumulative_sum(x)", ValueError, "cumulative_sum: axis must be given for f32[2,3]."),
    ("m.diff(x, -1)", ValueError, "diff: n must not be negative; got -1."),
    ("m.convolve(x, v)", ValueError, "convolve takes vectors; got shapes (2, 3) and (7,)."),
    ("m.sort(x, kind='heapsort')", TypeError,
     "sort: kind and order are not supported. Use stable=True or stable=False."),
    ("m.searchsorted(x, v)", ValueError, "searchsorted: a must be a vector; got f32[2,3]."),
    ("m.searchsorted(v, v, 'up')", ValueError,
     "searchsorted: side must be 'left' or 'right'; got 'up'."),
    ("m.partition(v, 7)", ValueError, "partition: kth=7 is out of bounds for 7 elements."),
    ("m.bincount(v)", TypeError, "bincount: x must be a vector of integers; got f32[7]."),
    ("m.unique(i[:0], size=2)", ValueError,
     "unique: there are no elements, so fill_value must be given for a size other than 0; got "
     "size 2."),
    ("m.interp(v, r, v)", ValueError,
     "interp: xp and fp must be vectors of the same size; got f32[4] and f32[7]."),
]


@pytest.mark.parametrize("expression, error, message", MESSAGES)
def test_messages(expression, error, message):
    with pytest.raises(error) as caught:
        eval(expression, names(swnp, swnp.asarray))
    assert str(caught.value) == message


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
