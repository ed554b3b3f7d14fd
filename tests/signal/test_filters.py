"""`scipy.signal`: values against SciPy, shardings, derivatives, errors and signatures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.signal
from jax.scipy import signal as theirs

import shardwise as sw
from shardwise.scipy import signal
from tests.helpers.composed import close, everywhere, signature
from tests.helpers.errors import messages
from tests.helpers.everyday import everyday

RNG = np.random.default_rng(4)
X, Y = RNG.standard_normal((2, 300)), RNG.standard_normal((2, 280))
SHAPES = [
    ((5,), (3,)),
    ((3,), (6,)),
    ((4,), (4,)),
    ((5, 4), (2, 3)),
    ((2, 3), (5, 4)),
    ((5, 2), (2, 4)),
    ((4, 4), (2, 2)),
    ((3, 2, 4), (2, 2, 2)),
]
MODES = ("full", "same", "valid")


def values(shape, dtype="f8"):
    x = RNG.standard_normal(shape)
    return x + 1j * RNG.standard_normal(shape) if dtype == "c16" else (8 * x).astype(dtype)


@pytest.mark.parametrize(
    ("shapes", "mode", "dtype"),
    everyday(
        [
            c
            for c in itertools.product(SHAPES, MODES, ("f8", "c16"))
            if c[:2] != (SHAPES[5], "valid")
        ],
        2,
    ),
)
def test_convolutions(shapes, mode, dtype):
    x, y = [values(s, dtype) for s in shapes]
    with sw.enable_x64(True):
        for name in ("convolve", "correlate"):
            wanted = getattr(scipy.signal, name)(x, y, mode)
            for method in ("auto", "direct", "fft"):
                close(getattr(signal, name)(x, y, mode, method), wanted)
        close(signal.fftconvolve(x, y, mode), scipy.signal.fftconvolve(x, y, mode))
        if x.ndim == 2:
            for rest in (("fill", 0), ("fill", 2.5), ("wrap", 0), ("symm", 0)):
                for name in ("convolve2d", "correlate2d"):
                    wanted = getattr(scipy.signal, name)(x, y, mode, *rest)
                    close(getattr(signal, name)(x, y, mode, *rest), wanted)


def test_sums_of_integers_are_exact():
    x, y = RNG.integers(-99, 99, 500).astype(np.int32), RNG.integers(-99, 99, 40).astype(np.int32)
    found = signal.convolve(x, y)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.convolve(x, y))


def test_along_some_axes():
    x, y = values((3, 5)), values((1, 4))
    with sw.enable_x64(True):
        for mode in MODES:
            wanted = scipy.signal.fftconvolve(x, y, mode, axes=1)
            close(signal.fftconvolve(x, y, mode, axes=1), wanted)
            close(signal.fftconvolve(x.T, y.T, mode, axes=[0]), wanted.T)


def test_trends():
    with sw.enable_x64(True):
        for bp in (0, 7, [3, 10, 39], [12, 11]):
            close(signal.detrend(X[:, :40], bp=bp), scipy.signal.detrend(X[:, :40], bp=bp))
        for kind in ("constant", "linear"):
            close(signal.detrend(X, 0, kind), scipy.signal.detrend(X, 0, kind))
    assert signal.detrend(np.arange(4)).dtype == np.float32


SPECTRA = [
    {},
    {"nperseg": 64},
    {"nperseg": 33, "noverlap": 20, "nfft": 40},
    {"nperseg": 64, "window": "blackman", "detrend": "linear"},
    {"window": np.hamming(50)},
    {"nperseg": 64, "return_onesided": False, "scaling": "spectrum"},
    {"nperseg": 64, "average": "median"},
    {"nperseg": 50, "noverlap": 0, "detrend": False, "average": "median", "fs": 10.0},
    {"nperseg": 40, "detrend": lambda x: x - x[..., :1]},
]


@pytest.mark.parametrize("p", everyday(SPECTRA, 1))
def test_power(p):
    with sw.enable_x64(True):
        close(signal.welch(X, **p), scipy.signal.welch(X, **p))
        close(signal.csd(X, Y, **p), scipy.signal.csd(X, Y, **p))
        close(signal.csd(X, None, axis=-1, **p), scipy.signal.welch(X, **p))


def test_power_of_nothing():
    """With SciPy's shapes, and the dtypes of other functions."""
    for x64, dtype in ((False, "float32"), (True, "float64"), (True, "float32")):
        none = np.zeros((3, 0), dtype)
        with sw.enable_x64(x64):
            for found, last in (
                (signal.csd(none, none), np.result_type(dtype, np.complex64)),
                (signal.csd(none, None), dtype),
                (signal.welch(none), dtype),
            ):
                assert [x.shape for x in found] == [(3, 0), (3, 0)]
                assert [x.dtype for x in found] == [np.dtype(dtype), last]
            found = signal.stft(none)
            assert [x.dtype for x in found] == [dtype, dtype, np.result_type(dtype, np.complex64)]


