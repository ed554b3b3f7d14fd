"""`reduce` and `accumulate` of universal functions that have no equivalent NumPy function.

For example:

    all_bits(x, axis=0)          # bitwise_and.reduce
    running_max(x, 0, None)      # maximum.accumulate
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.fused import fused, fused_optional
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.statistics.named_reductions import Axes, dimensions, folded, reduced_axes
from shardwise._src.numpy.statistics.reductions import add_up, kept, masked
from shardwise._src.numpy.statistics.scans import cumulated
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.cumulative import cumlogsumexp, cummax, cummin
from shardwise._src.ops.reduce import (
    all_ones,
    reduce_and,
    reduce_max,
    reduce_or,
    reduce_xor,
    spread,
)
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.binary import logaddexp, logaddexp2, truth
from shardwise._src.values.convert import cast, constant, inexact

LN2 = 0.6931471805599453


def _log_sum_exp(x: Any, axes: Axes) -> Any:
    """log(sum(exp(x))), without overflow."""
    t, dims = type_of(x), dimensions(axes)
    real = ew.real(x) if is_complex(t.dtype) else x
    top = folded(reduce_max, ew.stop_gradient(real), axes)
    top = cast(ew.where(ew.is_finite(top), top, constant(0, top)), t.dtype)
    powers = ew.exp(ew.sub(x, spread(top, t.shape, dims)))
    return ew.add(ew.log(add_up(powers, axes, t.dtype)), top)


def _log2_sum_exp2(x: Any, axes: Axes) -> Any:
    found = _log_sum_exp(ew.mul(x, constant(LN2, x)), axes)
    return ew.div(found, constant(LN2, found))


# For each fold: preparation, reduction, identity, and combination of two values.
_FOLDS: dict[str, tuple[Callable, Callable, Callable, Callable]] = {
    name: (prepare, lambda x, axes, op=op: folded(op, x, axes), identity, combine)
    for name, prepare, op, identity, combine in (
        ("all_bits", lambda x: x, reduce_and, all_ones, ew.bitwise_and),
        ("any_bit", lambda x: x, reduce_or, lambda d: 0, ew.bitwise_or),
        ("odd_bits", lambda x: x, reduce_xor, lambda d: 0, ew.bitwise_xor),
        ("all_true", truth, reduce_and, all_ones, ew.bitwise_and),
        ("any_true", truth, reduce_or, lambda d: False, ew.bitwise_or),
        ("odd_truths", truth, reduce_xor, lambda d: False, ew.bitwise_xor),
    )
} | {
    "log_sum_exp": (inexact, _log_sum_exp, lambda d: -np.inf, logaddexp),
    "log2_sum_exp2": (inexact, _log2_sum_exp2, lambda d: -np.inf, logaddexp2),
}


@fused_optional
def _reduced(a: Any, initial: Any = None, where: Any = None, *, name: str, **how: Any) -> Any:
    axis, dtype, keepdims = how["axis"], how["dtype"], how["keepdims"]
    prepare, fold, identity, combine = _FOLDS[name]
    if dtype is not None and prepare is not truth:
        a = cast(a, dtype)
    x = prepare(a)
    t = type_of(x)
    if where is not None:
        x = masked(x, where, identity(t.dtype), name)
        t = type_of(x)
    axes = reduced_axes(axis, t.ndim)
    out = kept(fold(x, axes), axes, keepdims)
    if initial is not None:
        first = truth(initial) if prepare is truth else initial
        out = combine(cast(first, t.dtype), out)
    return cast(out, t.dtype if dtype is None else dtype)


def _reduction(name: str) -> Callable[..., Any]:
    def reduce(
        a: Any, axis: Any, dtype: Any, out: None, keepdims: bool, initial: Any, where: Any
    ) -> Any:
        return _reduced(a, initial, where, name=name, axis=axis, dtype=dtype, keepdims=keepdims)

    return reduce


all_bits, any_bit, odd_bits = map(_reduction, ("all_bits", "any_bit", "odd_bits"))
all_true, any_true, odd_truths = map(_reduction, ("all_true", "any_true", "odd_truths"))
log_sum_exp, log2_sum_exp2 = map(_reduction, ("log_sum_exp", "log2_sum_exp2"))


@fused(arrays=1)
def _running(a: Any, axis: int, dtype: Any, name: str) -> Any:
    wanted = type_of(a).dtype if dtype is None else dtype
    if name == "max" or name == "min":
        return cumulated(a, axis, wanted, cummax if name == "max" else cummin)
    x = inexact(a) if dtype is None else cast(a, dtype)
    if name == "log_sum":
        return cumlogsumexp(x, axis=axis)
    found = cumlogsumexp(ew.mul(x, constant(LN2, x)), axis=axis)
    return ew.div(found, constant(LN2, found))


def _accumulation(name: str) -> Callable[..., Any]:
    def accumulate(a: Any, axis: int, dtype: Any) -> Any:
        complex_numbers = is_complex(type_of(a).dtype if dtype is None else dtype)
        return NotImplemented if complex_numbers else _running(a, axis, dtype, name)

    return accumulate


running_max, running_min = _accumulation("max"), _accumulation("min")
running_log_sum, running_log2_sum = _accumulation("log_sum"), _accumulation("log2_sum")
