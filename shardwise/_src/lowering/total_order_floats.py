"""Floats as integers in the same order, for reductions that lose NaN: -0 < 0, and NaN past all.

    keys, t = ordered(e, x, t, "maximum")     # integers whose largest is that of the floats
    x = unordered(e, keys, t, dtype)

`e` is the emitter. This works around XLA's error `extremes-without-nan` (docs/values.md), in
reductions that the partitioner splits and in those between devices, on platforms that have it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwise._src.runtime.compiler.shardy import Reads, sharded_operands
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import is_float

EXTREMES = ("maximum", "minimum")
NUMBERED = "extreme "  # a location; then the number
_BITS = {2: np.dtype("int16"), 4: np.dtype("int32"), 8: np.dtype("int64")}


def loses_nan(platform: Platform, body: str, t: ArrayType) -> bool:
    """Whether a reduction between devices would lose NaN. body: the name of its instruction."""
    return platform.loses_nan_in_extremes and body in EXTREMES and is_float(t.dtype)


@dataclass
class Extremes:
    """The maxima and minima of floats in a module: which of them may be between devices.

    The CPU's are all computed from keys. Elsewhere every softmax would need another kernel for
    that, so that the module is emitted twice: first with numbers, to see how they are sharded. The
    other reductions are then constrained to be within a device.

    reads:   by number, the operands that may be sharded, and along which dimensions.
    between: the numbers of those that may be between devices; None: not known yet.
    unknown: whether that cannot be known: all may be.
    """

    reads: list[Reads] = field(default_factory=list)
    between: set[int] | None = None
    unknown: bool = False

    def within(self, reads: Reads) -> bool:
        """Whether the next reduction is within a device, as far as it is known."""
        number = len(self.reads)
        self.reads.append(reads)
        return not self.unknown and (self.between is None or number not in self.between)

    def note(self, line: str) -> str:
        """The line of the last reduction; with its number, if it is not known yet."""
        if self.between is not None:
            return line
        return f'{line} loc("{NUMBERED}{len(self.reads) - 1}")'

    def decided(self, text: str) -> Extremes:
        """For the second emission of a module with this text."""
        rows = dict(enumerate(self.reads))
        return Extremes(between=sharded_operands(text, NUMBERED, rows))


def ordered(e: Any, x: str, t: ArrayType, body: str) -> tuple[str, ArrayType]:
    """Integer keys of floats, and their type. body: the reduction, one of `EXTREMES`."""
    if t.dtype.itemsize < 2:
        wide = np.dtype("float32")
        x, t = e.cast(x, t, wide), t.update(dtype=wide)
    keys = array_type(t.shape, _BITS[t.dtype.itemsize])
    nan = e.compare("NE", x, x, t)
    x = _flipped(e, e.bitcast(x, t, keys), keys)
    limits = np.iinfo(keys.dtype)
    beyond = e.constant(limits.max if body == "maximum" else limits.min, keys)
    return e.select(nan, beyond, x, keys), keys


def unordered(e: Any, x: str, keys: ArrayType, dtype: Any) -> str:
    """The floats that the keys represent."""
    exact = dtype if dtype.itemsize > 1 else np.dtype("float32")
    t = array_type(keys.shape, exact)
    x = e.bitcast(_flipped(e, x, keys), keys, t)
    x = e.select(e.compare("NE", x, x, t), e.constant(np.nan, t), x, t)
    return e.cast(x, t, dtype)


def key_of(value: np.ndarray, dtype: np.dtype) -> int:
    """The integer of `dtype` that represents a float."""
    if value.dtype.itemsize < 2:
        value = value.astype(np.float32)
    bits = int(value.view(dtype))
    return bits ^ np.iinfo(dtype).max if bits < 0 else bits


def _flipped(e: Any, x: str, keys: ArrayType) -> str:
    """Bits of floats to keys, or back: inverts all bits but the sign of negative ones."""
    width = 8 * keys.dtype.itemsize
    sign = e.apply("shift_right_arithmetic", keys, x, e.constant(width - 1, keys))
    mask = e.apply("and", keys, sign, e.constant(np.iinfo(keys.dtype).max, keys))
    return e.apply("xor", keys, x, mask)
