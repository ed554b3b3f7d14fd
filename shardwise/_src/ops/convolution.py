"""`conv_general_dilated`: sums of products of a kernel with the windows of an array.

    conv_general_dilated(x, k, window_strides=(1, 1), padding=((1, 1), (1, 1)), …)
    # f32[n,i,h,w], f32[o,i,3,3] → f32[n,o,h,w]

`ConvDimensionNumbers` gives the positions of batch, features and space: (batch, features, space…)
of lhs and result, (output features, input features, space…) of the kernel. Each feature group has
separate parts of lhs's and of the result's features; each batch group has separate parts of the
batch and of the result's features. Both derivatives are convolutions with permuted numbers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from shardwise._src.base.errors import ShapeError
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, is_linear
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import ints, move_axis, reshape, transpose, zeros
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.contract import (
    dot,
    joined_dtype,
    jvp_of_product,
    lower_product,
    result_dtype,
)
from shardwise._src.ops.families import add, common_dtype, lit
from shardwise._src.ops.precision import Precision
from shardwise._src.ops.shape import concatenate, dilated, pad, places, rev, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dims import Dims
from shardwise._src.types.dtypes import is_complex, real_dtype

Pads = tuple[tuple[int, int], ...]


@public("shardwise.lax")
class ConvDimensionNumbers(NamedTuple):
    """The dimension positions of a convolution: batch, features, then space in one order.

    The first two of `rhs_spec` are the features of the result, and those of lhs.
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


# -- types --


def _check(op: Op, lhs: ArrayType, rhs: ArrayType, p: dict[str, Any]) -> None:
    def fail(problem: str) -> None:
        raise ShapeError(f"[{op.name}] {problem}; got {join_types((lhs, rhs))}.")

    numbers, groups, parts = (
        p["dimension_numbers"],
        p["feature_group_count"],
        p["batch_group_count"],
    )
    if lhs.ndim != rhs.ndim or lhs.ndim < 2:
        fail("operands must have the same number of dimensions, at least 2")
    if any(sorted(spec) != list(range(lhs.ndim)) for spec in numbers):
        fail(f"dimension_numbers must be permutations of the {lhs.ndim} dimensions, not {numbers}")
    space = lhs.ndim - 2
    for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation"):
        if len(p[name]) != space:
            fail(f"{name} must have an entry for each of {space} spatial dimensions, not {p[name]}")
        if name != "padding" and any(n < 1 for n in p[name]):
            fail(f"{name} must be positive, not {p[name]}")
    if groups < 1 or parts < 1 or (groups > 1 and parts > 1):
        fail(
            "feature_group_count and batch_group_count must be positive, and one of them 1, not "
            f"{groups} and {parts}"
        )
    (batch, features), (made, taken) = (
        [t.shape[d] for d in spec[:2]] for t, spec in ((lhs, numbers[0]), (rhs, numbers[1]))
    )
    if features % groups or features // groups != taken:
        fail(
            f"the {taken} input features of rhs must be those of lhs, {features}, divided by "
            f"feature_group_count, {groups}"
        )
    if batch % parts:
        fail(f"batch_group_count, {parts}, must divide the batch of lhs, {batch}")
    if made % groups or made % parts:
        fail(f"the groups, {max(groups, parts)}, must divide the output features of rhs, {made}")


def _spatial(p: dict[str, Any]) -> Any:
    """Stride, padding and the dilations of both operands, for each spatial dimension."""
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    return zip(*[p[name] for name in names], strict=True)


def _type(op: Op, lhs: ArrayType, rhs: ArrayType, **p: Any) -> ArrayType:
    _check(op, lhs, rhs, p)
    left, right, to = p["dimension_numbers"]
    rows = zip(to[2:], left[2:], right[2:], _spatial(p), strict=True)
    shape = [0] * lhs.ndim
    shape[to[0]] = lhs.shape[left[0]] // p["batch_group_count"]
    shape[to[1]] = rhs.shape[right[0]]
    for out, d, k, (stride, (low, high), hole, rhs_hole) in rows:
        n = dilated(lhs.shape[d], hole) + low + high
        if n < 0:
            raise ValueError(
                f"[{op.name}] padding {p['padding']} removes more elements than there are in "
                f"{join_types((lhs, rhs))}."
            )
        shape[out] = places(n, dilated(rhs.shape[k], rhs_hole), stride)
    common_dtype(op.name, (lhs, rhs))
    dtype = joined_dtype(lhs, rhs)
    dtype = result_dtype(op.name, dtype, (lhs, rhs), p["preferred_element_type"])
    return array_type(tuple(shape), dtype, lhs.weak_type and rhs.weak_type)


