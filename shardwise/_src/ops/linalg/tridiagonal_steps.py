"""Tridiagonal systems as a program, for platforms without a library for them.

Elimination with row exchanges, as in LAPACK's `gtsv`: rows are eliminated in order, each of them
with the next one, and the solution is then substituted backwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.families import lit
from shardwise._src.ops.indexing.gather_scatter import dynamic_slice, dynamic_update_slice
from shardwise._src.ops.linalg.by_platform import check_fixed
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, columns_of, nan_where_failed
from shardwise._src.ops.linalg.triangular import INT32
from shardwise._src.ops.logical import where
from shardwise._src.ops.loops import repeat
from shardwise._src.ops.reduce import reduce_max, reduce_or
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import finfo, is_complex, real_dtype


def tridiagonal_elimination(op: Op, e: Any, ins: Any, outs: Any, *xs: str, perturbed: bool) -> str:
    line, matrix = ins[0], ins[3]
    check_fixed(op, e, matrix)
    if not matrix.size:
        return e.constant(0, matrix)
    n = line.shape[-1]
    least = array_type(line.shape[:-1], real_dtype(line.dtype))
    (bound,) = e.via(_least_pivot, (line,) * 3, *xs[:3], perturbed=perturbed)
    types = (line, line, line, line, matrix, least)
    state = [*xs[:3], e.constant(0, line), xs[3], bound]
    state = repeat(e, _eliminate, n - 1, types, state)
    ready = e.via(_last_pivot, types, *state)
    types = (*types[1:5], matrix)
    x = repeat(e, _substitute, n, types, [*ready, e.constant(0, matrix)])[-1]
    return e.via(_nan_if_singular, (line, matrix), ready[0], x)[0]


def _least_pivot(dl: Any, d: Any, du: Any, perturbed: bool) -> Any:
    """The size that smaller pivots get: 0, or the rounding error of the largest element."""
    sizes = [reduce_max(ew.abs(x), axes=(type_of(x).ndim - 1,)) for x in (dl, d, du)]
    largest = ew.max(ew.max(sizes[0], sizes[1]), sizes[2])
    t = type_of(largest)
    eps = float(finfo(t.dtype).eps) if perturbed else 0.0
    return ew.mul(lit(eps, largest), where(ew.is_finite(largest), largest, lit(0, largest)))


def _at(x: Any, i: Any, after: int) -> Any:
    """Element i of vectors, or row i of matrices (after=1)."""
    t = type_of(x)
    axis = t.ndim - 1 - after
    starts = [np.int32(0)] * t.ndim
    starts[axis] = i
    sizes = (*t.shape[:axis], 1, *t.shape[axis + 1 :])
    found = dynamic_slice(x, *starts, slice_sizes=sizes)
    return reshape(found, shape=(*t.shape[:axis], *t.shape[axis + 1 :]))


def _with(x: Any, i: Any, value: Any, after: int) -> Any:
    t = type_of(x)
    axis = t.ndim - 1 - after
    starts = [np.int32(0)] * t.ndim
    starts[axis] = i
    sizes = (*t.shape[:axis], 1, *t.shape[axis + 1 :])
    return dynamic_update_slice(x, reshape(value, shape=sizes), *starts)


def _large(pivot: Any, least: Any) -> Any:
    """The pivot, or a number of the least size if it is smaller."""
    t = type_of(pivot)
    small = ew.lt(ew.abs(pivot), least)
    negative = ew.lt(ew.real(pivot) if is_complex(t.dtype) else pivot, lit(0, least))
    return where(small, as_dtype(where(negative, ew.neg(least), least), t.dtype), pivot)


def _eliminate(i: Any, dl: Any, d: Any, du: Any, du2: Any, b: Any, least: Any) -> list[Any]:
    """Step i: row i, with two elements after its diagonal, and row i + 1 without its first one."""
    j = ew.add(i, np.int32(1))
    below, own, right, right2 = _at(dl, j, 0), _at(d, i, 0), _at(du, i, 0), _at(du, j, 0)
    last = ew.eq(j, np.int32(type_of(d).shape[-1] - 1))
    right2 = where(last, lit(0, right2), right2)  # the last du is not read
    under, this, that = _at(d, j, 0), _at(b, i, 1), _at(b, j, 1)
    swap = ew.lt(ew.abs(own), ew.abs(below))
    pivot, other = where(swap, below, own), where(swap, own, below)
    pivot = _large(pivot, least)
    factor = ew.div(other, pivot)
    upper, lower = where(swap, under, right), where(swap, right, under)
    far = where(swap, right2, lit(0, right2))
    wide = columns_of(swap, type_of(b).shape[-1])
    here, there = where(wide, that, this), where(wide, this, that)
    there = ew.sub(there, ew.mul(columns_of(factor, type_of(b).shape[-1]), here))
    under = ew.sub(lower, ew.mul(factor, upper))
    beyond = where(swap, ew.neg(ew.mul(factor, right2)), right2)
    d = _with(_with(d, i, pivot, 0), j, under, 0)
    du = _with(_with(du, i, upper, 0), j, beyond, 0)
    return [dl, d, du, _with(du2, i, far, 0), _with(_with(b, i, here, 1), j, there, 1), least]


def _last_pivot(dl: Any, d: Any, du: Any, du2: Any, b: Any, least: Any) -> list[Any]:
    i = np.int32(type_of(d).shape[-1] - 1)
    return [_with(d, i, _large(_at(d, i, 0), least), 0), du, du2, b]


def _substitute(k: Any, d: Any, du: Any, du2: Any, b: Any, x: Any) -> list[Any]:
    """Row i = n - 1 - k of the solution."""
    n, count = type_of(d).shape[-1], type_of(b).shape[-1]
    i = ew.sub(np.int32(n - 1), k)
    found = _at(b, i, 1)
    for line, by in ((du, 1), (du2, 2)):
        place = ew.add(i, np.int32(by))
        inside = ew.lt(place, np.int32(n))
        place = ew.min(place, np.int32(n - 1))
        part = ew.mul(columns_of(_at(line, i, 0), count), _at(x, place, 1))
        found = ew.sub(found, where(inside, part, lit(0, part)))
    found = ew.div(found, columns_of(_at(d, i, 0), count))
    return [d, du, du2, b, _with(x, i, found, 1)]


def _nan_if_singular(d: Any, x: Any) -> Any:
    t = type_of(d)
    zero = reduce_or(ew.eq(d, lit(0, d)), axes=(t.ndim - 1,))
    return nan_where_failed(x, as_dtype(zero, INT32), t.ndim - 1)
