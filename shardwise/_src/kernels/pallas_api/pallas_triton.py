"""JAX's names for kernels of GPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike
from shardwise._src.kernels import ref_access
from shardwise._src.kernels.ref_access import load as load_elements
from shardwise._src.kernels.ref_access import store as store_elements
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.unary import tanh
from shardwise._src.types.annotations import Array, ArrayLike


def load(
    ref: Any,
    *,
    mask: ArrayLike | None = None,
    other: ArrayLike | None = None,
    cache_modifier: str | None = None,
    eviction_policy: str | None = None,
    volatile: bool = False,
) -> Array:
    """The elements of a ref, `ref.at[index]`.

    mask: which are read. The rest is `other`, 0 by default. The other arguments are for the caches
    of GPUs, and have no effect.
    """
    return load_elements(ref, ..., mask=mask, other=other)


def store(
    ref: Any, val: ArrayLike, *, mask: ArrayLike | None = None, eviction_policy: str | None = None
) -> None:
    """Writes to a ref, `ref.at[index]`. mask: which elements. eviction_policy: has no effect."""
    store_elements(ref, ..., val, mask=mask)


def _atomic(update: Callable[..., Any]) -> Callable[..., Array]:
    def atomic(
        x_ref_or_view: Any, idx: Any, val: ArrayLike, *, mask: ArrayLike | None = None
    ) -> Array:
        return update(x_ref_or_view, idx, val, mask=mask)

    name = update.__name__.replace("swap", "atomic_xchg")
    return named(atomic, name, update.__doc__)


atomic_add, atomic_max, atomic_min, atomic_and, atomic_or, atomic_xor, atomic_xchg = map(
    _atomic,
    (
        ref_access.atomic_add,
        ref_access.atomic_max,
        ref_access.atomic_min,
        ref_access.atomic_and,
        ref_access.atomic_or,
        ref_access.atomic_xor,
        ref_access.swap,
    ),
)


def atomic_cas(ref: Any, cmp: ArrayLike, val: ArrayLike) -> Array:
    """Writes `val` to the elements of a ref that are equal to `cmp`, atomically on hardware;
    returns the elements from before."""
    old = load_elements(ref)
    store_elements(ref, ..., val, mask=as_arraylike(old) == cmp)
    return old


def dot(
    a: ArrayLike,
    b: ArrayLike,
    trans_a: bool = False,
    trans_b: bool = False,
    allow_tf32: bool | None = None,
    precision: Any = None,
) -> Array:
    """The product of two matrices, accumulated in float32.

    trans_a, trans_b: transposed. allow_tf32: on GPUs; elsewhere `precision` says it.
    """
    x, y = as_arraylike(a), as_arraylike(b)
    return matmul(x.T if trans_a else x, y.T if trans_b else y, precision=precision)


def approx_tanh(x: ArrayLike) -> Array:
    """`tanh`, by an approximation on GPUs."""
    return tanh(x)


def debug_barrier() -> None:
    """A barrier of the threads of a program, of which CPUs have one."""


def max_contiguous(x: Array, values: Sequence[int] | int) -> Array:
    """`x`, of which the user knows how many elements are contiguous: a hint for compilers."""
    return x
