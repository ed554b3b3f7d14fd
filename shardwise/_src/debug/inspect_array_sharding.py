"""`inspect_array_sharding`: shows where the compiler places the values of a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.arrays.array import Array
from shardwise._src.ops.sink import inspect_sharding
from shardwise._src.runtime.pytree import flatten


def inspect_array_sharding(value: Any, /, *, callback: Callable[[Any], Any]) -> None:
    """Calls `callback` with the sharding of each array in `value`, a pytree of arrays.

    Inside a jitted function this happens when the function is compiled, with the sharding that the
    compiler chose; the function is compiled a second time for that. Inside loops, branches and
    functions with custom derivatives the sharding is not available: NotImplementedError.
    """
    for x in flatten(value)[0]:
        if not isinstance(x, Array):
            raise TypeError(
                f"inspect_array_sharding takes a pytree of arrays; got {x!r} of type "
                f"{type(x).__name__}, which is not on a device. Convert it to an array with "
                "`device_put`."
            )
        inspect_sharding(x, callback=callback)
