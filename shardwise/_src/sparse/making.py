"""Creation of sparse arrays: empty, identity, random; and conversion to dense arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.creation import asarray
from shardwise._src.ops import elementwise
from shardwise._src.random.discrete import choice
from shardwise._src.random.draws import uniform
from shardwise._src.random.keys import split
from shardwise._src.sparse.base import JAXSparse
from shardwise._src.sparse.bcoo import BCOO
from shardwise._src.sparse.bcsr import BCSR
from shardwise._src.sparse.entries import unflat
from shardwise._src.sparse.matrices import COO, CSC, CSR
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.annotations import Array, DTypeLike
from shardwise._src.types.dtypes import canonicalize

_FORMATS: dict[str, Any] = {"bcsr": BCSR, "bcoo": BCOO, "coo": COO, "csr": CSR, "csc": CSC}


def _class_of(name: str, sparse_format: str) -> Any:
    if sparse_format not in _FORMATS or (name == "eye" and sparse_format == "bcsr"):
        known = [f for f in _FORMATS if name != "eye" or f != "bcsr"]
        raise ValueError(
            f"shardwise.experimental.sparse.{name}: sparse_format must be one of "
            f"{', '.join(known)}; got {sparse_format!r}."
        )
    return _FORMATS[sparse_format]


def todense(arr: Any) -> Array:
    """Converts a sparse array to a dense one; dense arrays are unchanged. Also in `sparsify`."""
    if isinstance(arr, Tracer):
        return elementwise.todense(arr)
    return arr.todense() if isinstance(arr, JAXSparse) else arr


def empty(
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """A sparse array of zeros.

    sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc". kwds: n_batch, n_dense and nse for the
      first two.
    """
    cls = _class_of("empty", sparse_format)
    return cls._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike | None = None,
    index_dtype: DTypeLike = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """A sparse matrix of shape (N, M) with ones along diagonal `k`; see `empty`."""
    cls = _class_of("eye", sparse_format)
    columns = index(N if M is None else M)
    return cls._eye(index(N), columns, index(k), dtype=dtype, index_dtype=index_dtype, **kwds)


def random_bcoo(
    key: Array,
    shape: Sequence[int],
    *,
    dtype: DTypeLike = float,
    indices_dtype: DTypeLike | None = None,
    nse: int | float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Array] = uniform,
    **kwds: Any,
) -> BCOO:
    """A BCOO array with random elements at random indices.

    Args:
      nse: the number of stored elements per batch element, or, if below 1, a fraction of all.
      unique_indices: whether indices are unique. sorted_indices: whether they are sorted.
      generator: of elements: `generator(key, shape=, dtype=, **kwds)`.
    """
    shape = tuple([index(n) for n in shape])
    end = len(shape) - n_dense
    if not 0 <= n_batch <= end <= len(shape):
        raise ValueError(
            f"random_bcoo: n_batch={n_batch} and n_dense={n_dense} do not fit the shape {shape}."
        )
    batch, sparse, dense = shape[:n_batch], shape[n_batch:end], shape[end:]
    total = math.prod(sparse)
    if not 0 <= nse < total:
        raise ValueError(f"random_bcoo: nse must be at least 0 and less than {total}; got {nse}.")
    count = math.ceil(nse * total) if 0 < nse < 1 else index(int(nse))
    kind = canonicalize(int if indices_dtype is None else indices_dtype)
    first, *_ = keys = split(key, math.prod(batch) + 1)
    data = generator(first, shape=(*batch, count, *dense), dtype=dtype, **kwds)

    def places(key: Any) -> Any:
        flat = choice(key, total, shape=(count,), replace=not unique_indices)
        return unflat(asarray(flat), sparse, kind)

    indices = vmap(places)(keys[1:]).reshape((*batch, count, len(sparse)))
    mat = BCOO((data, indices), shape=shape, unique_indices=unique_indices)
    return mat.sort_indices() if sorted_indices else mat
