"""Triangular and tridiagonal solves, and symmetric products."""

from __future__ import annotations

from typing import Any

from shardwise._src.core.fused import eager_jit, fused
from shardwise._src.core.infer import type_of
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.linalg import triangular
from shardwise._src.ops.linalg import tridiagonal_solve as lines
from shardwise._src.ops.linalg.triangular import product, triangle, turned
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import is_complex
from shardwise._src.values.convert import cast


@fused(arrays=2)
def _triangular_solve(a: Any, b: Any, form: str, conjugated: bool, **kind: Any) -> Any:
    shape = type_of(b).shape
    vector = len(shape) == type_of(a).ndim - 1
    if vector:
        at = len(shape) if kind["left_side"] else len(shape) - 1
        b = reshape(b, shape=(*shape[:at], 1, *shape[at:]))
    if conjugated:
        a = ew.conj(a)
    out = triangular.triangular_solve(a, b, form=form, **kind)
    return reshape(out, shape=shape) if vector else out


@eager_jit(arrays=2)
def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The solution x of a x = b, or of x a = b, with a triangular matrix.

    Args:
      a: (…, n, n), of which one triangle is read.
      b: (…, n, k), or (…, k, n) if x is on the left; or (…, n).
      left_side: whether a is on the left.
      lower: which triangle to read.
      transpose_a, conjugate_a: whether to transpose or conjugate a.
      unit_diagonal: whether the diagonal is all ones, and not read.
    """
    conjugate_a = conjugate_a and is_complex(type_of(a).dtype)
    form = "N" if not transpose_a else "C" if conjugate_a else "T"
    kind = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
    return _triangular_solve(a, b, form, conjugate_a and not transpose_a, **kind)


@eager_jit(arrays=4)
def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """The solution of tridiagonal systems.

    Args:
      dl, d, du: (…, n): in row i the elements before, on and after the diagonal; dl[0] and
        du[n - 1] are not read.
      b: (…, n, k).
      perturb_singular: whether to enlarge tiny pivots; otherwise a singular matrix gives NaN.
    """
    return lines.tridiagonal_solve(dl, d, du, b, perturbed=perturb_singular)


@fused(arrays=4)
def _symmetric_product(a: Any, c: Any, alpha: Any, beta: Any, symmetrize: bool) -> Any:
    t, s = type_of(a), type_of(c)
    if t.ndim < 2 or s.shape != (*t.shape[:-1], t.shape[-2]) or s.dtype != t.dtype:
        raise ValueError(
            "symmetric_product takes (…, m, n) and (…, m, m) of the same dtype; got "
            f"{t.str_short(True)} and {s.str_short(True)}."
        )
    out = ew.add(
        ew.mul(cast(alpha, t.dtype), product(a, turned(a))), ew.mul(cast(beta, t.dtype), c)
    )
    if symmetrize:
        out = ew.add(triangle(out, True), turned(triangle(out, True, strict=True)))
    return out


@eager_jit(arrays=2)
def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """alpha a aᵀ + beta c.

    Args:
      a_matrix: (…, m, n).
      c_matrix: (…, m, m), symmetric.
      symmetrize_output: whether to copy the lower triangle to the upper one.
    """
    return _symmetric_product(a_matrix, c_matrix, alpha, beta, symmetrize_output)
