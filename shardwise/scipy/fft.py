"""Discrete cosine transforms under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.signal.cosine_transforms import dct as dct
    from shardwise._src.signal.cosine_transforms import dctn as dctn
    from shardwise._src.signal.cosine_transforms import idct as idct
    from shardwise._src.signal.cosine_transforms import idctn as idctn

lazy_names(__name__)
