"""JAX primitives for sparse arrays that are functions in this library (see `composed`).

Operands are the component arrays of a sparse array. `spinfo` is any object with its shape, and
with `indices_sorted` and `unique_indices` if these are guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise._src.extend.composed import composed
from shardwise._src.numpy.creation import asarray
from shardwise._src.runtime.pytree import flatten
from shardwise._src.sparse import bcoo, bcsr, entries, linalg, matrices, products, sparse_shapes
from shardwise._src.sparse.bcoo import BCOO
from shardwise._src.sparse.bcsr import BCSR
from shardwise._src.sparse.matrices import COO, CSR


def _stored(kind: Any, parts: Any, info: Any) -> Any:
    """A sparse array from its components. info: an object with its shape, or its shape."""
    promises = ("indices_sorted", "unique_indices") if kind in (BCOO, BCSR) else ()
    shape = getattr(info, "shape", info)
    return kind(parts, shape=shape, **{n: getattr(info, n, False) for n in promises})


def _of(kind: Any, fun: Callable[..., Any], info: str = "spinfo") -> Callable[..., Any]:
    """A function of a sparse array, as a function of its components and of the parameter `info`."""
    count = len(kind.fields)

    def of_components(*operands: Any, **params: Any) -> Any:
        mat = _stored(kind, operands[:count], params.pop(info))
        return fun(mat, *operands[count:], **params)

    return of_components


def _components(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns a sparse array, as a function that returns its components."""
    return lambda *operands, **params: flatten(fun(*operands, **params))[0]


def _bcoo_extract(indices: Any, arr: Any, *, assume_unique: Any) -> Any:
    unique = True if assume_unique is None else assume_unique
    return entries.extracted(asarray(indices), asarray(arr), unique)


def _bcoo_spdot(lhs: Any, *parts: Any, rhs_spinfo: Any, **params: Any) -> Any:
    return products.bcoo_dot_general(lhs, _stored(BCOO, parts, rhs_spinfo), **params)


bcoo_todense_p = composed("bcoo_todense", _of(BCOO, BCOO.todense))
bcoo_fromdense_p = composed("bcoo_fromdense", _components(bcoo.bcoo_fromdense), True)
bcoo_extract_p = composed("bcoo_extract", _bcoo_extract)
bcoo_transpose_p = composed(
    "bcoo_transpose", _components(_of(BCOO, sparse_shapes.bcoo_transpose)), True
)
bcoo_dot_general_p = composed(
    "bcoo_dot_general", _of(BCOO, products.bcoo_dot_general, "lhs_spinfo")
)
bcoo_dot_general_sampled_p = composed("bcoo_dot_general_sampled", products.bcoo_dot_general_sampled)
bcoo_spdot_general_p = composed(
    "bcoo_spdot_general", _components(_of(BCOO, _bcoo_spdot, "lhs_spinfo")), True
)
bcoo_sort_indices_p = composed(
    "bcoo_sort_indices", _components(_of(BCOO, entries.bcoo_sort_indices)), True
)
bcoo_sum_duplicates_p = composed(
    "bcoo_sum_duplicates", _components(_of(BCOO, entries.bcoo_sum_duplicates)), True
)
bcsr_todense_p = composed("bcsr_todense", _of(BCSR, BCSR.todense))
bcsr_fromdense_p = composed("bcsr_fromdense", _components(bcsr.bcsr_fromdense), True)
bcsr_extract_p = composed("bcsr_extract", bcsr.bcsr_extract)
bcsr_dot_general_p = composed("bcsr_dot_general", _of(BCSR, bcsr.bcsr_dot_general, "lhs_spinfo"))
coo_todense_p = composed("coo_todense", _of(COO, COO.todense))
coo_fromdense_p = composed("coo_fromdense", _components(matrices.coo_fromdense), True)
coo_matvec_p = composed("coo_matvec", _of(COO, matrices.coo_matvec))
coo_matmat_p = composed("coo_matmat", _of(COO, matrices.coo_matmat))
csr_todense_p = composed("csr_todense", _of(CSR, CSR.todense, "shape"))
csr_fromdense_p = composed("csr_fromdense", _components(matrices.csr_fromdense), True)
csr_matvec_p = composed("csr_matvec", _of(CSR, matrices.csr_matvec, "shape"))
csr_matmat_p = composed("csr_matmat", _of(CSR, matrices.csr_matmat, "shape"))
todense_p = composed("todense", lambda *parts, tree: tree.unflatten(parts).todense())
spsolve_p = composed("spsolve", linalg.spsolve)
