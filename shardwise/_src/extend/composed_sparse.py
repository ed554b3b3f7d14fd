"""JAX primitives for sparse arrays that are functions in this library (see `composed`).

Operands are the component arrays of a sparse array. `spinfo` is any object with its shape, and
with `indices_sorted` and `unique_indices` if these are guaranteed.
"""

from __future__ import annotations

from typing import Any

from shardwise._src.extend.composed import composed
from shardwise._src.numpy.creation import asarray
from shardwise._src.sparse import bcoo, bcsr, entries, linalg, matrices, products, sparse_shapes
from shardwise._src.sparse.bcoo import BCOO
from shardwise._src.sparse.bcsr import BCSR
from shardwise._src.sparse.matrices import COO, CSR


def _stored(kind: Any, parts: Any, info: Any) -> Any:
    promises = ("indices_sorted", "unique_indices")
    return kind(parts, shape=info.shape, **{n: getattr(info, n, False) for n in promises})


def _bcoo_extract(indices: Any, arr: Any, *, assume_unique: Any) -> Any:
    unique = True if assume_unique is None else assume_unique
    return entries.extracted(asarray(indices), asarray(arr), unique)


def _bcoo_dot(
    data: Any, indices: Any, rhs: Any, *, dimension_numbers: Any, preferred_element_type: Any,
    lhs_spinfo: Any,
) -> Any:
    return products.bcoo_dot_general(
        _stored(BCOO, (data, indices), lhs_spinfo), rhs, dimension_numbers=dimension_numbers,
        preferred_element_type=preferred_element_type,
    )


def _bcoo_spdot(
    data: Any, indices: Any, other: Any, places: Any, *, lhs_spinfo: Any, rhs_spinfo: Any,
    dimension_numbers: Any, preferred_element_type: Any,
) -> Any:
    out: Any = products.bcoo_dot_general(
        _stored(BCOO, (data, indices), lhs_spinfo), _stored(BCOO, (other, places), rhs_spinfo),
        dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type,
    )
    return [out.data, out.indices]


def _bcoo_transpose(data: Any, indices: Any, *, permutation: Any, spinfo: Any) -> Any:
    mat = _stored(BCOO, (data, indices), spinfo)
    out = sparse_shapes.bcoo_transpose(mat, permutation=permutation)
    return [out.data, out.indices]


def _bcoo_sort(data: Any, indices: Any, *, spinfo: Any) -> Any:
    out = entries.bcoo_sort_indices(_stored(BCOO, (data, indices), spinfo))
    return [out.data, out.indices]


def _bcoo_sum(data: Any, indices: Any, *, spinfo: Any, nse: Any) -> Any:
    out = entries.bcoo_sum_duplicates(_stored(BCOO, (data, indices), spinfo), nse)
    return [out.data, out.indices]


def _bcoo_from(mat: Any, **params: Any) -> Any:
    out = bcoo.bcoo_fromdense(mat, **params)
    return [out.data, out.indices]


def _bcsr_from(mat: Any, **params: Any) -> Any:
    out = bcsr.bcsr_fromdense(mat, **params)
    return [out.data, out.indices, out.indptr]


def _bcsr_dot(
    data: Any, indices: Any, indptr: Any, rhs: Any, *, dimension_numbers: Any,
    preferred_element_type: Any, lhs_spinfo: Any,
) -> Any:
    return bcsr.bcsr_dot_general(
        _stored(BCSR, (data, indices, indptr), lhs_spinfo), rhs,
        dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type,
    )


def _coo_from(mat: Any, **params: Any) -> Any:
    out = matrices.coo_fromdense(mat, **params)
    return [out.data, out.row, out.col]


def _csr_from(mat: Any, **params: Any) -> Any:
    out = matrices.csr_fromdense(mat, **params)
    return [out.data, out.indices, out.indptr]


def _coo(product: Any) -> Any:
    def fun(data: Any, row: Any, col: Any, v: Any, *, spinfo: Any, transpose: bool) -> Any:
        return product(COO((data, row, col), shape=spinfo.shape), v, transpose=transpose)

    return fun


def _csr(product: Any) -> Any:
    def fun(
        data: Any, indices: Any, indptr: Any, v: Any, *, shape: Any, transpose: bool
    ) -> Any:
        return product(CSR((data, indices, indptr), shape=shape), v, transpose=transpose)

    return fun


bcoo_todense_p = composed(
    "bcoo_todense", lambda *parts, spinfo: _stored(BCOO, parts, spinfo).todense()
)
bcoo_fromdense_p = composed("bcoo_fromdense", _bcoo_from, True)
bcoo_extract_p = composed("bcoo_extract", _bcoo_extract)
bcoo_transpose_p = composed("bcoo_transpose", _bcoo_transpose, True)
bcoo_dot_general_p = composed("bcoo_dot_general", _bcoo_dot)
bcoo_dot_general_sampled_p = composed(
    "bcoo_dot_general_sampled", products.bcoo_dot_general_sampled
)
bcoo_spdot_general_p = composed("bcoo_spdot_general", _bcoo_spdot, True)
bcoo_sort_indices_p = composed("bcoo_sort_indices", _bcoo_sort, True)
bcoo_sum_duplicates_p = composed("bcoo_sum_duplicates", _bcoo_sum, True)
bcsr_todense_p = composed(
    "bcsr_todense", lambda *parts, spinfo: _stored(BCSR, parts, spinfo).todense()
)
bcsr_fromdense_p = composed("bcsr_fromdense", _bcsr_from, True)
bcsr_extract_p = composed("bcsr_extract", bcsr.bcsr_extract)
bcsr_dot_general_p = composed("bcsr_dot_general", _bcsr_dot)
coo_todense_p = composed(
    "coo_todense", lambda *parts, spinfo: COO(parts, shape=spinfo.shape).todense()
)
coo_fromdense_p = composed("coo_fromdense", _coo_from, True)
coo_matvec_p = composed("coo_matvec", _coo(matrices.coo_matvec))
coo_matmat_p = composed("coo_matmat", _coo(matrices.coo_matmat))
csr_todense_p = composed("csr_todense", lambda *parts, shape: CSR(parts, shape=shape).todense())
csr_fromdense_p = composed("csr_fromdense", _csr_from, True)
csr_matvec_p = composed("csr_matvec", _csr(matrices.csr_matvec))
csr_matmat_p = composed("csr_matmat", _csr(matrices.csr_matmat))
todense_p = composed("todense", lambda *parts, tree: tree.unflatten(parts).todense())
spsolve_p = composed(
    "spsolve", lambda *args, tol, reorder: linalg.spsolve(*args, tol=tol, reorder=reorder)
)
