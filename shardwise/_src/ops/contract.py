"""`dot_general`: sums of products over pairs of dimensions, with batch dimensions.

    dot_general(a, b, dimension_numbers=(((1,), (0,)), ((), ())))          # f32[i,k], f32[k,j]
    dot_general(a, b, dimension_numbers=(((2,), (1,)), ((0,), (0,))))      # a batched product

`dimension_numbers` is ((contracted of lhs, of rhs), (batch of lhs, of rhs)). The result has the
batch dimensions, then the other dimensions of lhs, then those of rhs. `dot` is the same function
for callers that have a precision: it canonicalizes the precision and reads the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import numpy_dtype_promotion
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.messages.formatting import joined
from shardwise._src.ops.basis import ints, transpose
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.families import add
from shardwise._src.ops.precision import (
    ALGORITHMS,
    ON_CPU,
    DotAlgorithmPreset,
    canonical_precision,
    precision_text,
)
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims, letters
from shardwise._src.types.dtypes import (
    finfo,
    is_bool,
    is_complex,
    is_float,
    is_inexact,
    is_integer,
    is_signed,
    is_unsigned,
    itemsize_bits,
    real_dtype,
    short_name,
)
from shardwise._src.types.promotion import lattice_join

INT8 = np.dtype(np.int8)
DimensionNumbers = tuple[tuple[tuple, tuple], tuple[tuple, tuple]]

# -- types --


def free_dims(rank: int, contracted: tuple, batch: tuple) -> list[int]:
    """The dimensions that are neither contracted nor batch dimensions."""
    return [d for d in range(rank) if d not in contracted and d not in batch]


def _check_side(name: str, t: ArrayType, contracted: tuple, batch: tuple) -> None:
    used = (*contracted, *batch)
    if any(not 0 <= d < t.ndim for d in used) or len(set(used)) != len(used):
        raise TypeError(
            f"[dot_general] the dimensions of {name}, contracted {tuple(contracted)} and batch "
            f"{tuple(batch)}, must be distinct and within the {t.ndim} dimensions of "
            f"{t.str_short(True)}."
        )


def _check_pairs(what: str, lhs: ArrayType, rhs: ArrayType, ls: tuple, rs: tuple) -> None:
    left, right = tuple(lhs.shape[d] for d in ls), tuple(rhs.shape[d] for d in rs)
    if left != right:
        raise TypeError(
            f"[dot_general] {what} dimensions must have equal sizes; got {left} and {right} of "
            f"{join_types((lhs, rhs))} at {tuple(ls)} and {tuple(rs)}."
        )


def type_of_product(
    op: Op,
    lhs: ArrayType,
    rhs: ArrayType,
    *,
    dimension_numbers: DimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> ArrayType:
    (lc, rc), (lb, rb) = dimension_numbers
    _check_side("lhs", lhs, lc, lb)
    _check_side("rhs", rhs, rc, rb)
    _check_pairs("contracted", lhs, rhs, lc, rc)
    _check_pairs("batch", lhs, rhs, lb, rb)
    batch = [lhs.shape[d] for d in lb]
    left = [lhs.shape[d] for d in free_dims(lhs.ndim, lc, lb)]
    right = [rhs.shape[d] for d in free_dims(rhs.ndim, rc, rb)]
    dtype = result_dtype(op.name, _dtype_of_product(lhs, rhs), (lhs, rhs), preferred_element_type)
    weak = lhs.weak_type and rhs.weak_type
    return array_type((*batch, *left, *right), dtype, weak)


def _dtype_of_product(lhs: ArrayType, rhs: ArrayType) -> Any:
    """The dtype of the operands with the larger range, or else the higher precision."""
    return lhs.dtype if lhs.dtype == rhs.dtype else max(lhs.dtype, rhs.dtype, key=_rank)


def _rank(dtype: Any) -> tuple[float, ...]:
    real = real_dtype(dtype)
    limits = finfo(real) if is_float(real) else None
    largest, digits = (limits.maxexp, limits.nmant) if limits else (-1, -1)
    bits = 1 if is_bool(dtype) else itemsize_bits(real)
    return is_complex(dtype), largest, digits, bits, not is_unsigned(dtype)


def joined_dtype(*types: ArrayType) -> Any:
    """A dtype for the values of all types."""
    if len({t.dtype for t in types}) == 1:
        return types[0].dtype
    with numpy_dtype_promotion("standard"):  # the flag is for functions that convert operands
        return lattice_join(*[(t.dtype, False) for t in types])[0]


def result_dtype(name: str, dtype: Any, operands: Sequence[ArrayType], preferred: Any) -> Any:
    """The dtype of sums of products: that of the operands, or the preferred one, if wide enough."""
    if preferred is None or preferred == dtype:
        return dtype
    if is_integer(dtype) and is_integer(preferred) and preferred.itemsize < dtype.itemsize:
        problem = "is narrower than the operands"
    elif is_complex(dtype) and not is_complex(preferred):
        problem = "would drop imaginary parts"
    elif is_signed(dtype) and is_integer(preferred) and not is_signed(preferred):
        problem = "would drop signs"
    else:
        return preferred
    raise TypeError(
        f"[{name}] preferred_element_type {short_name(preferred)} {problem} {join_types(operands)}."
    )


def dims_of_product(
    op: Op, lhs: ArrayType, rhs: ArrayType, *, dimension_numbers: DimensionNumbers, **params: Any
) -> Dims:
    (lc, rc), (lb, rb) = dimension_numbers
    left = list(letters(lhs.ndim))
    names = letters(lhs.ndim + rhs.ndim)
    right = list(names[lhs.ndim :])
    for i, j in zip((*lc, *lb), (*rc, *rb), strict=True):
        right[j] = left[i]
    out = [left[d] for d in (*lb, *free_dims(lhs.ndim, lc, lb))]
    out += [right[d] for d in free_dims(rhs.ndim, rc, rb)]
    return Dims((tuple(left), tuple(right)), (tuple(out),), "add", linear=((0,), (1,)))


# -- lowering --


def _lower(
    op: Op, e: Any, ins: Any, outs: Any, x: str, y: str, *, precision: Any = None, **p: Any
) -> str:
    (lc, rc), (lb, rb) = p["dimension_numbers"]
    batch = f"batching_dims = {ints(lb)} x {ints(rb)}, " if lb else ""

    def write(x: str, y: str, ins: Any, out: ArrayType) -> str:
        if not e.platform.is_xla_cpu and _is_better_swapped(ins, out, p["dimension_numbers"]):
            return _swapped(e, ins, out, x, y, p["dimension_numbers"], precision)
        return e.let(
            f"stablehlo.dot_general {x}, {y}, {batch}contracting_dims = {ints(lc)} x {ints(rc)}, "
            f"{precision_text(precision, ins)} : ({e.ty(ins[0])}, {e.ty(ins[1])}) -> {e.ty(out)}"
        )

    if isinstance(precision, ALGORITHMS):
        return _by_algorithm(e, ins, outs[0], x, y, precision, write)
    return lower_product(e, ins, outs[0], x, y, write)


def _is_better_swapped(ins: Any, out: ArrayType, numbers: DimensionNumbers) -> bool:
    """Whether exchanged operands need fewer copies.

    Compilers of accelerators copy an operand whose batch dimensions are not its first ones, with
    the contracted dimensions last on the left, and first on the right. A derivative has it on the
    same side, but contracts its other dimensions, so that it would need another copy. One copy
    suffices if one of the two exchanges its operands: that which keeps the last dimension. A result
    that is larger than the operand is not worth it: it may have to be transposed.
    """
    (lhs, rhs), ((lc, rc), (lb, rb)) = ins, numbers
    leading = tuple(range(len(lb)))
    if (lb == leading) == (rb == leading):  # none is copied, or both
        return False
    t, used = (rhs, (*rc, *rb)) if lb == leading else (lhs, (*lc, *lb))
    return t.ndim - 1 not in used and out.size <= t.size


def _swapped(
    e: Any, ins: Any, out: ArrayType, x: str, y: str, numbers: DimensionNumbers, precision: Any
) -> str:
    """The product with exchanged operands, transposed."""
    (lc, rc), (lb, rb) = numbers
    count, end = len(lb), out.ndim
    left, right = [t.ndim - len(c) - count for t, c in zip(ins, (lc, rc), strict=True)]
    batch = range(count)
    order = [*batch, *range(count + left, end), *range(count, count + left)]
    back = [*batch, *range(count + right, end), *range(count, count + right)]
    turned = array_type(tuple([out.shape[d] for d in order]), out.dtype)
    if isinstance(precision, tuple):
        precision = precision[::-1]
    product = e.let(
        f"stablehlo.dot_general {y}, {x}, batching_dims = {ints(rb)} x {ints(lb)}, "
        f"contracting_dims = {ints(rc)} x {ints(lc)}, {precision_text(precision, ins[::-1])} : "
        f"({e.ty(ins[1])}, {e.ty(ins[0])}) -> {e.ty(turned)}"
    )
    types = f"({e.ty(turned)}) -> {e.ty(out)}"
    return e.let(f"stablehlo.transpose {product}, dims = {ints(back)} : {types}")


def _by_algorithm(
    e: Any, ins: Any, out: ArrayType, x: str, y: str, algorithm: Any, write: Callable
) -> str:
    """The product of operands in the dtypes of the algorithm; the result has its sum dtype."""
    if e.platform.is_xla_cpu and algorithm not in ON_CPU:
        presets = [str(a) for a in ON_CPU if isinstance(a, DotAlgorithmPreset)]
        raise ValueError(
            f"dot_general: the CPU does not support the algorithm {algorithm}, and would compute "
            f"something else; it supports {joined(presets)}. Use one of these, or a Precision."
        )
    *kinds, total = algorithm.dtypes(ins, None if e.platform.is_xla_cpu else out.dtype)
    x, y = [e.cast(v, t, k) for v, t, k in zip((x, y), ins, kinds, strict=True)]
    ins = [t.update(dtype=k) for t, k in zip(ins, kinds, strict=True)]
    sums = out.update(dtype=total)
    return e.cast(write(x, y, ins, sums), sums, out.dtype)


def lower_product(e: Any, ins: Any, out: ArrayType, x: str, y: str, write: Callable) -> str:
    """A product in the dtypes that its instruction supports. write: `(x, y, types, out) → name`."""
    small = [is_float(t.dtype) and t.dtype.itemsize == 1 for t in ins]
    dtype = _dtype_of_product(*ins)
    if not all(small):  # a pair of those is multiplied as it is, even if they differ
        if ins[0].dtype != ins[1].dtype:
            dtype = _dtype_for_both(ins, out, any(small))
        dtype = _compute_dtype(dtype, out.dtype)
        x, y = e.cast(x, ins[0], dtype), e.cast(y, ins[1], dtype)
        ins = [t if t.dtype == dtype else t.update(dtype=dtype) for t in ins]
    direct = out if _is_direct(dtype, out.dtype) else out.update(dtype=dtype)
    return e.cast(write(x, y, ins, direct), direct, out.dtype)


def _dtype_for_both(ins: Any, out: ArrayType, has_float8: bool) -> Any:
    """The dtype to multiply operands of two dtypes in. A result of higher precision determines it:
    an integer may not fit into the dtype of a float16 operand."""
    if has_float8:  # no dtype is joined with those
        return out.dtype if is_inexact(out.dtype) else _dtype_of_product(*ins)
    types = [*ins, out] if is_inexact(out.dtype) else ins
    return joined_dtype(*[t.update(dtype=INT8) if _is_small(t.dtype) else t for t in types])


def _is_small(dtype: Any) -> bool:
    """Whether it is an integer of less than 8 bits."""
    return is_integer(dtype) and itemsize_bits(dtype) < 8


def _compute_dtype(common: Any, out: Any) -> Any:
    """The dtype of the product's operands: their own, or the result's if its kind is wider."""
    if not is_inexact(common) and is_inexact(out):
        return out
    return out if is_float(common) and is_complex(out) else common


def _is_direct(dtype: Any, out: Any) -> bool:
    """Whether the product can directly return the result's dtype."""
    if dtype == out:
        return True
    return (
        is_float(dtype) == is_float(out) and out.itemsize >= dtype.itemsize and not _is_small(out)
    )


