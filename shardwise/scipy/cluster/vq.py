"""Vector quantization, under SciPy's name."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.scipy.vq import vq as vq

lazy_names(__name__)
