"""`ArrayLike` for users: includes the array class, which lower layers do not import."""

from __future__ import annotations

from typing import TypeAlias

from shardwise._src.arrays.array import Array
from shardwise._src.types.annotations import NotOurs

ArrayLike: TypeAlias = Array | NotOurs