def test_power_of_complex_values_and_along_other_axes():
    z = X[0, :50] + 1j * X[1, :50]
    with sw.enable_x64(True):
        p = {"nperseg": 20, "return_onesided": False}
        close(signal.welch(z, **p), scipy.signal.welch(z, **p))
        close(signal.welch(X.T, axis=0, nperseg=30), scipy.signal.welch(X.T, axis=0, nperseg=30))
    with pytest.warns(UserWarning) as caught:
        signal.welch(z, nperseg=20)
    assert str(caught[0].message) == (
        "welch: spectra of complex signals are two-sided; return_onesided is ignored."
    )
    assert [x.shape for x in signal.welch(np.ones((2, 0), np.float32))] == [(2, 0)] * 2


TRANSFORMS = [
    {},
    {"nperseg": 64},
    {"nperseg": 33, "noverlap": 20, "nfft": 40},
    {"nperseg": 60, "boundary": None},
    {"nperseg": 60, "boundary": "even", "padded": False},
    {"nperseg": 60, "boundary": "odd"},
    {"nperseg": 60, "boundary": "constant", "detrend": "constant"},
    {"nperseg": 20, "noverlap": 0, "window": "boxcar"},
    {"nperseg": 20, "return_onesided": False, "fs": 3.0},
    {"nperseg": 21, "window": ("kaiser", 2)},
]


@pytest.mark.parametrize("p", everyday(TRANSFORMS, 1))
@pytest.mark.filterwarnings("ignore:NOLA")
def test_transforms_of_segments(p):
    with sw.enable_x64(True):
        z = scipy.signal.stft(X, **p)[2]
        close(signal.stft(X, **p), scipy.signal.stft(X, **p))
        names = ("window", "fs", "nperseg", "noverlap", "nfft")
        back = {k: v for k, v in p.items() if k in names}
        back["boundary"] = p.get("boundary", "zeros") is not None
        back["input_onesided"] = p.get("return_onesided", True)
        close(signal.istft(z[0], **back), scipy.signal.istft(z[0], **back))
        times, x = signal.istft(z, **back)
        close(x, scipy.signal.istft(z, **back)[1])
        assert times.shape == x.shape[-1:]
        turned = np.moveaxis(z, (1, 2), (2, 0))
        close(signal.istft(turned, **back, time_axis=0, freq_axis=2)[1], x.T)


def test_segments_longer_than_the_signal():
    with pytest.warns(UserWarning) as caught:
        found = signal.stft(np.ones(40, np.float32), nperseg=64)
    assert str(caught[0].message) == (
        "stft: nperseg is 64, more than the signal's length, and is reduced to 40."
    )
    assert found[2].shape == (21, 3)


