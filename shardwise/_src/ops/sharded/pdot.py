"""`pdot`: sums of products over dimensions and named axes: a `dot_general`, then a `psum`.

    pdot(x, y, names=("i",), sizes=(4,), dimension_numbers=(((1,), (0,)), ((), ())), …)

Since this is one op, an axis of a `vmap` becomes one more contracted dimension, and no product is
stored per index. Parameters: those of both ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Linear, Op, is_linear
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import (
    batch_product,
    dims_of_product,
    dot_general,
    jvp_of_product,
    shifted_past,
    transpose_product,
    type_of_product,
)
from shardwise._src.ops.elementwise import mul, ne
from shardwise._src.ops.families import BOOL, NUMERIC, check_domain, lit
from shardwise._src.ops.sharded.collective import from_varying, psum, transpose_sum
from shardwise._src.types.array_type import ArrayType

INT32 = np.dtype("int32")


def _type(op: Op, x: ArrayType, y: ArrayType, *, names: tuple, sizes: tuple, **p: Any) -> ArrayType:
    check_domain(op.name, NUMERIC, (x, y))
    return type_of_product(op, x, y, **p)


def _apart(x: Any, y: Any, names: tuple, sizes: tuple, **p: Any) -> Any:
    return psum(dot_general(x, y, **p), names=names, sizes=sizes, groups=None)


def _transpose(op: Op, ct: Any, x: Any, y: Any, *, names: tuple, sizes: tuple, **p: Any) -> Any:
    """The transpose of the sum, then of the products."""
    given = x if is_linear(x) else y
    product = Linear(given.aval.update(shape=type_of(ct).shape))
    (ct,) = transpose_sum(psum, ct, product, names=names, sizes=sizes, groups=None)
    return transpose_product(dot_general, ct, x, y, **p)


def _batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, int | None]:
    name = mapped.axis.name
    if name is None or name not in p["names"]:
        return batch_product(op, mapped, args, ds, **p)
    names, sizes, dimension_numbers = [p.pop(k) for k in ("names", "sizes", "dimension_numbers")]
    at = names.index(name)
    left = {"names": names[:at] + names[at + 1 :], "sizes": sizes[:at] + sizes[at + 1 :]}
    (x, y), (dx, dy) = args, ds
    (xc, yc), (xb, yb) = dimension_numbers
    if dx is not None and dy is not None:
        xc, xb = (dx, *shifted_past(xc, dx)), shifted_past(xb, dx)
        yc, yb = (dy, *shifted_past(yc, dy)), shifted_past(yb, dy)
    elif dx is not None:
        x = reduce_sum(x, axes=(dx,))
    elif dy is not None:
        y = reduce_sum(y, axes=(dy,))
    out = _product(x, y, **left, dimension_numbers=((xc, yc), (xb, yb)), **p)
    return (mul(out, lit(mapped.size, out)) if dx is None and dy is None else out), None


def _product(x: Any, y: Any, names: tuple, sizes: tuple, **p: Any) -> Any:
    return pdot(x, y, names=names, sizes=sizes, **p) if names else dot_general(x, y, **p)


pdot = Op(
    "pdot",
    type_rule=_type,
    dims=lambda op, x, y, *, names, sizes, **p: dims_of_product(op, x, y, **p),
    manual_axes=from_varying("invarying"),
    lower=lambda op, e, ins, outs, *xs, **p: e.via(_apart, ins, *xs, **p)[0],
    jvp=jvp_of_product,
    transpose=_transpose,
    batch=_batch,
    named_axes=("names", "sizes"),
    contraction=True,
    is_expensive=True,
)


def sum_of_products(
    x: Any, y: Any, numbers: Any, precision: Any, preferred: Any, *, names: tuple, sizes: tuple
) -> Any:
    """`pdot`, also for booleans: whether any product is true."""
    of_bools = type_of(x).dtype == BOOL and type_of(y).dtype == BOOL
    if of_bools:
        x, y = [convert_element_type(v, dtype=INT32) for v in (x, y)]
    how = {
        "dimension_numbers": numbers,
        "precision": precision,
        "preferred_element_type": preferred,
    }
    out = _product(x, y, names, sizes, **how)
    return ne(out, lit(0, out)) if of_bools else out
