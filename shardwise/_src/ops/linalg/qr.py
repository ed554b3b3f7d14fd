"""QR decomposition of matrices, by Householder reflections.

    geqrf(x)                            # f32[*, m, n] → [reflections and r, their scales]
    geqp3(x)                            # the same with column pivoting: [.., .., permutation]
    householder_product(a, taus)        # the first columns of the product of reflections
    ormqr(a, taus, c, left=True, adjoint=False)    # the product of reflections times c
    qr(x, full_matrices=False, pivoting=False)     # [q, r], [q, r, permutation]

Reflection i is I - taus[i] v vᴴ; v has zeros before position i, a one there, and then the part of
column i of a below the diagonal.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.families import lit
from shardwise._src.ops.linalg.by_platform import is_complex_over_devices
from shardwise._src.ops.linalg.elimination_steps import take_rows
from shardwise._src.ops.linalg.householder_steps import pivoted_reflections_by_steps, upper_times
from shardwise._src.ops.linalg.lapack_kernels import as_dtype, eye, matrix_op, prefix, real
from shardwise._src.ops.linalg.lu import solve
from shardwise._src.ops.linalg.scaling import scaled_to_one
from shardwise._src.ops.linalg.triangular import INT32, product, triangle, triangular_solve, turned
from shardwise._src.ops.linalg.triangular import adjoint as adjoint_of
from shardwise._src.ops.shape import concatenate, pad, slice_in_dim
from shardwise._src.types.array_type import ArrayType, array_type, join_types
from shardwise._src.types.dtypes import real_dtype

# -- geqrf, geqp3 --


def _reflections(x: ArrayType) -> list:
    return [(x.shape, x.dtype), ((min(x.shape),), x.dtype)]


def _geqrf_by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    return e.lapack("geqrf", [x], ins, outs, batch=ins[0].ndim - 2, aliases={0: 0})


def _geqrf_by_cusolver(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    batch = ins[0].ndim - 2
    return e.cusolver("cusolver_geqrf_ffi", [x], ins, outs, batch=batch, aliases={0: 0})


def _geqrf_by_libtpu(op: Op, e: Any, ins: Any, outs: Any, x: str) -> None:
    if is_complex_over_devices(e, ins[0]):
        raise NotImplementedError(
            f"[{op.name}] of complex matrices cannot be compiled for several devices of "
            f"'{e.platform}': its compiler ends the process. Compute it in a program for one "
            "device, or with operands on a CPU device: `shardwise.device_put(x, "
            "shardwise.devices('cpu')[0])`."
        )


def _geqrf_by_xla(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    """XLA's squares of elements overflow or vanish without a scale."""
    (t,), (a, taus) = ins, outs
    if 0 in t.shape:
        return [e.constant(0, a), e.constant(0, taus)]
    small, scale = e.via(scaled_to_one, ins, x)
    found, scales = e.xla_expansion("Qr", [small], ins, outs)
    types = (a, array_type(t.shape[:-2], real_dtype(t.dtype)))
    return [e.via(upper_times, types, found, scale)[0], scales]


geqrf = matrix_op(
    "geqrf",
    (2,),
    results=_reflections,
    lower={
        "lapack": _geqrf_by_lapack,
        "cusolver": _geqrf_by_cusolver,
        "libtpu": _geqrf_by_libtpu,
        "xla": _geqrf_by_xla,
    },
    sharding_rule="ab -> ab, -",
)


