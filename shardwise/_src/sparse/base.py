"""`JAXSparse`, the base of all sparse arrays, and `Stored`: elements with their coordinates.

A `Stored` array of shape (*batch, *sparse, *dense) has, for each batch element, nse blocks of the
dense dimensions, each with its coordinates along the sparse dimensions:

    data:    (*batch, nse, *dense)
    indices: (*batch, nse, number of sparse dimensions)

Batch dimensions of either may be 1, which broadcasts. The batch shape is that of the arrays, so
that `vmap` over batch dimensions takes and returns sparse arrays like any pytree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NoReturn, TypeVar

import numpy as np

from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.creation import asarray, full, zeros
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.shapes import broadcast_to
from shardwise._src.placement.device_put import block_until_ready
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.dtypes import is_integer

Shape = tuple[int, ...]


class SparseEfficiencyError(ValueError):
    """A layout would store many zeros."""


class SparseEfficiencyWarning(UserWarning):
    """A layout stores many zeros."""


class CuSparseEfficiencyWarning(SparseEfficiencyWarning):
    """For programs that catch it; never raised, because cuSPARSE is not used."""


def _rejecting(name: str) -> Callable[..., Any]:
    """An operator that only some subclasses have."""

    def method(self: JAXSparse, *others: Any) -> Any:
        if any(isinstance(x, JAXSparse) and getattr(type(x), name) is not method for x in others):
            return NotImplemented
        self._reject(name)

    return method


class JAXSparse:
    """Base class of sparse arrays: pytrees whose first leaf is `data`."""

    data: Any
    shape: Any
    fields: tuple[str, ...] = ("data",)
    __hash__: Any = None
    __array_ufunc__ = None  # lets NumPy arrays defer binary operators to this class

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def nse(self) -> int:
        """The number of stored elements in each batch element."""
        return self.data.shape[0]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> Any:
        return self.transpose()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self!r} is not converted to a NumPy array implicitly, as that would store all "
            "elements. Use `x.todense()` if that is intended."
        )

    def __len__(self) -> int:
        return self.shape[0]

    def _summary(self) -> str:
        return f"{self.dtype}{list(self.shape)}, nse={self.nse}"

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            text = f"{name}({self._summary()})"
        except Exception:  # its leaves are not arrays
            return f"{name}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text

    def _static(self) -> Any:
        return self.shape

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return self._leaves(), self._static()

    def _leaves(self) -> tuple[Any, ...]:
        return tuple([getattr(self, f) for f in self.fields])

    def block_until_ready(self) -> Any:
        block_until_ready(self._leaves())
        return self

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        self._reject("transpose")

    def todense(self) -> Any:
        self._reject("todense")

    def sum(self, *args: Any, **kwargs: Any) -> Any:
        self._reject("sum")

    __neg__, __getitem__, __add__, __radd__, __sub__, __rsub__, __mul__, __rmul__ = map(
        _rejecting, "__neg__ __getitem__ __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__".split()
    )

    def with_data(self, data: Any) -> Any:
        """An array with the same indices and other data."""
        children, static = self.tree_flatten()
        return type(self).tree_unflatten(static, (data, *children[1:]))

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Any:
        new = object.__new__(cls)
        for name, child in zip(cls.fields, children, strict=True):
            setattr(new, name, child)
        new.shape = aux_data
        return new

    def _reject(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__}.{what} is not implemented. BCOO arrays have it; `todense` "
            "returns the dense array."
        )


class Batched(JAXSparse):
    """Arrays of shape (*batch, *sparse, *dense), whose fields broadcast over the batch.

    index_dims: the number of dimensions of `indices` besides the batch.
    indices_sorted, unique_indices: guarantees about the indices.
    """

    index_dims: int
    indices: Any

    def _set(self, tail: Shape, indices_sorted: bool, unique_indices: bool) -> None:
        self.tail, self.indices_sorted = tail, indices_sorted
        self.unique_indices = unique_indices

    def _broadcast_to(self, whole: Shape, indices_sorted: bool, unique_indices: bool) -> None:
        """Sets the shape; the batch of data is broadcast if no field has the full batch."""
        n = self.n_batch
        self._set(whole[n:], indices_sorted, unique_indices)
        if self.shape != whole:
            self.data = broadcast_to(self.data, whole[:n] + self.data.shape[n:])

    def _batches_fit(self, whole: Shape) -> bool:
        n, fields = self.n_batch, self._leaves()
        return all(a in (1, b) for x in fields for a, b in zip(x.shape[:n], whole, strict=False))

    @property
    def shape(self) -> Shape:  # pyright: ignore[reportIncompatibleVariableOverride]
        n, fields = self.n_batch, self._leaves()
        return np.broadcast_shapes(*[x.shape[:n] for x in fields]) + self.tail

    @property
    def n_batch(self) -> int:
        return self.indices.ndim - self.index_dims

    @property
    def nse(self) -> int:
        return self.indices.shape[self.n_batch]

    @property
    def n_dense(self) -> int:
        return self.data.ndim - 1 - self.n_batch

    def _summary(self) -> str:
        counts = [("n_batch", self.n_batch), ("n_dense", self.n_dense)]
        return super()._summary() + "".join([f", {name}={n}" for name, n in counts if n])

    def _static(self) -> Any:
        return self.tail, self.indices_sorted, self.unique_indices

    @classmethod
    def tree_unflatten(cls, aux_data: Any, children: Sequence[Any]) -> Any:
        new = object.__new__(cls)
        for name, child in zip(cls.fields, children, strict=True):
            setattr(new, name, child)
        new._set(*aux_data)
        return new


class Stored(Batched):
    """Elements with their coordinates; see the module docstring."""

    fields = ("data", "indices")
    index_dims = 2

    def __init__(
        self,
        args: tuple[Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices = data, indices = [asarray(x) for x in args]
        whole = tuple([index(n) for n in shape])
        name = type(self).__name__
        if indices.ndim < 2 or not is_integer(indices.dtype):
            raise ValueError(
                f"{name}: indices must be integers of shape (*batch, nse, sparse); got "
                f"{indices.dtype} of shape {indices.shape}."
            )
        batch, places = indices.ndim - 2, indices.shape[-1]
        dense = whole[batch + places :]
        fit = batch + places <= len(whole) and self._batches_fit(whole)
        if not fit or data.shape[batch:] != (self.nse, *dense):
            raise ValueError(
                f"{name}: data of shape {data.shape} and indices of shape {indices.shape} do not "
                f"fit the shape {whole}: they must be (*batch, nse, *dense) and (*batch, nse, "
                "sparse) for a shape (*batch, *sparse, *dense)."
            )
        self._broadcast_to(whole, indices_sorted, unique_indices)

    @property
    def n_sparse(self) -> int:
        return self.indices.shape[-1]

    def made(
        self,
        data: Any,
        indices: Any,
        shape: Sequence[int],
        sorted: bool = False,
        unique: bool = False,
    ) -> Any:
        """Another array of this class."""
        return type(self)(
            (data, indices), shape=shape, indices_sorted=sorted, unique_indices=unique
        )

    def split(self, shape: Sequence[Any] | None = None) -> tuple[Any, Any, Any]:
        """The batch, sparse and dense parts of the shape, or of a similar sequence."""
        given = tuple(self.shape if shape is None else shape)
        a, b = self.n_batch, self.n_batch + self.n_sparse
        return given[:a], given[a:b], given[b:]

    def whole(self) -> tuple[Any, Any]:
        """Data and indices with fully broadcast batch dimensions."""
        batch, n = self.split()[0], self.n_batch
        data, indices = [
            x if x.shape[:n] == batch else broadcast_to(x, batch + x.shape[n:])
            for x in (self.data, self.indices)
        ]
        return data, indices

    def inside(self, indices: Any) -> Any:
        """Whether indices of this array are in bounds: bool[*batch, nse]."""
        return (indices < sizes_like(self.split()[1], indices)).all(-1)

    def without_padding(self) -> Any:
        """The same array, with fully broadcast data and indices."""
        return type(self).tree_unflatten(self._static(), self.whole())


def coordinates(indices: Any) -> tuple[Any, ...]:
    """The coordinates of stored elements, per batch and sparse dimension: arrays (*batch, nse)."""
    *batch, nse, places = indices.shape
    shape = (*batch, nse)
    first = [
        broadcast_to(arange(n, dtype=indices.dtype).reshape((n,) + (1,) * (len(batch) - i)), shape)
        for i, n in enumerate(batch)
    ]
    return (*first, *[indices[..., i] for i in range(places)])


M = TypeVar("M", bound=Stored)


def columns(indices: Any) -> tuple[Any, ...]:
    return tuple([indices[..., i] for i in range(indices.shape[-1])])


def read(x: Any, at: tuple[Any, ...], fill: Any = 0) -> Any:
    """`x[at]`; `fill` if out of bounds."""
    if 0 in x.shape:
        return full((*at[0].shape, *x.shape[len(at) :]), fill, x.dtype)
    return x.at[at].get(mode="fill", fill_value=fill, wrap_negative_indices=False)


def taken(x: Any, indices: Any, fill: Any = 0) -> Any:
    """The data of stored elements with these indices, gathered from an array."""

    def one(x: Any, i: Any) -> Any:
        return read(x, columns(i), fill) if i.shape[1] else broadcast_to(x, (len(i), *x.shape))

    return each(one, indices.ndim - 2)(x, indices)


def scattered(data: Any, indices: Any, shape: Sequence[int]) -> Any:
    """An array of this shape with the stored elements added at their indices."""
    n = indices.ndim - 2
    tail = tuple(shape)[n:]

    def one(d: Any, i: Any) -> Any:
        if not i.shape[1]:
            return d.sum(0, dtype=d.dtype)
        return added(zeros(tail, d.dtype), columns(i), d)

    return each(one, n)(data, indices)


def added(x: Any, at: tuple[Any, ...], values: Any) -> Any:
    """`x[at] += values`, where in bounds; for booleans, logical or."""
    if 0 in x.shape:
        return x
    put = x.at[at].max if x.dtype == bool else x.at[at].add
    return put(values, mode="drop", wrap_negative_indices=False)


def masked(data: Any, keep: Any) -> Any:
    """`data` where `keep`, of the leading dimensions, is true; else 0."""
    keep = keep.reshape(keep.shape + (1,) * (data.ndim - keep.ndim))
    return where(keep, data, zeros((), data.dtype))


def each(fun: Callable, times: int, **axes: Any) -> Callable:
    """`fun` mapped over leading dimensions."""
    for _ in range(times):
        fun = vmap(fun, **axes)
    return fun


def sizes_like(sizes: Sequence[int], indices: Any) -> Any:
    """Sizes as an array of the indices' dtype: the out-of-bounds index."""
    return asarray(np.asarray(sizes, indices.dtype))


def grid(sizes: Sequence[int], dtype: Any) -> Any:
    """All indices of a shape, in order: (number of indices, number of dimensions)."""
    columns = np.meshgrid(*[np.arange(n) for n in sizes], indexing="ij")
    found = np.stack(columns, -1) if columns else np.zeros((1, 0))
    return asarray(found.reshape(math.prod(sizes), len(sizes)).astype(dtype))
