"""Exchange of arrays with other libraries by DLPack, without a copy where that is possible.

    x = shardwise.dlpack.from_dlpack(torch.ones(8))
    torch.from_dlpack(x)
"""

from shardwise.numpy.files import from_dlpack as from_dlpack

__all__ = ["from_dlpack"]