def _geqp3_by_lapack(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    def kernel(*args: Any, **how: Any) -> list[str]:
        return e.lapack("geqp3", *args, **how)

    return _geqp3(e, ins, outs, x, kernel)


def _geqp3_on_host(op: Op, e: Any, ins: Any, outs: Any, x: str) -> list[str]:
    """By a function of jaxlib for CUDA that copies matrices to the host and calls LAPACK."""

    def kernel(*args: Any, **how: Any) -> list[str]:
        return e.cusolver("cuhybrid_geqp3", *args, config={"magma": "off"}, **how)

    return _geqp3(e, ins, outs, x, kernel)


def _geqp3(e: Any, ins: Any, outs: Any, x: str, kernel: Any) -> list[str]:
    (t,), (a, taus, order) = ins, outs
    if 0 in t.shape[-2:]:
        from_zero = e.iota(order, order.ndim - 1)
        return [e.constant(0, a), e.constant(0, taus), from_zero]
    free = e.constant(0, order)  # any column may be moved
    found, places, scales = kernel(
        [x, free], (t, order), (a, order, taus), batch=t.ndim - 2, aliases={0: 0, 1: 1}
    )
    return [found, scales, e.via(_less_one, (order,), places)[0]]


def _less_one(x: Any) -> Any:
    return ew.sub(x, lit(1, x))


geqp3 = matrix_op(
    "geqp3",
    (2,),
    results=lambda x: [*_reflections(x), (x.shape[1:], INT32)],
    lower={
        "lapack": _geqp3_by_lapack,
        "cusolver": _geqp3_on_host,
        "xla": pivoted_reflections_by_steps,
    },
)

# -- products of reflections --


def _fit(name: str, a: ArrayType, taus: ArrayType) -> None:
    (m, n), (k,) = a.shape, taus.shape
    if n > m or k > n or taus.dtype != a.dtype:
        raise ValueError(
            f"[{name}] takes reflectors in the columns of a matrix with at least as many rows as "
            f"columns, and at most one scale for each; got {join_types((a, taus))}."
        )


def _product_results(a: ArrayType, taus: ArrayType) -> list:
    _fit("householder_product", a, taus)
    return [(a.shape, a.dtype)]


def _product_by_lapack(op: Op, e: Any, ins: Any, outs: Any, a: str, taus: str) -> str:
    t = ins[0]
    if 0 in ins[1].shape[-1:]:
        return e.via(eye, (), shape=t.shape, dtype=t.dtype)[0]
    name = prefix(t.dtype, "orgqr", "ungqr")
    return e.lapack(name, [a, taus], ins, outs, batch=t.ndim - 2, aliases={0: 0})[0]


def _product_by_cusolver(op: Op, e: Any, ins: Any, outs: Any, a: str, taus: str) -> str:
    t = ins[0]
    if 0 in ins[1].shape[-1:]:
        return e.via(eye, (), shape=t.shape, dtype=t.dtype)[0]
    name, batch = "cusolver_orgqr_ffi", t.ndim - 2
    return e.cusolver(name, [a, taus], ins, outs, batch=batch, aliases={0: 0})[0]


def _product_by_xla(op: Op, e: Any, ins: Any, outs: Any, a: str, taus: str) -> str:
    t, s = ins
    if 0 in s.shape[-1:]:
        return e.via(eye, (), shape=t.shape, dtype=t.dtype)[0]
    if s.shape[-1] != t.shape[-1]:  # it takes a reflection for each column
        s = array_type((*s.shape[:-1], t.shape[-1]), s.dtype)
        taus = e.via(_with_zeros, (ins[1],), taus, size=t.shape[-1])[0]
    name = "ProductOfElementaryHouseholderReflectors"
    return e.xla_expansion(name, [a, taus], (t, s), outs)[0]


def _with_zeros(x: Any, size: int) -> Any:
    """Vectors extended by zeros."""
    t = type_of(x)
    after = (0, size - t.shape[-1], 0)
    return pad(x, lit(0, x), padding_config=(*[(0, 0, 0)] * (t.ndim - 1), after))


householder_product = matrix_op(
    "householder_product",
    (2, 1),
    results=_product_results,
    lower={"lapack": _product_by_lapack, "cusolver": _product_by_cusolver, "xla": _product_by_xla},
    multiple=False,
    sharding_rule="ab, - -> ab",
)


def _ormqr_results(
    a: ArrayType, taus: ArrayType, c: ArrayType, *, left: bool, adjoint: bool
) -> list:
    _fit("ormqr", a, taus)
    if c.shape[0 if left else 1] != a.shape[0] or c.dtype != a.dtype:
        raise ValueError(
            f"[ormqr] c must have as many {'rows' if left else 'columns'} as a has rows; got "
            f"{join_types((a, c))}."
        )
    return [(c.shape, c.dtype)]


def _ormqr_by_lapack(
    op: Op, e: Any, ins: Any, outs: Any, a: str, taus: str, c: str, *, left: bool, adjoint: bool
) -> str:
    if 0 in ins[1].shape[-1:]:
        return c
    name, config = prefix(ins[0].dtype, "ormqr", "unmqr"), {"left": left, "transpose": adjoint}
    return e.lapack(
        name, [a, taus, c], ins, outs, batch=ins[0].ndim - 2, config=config, aliases={2: 0}
    )[0]


def _ormqr_by_cusolver(
    op: Op, e: Any, ins: Any, outs: Any, a: str, taus: str, c: str, *, left: bool, adjoint: bool
) -> str:
    if 0 in ins[1].shape[-1:]:
        return c
    config = {"left": left, "transpose": adjoint}
    how = {"batch": ins[0].ndim - 2, "config": config, "aliases": {2: 0}}
    return e.cusolver("cusolver_ormqr_ffi", [a, taus, c], ins, outs, **how)[0]


def _ormqr_by_product(op: Op, e: Any, ins: Any, outs: Any, *xs: str, **p: Any) -> str:
    return e.via(_reflected, ins, *xs, **p)[0]


def _reflected(a: Any, taus: Any, c: Any, left: bool, adjoint: bool) -> Any:
    """The product of c and all columns of the product of reflections."""
    t = type_of(a)
    m, n = t.shape[-2:]
    config = (*[(0, 0, 0)] * (t.ndim - 1), (0, m - n, 0))
    q = householder_product(pad(a, lit(0, a), padding_config=config), taus)
    q = adjoint_of(q) if adjoint else q
    return product(q, c) if left else product(c, q)


ormqr = matrix_op(
    "ormqr",
    (2, 1, 2),
    results=_ormqr_results,
    lower={"lapack": _ormqr_by_lapack, "cusolver": _ormqr_by_cusolver, "xla": _ormqr_by_product},
    multiple=False,
)

# -- qr --


def _qr_results(x: ArrayType, *, full_matrices: bool, pivoting: bool) -> list:
    m, n = x.shape
    k = m if full_matrices else min(m, n)
    order = [((n,), INT32)] if pivoting else []
    return [((m, k), x.dtype), ((k, n), x.dtype), *order]


def _factors(x: Any, full_matrices: bool, pivoting: bool) -> list[Any]:
    a, taus, *order = (geqp3 if pivoting else geqrf)(x)
    t = type_of(x)
    (m, n), rows, columns = t.shape[-2:], t.ndim - 2, t.ndim - 1
    q = slice_in_dim(a, 0, min(m, n), columns)
    if full_matrices and m > n:
        config = (*[(0, 0, 0)] * columns, (0, m - n, 0))
        q = pad(q, lit(0, q), padding_config=config)
    r = triangle(a, False)
    if not full_matrices:
        r = slice_in_dim(r, 0, min(m, n), rows)
    return [householder_product(q, taus), r, *order]


def _qr_jvp(
    op: Op, primals: Any, tangents: Any, *, full_matrices: bool, pivoting: bool
) -> tuple[Any, Any]:
    (x,), (dx,) = primals, tangents
    q, r, *order = op(x, full_matrices=full_matrices, pivoting=pivoting)
    t = type_of(x)
    (m, n), rows, columns = t.shape[-2:], t.ndim - 2, t.ndim - 1
    k = min(m, n)
    if order:
        dx = turned(take_rows(turned(dx), order[0]))
    left, square = slice_in_dim(q, 0, k, columns), slice_in_dim(r, 0, k, rows)
    dq, dr = _thin_change(
        left, slice_in_dim(square, 0, k, columns), slice_in_dim(dx, 0, k, columns)
    )
    if n > m:  # r right of its square part is qᴴ times the columns of x
        rest = slice_in_dim(dx, k, n, columns)
        known = product(q, slice_in_dim(r, k, n, columns))
        dr = concatenate(
            dr,
            ew.add(product(adjoint_of(dq), known), product(adjoint_of(q), rest)),
            dimension=columns,
        )
    if full_matrices and m > n:
        dq = concatenate(dq, _rest_of_change(left, dq), dimension=columns)
        config = (*[(0, 0, 0)] * rows, (0, m - n, 0), (0, 0, 0))
        dr = pad(dr, lit(0, dr), padding_config=config)
    return [q, r, *order], [dq, dr, *[None for _ in order]]


def _thin_change(q: Any, r: Any, dx: Any) -> tuple[Any, Any]:
    """Changes of q and of the square r, whose diagonal stays real if it is real.

    Source: Townsend, "Differentiating the QR decomposition" (2018).
    """
    scaled = triangular_solve(r, dx, left_side=False, lower=False, form="N", unit_diagonal=False)
    inner = product(adjoint_of(q), scaled)
    below = triangle(inner, True, strict=True)
    turn = ew.sub(below, adjoint_of(below))
    shape, dtype = type_of(inner).shape, type_of(inner).dtype
    turn = ew.add(turn, ew.mul(eye(shape, dtype), ew.sub(inner, as_dtype(real(inner), dtype))))
    dq = ew.add(product(q, ew.sub(turn, inner)), scaled)
    return dq, product(ew.sub(inner, turn), r)


def _rest_of_change(left: Any, dq: Any) -> Any:
    """The change of the other columns of a full q.

    q is I - v t vᴴ with reflections v, whose upper rows are a square v₁ and the lower ones v₂.
    With z = v₂ v₁⁻¹, the first columns minus those of the identity, times zᴴ, are the other
    columns minus those of the identity; and z is computed from the first columns.
    """
    t = type_of(left)
    (m, n), rows = t.shape[-2:], t.ndim - 2
    start = ew.sub(left, eye(t.shape, t.dtype))
    upper, lower = slice_in_dim(start, 0, n, rows), slice_in_dim(start, n, m, rows)
    d_upper, d_lower = slice_in_dim(dq, 0, n, rows), slice_in_dim(dq, n, m, rows)
    zh = solve(upper, adjoint_of(lower), "C")
    change = ew.sub(d_lower, product(adjoint_of(zh), d_upper))
    dzh = solve(upper, adjoint_of(change), "C")
    return ew.add(product(dq, zh), product(start, dzh))


def _qr_sharding_rule(x: ArrayType, *, full_matrices: bool, pivoting: bool) -> str:
    m, n = x.shape
    q = "ab" if m == n or (m > n and not full_matrices) else "a-"
    r = "ab" if m <= n else "-b"
    return f"ab -> {q}, {r}{', -' if pivoting else ''}"


qr = matrix_op(
    "qr", (2,), results=_qr_results, body=_factors, jvp=_qr_jvp, sharding_rule=_qr_sharding_rule
)
