"""Floats as integers in the same order, for reductions that lose NaN: -0 < 0, and NaN past all.

    keys, t = ordered(e, x, t, "maximum")     # integers whose largest is that of the floats
    x = unordered(e, keys, t, dtype)

`e` is the emitter. This works around XLA's error `extremes-without-nan` (docs/values.md), in
reductions that the partitioner splits and in those between devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.types.array_type import ArrayType, array_type

EXTREMES = ("maximum", "minimum")
_BITS = {2: np.dtype("int16"), 4: np.dtype("int32"), 8: np.dtype("int64")}
_BOOL = np.dtype("bool")


def ordered(e: Any, x: str, t: ArrayType, body: str) -> tuple[str, ArrayType]:
    """Integer keys of floats, and their type. body: the reduction, one of `EXTREMES`."""
    if t.dtype.itemsize < 2:
        wide = t.update(dtype=np.dtype("float32"))
        x, t = e.let(f"stablehlo.convert {x} : ({e.ty(t)}) -> {e.ty(wide)}"), wide
    keys = array_type(t.shape, _BITS[t.dtype.itemsize])
    nan = _compared(e, "NE", x, x, t)
    x = e.let(f"stablehlo.bitcast_convert {x} : ({e.ty(t)}) -> {e.ty(keys)}")
    x = _flipped(e, x, keys)
    limits = np.iinfo(keys.dtype)
    beyond = e.constant(limits.max if body == "maximum" else limits.min, keys)
    return _selected(e, nan, beyond, x, keys), keys


def unordered(e: Any, x: str, keys: ArrayType, dtype: Any) -> str:
    """The floats that the keys represent."""
    exact = dtype if dtype.itemsize > 1 else np.dtype("float32")
    t = array_type(keys.shape, exact)
    x = _flipped(e, x, keys)
    x = e.let(f"stablehlo.bitcast_convert {x} : ({e.ty(keys)}) -> {e.ty(t)}")
    x = _selected(e, _compared(e, "NE", x, x, t), e.constant(np.nan, t), x, t)
    if exact == dtype:
        return x
    return e.let(f"stablehlo.convert {x} : ({e.ty(t)}) -> {e.ty(t.update(dtype=dtype))}")


def key_of(value: np.ndarray, dtype: np.dtype) -> int:
    """The integer of `dtype` that represents a float."""
    if value.dtype.itemsize < 2:
        value = value.astype(np.float32)
    bits = int(value.view(dtype))
    return bits ^ np.iinfo(dtype).max if bits < 0 else bits


def _flipped(e: Any, x: str, keys: ArrayType) -> str:
    """Bits of floats to keys, or back: inverts all bits but the sign of negative ones."""
    ty, width = e.ty(keys), 8 * keys.dtype.itemsize
    sign = e.let(f"stablehlo.shift_right_arithmetic {x}, {e.constant(width - 1, keys)} : {ty}")
    rest = e.constant(np.iinfo(keys.dtype).max, keys)
    mask = e.let(f"stablehlo.and {sign}, {rest} : {ty}")
    return e.let(f"stablehlo.xor {x}, {mask} : {ty}")


def _compared(e: Any, kind: str, x: str, y: str, t: ArrayType) -> str:
    ty, flags = e.ty(t), e.ty(array_type(t.shape, _BOOL))
    return e.let(f"stablehlo.compare {kind}, {x}, {y} : ({ty}, {ty}) -> {flags}")


def _selected(e: Any, which: str, x: str, y: str, t: ArrayType) -> str:
    flags = e.ty(array_type(t.shape, _BOOL))
    return e.let(f"stablehlo.select {which}, {x}, {y} : {flags}, {e.ty(t)}")
