"""Discrete Fourier transforms."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.numpy.fourier import fft as fft
    from shardwise._src.numpy.fourier import fft2 as fft2
    from shardwise._src.numpy.fourier import fftfreq as fftfreq
    from shardwise._src.numpy.fourier import fftn as fftn
    from shardwise._src.numpy.fourier import fftshift as fftshift
    from shardwise._src.numpy.fourier import hfft as hfft
    from shardwise._src.numpy.fourier import ifft as ifft
    from shardwise._src.numpy.fourier import ifft2 as ifft2
    from shardwise._src.numpy.fourier import ifftn as ifftn
    from shardwise._src.numpy.fourier import ifftshift as ifftshift
    from shardwise._src.numpy.fourier import ihfft as ihfft
    from shardwise._src.numpy.fourier import irfft as irfft
    from shardwise._src.numpy.fourier import irfft2 as irfft2
    from shardwise._src.numpy.fourier import irfftn as irfftn
    from shardwise._src.numpy.fourier import rfft as rfft
    from shardwise._src.numpy.fourier import rfft2 as rfft2
    from shardwise._src.numpy.fourier import rfftfreq as rfftfreq
    from shardwise._src.numpy.fourier import rfftn as rfftn

lazy_names(__name__)
