"""Softmax along rows, exp(x - max(x)) / sum(exp(x - max(x))), its logarithm and their derivatives.

The grid is (blocks of rows, passes, blocks of columns). Rows that fit a block need one pass. Longer
ones need two: the first finds the largest element and the sum, which it corrects when a larger
element comes; the second writes the result. In the first pass all programs have the first block of
the result, so that no block is left before it is written.

Elements beyond the end of a row are -inf, which adds 0 to the sum. Rows beyond the end of the array
are computed from unspecified elements, and dropped.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import shardwise as sw
from shardwise import kernels
from shardwise import numpy as snp
from shardwise._src.kernels.library.argument_checks import as_rows
from shardwise._src.kernels.library.block_choices import Options, options_of, row_block, row_params
from shardwise._src.kernels.library.block_values import add_exponentials, inside, wide
from shardwise._src.kernels.library.kernel_derivatives import with_cotangents
from shardwise._src.values.convert import inexact
from shardwise.typing import ArrayLike


def softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    blocks: tuple[int, int] | None = None,
    check: bool = False,
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """exp(x) / sum(exp(x)) along an axis, computed in float32 or float64.

    Args:
      x: floats of any shape but []; integers are converted.
      blocks: the (rows, columns) of a block. By default about 16,384 elements: whole rows of up to
        4,096 elements, or 2,048 elements of longer rows.
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
    params: kernels.CompilerParams | None = None,
) -> sw.Array:
    """log(softmax(x)), without underflow: arguments, result and errors are those of `softmax`."""
    return _softmax("log_softmax", x, axis, blocks, check, params)


def _softmax(who: str, x, axis: int, *options):
    rows, restored = as_rows(who, snp.asarray(inexact(x)), axis)
    m, n = rows.shape
    found = options_of(who, "rows, columns", row_block(m, n), *options)
    params = row_params(found.params, found.blocks[1])
    how = who == "log_softmax", found._replace(params=params)
    return restored(_rows(how, rows) if rows.size else rows)


# -- the launch --


def _launched(how: tuple[bool, Options], x, ct=None):
    """The softmax of each row of x, [m, n], or its logarithm; the cotangent of x for that of the
    result, which the kernel computes again. how: whether the logarithm, and options."""
    (in_logs, options), (m, n) = how, x.shape
    rows, columns = options.blocks
    passes = 1 if n <= columns else 2
    return kernels.call(
        partial(_body, in_logs, n),
        sw.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(
            ("rows", kernels.cdiv(m, rows)),
            ("passes", passes),
            ("columns", kernels.cdiv(n, columns)),
        ),
        in_specs=kernels.Block((rows, columns), lambda i, _, j: (i, j)),
        out_specs=kernels.Block((rows, columns), lambda i, p, j: (i, j if passes == 1 else j * p)),
        scratch=[kernels.VMEM((rows, 1), wide(x.dtype))] * (2 if ct is None else 3),
        parallel=["rows"],
        name="softmax" if ct is None else "softmax_vjp",
        **options.of_call,
    )(x, ct)


_rows = with_cotangents(_launched, lambda how, args, ct: (_launched(how, args[0], ct),))


# -- the kernel --


def _phases():
    """Whether this program is the first of its rows, adds to the sums, writes the result."""
    if kernels.num_programs("passes") == 1:
        return True, True, True
    is_first_pass = kernels.program_id("passes") == 0
    return is_first_pass & (kernels.program_id("columns") == 0), is_first_pass, ~is_first_pass


def _body(in_logs: bool, n: int, x, ct, out, running_max, total, *cts):
    """cts: the sum of the cotangents, or of their products with exponentials, if there is a ct."""
    starts, adds, writes = _phases()
    dtype, bound = total.dtype, (1, kernels.program_id("columns"), n)
    values = inside(x[...].astype(dtype), -np.inf, bound)
    given: Any = None if ct is None else inside(ct[...].astype(dtype), 0, bound)

    @kernels.when(starts)
    def _():
        running_max[...] = np.finfo(dtype).min  # finite, for rows that begin with -inf
        for ref in (total, *cts):
            ref[...] = 0

    @kernels.when(adds)
    def _():
        exponentials, factor = add_exponentials(values, running_max, total)
        for ref in cts:
            more = given if in_logs else exponentials * given
            ref[...] = ref[...] * (1 if in_logs else factor) + more.sum(1, keepdims=True)

    @kernels.when(writes)
    def _():
        above = values - running_max[...]
        if ct is None:
            result = above - snp.log(total[...]) if in_logs else snp.exp(above) / total[...]
        else:
            y, sums = snp.exp(above) / total[...], cts[0][...]
            result = given - y * sums if in_logs else y * (given - sums / total[...])
        out[...] = result.astype(out.dtype)
