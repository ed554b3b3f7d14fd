"""`live_arrays`: the arrays that exist in this process, for debugging memory.

It queries the garbage collector: maintaining a list of arrays would cost time for each.
"""

from __future__ import annotations

import gc

from shardwise._src.arrays.array import Array
from shardwise._src.runtime import backend
from shardwise._src.transfers.transfer import cached_scalars


def live_arrays(platform: str | None = None) -> list[Array]:
    """The arrays of a platform (by default, of the preferred one) that are not deleted.

    It inspects every object of the process, which takes milliseconds.
    """
    wanted = backend.client(platform)
    hidden = {id(a) for a in cached_scalars()}
    return [
        x
        for x in gc.get_objects()
        if x.__class__ is Array
        and id(x) not in hidden
        and not x.is_deleted()
        and x._sig.devices[0].client is wanted
    ]
