"""Elements along the first dimension, by static indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, GatherScatterMode
from shardwise._src.ops.indexing.gather_scatter import gather


def rows(x: Any, numbers: Sequence[int] | np.ndarray) -> Any:
    """The elements; out-of-bounds ones are zeros."""
    t = type_of(x)
    if list(numbers) == list(range(t.shape[0])):
        return x
    dims = GatherDimensionNumbers(tuple(range(1, t.ndim)), (0,), (0,))
    return gather(
        x,
        np.asarray(numbers, np.int32)[:, None],
        dimension_numbers=dims,
        slice_sizes=(1, *t.shape[1:]),
        mode=GatherScatterMode.FILL_OR_DROP,
        fill_value=0,
    )
