"""JAX's names for kernels of TPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

import enum
from typing import Any

from shardwise._src.core.infer import as_arraylike
from shardwise._src.kernels.spaces import ANY, HBM, SMEM, VMEM, Scratch, Space
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.rearrange import roll as rolled
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.refs.ref_parts import bits_as
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import canonicalize


class MemorySpace:
    """The memory spaces, also as names of this class."""

    ANY, VMEM, SMEM, HBM = ANY, VMEM, SMEM, HBM
    HOST = Space("host")


HOST = MemorySpace.HOST


def MemoryRef(inner_aval: Any, memory_space: Space) -> Scratch:
    """Memory for refs, as a memory space makes it when it is called."""
    return memory_space(inner_aval.shape, inner_aval.dtype)


class GridDimensionSemantics(enum.Enum):
    """Whether the programs along an axis of the grid may run in any order, and on other cores."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL = GridDimensionSemantics.PARALLEL
CORE_PARALLEL = GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL = GridDimensionSemantics.SUBCORE_PARALLEL
ARBITRARY = GridDimensionSemantics.ARBITRARY


class SideEffectType(enum.Enum):
    """Whether a kernel is kept if its results are not used."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


def bitcast(x: ArrayLike, ty: Any) -> Array:
    """The bits of an array as elements of another dtype, as `ref.bitcast` does."""
    return bits_as(as_arraylike(x), canonicalize(ty))


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
    """`x`, in a memory space of a TPU; on CPU without effect."""
    return as_arraylike(x)


def trace_value(label: str, value: ArrayLike) -> None:
    """Adds a value to a TPU's profile; on CPU without effect."""
