"""Softmax along rows, exp(x - max(x)) / sum(exp(x - max(x))), its logarithm and their derivatives.

Rows that fit a block are computed at once (`_rows`). Longer ones are visited twice (`_long_rows`),
on a grid of (blocks of rows, pass, blocks of columns): the first pass finds the largest element and
the sum, which it corrects when a larger element comes; the second one writes the result. In the
first pass all programs have the first block of the result, so that no block is left unwritten.

Elements beyond the end of a row are -inf, which adds 0 to the sum. Rows beyond the end of the array
are computed from unspecified elements, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.core.infer import type_of
from shardwise._src.custom.custom_vjp import custom_vjp
from shardwise._src.kernels.blocks import Block
from shardwise._src.kernels.launch_record import CompilerParams
from shardwise._src.kernels.launching import call
from shardwise._src.kernels.library.block_choices import Options, as_rows, row_block, sizes_of, wide
from shardwise._src.kernels.program_frames import cdiv, program_id, when
from shardwise._src.kernels.spaces import VMEM
from shardwise._src.lax.shape_operators import broadcasted_iota
from shardwise._src.maps.ufuncs import maximum
from shardwise._src.messages.formatting import short_repr
from shardwise._src.numpy.creation import full, zeros
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.statistics.reductions import max as largest
from shardwise._src.numpy.statistics.reductions import sum as total_of
from shardwise._src.numpy.unary import exp, log
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.values.convert import inexact

LOWEST = float(np.finfo(np.float32).min)  # finite: of rows that begin with -inf


def softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    derivative: Literal["kernel", "automatic"] = "kernel",
    block: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """exp(x) / sum(exp(x)) along an axis, by a kernel that computes in float32 or float64.

    Args:
      x: floats of any shape; integers are converted.
      axis: an integer.
      derivative: "kernel": reverse mode runs a kernel on the result. "automatic": derivatives of
        the kernel itself, in all modes, but slower in reverse mode.
      block: (rows, columns) of a block. By default about 16,384 elements in whole rows, or 4,096
        elements of longer rows.
      check, params: as those of `kernels.call`.

    Returns:
      An array like `x`, of its dtype.

    Raises:
      ValueError: if x has no dimension, or the axis or the block is wrong.
    """
    return _softmax("softmax", x, axis, derivative, block, check, params)


def log_softmax(
    x: ArrayLike,
    axis: int = -1,
    *,
    derivative: Literal["kernel", "automatic"] = "kernel",
    block: tuple[int, int] | None = None,
    check: bool = False,
    params: CompilerParams | None = None,
) -> Array:
    """log(softmax(x)) along an axis, without underflow; the arguments are those of `softmax`."""
    return _softmax("log_softmax", x, axis, derivative, block, check, params)


def _softmax(
    who: str, x: Any, axis: int, derivative: str, block: Any, check: bool, params: Any
) -> Any:
    rows, restored = as_rows(who, inexact(x), axis)
    m, n = type_of(rows).shape
    sizes = sizes_of(who, ("rows", "columns"), block, row_block(m, n))
    if derivative not in ("kernel", "automatic"):
        raise ValueError(
            f"{who}: derivative is 'kernel' or 'automatic'; got {short_repr(derivative)}."
        )
    run = _with_rule if derivative == "kernel" else forward
    return restored(run(rows, who == "log_softmax", Options(sizes, check, params)))


# -- launches --


def forward(x: Any, in_logs: bool, options: Options) -> Any:
    """The softmax of each row of x, [m, n]."""
    return _launched("softmax", _rows, _long_rows, (x,), in_logs, options)


def backward(y: Any, ct: Any, in_logs: bool, options: Options) -> Any:
    """The cotangent of x, from the result y and its cotangent."""
    return _launched("softmax_vjp", _vjp_rows, _vjp_long_rows, (y, ct), in_logs, options)


def _launched(
    name: str,
    short: Callable[..., None],
    long: Callable[..., None],
    args: tuple[Any, ...],
    in_logs: bool,
    options: Options,
) -> Any:
    t = type_of(args[0])
    (m, n), (rows, columns) = t.shape, options.block
    if not m * n:
        return args[0]
    out = ShapeDtypeStruct(t.shape, t.dtype)
    if n <= columns:
        whole = Block((rows, columns), lambda i: (i, 0))
        launch = call(
            partial(short, n, in_logs), out, grid=(("rows", cdiv(m, rows)),), in_specs=whole,
            out_specs=whole, parallel=["rows"], name=name, **options.of_call,
        )  # fmt: skip
    else:
        launch = call(
            partial(long, n, in_logs), out,
            grid=(("rows", cdiv(m, rows)), ("pass", 2), ("columns", cdiv(n, columns))),
            in_specs=Block((rows, columns), lambda i, _, j: (i, j)),
            out_specs=Block((rows, columns), lambda i, phase, j: (i, j * phase)),
            scratch=[VMEM((rows, 1), wide(t.dtype))] * (1 if short is _vjp_rows else 2),
            parallel=["rows"], name=name, **options.of_call,
        )  # fmt: skip
    return launch(*args)


_with_rule = custom_vjp(forward, nondiff_argnums=(1, 2))
_with_rule.defvjp(
    lambda x, *options: (_with_rule(x, *options),) * 2,
    lambda in_logs, options, y, ct: (backward(y, ct, in_logs, options),),
)


# -- bodies --


def _elements(ref: Any, n: int, first: Any, beyond: float) -> Any:
    """A block from column `first` on, with a value for elements beyond the end of a row."""
    values = ref[...].astype(wide(ref.dtype))
    width = values.shape[1]
    if n % width == 0:
        return values
    return where(first + broadcasted_iota(np.int32, values.shape, 1) < n, values, beyond)


def _rows(n: int, in_logs: bool, x: Any, out: Any) -> None:
    values = _elements(x, n, 0, -np.inf)
    values = values - largest(values, 1, keepdims=True)
    total = total_of(exp(values), 1, keepdims=True)
    out[...] = (values - log(total) if in_logs else exp(values) / total).astype(out.dtype)


def _long_rows(n: int, in_logs: bool, x: Any, out: Any, top: Any, total: Any) -> None:
    is_first_pass, j = program_id("pass") == 0, program_id("columns")
    values = _elements(x, n, j * x.shape[1], -np.inf)

    @when(is_first_pass & (j == 0))
    def _() -> None:
        top[...] = full(top.shape, LOWEST, top.dtype)
        total[...] = zeros(total.shape, total.dtype)

    @when(is_first_pass)
    def _() -> None:
        new = maximum(top[...], largest(values, 1, keepdims=True))
        added = total_of(exp(values - new), 1, keepdims=True)
        total[...] = total[...] * exp(top[...] - new) + added
        top[...] = new

    @when(~is_first_pass)
    def _() -> None:
        above = values - top[...]
        result = above - log(total[...]) if in_logs else exp(above) / total[...]
        out[...] = result.astype(out.dtype)


def _vjp_of(y: Any, ct: Any, total: Any, in_logs: bool) -> Any:
    """total: the sum of `_terms`."""
    return ct - exp(y) * total if in_logs else y * (ct - total)


def _terms(y: Any, ct: Any, in_logs: bool) -> Any:
    return ct if in_logs else y * ct


def _vjp_rows(n: int, in_logs: bool, y: Any, ct: Any, out: Any) -> None:
    results, cts = _elements(y, n, 0, 0), _elements(ct, n, 0, 0)
    total = total_of(_terms(results, cts, in_logs), 1, keepdims=True)
    out[...] = _vjp_of(results, cts, total, in_logs).astype(out.dtype)


def _vjp_long_rows(n: int, in_logs: bool, y: Any, ct: Any, out: Any, total: Any) -> None:
    is_first_pass, j = program_id("pass") == 0, program_id("columns")
    first = j * y.shape[1]
    results, cts = _elements(y, n, first, 0), _elements(ct, n, first, 0)

    @when(is_first_pass & (j == 0))
    def _() -> None:
        total[...] = zeros(total.shape, total.dtype)

    @when(is_first_pass)
    def _() -> None:
        total[...] += total_of(_terms(results, cts, in_logs), 1, keepdims=True)

    @when(~is_first_pass)
    def _() -> None:
        out[...] = _vjp_of(results, cts, total[...], in_logs).astype(out.dtype)
