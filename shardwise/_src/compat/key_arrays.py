"""`random.KeyArray`: the former type of arrays of typed keys, for annotations and `isinstance`."""

from __future__ import annotations

from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.types.extended import KeyDType
from shardwise._src.values.value import Value


class _Meta(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Value) and isinstance(x.dtype, KeyDType)


@public("shardwise.random")
class KeyArray(metaclass=_Meta):
    """The former type of arrays of typed keys, which are an `Array` whose dtype is `key<...>`."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        raise TypeError("KeyArray cannot be constructed; make keys with `shardwise.random.key`.")