def _dims(op: Op, lhs: ArrayType, rhs: ArrayType, **p: Any) -> Dims:
    left, right, to = p["dimension_numbers"]
    rows: list[list[Any]] = [[None] * lhs.ndim for _ in range(3)]
    x, y, out = rows
    groups, parts = p["feature_group_count"], p["batch_group_count"]
    y[right[0]] = out[to[1]] = "o" if max(groups, parts) == 1 else ("g", "o")
    if parts > 1:
        x[left[0]], x[left[1]], y[right[1]] = ("g", "n"), "i", "i"
        return Dims((tuple(x), tuple(y)), (tuple(out),), "add", linear=((0,), (1,)))
    x[left[0]] = out[to[0]] = "n"
    x[left[1]] = "i" if groups == 1 else ("g", "i")
    if groups == 1:
        y[right[1]] = "i"
    specs = _kept(lhs, rhs, left, to)
    return Dims((tuple(x), tuple(y)), (tuple(out),), "add", linear=((0,), (1,)), specs=specs)


def _kept(lhs: ArrayType, rhs: ArrayType, left: Any, to: Any) -> Any:
    """If only batch and space of lhs are sharded, the result is sharded the same way."""
    if lhs.spec is None or (rhs.spec is not None and any(rhs.spec.dims(rhs.ndim))):
        return None
    axes = lhs.spec.dims(lhs.ndim)
    if axes[left[1]] or not any(axes[d] for d in left[2:]):
        return None
    found = [()] * lhs.ndim
    for source, target in zip((left[0], *left[2:]), (to[0], *to[2:]), strict=True):
        found[target] = axes[source]
    return (tuple(found),)


# -- lowering --


def _lower(op: Op, e: Any, ins: Any, outs: Any, x: str, y: str, **p: Any) -> str:
    if 0 in (ins[0].size, ins[1].size, outs[0].size):
        return e.constant(0, outs[0])
    if is_complex(outs[0].dtype):
        return e.via(_by_parts, ins, x, y, op=op, **p)[0]

    def write(ins: Any, outs: Any, x: str, y: str) -> str:
        return lower_product(e, ins, outs[0], x, y, lambda *xs: e.convolution(*xs, p))

    return e.widened(op, ins, outs, (x, y), write)[0]


def parameters_text(p: dict[str, Any]) -> str:
    """The StableHLO attributes of a convolution, which follow its operands."""
    sides = [
        ints([names[i] if (i := spec.index(d)) < 2 else i - 2 for d in range(len(spec))])
        for spec, names in zip(p["dimension_numbers"], ("bf", "oi", "bf"), strict=True)
    ]
    pair = p["precision"] or (Precision.DEFAULT, Precision.DEFAULT)
    precision = ", ".join([f"#stablehlo<precision {one.name}>" for one in pair])
    return (
        f"dim_numbers = {sides[0]}x{sides[1]}->{sides[2]}, window = {{stride = "
        f"{ints(p['window_strides'])}, pad = {[list(row) for row in p['padding']]}, lhs_dilate = "
        f"{ints(p['lhs_dilation'])}, rhs_dilate = {ints(p['rhs_dilation'])}}} "
        f"{{batch_group_count = {p['batch_group_count']} : i64, feature_group_count = "
        f"{p['feature_group_count']} : i64, precision_config = [{precision}]}}"
    )