A, B = values((7, 9)), values((3, 2))
FUNCTIONS = [
    (lambda a, b: signal.convolve(a, b, "same"), A, B),
    (lambda a, b: signal.correlate2d(a, b, boundary="symm"), A, B),
    (lambda a, b: signal.fftconvolve(a, b, axes=0), A, B[:, :1]),
    (lambda a: signal.detrend(a, bp=4), A),
    (lambda a: signal.welch(a, nperseg=16, fs=2.0), X[:, :50]),
    (lambda a, b: signal.csd(a, b, nperseg=16)[1], X[:, :50], Y[:, :50]),
    (lambda a: signal.stft(a, nperseg=16)[2], X[:, :50]),
    (lambda a: signal.istft(a, nperseg=16)[1], np.abs(values((2, 9, 6)))),
]


@pytest.mark.parametrize("case", everyday(range(len(FUNCTIONS)), 1))
def test_places_and_derivatives(case):
    everywhere(*FUNCTIONS[case])


test_messages = messages(
    """
signal.convolve(X, X[0])
    ValueError: convolve: in1 and in2 must be nonempty, with the same number of dimensions; got
    shapes (2, 300) and (300,).
signal.convolve(X, Y, "some")
    ValueError: convolve: mode must be one of ('full', 'same', 'valid'); got 'some'.
signal.correlate(X, X.T, "valid")
    ValueError: correlate: in mode 'valid' one must be at least as large as the other in every
    dimension; got shapes (2, 300) and (300, 2).
signal.convolve(X, Y, method="fast")
    ValueError: convolve: method must be one of ('auto', 'direct', 'fft'); got 'fast'.
signal.convolve2d(X[0], Y[0])
    ValueError: convolve2d takes matrices; got f32[300] and f32[280].
signal.convolve2d(X, Y, boundary="none")
    ValueError: convolve2d: boundary must be one of ('fill', 'wrap', 'symm'); got 'none'.
signal.fftconvolve(X, Y, axes=0)
    ValueError: fftconvolve: shapes must broadcast along axes that are not convolved; got (2, 300)
    and (2, 280) with axes (0,).
signal.detrend(X, type="cubic")
    ValueError: detrend: type must be 'linear' or 'constant'; got 'cubic'.
signal.detrend(X, bp=301)
    ValueError: detrend: bp must be within the length 300 of the axis; got 301.
signal.stft(X, nperseg=20, noverlap=20)
    ValueError: stft: nfft must be at least nperseg, and noverlap less than nperseg; got nperseg
    20, nfft 20 and noverlap 20.
signal.stft(X, nperseg=20, boundary="far")
    ValueError: stft: boundary must be one of ('even', 'odd', 'constant', 'zeros', None); got
    'far'.
signal.welch(X, scaling="loud")
    ValueError: welch: scaling must be 'density' or 'spectrum'; got 'loud'.
signal.welch(X, average="mode")
    ValueError: welch: average must be 'mean' or 'median'; got 'mode'.
signal.welch(X, window=np.ones(20), nperseg=10)
    ValueError: welch: a window must be a vector of nperseg elements, not longer than the signal;
    got shape (20,).
signal.csd(X, Y[0])
    ValueError: csd: x and y must have the same number of dimensions; got shapes (2, 300) and
    (280,).
signal.istft(X, time_axis=0, freq_axis=0)
    ValueError: istft: freq_axis and time_axis must differ; got 0 for both.
signal.istft(X[0])
    ValueError: istft takes at least two dimensions, of frequencies and segments; got f32[300].
""",
    globals(),
)


@pytest.mark.parametrize("name", ["convolve", "correlate", "convolve2d", "correlate2d"])
@pytest.mark.parametrize("more", [{}, {"method": "fft"}])
def test_precision_is_looked_at(name, more):
    if more and name.endswith("2d"):
        return
    with pytest.raises(ValueError) as caught:
        getattr(signal, name)(X, Y[:, :2], precision="great", **more)
    assert str(caught.value).startswith(f"{name}: precision must be None, one of ")


def test_signatures_are_those_of_jax():
    for name in dir(signal):
        if not name.startswith("_"):
            assert signature(getattr(signal, name)) == signature(getattr(theirs, name))
