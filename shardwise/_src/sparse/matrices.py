"""`COO`, `CSR` and `CSC`: matrices that only support products; BCOO and BCSR do the rest."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from shardwise._src.numpy.creation import asarray, zeros
from shardwise._src.numpy.joining import stack
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.sparse.base import JAXSparse, added, read
from shardwise._src.sparse.bcoo import BCOO
from shardwise._src.sparse.bcsr import BCSR
from shardwise._src.tree.registration import register_pytree_node_class
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike


class Matrix(JAXSparse):
    """A sparse matrix. `_places` returns the row and column indices."""

    shape: tuple[int, int]

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        for name, x in zip(self.fields, args, strict=True):
            setattr(self, name, asarray(x))
        self.shape = tuple([index(n) for n in shape])  # pyright: ignore
        if len(self.shape) != 2:
            raise ValueError(f"{type(self).__name__} must be a matrix; got shape {self.shape}.")

    @classmethod
    def fromdense(
        cls, mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
    ) -> Any:
        """The nonzero elements of a dense matrix; see `bcoo_fromdense`."""
        return cls._of(BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        if len(tuple(shape)) != 2:
            raise ValueError(f"{cls.__name__} must be a matrix; got shape {tuple(shape)}.")
        return cls._of(BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype))

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype: Any = None, index_dtype: Any = "int32") -> Any:
        return cls._of(BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype))

    @classmethod
    def _of(cls, mat: BCOO) -> Any:
        raise NotImplementedError

    def _places(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def todense(self) -> Array:
        """The dense matrix."""
        return added(zeros(self.shape, self.dtype), self._places(), self.data)

    def product(self, x: Any, transposed: bool = False) -> Array:
        """The product with a vector or matrix."""
        rows, columns = self._places()[:: -1 if transposed else 1]
        n, m = self.shape[:: -1 if transposed else 1]
        x = asarray(x)
        if x.ndim not in (1, 2) or x.shape[0] != m:
            raise TypeError(
                f"{type(self).__name__}: the right operand must be a vector or a matrix with {m} "
                f"rows; got shape {x.shape}."
            )
        data = self.data if x.ndim == 1 else self.data[:, None]
        products = data * read(x, (columns,))
        return added(zeros((n, *x.shape[1:]), products.dtype), (rows,), products)

    def __matmul__(self, other: Any) -> Array:
        if isinstance(other, JAXSparse):
            raise NotImplementedError(
                f"{type(self).__name__}: the product of two sparse matrices is supported for BCOO "
                "arrays only. Convert them with "
                "`shardwise.experimental.sparse.BCOO.fromdense(m.todense())`."
            )
        return self.product(other)

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """The matrix with dimensions in the order of `axes`, by default transposed."""
        order = (1, 0) if axes is None else tuple([canonical_axis(index(a), 2) for a in axes])
        if sorted(order) != [0, 1]:
            raise ValueError(
                f"{type(self).__name__}.transpose: axes must be (1, 0), (0, 1) or None; got {axes}."
            )
        return self._turned() if order == (1, 0) else self

    def _turned(self) -> Any:
        raise NotImplementedError


@register_pytree_node_class
class COO(Matrix):
    """A matrix in coordinate format: args are data, row and col, vectors of size nse.

    rows_sorted, cols_sorted: guarantees that elements are sorted by row, or by column.
    """

    fields = ("data", "row", "col")
    row: Any
    col: Any

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ):
        super().__init__(args, shape=shape)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted

    @classmethod
    def _of(cls, mat: BCOO) -> COO:
        row, col = mat.indices[:, 0], mat.indices[:, 1]
        return cls((mat.data, row, col), shape=mat.shape, rows_sorted=mat.indices_sorted)

    def _static(self) -> Any:
        return self.shape, self._rows_sorted, self._cols_sorted

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> COO:
        new = super().tree_unflatten(aux_data[0], children)
        new._rows_sorted, new._cols_sorted = aux_data[1:]
        return new

    def _places(self) -> tuple[Any, Any]:
        return self.row, self.col

    def _turned(self) -> COO:
        return COO(
            (self.data, self.col, self.row),
            shape=self.shape[::-1],
            rows_sorted=self._cols_sorted,
            cols_sorted=self._rows_sorted,
        )

    def _sort_indices(self) -> COO:
        """The same elements, sorted by row."""
        places = stack([self.row, self.col], -1)
        return COO._of(BCOO((self.data, places), shape=self.shape).sort_indices())


class Compressed(Matrix):
    """A matrix with the pointers of its rows, or of its columns."""

    fields = ("data", "indices", "indptr")
    indices: Any
    indptr: Any


@register_pytree_node_class
class CSR(Compressed):
    """A matrix in CSR format: args are data and column indices of size nse, and row pointers."""

    @classmethod
    def _of(cls, mat: BCOO) -> CSR:
        found = BCSR.from_bcoo(mat)
        return cls((found.data, found.indices, found.indptr), shape=mat.shape)

    def _places(self) -> tuple[Any, Any]:
        at = BCSR(self._leaves(), shape=self.shape).to_bcoo().indices
        return at[:, 0], at[:, 1]

    def _turned(self) -> CSC:
        return CSC(self._leaves(), shape=self.shape[::-1])


@register_pytree_node_class
class CSC(Compressed):
    """A matrix in CSC format: args are data and row indices of size nse, and column pointers."""

    @classmethod
    def _of(cls, mat: BCOO) -> CSC:
        return CSR._of(mat.T).transpose()

    def _places(self) -> tuple[Any, Any]:
        return self._turned()._places()[::-1]

    def _turned(self) -> CSR:
        return CSR(self._leaves(), shape=self.shape[::-1])


def coo_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
) -> COO:
    """The nonzero elements of a dense matrix; see `bcoo_fromdense`."""
    return COO.fromdense(mat, nse=nse, index_dtype=index_dtype)


def coo_todense(mat: COO) -> Array:
    """The dense matrix."""
    return mat.todense()


def coo_matvec(mat: COO, v: ArrayLike, transpose: bool = False) -> Array:
    """The product of the matrix, or of its transpose, with a vector."""
    return mat.product(v, transpose)


def coo_matmat(mat: COO, B: ArrayLike, *, transpose: bool = False) -> Array:
    """The product of the matrix, or of its transpose, with a dense one."""
    return mat.product(B, transpose)


def csr_fromdense(
    mat: ArrayLike, *, nse: int | None = None, index_dtype: DTypeLike = np.int32
) -> CSR:
    """The nonzero elements of a dense matrix; see `bcoo_fromdense`."""
    return CSR.fromdense(mat, nse=nse, index_dtype=index_dtype)


def csr_todense(mat: CSR) -> Array:
    """The dense matrix."""
    return mat.todense()


def csr_matvec(mat: CSR, v: ArrayLike, transpose: bool = False) -> Array:
    """The product of the matrix, or of its transpose, with a vector."""
    return mat.product(v, transpose)


def csr_matmat(mat: CSR, B: ArrayLike, *, transpose: bool = False) -> Array:
    """The product of the matrix, or of its transpose, with a dense one."""
    return mat.product(B, transpose)