# -- transforms --


def jvp_of_product(op: Op, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
    (x, y), (tx, ty) = primals, tangents
    out = op(x, y, **params)
    first = None if tx is None else op(tx, y, **params)
    second = None if ty is None else op(x, ty, **params)
    if first is None or second is None:
        return out, second if first is None else first
    return out, add(first, second)


def transpose_product(
    op: Op, ct: Any, x: Any, y: Any, *, dimension_numbers: Any, **params: Any
) -> list[Any]:
    params["preferred_element_type"] = None
    if is_linear(x):
        return [_transpose_lhs(ct, x.aval, y, dimension_numbers, False, params), None]
    (lc, rc), (lb, rb) = dimension_numbers
    swapped = ((rc, lc), (rb, lb))
    return [None, _transpose_lhs(ct, y.aval, x, swapped, True, params)]


def _transpose_lhs(
    ct: Any, aval: ArrayType, y: Any, numbers: DimensionNumbers, swapped: bool, params: dict
) -> Any:
    """The cotangent of the operand of type `aval`, the first by `numbers`.

    swapped: whether it is the second operand, so that its free dimensions are last in `ct`.
    """
    (xc, yc), (xb, yb) = numbers
    x_free = free_dims(aval.ndim, xc, xb)
    y_free = free_dims(type_of(y).ndim, yc, yb)
    count = len(xb)
    ct_batch = tuple(range(count))
    start = count if swapped else count + len(x_free)
    ct_y = tuple(range(start, start + len(y_free)))
    # The remaining dimensions of y are its contracted dimensions, in its own order.
    summed = [xc[i] for i in sorted(range(len(yc)), key=yc.__getitem__)]
    if swapped:
        back = ((tuple(y_free), ct_y), (tuple(yb), ct_batch))
        product = dot_general(y, ct, dimension_numbers=back, **params)
        order = [*xb, *summed, *x_free]
    else:
        back = ((ct_y, tuple(y_free)), (ct_batch, tuple(yb)))
        product = dot_general(ct, y, dimension_numbers=back, **params)
        order = [*xb, *x_free, *summed]
    perm = tuple(sorted(range(len(order)), key=order.__getitem__))
    if perm != tuple(range(len(perm))):
        product = transpose(product, perm=perm)
    if type_of(product).dtype != aval.dtype:
        product = convert_element_type(product, dtype=aval.dtype)
    return product


def batch_product(
    op: Op, mapped: Any, args: Any, ds: Any, *, dimension_numbers: Any, **params: Any
) -> tuple:
    """Two batched operands get a batch dimension; a single one keeps it as a free dimension."""
    (lc, rc), (lb, rb) = dimension_numbers
    ld, rd = ds
    lc, lb = shifted_past(lc, ld), shifted_past(lb, ld)
    rc, rb = shifted_past(rc, rd), shifted_past(rb, rd)
    if ld is not None and rd is not None:
        numbers = ((lc, rc), ((ld, *lb), (rd, *rb)))
        return op(*args, dimension_numbers=numbers, **params), 0
    out = op(*args, dimension_numbers=((lc, rc), (lb, rb)), **params)
    left = free_dims(type_of(args[0]).ndim, lc, lb)
    if ld is not None:
        return out, len(lb) + left.index(ld)
    right = free_dims(type_of(args[1]).ndim, rc, rb)
    return out, len(lb) + len(left) + right.index(ds[1])


def shifted_past(dims: tuple, new: int | None) -> tuple:
    """Dimension numbers after dimension `new` was inserted, if it was."""
    return dims if new is None else tuple(d + (d >= new) for d in dims)


dot_general = Op(
    "dot_general",
    contraction=True,
    is_expensive=True,
    type_rule=type_of_product,
    dims=dims_of_product,
    lower=_lower,
    jvp=jvp_of_product,
    transpose=transpose_product,
    batch=batch_product,
)


def dot(
    lhs: Any, rhs: Any, numbers: DimensionNumbers, precision: Any = None, preferred: Any = None
) -> Any:
    """`dot_general` with a user-supplied precision. `preferred`: a canonical dtype or None."""
    return dot_general(
        lhs,
        rhs,
        dimension_numbers=numbers,
        precision=canonical_precision(precision),
        preferred_element_type=preferred,
    )
