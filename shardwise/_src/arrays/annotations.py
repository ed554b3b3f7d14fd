"""`ArrayLike` for users: with the class of arrays itself, which rooms below do not know."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from shardwise._src.arrays.array import Array
from shardwise._src.types.annotations import SupportsArray, SupportsDLPack, SupportsJaxArray

ArrayLike: TypeAlias = (
    Array | np.ndarray | np.generic | bool | int | float | complex
    | SupportsArray | SupportsJaxArray | SupportsDLPack
)
