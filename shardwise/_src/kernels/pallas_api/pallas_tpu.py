"""JAX's names for kernels of TPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

import enum
from typing import Any

from shardwise._src.core.infer import as_arraylike
from shardwise._src.kernels.ref_access import load as load_elements
from shardwise._src.kernels.ref_access import store as store_elements
from shardwise._src.kernels.spaces import ANY, HBM, SMEM, VMEM, Scratch, Space
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.rearrange import roll as rolled
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


def load(ref: Any, *, mask: ArrayLike | None = None) -> Array:
    """The elements of a ref, `ref.at[index]`. mask: which are read; the rest is 0."""
    return load_elements(ref, ..., mask=mask)


def store(ref: Any, val: ArrayLike, *, mask: ArrayLike | None = None) -> None:
    """Writes to a ref, `ref.at[index]`. mask: which elements."""
    store_elements(ref, ..., val, mask=mask)


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
    if stride is None or stride_axis is None:
        return rolled(x, shift, axis)
    count = as_arraylike(x).shape[stride_axis]
    inner = axis - (axis > stride_axis)
    shifts = shift + stride * arange(count)
    return vmap(lambda row, n: rolled(row, n, inner), (stride_axis, 0), stride_axis)(x, shifts)


def touch(ref: Any) -> None:
    """Does nothing: a ref that is not used is one like others."""


def with_memory_space_constraint(x: ArrayLike, memory_space: Any) -> Array:
    """`x`, in a memory space of a TPU; on CPU without effect."""
    return as_arraylike(x)


def trace_value(label: str, value: ArrayLike) -> None:
    """Adds a value to a TPU's profile; on CPU without effect."""
