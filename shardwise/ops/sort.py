"""Sorting: `sort` of several operands by the first ones, and `top_k`.

    values, places = sort(x, iota, dimension=0, num_keys=1)

Floating-point keys are in total order with all zeros equal and all NaNs equal and last; complex
keys are compared by real part, then by imaginary part.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.core.infer import type_of
from shardwise.core.op import Op
from shardwise.ops.basis import batch_first, move_axis, reshape
from shardwise.ops.families import check_domain, lit, shown, ORDERED
from shardwise.ops.index import GatherDimensionNumbers, GatherScatterMode, gather
from shardwise.ops.shape import along
from shardwise.types.array_type import ArrayType, array_type
from shardwise.types.dims import Dims
from shardwise.types.dtypes import is_complex, is_float, real_dtype

INT32 = np.dtype(np.int32)


def places_along(x: Any, axis: int) -> Any:
    """0, 1, … along `axis`, in the shape of `x`; varying and sharded as `x` is."""
    return positions(x, axis=axis)


def _positions_lower(e: Any, ins: Any, outs: Any, x: str, *, axis: int) -> str:
    return e.let(f"stablehlo.iota dim = {axis} : {e.ty(outs[0])}")


def _positions_batch(size: int, args: Any, ds: Any, *, axis: int) -> tuple[Any, int]:
    (d,) = ds
    return positions(args[0], axis=axis + (axis >= d)), d


positions = Op(
    "positions",
    type_rule=lambda x, *, axis: array_type(x.shape, INT32),
    dims=lambda x, *, axis: Dims((along(x, ()),), (along(x, ()),)),
    lower=_positions_lower,
    jvp=lambda primals, tangents, **p: (positions(*primals, **p), None),
    batch=_positions_batch,
)
