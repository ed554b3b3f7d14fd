"""Discrete Fourier transforms."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.signal.numpy_fft import fft as fft
    from shardwise._src.signal.numpy_fft import fft2 as fft2
    from shardwise._src.signal.numpy_fft import fftfreq as fftfreq
    from shardwise._src.signal.numpy_fft import fftn as fftn
    from shardwise._src.signal.numpy_fft import fftshift as fftshift
    from shardwise._src.signal.numpy_fft import hfft as hfft
    from shardwise._src.signal.numpy_fft import ifft as ifft
    from shardwise._src.signal.numpy_fft import ifft2 as ifft2
    from shardwise._src.signal.numpy_fft import ifftn as ifftn
    from shardwise._src.signal.numpy_fft import ifftshift as ifftshift
    from shardwise._src.signal.numpy_fft import ihfft as ihfft
    from shardwise._src.signal.numpy_fft import irfft as irfft
    from shardwise._src.signal.numpy_fft import irfft2 as irfft2
    from shardwise._src.signal.numpy_fft import irfftn as irfftn
    from shardwise._src.signal.numpy_fft import rfft as rfft
    from shardwise._src.signal.numpy_fft import rfft2 as rfft2
    from shardwise._src.signal.numpy_fft import rfftfreq as rfftfreq
    from shardwise._src.signal.numpy_fft import rfftn as rfftn

lazy_names(__name__)
