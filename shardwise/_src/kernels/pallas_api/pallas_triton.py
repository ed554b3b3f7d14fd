"""JAX's names for kernels of GPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.kernels import ref_access
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.ops.precision import Precision
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_integer
from shardwise._src.types.promotion import promote_types


def _renamed(update: Callable[..., Any], name: str) -> Callable[..., Array]:
    def atomic(
        x_ref_or_view: Any, idx: Any, val: ArrayLike, *, mask: ArrayLike | None = None
    ) -> Array:
        return update(x_ref_or_view, idx, val, mask=mask)

    return named(atomic, name, update.__doc__)


atomic_add, atomic_and, atomic_max, atomic_min, atomic_or, atomic_xor, atomic_xchg = [
    _renamed(getattr(ref_access, name), name)
    for name in [f"atomic_{mode}" for mode in ("add", "and", "max", "min", "or", "xor", "xchg")]
]


def dot(
    a: ArrayLike,
    b: ArrayLike,
    trans_a: bool = False,
    trans_b: bool = False,
    allow_tf32: bool | None = None,
    precision: Any = None,
) -> Array:
    """The product of two matrices: of floats in float32, or float64 if they have it; of integers
    in int32.

    trans_a, trans_b: transposed. allow_tf32: whether GPUs may round float32 to TF32, instead of
      `precision`.
    """
    x, y = as_arraylike(a), as_arraylike(b)
    if len(x.shape) != 2 or len(y.shape) != 2:
        shown = " and ".join([type_of(t).str_short(True) for t in (x, y)])
        raise ValueError(f"dot: expected two matrices; got {shown}.")
    if allow_tf32 is not None:
        if precision is not None:
            raise ValueError("dot: allow_tf32 is another way to give precision; pass one of them.")
        precision = Precision.DEFAULT if allow_tf32 else Precision.HIGHEST
    dtype = promote_types(x.dtype, y.dtype)
    out = "int32" if is_integer(dtype) else "float64" if dtype == "float64" else "float32"
    x, y = x.T if trans_a else x, y.T if trans_b else y
    return matmul(x, y, precision=precision, preferred_element_type=out)


def debug_barrier() -> None:
    """Does nothing: the accesses of a program are in their order, for which kernels for GPUs have
    barriers where they are needed."""


def max_contiguous(x: Array, values: Sequence[int] | int) -> Array:
    """`x`, of which the user knows how many elements are contiguous: a hint for compilers."""
    return x
