"""`BCOO`: batched sparse arrays in coordinate format, with operators and methods.

For example:

    m = BCOO.fromdense(jnp.array([[0, 2.0], [3.0, 0]]))       # nse=2
    m @ v, m.T, m * 2, m + m, m[0], m.sum(0), m.todense()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwise._src.numpy import unary
from shardwise._src.numpy.creation import asarray, ones
from shardwise._src.numpy.joining import stack
from shardwise._src.numpy.products.contractions import matmul
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.triangles import eye
from shardwise._src.sparse.base import Stored
from shardwise._src.sparse.entries import (
    bcoo_sort_indices,
    bcoo_sum_duplicates,
    bcoo_update_layout,
    empty_of,
    extracted,
    from_dense,
    to_dense,
    without_zeros,
)
from shardwise._src.sparse.sparse_shapes import bcoo_transpose
from shardwise._src.sparse.sparsify import sparsify
from shardwise._src.tree.registration import register_pytree_node_class
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.values import binary


def operators(fun: Callable) -> tuple[Callable, Callable]:
    """The methods for a binary operator and its reflected form."""
    forward, backward = sparsify(fun), sparsify(lambda x, y: fun(y, x))
    return (lambda self, other: forward(self, other)), (lambda self, other: backward(self, other))


@register_pytree_node_class
class BCOO(Stored):
    """An array of shape (*batch, *sparse, *dense), with `nse` stored elements (or blocks of the
    dense dimensions) for each batch element.

    Args:
      args: data of shape (*batch, nse, *dense), and integer indices of shape
        (*batch, nse, sparse). Duplicates are summed; out-of-bounds elements are ignored.
      indices_sorted, unique_indices: guarantees about the rows of indices.

    A pytree of data and indices. `vmap` maps batch dimensions; `shardwise.experimental.sparse.grad`
    differentiates with respect to `data`. Operators are those of dense arrays (see `sparsify`).
    """

    @classmethod
    def fromdense(
        cls,
        mat: ArrayLike,
        *,
        nse: int | None = None,
        index_dtype: DTypeLike = np.int32,
        n_dense: int = 0,
        n_batch: int = 0,
    ) -> BCOO:
        """The nonzero elements of a dense array; see `bcoo_fromdense`."""
        return from_dense(cls, mat, nse, n_batch, n_dense, index_dtype)

    @classmethod
    def from_scipy_sparse(
        cls, mat: Any, *, index_dtype: DTypeLike | None = None, n_dense: int = 0, n_batch: int = 0
    ) -> BCOO:
        """A matrix of `scipy.sparse`."""
        mat = mat.tocoo()
        kind: Any = index_dtype or np.int32
        places = np.stack([mat.row, mat.col], -1).astype(kind)
        found = cls((mat.data, places), shape=mat.shape)
        return bcoo_update_layout(found, n_batch=n_batch, n_dense=n_dense, on_inefficient=None)

    @classmethod
    def _empty(
        cls,
        shape: Sequence[int],
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_dense: int = 0,
        n_batch: int = 0,
        nse: int = 0,
    ) -> BCOO:
        return empty_of(cls, shape, dtype, index_dtype, n_batch, n_dense, nse)

    @classmethod
    def _eye(
        cls,
        N: int,
        M: int,
        k: int,
        *,
        dtype: Any = None,
        index_dtype: Any = "int32",
        n_batch: int = 0,
        n_dense: int = 0,
    ) -> BCOO:
        if n_batch or n_dense:
            return cls.fromdense(
                eye(N, M, k, dtype), n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype
            )
        size = max(0, min(N + min(k, 0), M - max(k, 0)))
        rows = arange(size, dtype=index_dtype) - min(k, 0)
        data = ones(size, dtype)
        return cls(
            (data, stack([rows, rows + k], -1)),
            shape=(N, M),
            indices_sorted=True,
            unique_indices=True,
        )

    def todense(self) -> Array:
        """The dense array."""
        return to_dense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """The array with permuted dimensions, within batch, sparse and dense dimensions."""
        order = range(self.ndim)[::-1] if axes is None else axes
        return bcoo_transpose(self, permutation=tuple(order))

    def sort_indices(self) -> BCOO:
        """The same elements, sorted by their coordinates."""
        return bcoo_sort_indices(self)

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Sums duplicates and sorts the elements; see `bcoo_sum_duplicates`.

        remove_zeros: whether to drop zeros, too, which is not differentiable.
        """
        return without_zeros(self, nse) if remove_zeros else bcoo_sum_duplicates(self, nse)

    def update_layout(
        self,
        *,
        n_batch: int | None = None,
        n_dense: int | None = None,
        on_inefficient: str | None = "error",
    ) -> BCOO:
        """The array with other batch and dense dimensions; see `bcoo_update_layout`."""
        return bcoo_update_layout(
            self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient
        )

    def reshape(self, *args: Any, **kwargs: Any) -> BCOO:
        return sparsify(lambda x: x.reshape(*args, **kwargs))(self)

    def astype(self, *args: Any, **kwargs: Any) -> BCOO:
        return sparsify(lambda x: x.astype(*args, **kwargs))(self)

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        """The sum over axes, as a sparse array."""
        return sparsify(lambda x: x.sum(*args, **kwargs))(self)

    def __getitem__(self, idx: Any) -> Any:
        return sparsify(lambda x: x[idx])(self)

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __neg__(self) -> BCOO:
        return sparsify(unary.negative)(self)

    def __pos__(self) -> BCOO:
        return self

    def __abs__(self) -> BCOO:
        return sparsify(unary.absolute)(self)

    __matmul__, __rmatmul__ = operators(matmul)
    __mul__, __rmul__ = operators(binary.multiply)
    __truediv__, __rtruediv__ = operators(binary.divide)
    __add__, __radd__ = operators(binary.add)
    __sub__, __rsub__ = operators(binary.subtract)
    __pow__ = operators(lambda x, y: x**y)[0]
    __eq__, __ne__ = operators(binary.equal)[0], operators(binary.not_equal)[0]
    __lt__, __le__ = operators(binary.less)[0], operators(binary.less_equal)[0]
    __gt__, __ge__ = operators(binary.greater)[0], operators(binary.greater_equal)[0]


