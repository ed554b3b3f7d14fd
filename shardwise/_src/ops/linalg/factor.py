"""Matrix factorizations, by LAPACK's kernels on CPU.

    cholesky(x)          # f32[*, n, n] → the lower triangular l with l lᴴ = x

Only the lower triangle of `x` is read. If a matrix has no such factor, the result is NaN.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.lapack_kernels import hermitian_part, matrix_op, nan_where_failed
from shardwise._src.ops.linalg.triangular import INT32, product, triangle, triangular_solve
from shardwise._src.types.array_type import array_type


def _cholesky_lower(op: Op, e: Any, ins: Any, outs: Any, x: str) -> str:
    (t,) = ins
    if not e.platform.is_xla_cpu:
        full = e.let(f"stablehlo.cholesky {x}, lower = true : {e.ty(t)}")
        return e.via(triangle, (t,), full, lower=True)[0]
    batch = t.ndim - 2
    info = array_type(t.shape[:-2], INT32)
    found = e.lapack(
        "potrf", [x], ins, (t, info), batch=batch, config={"uplo": "L"}, aliases={0: 0}
    )
    return e.via(_checked_triangle, (t, info), *found)[0]


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
    lower=_cholesky_lower,
    square=True,
    multiple=False,
    jvp=_cholesky_jvp,
    sharding_rule="ab -> ab",
)