def sums_of_groups(x: Any, y: Any, *, dtype: Any, precision: Any, **p: Any) -> Any:
    """A grouped convolution by matrix products: one for each position of the result, or for each
    position of the kernel, whichever has fewer.
    """
    left, right, to = p["dimension_numbers"]
    strides, holes, split = p["window_strides"], p["rhs_dilation"], p["feature_group_count"] > 1
    groups = p["feature_group_count"] * p["batch_group_count"]
    config = [
        (low, high, hole - 1)
        for (low, high), hole in zip(p["padding"], p["lhs_dilation"], strict=True)
    ]
    x = transpose(x, perm=tuple(left))
    x = pad(x, lit(0, x), padding_config=((0, 0, 0), (0, 0, 0), *config))
    x = move_axis(unfolded(x, int(split), groups), int(split), 0)  # [g, m, i, space…]
    y = unfolded(transpose(y, perm=tuple(right)), 0, groups)  # [g, k, i, window…]
    window = type_of(y).shape[3:]
    rows = zip(type_of(x).shape[3:], map(dilated, window, holes), strides, strict=True)
    counts = tuple([places(*row) for row in rows])
    by_place = math.prod(counts) <= math.prod(window)
    taken, steps, starts, apart = (
        (window, holes, counts, strides) if by_place else (counts, strides, window, holes)
    )
    found: list[Any] = []
    for at in itertools.product(*map(range, starts)):
        part = x
        for d, (i, gap, n, step) in enumerate(zip(at, apart, taken, steps, strict=True)):
            part = slice_in_dim(part, i * gap, i * gap + (n - 1) * step + 1, 3 + d, step)
        here, summed = y, (2, *range(3, 3 + len(taken)))
        if not by_place:
            for d, i in enumerate(at):
                here = slice_in_dim(here, i, i + 1, 3 + d)
            here, summed = reshape(here, shape=type_of(y).shape[:3]), (2,)
        found.append(dot(part, here, ((summed, summed), ((0,), (0,))), precision, dtype))
    if by_place:  # [g, m, k] each
        grown = [reshape(z, shape=(1, *type_of(z).shape)) for z in found]
        z = concatenate(*grown, dimension=0) if len(grown) > 1 else grown[0]
        z = reshape(z, shape=(*counts, *type_of(z).shape[1:]))
        n = len(counts)
        z = transpose(z, perm=(n + 1, n, n + 2, *range(n)))
    else:  # [g, m, space…, k] each
        z = functools.reduce(add, found)
        z = transpose(z, perm=(1, 0, 2 + len(counts), *range(2, 2 + len(counts))))
    shape = type_of(z).shape
    z = reshape(z, shape=(shape[0], shape[1] * shape[2], *shape[3:]))
    return transpose(z, perm=tuple([to.index(d) for d in range(len(to))]))


def products_of_groups(ins: Sequence[ArrayType], out: ArrayType, p: dict[str, Any]) -> int:
    """The number of matrix products in `sums_of_groups`."""
    _, right, to = p["dimension_numbers"]
    sides = ((ins[1], right), (out, to))
    return min([math.prod([t.shape[d] for d in spec[2:]]) for t, spec in sides])


def _by_parts(x: Any, y: Any, *, op: Op, preferred_element_type: Any, **p: Any) -> Any:
    """A complex convolution by real ones, which every backend supports."""
    wanted = preferred_element_type
    p["preferred_element_type"] = None if wanted is None else real_dtype(wanted)
    (a, b), (c, d) = ((ew.real(z), ew.imag(z)) for z in (x, y))
    real = ew.sub(op(a, c, **p), op(b, d, **p))
    return ew.complex(real, ew.add(op(a, d, **p), op(b, c, **p)))


# -- transforms --


def _transpose(op: Op, ct: Any, x: Any, y: Any, **p: Any) -> list[Any]:
    wanted = p.pop("preferred_element_type")
    p["preferred_element_type"] = None
    other = y if is_linear(x) else x
    if wanted is not None and type_of(other).dtype != type_of(ct).dtype:
        other = convert_element_type(other, dtype=type_of(ct).dtype)
    if is_linear(x):
        return [_as_given(_of_lhs(op, ct, x.aval, other, p), x.aval), None]
    return [None, _as_given(_of_rhs(op, ct, other, y.aval, p), y.aval)]


def _as_given(ct: Any, aval: ArrayType) -> Any:
    if type_of(ct).dtype == aval.dtype:
        return ct
    return convert_element_type(ct, dtype=aval.dtype)


def _of_lhs(op: Op, ct: Any, aval: ArrayType, y: Any, p: dict[str, Any]) -> Any:
    """Strides become dilations, dilations become strides; the kernel is flipped."""
    left, right, to = p["dimension_numbers"]
    groups, parts = p["feature_group_count"], p["batch_group_count"]
    shape, kernel = type_of(ct).shape, type_of(y).shape
    padding = []
    for i, (stride, (low, _), hole, rhs_hole) in enumerate(_spatial(p), 2):
        window = dilated(kernel[right[i]], rhs_hole)
        before = window - 1 - low
        total = dilated(aval.shape[left[i]], hole) - 1 + window
        padding.append((before, total - before - dilated(shape[to[i]], stride)))
    together = max(groups, parts)
    if together > 1:  # groups move from one feature dimension of the kernel to the other
        y = unfolded(y, right[0], together)
        y = folded(y, right[0], right[1])
    y = rev(y, dimensions=tuple(sorted(right[2:])))
    numbers = ConvDimensionNumbers(to, (right[1], right[0], *right[2:]), left)
    p = p | {
        "dimension_numbers": numbers,
        "window_strides": p["lhs_dilation"],
        "lhs_dilation": p["window_strides"],
        "padding": tuple(padding),
        "feature_group_count": together,
        "batch_group_count": 1,
    }
    found = op(ct, y, **p)
    if parts > 1:
        found = folded(unfolded(found, left[1], parts), left[1], left[0])
    return found


