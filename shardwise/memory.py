"""Spaces of memory: `device_put(x, memory.Space.Host)`.

Programs compute in the memory of their devices: arguments in host memory are brought there when a
program starts, and results are there unless `out_shardings`, or a `device_put` that is the last
thing to happen to them, says otherwise.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.ops.memory import Space as Space

lazy_names(__name__)
