"""`ArrayLike` for users: with the class of arrays itself, which rooms below do not know."""

from __future__ import annotations

from typing import TypeAlias

from shardwise._src.arrays.array import Array
from shardwise._src.types.annotations import NotOurs

ArrayLike: TypeAlias = Array | NotOurs
