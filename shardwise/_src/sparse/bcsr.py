"""`BCSR`: batched matrices in compressed row format: column indices and row pointers."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.joining import concatenate, stack
from shardwise._src.numpy.ordering.sorting import searchsorted
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.numpy.statistics.scans import cumsum
from shardwise._src.sparse.base import Batched, Stored, added, each
from shardwise._src.sparse.bcoo import BCOO, operators
from shardwise._src.sparse.entries import extracted, from_dense
from shardwise._src.sparse.products import bcoo_dot_general
from shardwise._src.sparse.sparse_shapes import bcoo_broadcast_in_dim, bcoo_concatenate
from shardwise._src.sparse.sparsify import sparsify
from shardwise._src.tree.registration import register_pytree_node_class
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import is_integer


@register_pytree_node_class
class BCSR(Batched):
    """An array of shape (*batch, rows, columns, *dense), with `nse` stored elements (or blocks of
    the dense dimensions) for each batch element.

    Args:
      args: data of shape (*batch, nse, *dense), column indices of shape (*batch, nse), and row
        pointers, the start of each row: integers of shape (*batch, rows + 1). Elements after the
        last row are ignored.
      indices_sorted, unique_indices: guarantees about the indices.
    """

    fields = ("data", "indices", "indptr")
    index_dims, n_sparse = 1, 2
    indptr: Any

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices, self.indptr = data, indices, indptr = [asarray(x) for x in args]
        whole = tuple([index(n) for n in shape])
        n = indices.ndim - 1
        if not (
            self._batches_fit(whole)
            and len(whole) > n + 1
            and is_integer(indices.dtype)
            and is_integer(indptr.dtype)
            and data.shape[n:] == (indices.shape[-1], *whole[n + 2 :])
            and indptr.shape[n:] == (whole[n] + 1,)
        ):
            raise ValueError(
                f"BCSR: data of shape {data.shape}, indices of shape {indices.shape} and indptr of "
                f"shape {indptr.shape} do not fit the shape {whole}: they must be (*batch, nse, "
                "*dense), (*batch, nse) and (*batch, rows + 1) for (*batch, rows, columns, *dense)."
            )
        self._broadcast_to(whole, indices_sorted, unique_indices)

    @classmethod
    def fromdense(
        cls,
        mat: ArrayLike,
        *,
        nse: int | None = None,
        index_dtype: DTypeLike = np.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCSR:
        """The nonzero elements of a dense array; see `bcoo_fromdense`."""
        return cls.from_bcoo(from_dense(BCOO, mat, nse, n_batch, n_dense, index_dtype))

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCSR:
        """A matrix of `scipy.sparse`."""
        if n_dense or n_batch:
            raise ValueError(
                "BCSR.from_scipy_sparse: both dimensions of a matrix are sparse in a BCSR, so "
                f"n_dense and n_batch must be 0; got {n_dense} and {n_batch}. "
                "`shardwise.experimental.sparse.BCOO.from_scipy_sparse` supports other layouts."
            )
        mat, kind = mat.tocsr(), index_dtype or np.int32
        args = mat.data, mat.indices.astype(kind), mat.indptr.astype(kind)
        return cls(args, shape=mat.shape)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """The same array in row format; it has two sparse dimensions."""
        if arr.n_sparse != 2:
            raise NotImplementedError(
                f"BCSR.from_bcoo takes arrays with 2 sparse dimensions; got {arr.n_sparse}. Change "
                "the layout with `update_layout`."
            )
        if not arr.indices_sorted:
            arr = arr.sort_indices()
        data, indices = arr.whole()
        rows = arr.shape[arr.n_batch]

        def begins(i: Any) -> Any:
            counts = added(zeros(rows, indices.dtype), (i,), 1)
            return concatenate([zeros(1, indices.dtype), cumsum(counts).astype(indices.dtype)])

        indptr = each(begins, arr.n_batch)(indices[..., 0])
        return cls(
            (data, indices[..., 1], indptr),
            shape=arr.shape,
            indices_sorted=arr.indices_sorted,
            unique_indices=arr.unique_indices,
        )

    @classmethod
    def _empty(cls, shape: Sequence[int], **options: Any) -> BCSR:
        return cls.from_bcoo(BCOO._empty(shape, **options))

    def to_bcoo(self) -> BCOO:
        """The same array in coordinate format."""
        batch = self.shape[: self.n_batch]
        indices = broadcast_to(self.indices, (*batch, self.nse))
        ends = broadcast_to(self.indptr, (*batch, self.indptr.shape[-1]))[..., 1:]
        count = arange(self.nse, dtype=indices.dtype)
        rows = each(lambda e: searchsorted(e, count, side="right"), self.n_batch)(ends)
        return BCOO(
            (self.data, stack([rows.astype(indices.dtype), indices], -1)),
            shape=self.shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    def again(self, found: Any) -> Any:
        """Converts the result of a rule for BCOO back to BCSR if it has two sparse dimensions."""
        return BCSR.from_bcoo(found) if found.n_sparse == 2 else found

    def todense(self) -> Array:
        """The dense array."""
        return self.to_bcoo().todense()

    def transpose(self, axes: Sequence[int] | None = None) -> BCSR:
        """The array with permuted dimensions; rows and columns may be swapped."""
        return BCSR.from_bcoo(self.to_bcoo().transpose(axes))

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Sums duplicates and sorts the elements; see `BCOO.sum_duplicates`."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def __getitem__(self, idx: Any) -> Any:
        return sparsify(lambda x: x[idx])(self)

    __matmul__, __rmatmul__ = operators(matmul)


def bcsr_fromdense(
    mat: ArrayLike,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: DTypeLike = np.int32,
) -> BCSR:
    """The nonzero elements of a dense array, in row format; see `bcoo_fromdense`."""
    return BCSR.fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)


def bcsr_todense(mat: BCSR) -> Array:
    """The dense array of shape `mat.shape`."""
    return mat.todense()


def bcsr_extract(indices: ArrayLike, indptr: ArrayLike, mat: ArrayLike) -> Array:
    """The elements of a dense array at the indices of a BCSR array, as its data."""
    mat, columns = asarray(mat), asarray(indices)
    n = columns.ndim - 1
    blank = zeros((*columns.shape, *mat.shape[n + 2 :]), mat.dtype)
    return extracted(BCSR((blank, columns, indptr), shape=mat.shape).to_bcoo().indices, mat)


def bcsr_dot_general(
    lhs: Any,
    rhs: Array,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Stored | Array:
    """Generalized dot product, with the arguments of `bcoo_dot_general`."""
    args: list[Any] = [x.to_bcoo() if isinstance(x, BCSR) else x for x in (lhs, rhs)]
    return bcoo_dot_general(
        *args,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def bcsr_broadcast_in_dim(
    mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCSR:
    """Like `bcoo_broadcast_in_dim`; new dimensions in front of the rows are batch dimensions."""
    found = bcoo_broadcast_in_dim(
        mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions, sharding=sharding
    )
    n = broadcast_dimensions[mat.n_batch]
    return BCSR.from_bcoo(found.update_layout(n_batch=n, on_inefficient=None))


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """Like `bcoo_concatenate`."""
    return BCSR.from_bcoo(bcoo_concatenate([m.to_bcoo() for m in operands], dimension=dimension))


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Sums duplicates; see `bcoo_sum_duplicates`."""
    return mat.sum_duplicates(nse, remove_zeros=False)
