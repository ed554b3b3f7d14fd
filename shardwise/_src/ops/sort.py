"""Sorting: `sort` of several operands by the first ones, and `top_k`.

    values, places = sort(x, iota, dimension=0, num_keys=1)

Floating-point keys are in total order, with all zeros equal and all NaNs equal and last; complex
keys are compared by their real parts, then by their imaginary parts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Elements, Op
from shardwise._src.ops.basis import batch_leading, batch_leading_with, reshape
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import ANY, BOOL, ORDERED, check_domain
from shardwise._src.ops.indexing.gather_rules import GatherDimensionNumbers, GatherScatterMode
from shardwise._src.ops.indexing.gather_scatter import gather
from shardwise._src.ops.shape import along
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import is_complex, is_float, real_dtype

INT32 = np.dtype(np.int32)


def take_along(x: Any, places: Any, axis: int) -> Any:
    """The elements of `x` at `places` along `axis`; all other dimensions are batch dimensions.

    The places must be within the bounds.
    """
    rank = type_of(x).ndim
    others = tuple(i for i in range(rank) if i != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    vectors = reshape(places, shape=(*type_of(places).shape, 1))
    return gather(
        x,
        vectors,
        dimension_numbers=numbers,
        slice_sizes=(1,) * rank,
        mode=GatherScatterMode.PROMISE_IN_BOUNDS,
    )


# -- sort: sorts all operands by the first `num_keys` of them, lexicographically --


def _sort_type(
    op: Op, *xs: ArrayType, dimension: int, is_stable: bool = True, num_keys: int = 1
) -> tuple[ArrayType, ...]:
    if not xs:
        raise TypeError("[sort] takes at least one operand; got none.")
    x = xs[0]
    if any(t.shape != x.shape for t in xs):
        raise TypeError(f"[sort] operands must have equal shapes; got {join_types(xs)}.")
    if not 0 <= dimension < x.ndim:
        raise ValueError(
            f"[sort] dimension must be one of the {x.ndim} dimensions of {x.str_short(True)}; "
            f"got {dimension}."
        )
    if not 1 <= num_keys <= len(xs):
        raise ValueError(f"[sort] num_keys must be from 1 to {len(xs)}; got {num_keys}.")
    check_domain("sort", ANY, xs[:num_keys])
    return tuple(array_type(t.shape, t.dtype, t.weak_type) for t in xs)


def _sort_dims(op: Op, *xs: ArrayType, dimension: int, **params: Any) -> Dims:
    names = (along(xs[0], (dimension,)),) * len(xs)
    return Dims(names, names)


def _sort_lower(
    op: Op, e: Any, ins: Any, outs: Any, *xs: str, dimension: int, num_keys: int = 1, **p: Any
) -> list[str]:
    def body(names: list[str]) -> str:
        keys: list[Key] = []
        for i in range(num_keys):
            keys += _parts(e, array_type((), ins[i].dtype), names[2 * i], names[2 * i + 1])
        return _precedes(e, keys)

    return _sort_text(e, ins, list(xs), dimension, p.get("is_stable", True), body)


def _sort_text(
    e: Any, ins: Any, xs: list[str], dimension: int, is_stable: bool, body: Any
) -> list[str]:
    """`stablehlo.sort`; `body` writes the comparator: whether the first element precedes."""
    scalars = [array_type((), t.dtype) for t in ins for _ in range(2)]
    names = [e.fresh() for _ in scalars]
    region = e.region(lambda: e.lines.append(f"stablehlo.return {body(names)} : tensor<i1>"))
    given = ", ".join(f"{n}: {e.ty(s)}" for n, s in zip(names, scalars, strict=True))
    types = ", ".join(e.ty(t) for t in ins)
    stable = "true" if is_stable else "false"
    return e.lets(
        f'"stablehlo.sort"({", ".join(xs)}) <{{dimension = {dimension} : i64, is_stable = {stable}'
        f"}}> ({{\n^bb0({given}):\n{region}\n}}) : ({types}) -> ({types})",
        len(xs),
    )


Key = tuple[ArrayType, str, str]  # a pair of elements to compare


def _parts(e: Any, t: ArrayType, x: str, y: str) -> list[Key]:
    """The keys of two elements: two keys for complex ones, with one zero and one NaN."""
    if is_complex(t.dtype):
        part = t.update(dtype=real_dtype(t.dtype))
        pairs = [
            [e.let(f"stablehlo.{which} {z} : ({e.ty(t)}) -> {e.ty(part)}") for z in (x, y)]
            for which in ("real", "imag")
        ]
        return [key for a, b in pairs for key in _parts(e, part, a, b)]
    if is_float(t.dtype):
        wide = _ordered(t)
        x, y = e.cast(x, t, wide.dtype), e.cast(y, t, wide.dtype)
        return [(wide, _plain(e, wide, x), _plain(e, wide, y))]
    return [(t, x, y)]


def _ordered(t: ArrayType) -> ArrayType:
    """The type in which values of a type are compared.

    XLA's total order has NaN first if the dtype writes it as -0.
    """
    return t.update(dtype=np.dtype(np.float32)) if t.dtype.name.endswith("fnuz") else t


def _plain(e: Any, t: ArrayType, x: str) -> str:
    """`x` with a positive zero for any zero and one NaN for any NaN."""
    zero, nan = e.constant(0, t), e.constant(np.nan, t)
    is_zero, is_nan = e.compare("EQ", x, zero, t), e.compare("NE", x, x, t)
    x = e.select(is_zero, zero, x, t)
    return e.select(is_nan, nan, x, t)


def _order(t: ArrayType) -> str:
    return ", TOTALORDER" if is_float(t.dtype) else ""


def _precedes(e: Any, keys: list[Key]) -> str:
    """Whether the first element is less by the first key, or equal by it and less by the next."""
    found, flag = "", array_type((), BOOL)
    for t, x, y in reversed(keys):
        less = e.compare("LT", x, y, t, _order(t))
        if found:
            both = e.apply("and", flag, e.compare("EQ", x, y, t, _order(t)), found)
            less = e.apply("or", flag, less, both)
        found = less
    return found


def _sort_jvp(
    op: Op, primals: Any, tangents: Any, *, dimension: int, **params: Any
) -> tuple[Any, Any]:
    """Tangents are permuted like their values, by a sorted iota."""
    if all(t is None for t in tangents):
        return sort(*primals, dimension=dimension, **params), [None] * len(primals)
    shape = type_of(primals[0]).shape
    start = iota(dtype=INT32, shape=shape, dimension=dimension)
    *outs, places = sort(*primals, start, dimension=dimension, **params)
    moved = [None if t is None else take_along(t, places, dimension) for t in tangents]
    return outs, moved


sort = Op(
    "sort",
    multiple=True,
    elements=Elements.MOVED,
    is_expensive=True,
    type_rule=_sort_type,
    dims=_sort_dims,
    lower=_sort_lower,
    jvp=_sort_jvp,
    batch=batch_leading_with("dimension", lambda d: d + 1),
)


# -- top_k: the k largest along the last dimension, in decreasing order, and their indices --


def _top_type(op: Op, x: ArrayType, *, k: int) -> tuple[ArrayType, ArrayType]:
    check_domain("top_k", ORDERED, (x,))
    if not x.ndim or not 0 <= k <= x.shape[-1]:
        raise ValueError(
            f"[top_k] k must be from 0 to the size of the last dimension of {x.str_short(True)}; "
            f"got {k}."
        )
    if x.shape[-1].__class__ is int and x.shape[-1] > 2**31:
        raise ValueError(
            f"[top_k] the indices of {x.str_short(True)} do not fit into int32. Sort it instead."
        )
    shape = (*x.shape[:-1], k)
    return array_type(shape, x.dtype, x.weak_type), array_type(shape, INT32)


def _top_dims(op: Op, x: ArrayType, *, k: int) -> Dims:
    names = along(x, (x.ndim - 1,))
    return Dims((names,), (names, names))


def _top_lower(op: Op, e: Any, ins: Any, outs: Any, x: str, *, k: int) -> list[str]:
    t, values = ins[0], outs[0]
    # Booleans are sorted as bytes.
    wide = np.dtype(np.uint8) if t.dtype == BOOL else _ordered(t).dtype
    if wide != t.dtype:
        t, values = t.update(dtype=wide), values.update(dtype=wide)
        x = e.cast(x, ins[0], wide)
    write = _top_text if e.devices == 1 else _top_by_sorting
    found, places = write(e, t, (values, outs[1]), x, k)
    return [e.cast(found, values, outs[0].dtype), places]


def _top_text(e: Any, t: ArrayType, outs: Any, x: str, k: int) -> list[str]:
    types = ", ".join(e.ty(out) for out in outs)
    return e.lets(f"chlo.top_k({x}, k = {k}) : {e.ty(t)} -> ({types})", 2)


def _top_by_sorting(e: Any, t: ArrayType, outs: Any, x: str, k: int) -> list[str]:
    """`top_k` by a full sort: XLA's partitioner shards a sort, but gathers for a top_k."""
    axis = t.ndim - 1
    ins = (t, t.update(dtype=INT32, weak_type=False))
    places = e.iota(ins[1], axis)

    def body(names: list[str]) -> str:
        return e.compare("GT", *names[:2], array_type((), t.dtype), _order(t))

    found = _sort_text(e, ins, [x, places], axis, True, body)
    bounds = ", ".join(f"0:{k if i == axis else n}" for i, n in enumerate(t.shape))
    return [
        e.let(f"stablehlo.slice {y} [{bounds}] : ({e.ty(wide)}) -> {e.ty(out)}")
        for y, wide, out in zip(found, ins, outs, strict=True)
    ]


def _top_jvp(op: Op, primals: Any, tangents: Any, *, k: int) -> tuple[Any, Any]:
    values, places = top_k(primals[0], k=k)
    axis = type_of(values).ndim - 1
    return [values, places], [take_along(tangents[0], places, axis), None]


top_k = Op(
    "top_k",
    multiple=True,
    elements=Elements.MOVED,
    is_expensive=True,
    type_rule=_top_type,
    dims=_top_dims,
    lower=_top_lower,
    jvp=_top_jvp,
    batch=batch_leading,
)
