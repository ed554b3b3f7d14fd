"""Sums of products along named axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.lax.collective_axes import AxisNames, CollectiveAxes, collective_axes
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.products.einsum import einsum
from shardwise._src.ops.precision import canonical_precision
from shardwise._src.ops.sharded.pdot import sum_of_products
from shardwise._src.types.annotations import Array, ArrayLike, PrecisionLike
from shardwise._src.values.convert import promote

Pair = tuple[Sequence[int], Sequence[int]]


def pdot(
    x: ArrayLike,
    y: ArrayLike,
    axis_name: AxisNames,
    pos_contract: Pair = ((), ()),
    pos_batch: Pair = ((), ()),
    precision: PrecisionLike = None,
) -> Array:
    """Sums of products along named axes and dimensions.

    Args:
      axis_name: the axes to sum over; one or several.
      pos_contract: dimensions of x and of y to sum over as well.
      pos_batch: matching batch dimensions of x and of y, which are first in the result.
      precision: see `shardwise.lax.dot_general`.

    Returns:
      `psum(dot_general(x, y, (pos_contract, pos_batch)), axis_name)`, with a common dtype. Along a
      mapped axis this is one matrix product.

    Raises:
      ValueError: if there are no such dimensions, or paired dimensions differ in size.
    """
    axes = collective_axes("pdot", axis_name)
    contract, batch = [
        _pair(axes, what, x, y, dims)
        for what, dims in (("pos_contract", pos_contract), ("pos_batch", pos_batch))
    ]
    for side in (0, 1):
        used = (*contract[side], *batch[side])
        if len({*used}) < len(used):
            raise ValueError(
                f"{axes.who}: pos_contract and pos_batch must contain each dimension of "
                f"{'xy'[side]} once; got {contract[side]} and {batch[side]}."
            )
    x, y = promote(axes.varied(x), axes.varied(y))
    how = canonical_precision(precision)
    return sum_of_products(x, y, (contract, batch), how, None, **axes.params)


def _pair(axes: CollectiveAxes, what: str, x: Any, y: Any, dims: Any) -> tuple[Any, Any]:
    if not isinstance(dims, tuple | list) or len(dims) != 2:
        raise TypeError(
            f"{axes.who}: {what} must be a pair of sequences, of dimensions of x and of y; got "
            f"{short_repr(dims)}."
        )
    found = tuple(
        [
            tuple([axes.dimension(f"{what} for {name}", v, d) for d in given])
            for name, v, given in zip("xy", (x, y), dims, strict=True)
        ]
    )
    left, right = [
        tuple([type_of(v).shape[d] for d in own]) for v, own in zip((x, y), found, strict=True)
    ]
    if left != right:
        raise ValueError(
            f"{axes.who}: the dimensions of {what} must be pairs of equal size; got {left} and "
            f"{right}, {found[0]} of {type_of(x).str_short(True)} and {found[1]} of "
            f"{type_of(y).str_short(True)}."
        )
    return found[0], found[1]


def xeinsum(spec: str, *operands: ArrayLike) -> Array:
    """Sums of products, by dimension labels and axis names: `xeinsum("a{i},a{i}->", x, y)`.

    This is `shardwise.numpy.einsum` with axis names. Names in braces in a term are axes in
    scope, along which its operand is summed if the result's term lacks them. An operand that
    varies along an axis is summed along it only if its own term names it, so with several operands
    each term must name all axes that it is summed along.

    Raises:
      ValueError: if spec and operands do not fit.
      NameError: if no axis of a name is in scope.
    """
    if not isinstance(spec, str):
        raise TypeError(
            f"shardwise.lax.xeinsum: spec must be a string, such as 'a{{i}},a{{i}}->'; got "
            f"{short_repr(spec)}."
        )
    if not operands:
        raise TypeError("shardwise.lax.xeinsum: there must be an operand for each term of spec.")
    return einsum(spec, *operands)
