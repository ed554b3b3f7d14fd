"""Softmax along rows, exp(x - max(x)) / sum(exp(x - max(x))), its logarithm and their derivatives.

The grid is (blocks of rows, passes, blocks of columns). Rows that fit a block need one pass. Longer
ones need two: the first finds the largest element and the sum, which it corrects when a larger
element comes; the second writes the result. In the first pass all programs have the first block of
the result, so that no block is left before it is written.

Elements beyond the end of a row are -inf, which adds 0 to the sum. Rows beyond the end of the array
are computed from unspecified elements, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.infer import type_of
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import (
    Options,
    as_rows,
    elements,
    row_block,
    sizes_of,
    wide,
)
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.kernels.program_frames import cdiv, num_programs, program_id, when
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.maps.ufuncs import maximum
from shardwise._src.numpy.unary import exp, log
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.convert import inexact


def softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """exp(x) / sum(exp(x)) along an axis, computed in float32 or float64.

    Args:
      x: floats of any shape but []; integers are converted.
      blocks: the (rows, columns) of a block. By default about 16,384 elements: whole rows, or 4,096
        elements of longer rows.
      check, params: as those of `kernels.call`.

    Returns:
      An array like `x`, of its dtype.

    Raises:
      ValueError: if x has no dimension, or the axis or blocks is wrong.
    """
    return _softmax("softmax", x, axis, blocks, check, params)


def log_softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """log(softmax(x)), without underflow: arguments, result and errors are those of `softmax`."""
    return _softmax("log_softmax", x, axis, blocks, check, params)


def _softmax(who: str, x: Any, axis: int, blocks: Any, check: bool, params: Any) -> Any:
    rows, restored = as_rows(who, inexact(x), axis)
    m, n = type_of(rows).shape
    sizes = sizes_of(who, ("rows", "columns"), blocks, row_block(m, n))
    return restored(_rows((who == "log_softmax", Options(sizes, check, params)), rows))


# -- launches --


def forward(how: tuple[bool, Options], x: Any) -> Any:
    """The softmax of each row of x, [m, n], or its logarithm. how: whether that, and options."""
    return _launched("softmax", partial(_body, how[0]), 2, how[1], x)


def backward(how: tuple[bool, Options], given: Any, ct: Any) -> tuple[Any]:
    """The cotangent of x, from that of the result, which the kernel computes again."""
    return (_launched("softmax_vjp", partial(_vjp_body, how[0]), 3, how[1], *given, ct),)


def _launched(
    name: str, body: Callable[..., None], numbers: int, options: Options, *args: Any
) -> Any:
    """numbers: how many numbers of each row a program remembers."""
    t = type_of(args[0])
    if 0 in t.shape:
        return args[0]
    (m, n), (rows, columns) = t.shape, options.blocks
    passes = 1 if n <= columns else 2
    return call(
        partial(body, n),
        ShapeDtypeStruct(t.shape, t.dtype),
        grid=(("rows", cdiv(m, rows)), ("passes", passes), ("columns", cdiv(n, columns))),
        in_specs=Block((rows, columns), lambda i, _, j: (i, j)),
        out_specs=Block((rows, columns), lambda i, p, j: (i, j if passes == 1 else j * p)),
        scratch=[VMEM((rows, 1), wide(t.dtype))] * numbers,
        parallel=["rows"],
        name=name,
        **options.of_call,
    )(*args)


_rows = with_cotangents(forward, backward)


# -- bodies --


def _phases() -> tuple[Any, Any, Any]:
    """Whether this program is the first of its rows, adds to the sums, writes the result."""
    if num_programs("passes") == 1:
        return True, True, True
    is_first_pass = program_id("passes") == 0
    return is_first_pass & (program_id("columns") == 0), is_first_pass, ~is_first_pass


def _body(in_logs: bool, n: int, x: Any, out: Any, running_max: Any, total: Any) -> None:
    starts, adds, writes = _phases()
    values = elements(x, running_max.dtype, -np.inf, (1, program_id("columns"), n))

    @when(starts)
    def _() -> None:
        running_max[...] = np.finfo(running_max.dtype).min  # finite, for rows that begin with -inf
        total[...] = 0

    @when(adds)
    def _() -> None:
        _add(values, running_max, total)

    @when(writes)
    def _() -> None:
        above = values - running_max[...]
        result = above - log(total[...]) if in_logs else exp(above) / total[...]
        out[...] = result.astype(out.dtype)


def _add(values: Any, running_max: Any, total: Any) -> tuple[Any, Any]:
    """Adds a block to the largest elements and sums of rows; returns the exponentials of its
    elements, and the factors by which sums relative to the largest elements changed."""
    new = maximum(running_max[...], values.max(1, keepdims=True))
    factor, exponentials = exp(running_max[...] - new), exp(values - new)
    total[...] = total[...] * factor + exponentials.sum(1, keepdims=True)
    running_max[...] = new
    return exponentials, factor


def _vjp_body(
    in_logs: bool, n: int, x: Any, ct: Any, out: Any, running_max: Any, total: Any, cts: Any
) -> None:
    """cts: the sum of the cotangents, or of their products with exponentials."""
    starts, adds, writes = _phases()
    values, given = [
        elements(ref, running_max.dtype, beyond, (1, program_id("columns"), n))
        for ref, beyond in ((x, -np.inf), (ct, 0))
    ]

    @when(starts)
    def _() -> None:
        running_max[...] = np.finfo(running_max.dtype).min
        total[...] = 0
        cts[...] = 0

    @when(adds)
    def _() -> None:
        exponentials, factor = _add(values, running_max, total)
        more = given if in_logs else exponentials * given
        cts[...] = cts[...] * (1 if in_logs else factor) + more.sum(1, keepdims=True)

    @when(writes)
    def _() -> None:
        y = exp(values - running_max[...]) / total[...]
        result = given - y * cts[...] if in_logs else y * (given - cts[...] / total[...])
        out[...] = result.astype(out.dtype)
