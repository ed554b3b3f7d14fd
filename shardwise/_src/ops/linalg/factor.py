"""Cholesky factors.

    cholesky(x)          # f32[*, n, n] → the lower triangular l with l lᴴ = x

Only the lower triangle of `x` is read. If a matrix has no such factor, the result is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import is_complex_over_devices
from shardwise._src.ops.linalg.lapack_kernels import (
    as_dtype,
    hermitian_part,
    matrix_op,
    nan_where_failed,
    on_diagonal,
)
from shardwise._src.ops.linalg.triangular import INT32, product, triangle, triangular_solve
from shardwise._src.ops.reduce import reduce_or
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import real_dtype


def _by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    return _checked(e, ins, x, e.lapack, "potrf", {"uplo": "L"})


def _by_cusolver(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    return _checked(e, ins, x, e.cusolver, "cusolver_potrf_ffi", {"lower": True})


def _checked(e: Any, ins: Any, x: str, call: Callable, name: str, config: dict[str, Any]) -> str:
    (t,) = ins
    info = array_type(t.shape[:-2], INT32)
    found = call(name, [x], ins, (t, info), batch=t.ndim - 2, config=config, aliases={0: 0})
    return e.via(_checked_triangle, (t, info), *found)[0]


def _by_libtpu(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str | None:
    """Complex matrices of a program over several devices, as real ones of twice the size."""
    (t,) = ins
    if not is_complex_over_devices(e, t):
        return None
    n = 2 * t.shape[-1]
    wide = array_type((*t.shape[:-2], n, n), real_dtype(t.dtype))
    full = e.let(f"stablehlo.cholesky {e.via(_as_real, ins, x)[0]}, lower = true : {e.ty(wide)}")
    full = e.via(_as_complex, (wide,), full)[0]
    return e.via(_nan_from_diagonal, ins, full)[0]


def _as_real(z: Any) -> Any:
    """Each a + bi becomes [[a, -b], [b, a]]. The factor of this matrix has the same form, because
    the diagonal is real."""
    *batch, n, _ = type_of(z).shape
    a, b = ew.real(z), ew.imag(z)
    b = ew.where(on_diagonal(type_of(b).shape), lit(0, b), b)  # it is not read
    rows = [[a, ew.neg(b)], [b, a]]
    columns = [reshape(x, shape=(*batch, n, 1, n, 1)) for row in rows for x in row]
    pairs = [concatenate(*columns[i : i + 2], dimension=len(batch) + 3) for i in (0, 2)]
    return reshape(concatenate(*pairs, dimension=len(batch) + 1), shape=(*batch, 2 * n, 2 * n))


def _as_complex(x: Any) -> Any:
    *batch, size, _ = type_of(x).shape
    n, d = size // 2, len(batch)
    parts = reshape(x, shape=(*batch, n, 2, n, 2))
    column = slice_in_dim(parts, 0, 1, d + 3)
    a, b = (slice_in_dim(column, i, i + 1, d + 1) for i in (0, 1))
    return ew.complex(*[reshape(y, shape=(*batch, n, n)) for y in (a, b)])


def _by_xla(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    full = e.let(f"stablehlo.cholesky {x}, lower = true : {e.ty(t)}")
    return e.via(_nan_from_diagonal, (t,), full)[0]


def _nan_from_diagonal(x: Any) -> Any:
    """The triangle; NaN if a number on the diagonal is: XLA goes on after a negative pivot."""
    t = type_of(x)
    bad = ew.bitwise_and(on_diagonal(t.shape), ew.ne(x, x))
    info = as_dtype(reduce_or(bad, axes=(t.ndim - 2, t.ndim - 1)), INT32)
    return _checked_triangle(x, info)


def _checked_triangle(x: Any, info: Any) -> Any:
    return triangle(nan_where_failed(x, info, type_of(x).ndim - 2), True)


def _cholesky_jvp(op: Op, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """dl = l φ(l⁻¹ dx l⁻ᴴ), where φ takes the lower triangle with half of the diagonal.

    Source: Murray, "Differentiation of the Cholesky decomposition" (2016), section 3.
    """
    (x,), (dx,) = primals, tangents
    factor = op(x)
    dx = hermitian_part(ew.mul(lit(2, dx), _half(dx)))  # the part that is read
    kind = {"lower": True, "unit_diagonal": False}
    change = triangular_solve(factor, dx, left_side=True, form="N", **kind)
    change = triangular_solve(factor, change, left_side=False, form="C", **kind)
    return factor, product(factor, _half(change))


def _half(x: Any) -> Any:
    """The lower triangle with half of the diagonal."""
    return ew.mul(lit(0.5, x), ew.add(triangle(x, True), triangle(x, True, True)))


cholesky = matrix_op(
    "cholesky",
    (2,),
    results=lambda x: [(x.shape, x.dtype)],
    lower={"lapack": _by_lapack, "cusolver": _by_cusolver, "libtpu": _by_libtpu, "xla": _by_xla},
    square=True,
    multiple=False,
    jvp=_cholesky_jvp,
    sharding_rule="ab -> ab",
)
