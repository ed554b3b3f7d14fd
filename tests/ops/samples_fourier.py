"""Samples of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.ops.fft import FftType
from shardwise.testing import Sample

RNG = np.random.default_rng(7)
Z = (RNG.standard_normal((4, 2, 6)) + 1j * RNG.standard_normal((4, 2, 6))).astype(np.complex64)
X = RNG.standard_normal((4, 2, 6)).astype(np.float32)


def _sample(x: np.ndarray, kind: FftType, *lengths: int, **more: Any) -> Sample:
    name = f"{kind.name.lower()}n"
    axes = tuple(range(-len(lengths), 0))

    def reference(x: np.ndarray) -> np.ndarray:
        return getattr(np.fft, name)(x, lengths, axes)

    return Sample((x,), {"kind": kind, "lengths": lengths}, reference, tolerance=1e-4, **more)


FFT, IFFT, RFFT, IRFFT = FftType
SAMPLES: dict[str, list[Sample]] = {
    "fft": [
        _sample(Z, FFT, 6),
        _sample(X, RFFT, 6),
        _sample(Z, IRFFT, 10, placed=False),
        _sample(Z, IRFFT, 2, 11, placed=False),
        _sample(Z, IFFT, 2, 6, placed=False),
        _sample(X, RFFT, 4, 2, 6, placed=False),
        _sample(Z[0, 0], IFFT, 6, placed=False),
        _sample(X[:0], RFFT, 6, order=0, placed=False, why="no elements"),
    ]
}
