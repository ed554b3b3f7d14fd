"""SciPy's functions under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.scipy import cluster as cluster
    from shardwise.scipy import fft as fft
    from shardwise.scipy import integrate as integrate
    from shardwise.scipy import interpolate as interpolate
    from shardwise.scipy import linalg as linalg
    from shardwise.scipy import ndimage as ndimage
    from shardwise.scipy import optimize as optimize
    from shardwise.scipy import signal as signal
    from shardwise.scipy import sparse as sparse
    from shardwise.scipy import spatial as spatial
    from shardwise.scipy import special as special
    from shardwise.scipy import stats as stats

lazy_names(__name__)
