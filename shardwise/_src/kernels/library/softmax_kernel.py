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
from typing import Any, Unpack

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.library.block_choices import (
    Options,
    Settings,
    as_rows,
    elements,
    options_of,
    row_block,
    wide,
)
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
    **settings: Unpack[Settings],
) -> Array:
    """exp(x) / sum(exp(x)) along an axis, computed in float32 or float64.

    Args:
      x: floats of any shape but []; integers are converted.
      blocks: the (rows, columns) of a block. By default about 16,384 elements: whole rows, or 4,096
        elements of longer rows.
      settings: the options `derivative`, `check` and `params` of all functions of the library.

    Returns:
      An array like `x`, of its dtype.

    Raises:
      ValueError: if x has no dimension, or the axis or an option is wrong.
    """
    return _softmax("softmax", x, axis, blocks, settings)


def log_softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    blocks: tuple[int, int] | None = None,
    **settings: Unpack[Settings],
) -> Array:
    """log(softmax(x)), without underflow: arguments, result and errors are those of `softmax`."""
    return _softmax("log_softmax", x, axis, blocks, settings)


def _softmax(who: str, x: Any, axis: int, blocks: Any, settings: Any) -> Any:
    rows, restored = as_rows(who, inexact(x), axis)
    options = options_of(who, row_block(*type_of(rows).shape), blocks, settings)
    return restored(options.pick(_with_rule, forward)(who == "log_softmax", options, rows))


# -- launches --


def forward(in_logs: bool, options: Options, x: Any) -> Any:
    """The softmax of each row of x, [m, n]."""
    return _launched("softmax", partial(_body, in_logs), 2, options, x)


def backward(in_logs: bool, options: Options, y: Any, ct: Any) -> Any:
    """The cotangent of x, from the result y and its cotangent."""
    return _launched("softmax_vjp", partial(_vjp_body, in_logs), 1, options, y, ct)


def _launched(
    name: str, body: Callable[..., None], numbers: int, options: Options, *args: Any
) -> Any:
    """numbers: how many numbers of each row a program remembers."""
    t = type_of(args[0])
    if 0 in t.shape:
        return args[0]
    (m, n), (rows, columns) = t.shape, options.blocks
    passes = 1 if n <= columns else 2
    return options.call(
        partial(body, n),
        ShapeDtypeStruct(t.shape, t.dtype),
        grid=(("rows", cdiv(m, rows)), ("passes", passes), ("columns", cdiv(n, columns))),
        in_specs=Block((rows, columns), lambda i, _, j: (i, j)),
        out_specs=Block((rows, columns), lambda i, p, j: (i, j if passes == 1 else j * p)),
        scratch=[VMEM((rows, 1), wide(t.dtype))] * numbers,
        parallel=["rows"],
        name=name,
    )(*args)


_with_rule = custom_vjp(forward, nondiff_argnums=(0, 1))
_with_rule.defvjp(
    lambda *args: (_with_rule(*args),) * 2,
    lambda in_logs, options, y, ct: (backward(in_logs, options, y, ct),),
)


# -- bodies --


def _turns() -> tuple[Any, Any, Any]:
    """Whether this program is the first of its rows, adds to the sums, writes the result."""
    if num_programs("passes") == 1:
        return True, True, True
    is_first_pass = program_id("passes") == 0
    return is_first_pass & (program_id("columns") == 0), is_first_pass, ~is_first_pass


def _body(in_logs: bool, n: int, x: Any, out: Any, top: Any, total: Any) -> None:
    starts, adds, writes = _turns()
    values = elements(x, top.dtype, -np.inf, (1, program_id("columns"), n))

    @when(starts)
    def _() -> None:
        top[...] = np.finfo(top.dtype).min  # finite, for rows that begin with -inf
        total[...] = 0

    @when(adds)
    def _() -> None:
        new = maximum(top[...], values.max(1, keepdims=True))
        total[...] *= exp(top[...] - new)
        total[...] += exp(values - new).sum(1, keepdims=True)
        top[...] = new

    @when(writes)
    def _() -> None:
        above = values - top[...]
        result = above - log(total[...]) if in_logs else exp(above) / total[...]
        out[...] = result.astype(out.dtype)


def _vjp_body(in_logs: bool, n: int, y: Any, ct: Any, out: Any, total: Any) -> None:
    starts, adds, writes = _turns()
    results, cts = [elements(ref, total.dtype, 0, (1, program_id("columns"), n)) for ref in (y, ct)]

    @when(starts)
    def _() -> None:
        total[...] = 0

    @when(adds)
    def _() -> None:
        total[...] += (cts if in_logs else results * cts).sum(1, keepdims=True)

    @when(writes)
    def _() -> None:
        both = total[...]
        result = cts - exp(results) * both if in_logs else results * (cts - both)
        out[...] = result.astype(out.dtype)
