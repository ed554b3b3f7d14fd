"""JAX's names for kernels of TPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from operator import or_
from typing import Any

import numpy as np

from shardwise._src.base.lazy import public
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels import spaces
from shardwise._src.kernels.spaces import Scratch, Space
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.rearrange import roll as rolled
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.refs.ref_parts import bits_as
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize, is_integer, is_unsigned, itemsize_bits


class MemorySpace:
    """The memory spaces, also as names of this class."""

    ANY, VMEM, SMEM, HBM = spaces.ANY, spaces.VMEM, spaces.SMEM, spaces.HBM
    CMEM, VMEM_SHARED, SEMAPHORE = spaces.CMEM, spaces.VMEM_SHARED, spaces.SEMAPHORE
    HOST = Space("host")


HOST = MemorySpace.HOST


def MemoryRef(inner_aval: Any, memory_space: Space) -> Scratch:
    """Memory for refs, as a memory space makes it when it is called."""
    return memory_space(inner_aval.shape, inner_aval.dtype)


@public("shardwise.experimental.pallas.tpu")
class GridDimensionSemantics(enum.Enum):
    """Whether the programs along an axis of the grid may run in any order, and on other cores."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL, CORE_PARALLEL, SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics


class SideEffectType(enum.Enum):
    """Whether a kernel is kept if its results are not used."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


def bitcast(x: ArrayLike, ty: Any) -> Array:
    """The bits of an array as elements of another dtype, as `ref.bitcast` does."""
    return bits_as(as_arraylike(x), canonicalize(ty))


def pack_elementwise(xs: Sequence[ArrayLike], *, packed_dtype: Any) -> Array:
    """The elements of several arrays as the parts of wider elements, the first as the lowest bits.

    xs: arrays of one shape and dtype, as many as parts fit: two of float32 for bfloat16, or of
      integers for narrower integers, of which the high bits are dropped.
    Returns an array of unsigned integers as wide as the elements of `xs`.
    """
    arrays = [as_arraylike(x) for x in xs]
    types = [type_of(x) for x in arrays]
    if len({(t.shape, t.dtype) for t in types}) != 1:
        shown = ", ".join([t.str_short(True) for t in types]) or "none"
        raise ValueError(f"pack_elementwise: expected arrays of one shape and dtype; got {shown}.")
    packed, wide = canonicalize(packed_dtype), types[0].dtype
    word, width = _word_of("pack_elementwise", wide, packed)
    if len(arrays) * width != itemsize_bits(wide):
        raise ValueError(
            f"pack_elementwise: an element of {wide} has {itemsize_bits(wide) // width} parts of "
            f"{packed}; got {len(arrays)} arrays."
        )
    if not is_integer(wide):
        arrays = [bits_as(x.astype(packed), np.dtype("uint16")) for x in arrays]
    lows = [x.astype(word) & word.type(2**width - 1) for x in arrays]
    return functools.reduce(or_, [x << word.type(i * width) for i, x in enumerate(lows)])


def unpack_elementwise(
    x: ArrayLike, *, index: int, packed_dtype: Any, unpacked_dtype: Any
) -> Array:
    """Part `index` of each element of an array, as `pack_elementwise` makes them.

    packed_dtype: of the parts. unpacked_dtype: of the result, as wide as the elements of x.
    """
    packed, wide = canonicalize(packed_dtype), canonicalize(unpacked_dtype)
    word, width = _word_of("unpack_elementwise", wide, packed)
    bits = itemsize_bits(wide)
    if itemsize_bits((t := type_of(x)).dtype) != bits:
        raise ValueError(f"unpack_elementwise: {wide} has {bits} bits; got x, {t.str_short(True)}.")
    if not 0 <= index < bits // width:
        raise ValueError(
            f"unpack_elementwise: an element has {bits // width} parts of {packed}; got index "
            f"{index}."
        )
    shift = word.type(bits - width * (index + 1))
    high = bits_as(as_arraylike(x), word) << shift  # the part as the highest bits
    if not is_integer(wide):
        return bits_as(high & word.type(2**bits - 2 ** (bits - width)), wide)
    kind = word if is_unsigned(packed) else np.dtype(f"int{bits}")
    return (bits_as(high, kind) >> kind.type(bits - width)).astype(wide)


def _word_of(who: str, wide: Any, packed: Any) -> tuple[np.dtype, int]:
    """Unsigned integers as wide as a dtype, and how many of their bits a packed dtype has."""
    bits, width = itemsize_bits(wide), itemsize_bits(packed)
    both = is_integer(wide) and is_integer(packed)
    if (not both and (wide.name, packed.name) != ("float32", "bfloat16")) or bits % width:
        raise ValueError(
            f"{who}: bfloat16 is packed into float32, and integers into wider ones; got {packed} "
            f"and {wide}."
        )
    return np.dtype(f"uint{bits}"), width


def roll(
    x: ArrayLike,
    shift: ArrayLike,
    axis: int,
    *,
    stride: int | None = None,
    stride_axis: int | None = None,
) -> Array:
    """`numpy.roll` along one axis.

    stride, stride_axis: element i along `stride_axis` is rolled by `shift + i * stride`.
    """
    if stride is None and stride_axis is None:
        return rolled(x, shift, axis)
    if stride is None or stride_axis is None:
        raise ValueError("roll: stride and stride_axis are given both, or neither.")
    shape = as_arraylike(x).shape
    axis, other = [canonical_axis(a, len(shape)) for a in (axis, stride_axis)]
    if axis == other:
        raise ValueError(f"roll: axis and stride_axis are different; got {axis} for both.")
    inner, shifts = axis - (axis > other), shift + stride * arange(shape[other])
    return vmap(lambda row, n: rolled(row, n, inner), (other, 0), other)(x, shifts)


def touch(ref: Any) -> None:
    """Does nothing: a ref that is not used is one like others."""


def with_memory_space_constraint(x: ArrayLike, memory_space: Any) -> Array:
    """`x`. The memory space is without effect: where an array is between kernels, XLA chooses."""
    return as_arraylike(x)


def trace_value(label: str, value: ArrayLike) -> None:
    """Without effect: profiles have no values of kernels."""
