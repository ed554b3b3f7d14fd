"""SciPy's functions under its names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy import cluster as cluster
    from shardwise.scipy import fft as fft
    from shardwise.scipy import integrate as integrate
    from shardwise.scipy import linalg as linalg
    from shardwise.scipy import ndimage as ndimage
    from shardwise.scipy import signal as signal
    from shardwise.scipy import special as special
    from shardwise.scipy import stats as stats

lazy_names(__name__)
