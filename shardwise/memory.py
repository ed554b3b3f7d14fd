"""Memory spaces: `device_put(x, memory.Space.Host)`.

Programs compute in the memory of their devices: arguments in host memory are transferred there
when a program starts. Results are there unless `out_shardings`, or a final `device_put` of the
result, specifies another memory.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.ops.memory_kinds import Space as Space

lazy_names(__name__)
