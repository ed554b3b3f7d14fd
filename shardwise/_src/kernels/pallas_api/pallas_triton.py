"""JAX's names for kernels of GPUs, as far as they are not those of `shardwise.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.core.op import Op
from shardwise._src.kernels import ref_access
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.ops.precision import Precision
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import canonicalize, is_integer
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


def elementwise_inline_asm(
    asm: str,
    *,
    args: Sequence[ArrayLike],
    constraints: str,
    pack: int,
    result_shape_dtypes: Sequence[Any],
) -> list[Array]:
    """Arrays by assembly code of GPUs, which other platforms do not have.

    Args:
      asm: the code for `pack` elements of each array. args: of one shape; none for scalars.
      constraints: of its operands, as LLVM writes them: "=f,f".
      result_shape_dtypes: objects with the shapes and dtypes of the results, at least one.
    """
    types = [type_of(as_arraylike(x)) for x in args]
    outs = tuple([array_type(tuple(t.shape), canonicalize(t.dtype)) for t in result_shape_dtypes])
    if not outs:
        raise ValueError("elementwise_inline_asm: expected at least one result; got none.")
    if not args and outs[0].shape:
        raise ValueError(
            "elementwise_inline_asm: the results of code without arguments are scalars; got "
            f"{outs[0].str_short(True)}. Pass an array of that shape."
        )
    if len({t.shape for t in (*types, *outs)}) > 1:
        shown = ", ".join([t.str_short(True) for t in (*types, *outs)])
        raise ValueError(f"elementwise_inline_asm: expected arrays of one shape; got {shown}.")
    found = inline_asm(*args, asm=asm, constraints=constraints, pack=int(pack), outs=outs)
    return list(found)


def _no_assembly(op: Op, e: Any, *_: Any, **p: Any) -> Any:
    raise NotImplementedError(
        f"elementwise_inline_asm is for kernels on GPUs, and cannot be compiled for '{e.platform}'."
        " Use `lax.platform_dependent` to write other code there."
    )


def _asm_dims(op: Op, *xs: ArrayType, outs: Sequence[ArrayType], **p: Any) -> Dims:
    names = letters(outs[0].ndim)
    return Dims((names,) * len(xs), (names,) * len(outs))


inline_asm = Op(
    "elementwise_inline_asm",
    type_rule=lambda op, *types, outs, **p: outs,
    dims=_asm_dims,
    lower=_no_assembly,
    multiple=True,
)


def debug_barrier() -> None:
    """Does nothing: the accesses of a program are in their order, for which kernels for GPUs have
    barriers where they are needed."""


def max_contiguous(x: Array, values: Sequence[int] | int) -> Array:
    """`x`, of which the user knows how many elements are contiguous: a hint for compilers."""
    return x
