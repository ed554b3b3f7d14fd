"""Arrow export of arrays, through pyarrow, or through polars if only that is available.

Elements in host memory are not copied, except booleans, which Arrow packs. Dimensions after the
first become fixed-size lists.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from shardwise._src.base.interrupts import uninterrupted

_DTYPES = {"bool", "float16", "float32", "float64"} | {
    f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}


def array(value: np.ndarray, kind: Any = None) -> Any:
    """A host array as a `pyarrow.Array`, of the pyarrow type `kind` if given."""
    with uninterrupted():
        import pyarrow  # the caller

    made = pyarrow.array(_checked(value).reshape(-1))
    for at in range(value.ndim - 1, 0, -1):
        listed, length = pyarrow.list_(made.type, value.shape[at]), math.prod(value.shape[:at])
        made = pyarrow.Array.from_buffers(listed, length, [None], children=[made])
    return made if kind is None else made.cast(kind)


def stream(value: np.ndarray, requested_schema: Any = None) -> Any:
    """A host array as the capsule of a single-chunk stream, in Arrow's C interface."""
    if "polars" in sys.modules and "pyarrow" not in sys.modules:
        with uninterrupted():
            import polars

        made = polars.Series(_checked(value))
    else:
        with uninterrupted():
            import pyarrow

        made = pyarrow.chunked_array([array(value)])
    return made.__arrow_c_stream__(requested_schema)


def _checked(value: np.ndarray) -> np.ndarray:
    if value.dtype.name not in _DTYPES:
        raise TypeError(
            f"Arrow has no type for elements of {value.dtype.name}. Convert the array with "
            "`astype` first."
        )
    if not value.ndim:
        raise TypeError(
            "a 0-d array cannot become an Arrow array. Use x.item() for its "
            "element, or x.reshape(1)."
        )
    return np.ascontiguousarray(value)