def bcoo_fromdense(
    mat: ArrayLike,
    *,
    nse: int | None = None,
    n_batch: int = 0,
    n_dense: int = 0,
    index_dtype: DTypeLike = np.int32,
) -> BCOO:
    """The nonzero elements of a dense array, in order.

    Args:
      nse: the number of stored elements per batch element: further elements are dropped, missing
        ones are padded out of bounds. By default the number of nonzeros, which must be known:
        not under `jit`.
      n_batch, n_dense: the number of leading batch dimensions and trailing dense dimensions.
    """
    return from_dense(BCOO, mat, nse, n_batch, n_dense, index_dtype)


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array of shape `mat.shape`."""
    return to_dense(mat)


def bcoo_extract(sparr: BCOO, arr: ArrayLike, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array at the indices of a sparse array of the same shape.

    assume_unique: whether each duplicate gets the value, instead of only the first one; by default
      `sparr.unique_indices`.
    """
    if not isinstance(sparr, BCOO):
        raise TypeError(f"bcoo_extract: sparr must be a BCOO; got {type(sparr).__name__}.")
    arr = asarray(arr)
    if arr.shape != sparr.shape:
        raise ValueError(f"bcoo_extract: shapes {sparr.shape} and {arr.shape} differ.")
    once = sparr.unique_indices if assume_unique is None else assume_unique
    return sparr.with_data(extracted(sparr.indices, arr, once))


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """Like `bcoo_sum_duplicates`, and drops zeros."""
    return without_zeros(mat, nse)
