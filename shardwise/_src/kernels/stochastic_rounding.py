"""`stochastic_round`, an operation that TPUs have."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.control.call import described_call
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cast import bitcast_convert_type, convert_element_type
from shardwise._src.ops.families import lit
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, finfo

U32, F32 = np.dtype("uint32"), np.dtype("float32")
kernel_stochastic_round = described_call("kernel_stochastic_round")


def stochastic_round(x: ArrayLike, random_bits: ArrayLike, *, target_dtype: Any) -> Array:
    """float32s as narrower floats: one of the two next to each, the nearer the more likely.

    random_bits: uint32s, of x's shape. target_dtype: bfloat16 or a float8.
    """
    x, random = as_arraylike(x), as_arraylike(random_bits)
    types = t, other = type_of(x), type_of(random)
    dtype = canonicalize(target_dtype)
    if t.shape != other.shape or other.dtype != U32:
        raise ValueError(
            f"stochastic_round: random_bits are uint32s of x's shape, {list(t.shape)}; got "
            f"{other.str_short(True)}."
        )
    if t.dtype != F32 or not (dtype.name == "bfloat16" or dtype.name.startswith("float8")):
        raise ValueError(
            "stochastic_round: x is of float32, and the result of bfloat16 or a float8; got "
            f"{t.str_short(True)} and {dtype.name}."
        )
    program = program_of(lambda x, random: [_rounded(x, random, dtype)], types, "stochastic_round")
    return kernel_stochastic_round(x, random, program=program, dtype=dtype)[0]


def _rounded(x: Any, random: Any, dtype: Any) -> Any:
    """Adds random bits below those that the dtype has, and drops what is below. Numbers below its
    least normal one have fewer bits: they are rounded in a sum with it."""
    info = finfo(dtype)
    drop, least = 23 - info.nmant, lit(float(info.tiny), x)
    size = ew.abs(x)
    is_small = ew.lt(size, least)
    bits = bitcast_convert_type(ew.where(is_small, ew.add(size, least), size), dtype=U32)
    bits = ew.add(bits, ew.shift_right_logical(random, np.uint32(32 - drop)))
    kept = ew.bitwise_and(bits, np.uint32(2**32 - 2**drop))
    found = bitcast_convert_type(kept, dtype=F32)
    found = ew.where(is_small, ew.sub(found, least), found)
    sign = ew.bitwise_and(bitcast_convert_type(x, dtype=U32), np.uint32(2**31))
    found = bitcast_convert_type(
        ew.bitwise_or(bitcast_convert_type(found, dtype=U32), sign), dtype=F32
    )
    return convert_element_type(ew.where(ew.is_finite(x), found, x), dtype=dtype)