def _of_rhs(op: Op, ct: Any, x: Any, aval: ArrayType, p: dict[str, Any]) -> Any:
    """The cotangent is the kernel, with strides as dilations; batch and features are swapped."""
    left, right, to = p["dimension_numbers"]
    shape, ct_shape = type_of(x).shape, type_of(ct).shape
    if 0 in ct_shape:
        return zeros(aval)
    padding = []
    for i, (stride, (low, _), hole, rhs_hole) in enumerate(_spatial(p), 2):
        reach = dilated(ct_shape[to[i]], stride) + dilated(aval.shape[right[i]], rhs_hole)
        padding.append((low, reach - 1 - low - dilated(shape[left[i]], hole)))
    numbers = ConvDimensionNumbers(
        (left[1], left[0], *left[2:]), (to[1], to[0], *to[2:]), (right[1], right[0], *right[2:])
    )
    p = p | {
        "dimension_numbers": numbers,
        "window_strides": p["rhs_dilation"],
        "rhs_dilation": p["window_strides"],
        "padding": tuple(padding),
        "feature_group_count": p["batch_group_count"],
        "batch_group_count": p["feature_group_count"],
    }
    return op(x, ct, **p)


def folded(x: Any, hidden: Any, dim: int, groups: int = 1) -> Any:
    """A dimension merged into dimension `dim`, inside the groups that are its major factor."""
    size = type_of(x).shape[hidden]
    x = move_axis(x, hidden, dim)
    shape = type_of(x).shape
    before, own, after = shape[:dim], shape[dim + 1], shape[dim + 2 :]
    if groups > 1:
        x = reshape(x, shape=(*before, size, groups, own // groups, *after))
        x = move_axis(x, dim + 1, dim)
    return reshape(x, shape=(*before, size * own, *after))


def unfolded(x: Any, dim: int, size: int, groups: int = 1) -> Any:
    """The inverse of `folded`: a dimension of this size, now at `dim`, before the remainder."""
    shape = type_of(x).shape
    before, rest, after = shape[:dim], shape[dim] // size, shape[dim + 1 :]
    if groups > 1:
        x = reshape(x, shape=(*before, groups, size, rest // groups, *after))
        x = move_axis(x, dim + 1, dim)
    return reshape(x, shape=(*before, size, rest, *after))


def _batch(op: Op, mapped: Any, args: Any, ds: Any, **p: Any) -> tuple[Any, int]:
    """A mapped dimension of lhs joins the batch, of rhs the features; of both it becomes groups."""
    (x, y), (dx, dy), size = args, ds, mapped.size
    left, right, to = p["dimension_numbers"]
    if not size:
        return _of_none(op, args, ds, p), 0
    groups, parts = p["feature_group_count"], p["batch_group_count"]
    if dx is not None and dy is not None:
        kind, at = ("batch_group_count", 0) if parts > 1 else ("feature_group_count", 1)
        x, y = folded(x, dx, left[at]), folded(y, dy, right[0])
        out = op(x, y, **p | {kind: size * p[kind]})
        return unfolded(out, to[1], size), to[1]
    if dx is not None:
        out = op(folded(x, dx, left[0], parts), y, **p)
        return unfolded(out, to[0], size), to[0]
    both = max(groups, parts)
    out = op(x, folded(y, dy, right[0], both), **p)
    return unfolded(out, to[1], size, both), to[1]


def _of_none(op: Op, args: Any, ds: Any, p: dict[str, Any]) -> Any:
    shapes = [
        t.shape if d is None else t.shape[:d] + t.shape[d + 1 :]
        for t, d in zip(map(type_of, args), ds, strict=True)
    ]
    kinds = [array_type(s, type_of(a).dtype) for s, a in zip(shapes, args, strict=True)]
    t = _type(op, *kinds, **p)
    return zeros(array_type((0, *t.shape), t.dtype))


conv_general_dilated = Op(
    "conv_general_dilated",
    own_values=True,
    contraction=True,
    is_expensive=True,
    type_rule=_type,
    dims=_dims,
    lower=_lower,
    jvp=jvp_of_product,
    transpose=_transpose,
    batch=_batch,
)
