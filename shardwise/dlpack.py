"""Exchanges arrays with other libraries by DLPack, without a copy where possible.

For example:

    x = shardwise.dlpack.from_dlpack(torch.ones(8))
    torch.from_dlpack(x)
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.arrays.interchange import is_supported_dtype as is_supported_dtype
    from shardwise._src.numpy.host_files import from_dlpack as from_dlpack

lazy_names(__name__)
