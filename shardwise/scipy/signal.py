"""Convolutions and spectra under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.signal.filters import convolve as convolve
    from shardwise._src.signal.filters import convolve2d as convolve2d
    from shardwise._src.signal.filters import correlate as correlate
    from shardwise._src.signal.filters import correlate2d as correlate2d
    from shardwise._src.signal.filters import detrend as detrend
    from shardwise._src.signal.filters import fftconvolve as fftconvolve
    from shardwise._src.signal.spectra import csd as csd
    from shardwise._src.signal.spectra import istft as istft
    from shardwise._src.signal.spectra import stft as stft
    from shardwise._src.signal.spectra import welch as welch

lazy_names(__name__)
