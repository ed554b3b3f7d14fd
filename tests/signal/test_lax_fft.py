"""`lax.fft` against jax's, and its mistakes."""

import jax
import numpy as np
import pytest

from shardwise import lax
from tests.helpers.errors import messages

X = np.random.default_rng(0).standard_normal((2, 4, 6)).astype(np.float32)
Z = (X + 1j * X[::-1]).astype(np.complex64)
Z2 = Z[..., :4]


@pytest.mark.parametrize(
    ("x", "kind", "lengths"),
    [
        (Z, "fft", (6,)),
        (X, "FFT", (4, 6)),
        (Z, lax.FftType.IFFT, (2, 4, 6)),
        (X, 2, (6,)),
        (X, "rfft", (4, 6)),
        (Z2, "IRFFT", (6,)),
        (Z2, "irfft", (4, 7)),
        (X, "fft", ()),
        (X.astype(int), "rfft", (6,)),
    ],
)
def test_values(x, kind, lengths):
    name = kind if isinstance(kind, str) else lax.FftType(kind).name
    found, expected = lax.fft(x, kind, lengths), jax.lax.fft(x, name, lengths)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


test_mistakes = messages(
    """
lax.fft(Z, "rfft", (6,))
    TypeError: fft: RFFT takes float32 or float64; got c64[2,4,6].
lax.fft(Z, "fft", (5,))
    ValueError: fft: FFT of lengths (5,) takes last dimensions (5,); got c64[2,4,6].
lax.fft(Z, "irfft", (6,))
    ValueError: fft: IRFFT of lengths (6,) takes last dimensions (4,); got c64[2,4,6].
lax.fft(Z[None], "fft", (1, 2, 4, 6))
    ValueError: fft: there must be one to three lengths, no more than the dimensions of
    c64[1,2,4,6]; got (1, 2, 4, 6).
lax.fft(Z, "rftt", (6,))
    ValueError: lax.fft: fft_type must be one of FFT, IFFT, RFFT, IRFFT, as a name or an FftType;
    got 'rftt'. Did you mean 'RFFT'?
lax.fft(Z, 4, (6,))
    ValueError: lax.fft: fft_type must be one of FFT, IFFT, RFFT, IRFFT, as a name or an FftType;
    got 4.
""",
    globals(),
)
