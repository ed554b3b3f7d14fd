"""`Methods`: the attributes and methods of arrays, under NumPy's names.

Each is a one-line call of the function with that name. A subclass must provide `aval` and
`__array__`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shardwise._src.base.warn import warn
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.types.annotations import (
    AnyAxis,
    Array,
    ArrayLike,
    Axis,
    DeviceLike,
    DTypeLike,
    Ints,
    OutSharding,
    PrecisionLike,
)
from shardwise._src.types.array_type import ArrayType
from shardwise._src.values import binary
from shardwise._src.values.numpy_modules import modules

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")  # of the array API standard


def namespace() -> Any:
    """The module that `__array_namespace__` returns."""
    return sys.modules["shardwise.numpy"]


class Methods:
    """The part of `Value` that does not depend on operators."""

    __slots__ = ()
    aval: ArrayType

    def _itself(self) -> Any:
        """The value that no-op functions return; raises for deleted arrays."""
        return self

    if TYPE_CHECKING:

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

    # -- attributes --

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def __numpy_dtype__(self) -> np.dtype[Any]:
        """For NumPy 2.4 and later: this array where a dtype is expected."""
        warn(
            "An array as a dtype means its own dtype. That is removed in 0.4.0: pass x.dtype.",
            DeprecationWarning,
        )
        return self.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.aval.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.aval.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; replicas are counted once."""
        return self.aval.nbytes

    @property
    def weak_type(self) -> bool:
        """Whether the dtype is weak in promotion, because it came from a Python scalar."""
        return self.aval.weak_type

    @property
    def real(self) -> Array:
        return modules.unary.real(self)

    @property
    def imag(self) -> Array:
        return modules.unary.imag(self)

    @property
    def T(self) -> Array:
        """The array with its dimensions reversed."""
        return modules.shapes.transpose(self)

    @property
    def mT(self) -> Array:
        """The array with its last two dimensions swapped."""
        return modules.shapes.matrix_transpose(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """The module with the functions of the array API standard, up to version 2024.12."""
        if api_version is not None and api_version not in API_VERSIONS:
            raise ValueError(
                f"__array_namespace__: api_version must be one of {', '.join(API_VERSIONS)}; got "
                f"{api_version!r}."
            )
        return namespace()

    # -- copies and casts --

    def astype(
        self, dtype: DTypeLike | None, copy: bool = False, device: DeviceLike = None
    ) -> Array:
        return modules.creation.astype(self, dtype, copy=copy, device=device)

    def copy(self) -> Array:
        return modules.creation.copy(self)

    def __copy__(self) -> Array:
        return modules.creation.copy(self)

    def __deepcopy__(self, memo: dict) -> Array:
        return modules.creation.copy(self)

    def view(self, dtype: DTypeLike | None = None, type: None = None) -> Array:
        """The same bits as another dtype. `type` must be None: there is only one array class."""
        if type is not None:
            raise NotImplementedError(
                f"view: arrays have one class, so `type` must be None; got {type!r}. Leave it out."
            )
        return modules.bit_views.view(self, dtype)

    def byteswap(self) -> Array:
        """The elements with their bytes reversed, in the same dtype."""
        return modules.bit_views.byteswap(self)

    def to_device(self, device: DeviceLike, *, stream: None = None) -> Array:
        """Commits to a device or sharding. `stream` must be None: transfers need no stream."""
        if stream is not None:
            raise NotImplementedError(
                f"to_device does not support stream; got {stream!r}. Leave it out."
            )
        return eval_trace().place(self, device)

    # -- shape --

    def reshape(
        self,
        *args: Ints,
        order: str = "C",
        copy: bool | None = None,
        out_sharding: OutSharding = None,
    ) -> Array:
        """The array in another shape, given as one argument or as several.

        out_sharding: how the result is sharded over explicit mesh axes.
        """
        shape = _one(args)
        return modules.shapes.reshape(self, shape, order, copy=copy, out_sharding=out_sharding)

    def ravel(self, order: str = "C", *, out_sharding: OutSharding = None) -> Array:
        return modules.shapes.ravel(self, order, out_sharding=out_sharding)

    def flatten(self, order: str = "C", *, out_sharding: OutSharding = None) -> Array:
        return modules.shapes.ravel(self, order, out_sharding=out_sharding)

    def transpose(self, *axes: Ints) -> Array:
        """The array with its dimensions permuted; the order is one argument or several."""
        if not axes:
            return modules.shapes.transpose(self)
        return modules.shapes.transpose(self, _one(axes))

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        return modules.shapes.swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Axis = None) -> Array:
        return modules.shapes.squeeze(self, axis)

    def repeat(
        self,
        repeats: ArrayLike,
        axis: int | None = None,
        *,
        total_repeat_length: int | None = None,
        out_sharding: OutSharding = None,
    ) -> Array:
        return modules.rearrange.repeat(
            self, repeats, axis, total_repeat_length=total_repeat_length, out_sharding=out_sharding
        )

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        return modules.rearrange.diagonal(self, offset, axis1, axis2)

    # -- products --

    def dot(
        self,
        b: ArrayLike,
        *,
        precision: PrecisionLike = None,
        preferred_element_type: DTypeLike | None = None,
    ) -> Array:
        return modules.contractions.dot(
            self, b, precision=precision, preferred_element_type=preferred_element_type
        )

    def trace(
        self,
        offset: int = 0,
        axis1: int = 0,
        axis2: int = 1,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Array:
        return modules.contractions.trace(self, offset, axis1, axis2, dtype, out)

    # -- elementwise --

    def conj(self) -> Array:
        return modules.unary.conjugate(self)

    def conjugate(self) -> Array:
        return modules.unary.conjugate(self)

    def round(self, decimals: int = 0, out: None = None) -> Array:
        return modules.unary.round(self, decimals, out)

    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Array:
        return binary.clip(self, min, max)

    # -- reductions --

    def sum(
        self,
        axis: AnyAxis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
        promote_integers: bool = True,
    ) -> Array:
        return modules.reductions.sum(
            self, axis, dtype, out, keepdims, initial, where, promote_integers
        )

    def prod(
        self,
        axis: AnyAxis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
        promote_integers: bool = True,
    ) -> Array:
        return modules.reductions.prod(
            self, axis, dtype, out, keepdims, initial, where, promote_integers
        )

    def max(
        self,
        axis: AnyAxis = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return modules.reductions.max(self, axis, out, keepdims, initial, where)

    def min(
        self,
        axis: AnyAxis = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        return modules.reductions.min(self, axis, out, keepdims, initial, where)

    def ptp(self, axis: AnyAxis = None, out: None = None, keepdims: bool = False) -> Array:
        return modules.reductions.ptp(self, axis, out, keepdims)

    def any(
        self,
        axis: AnyAxis = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> Array:
        return modules.reductions.any(self, axis, out, keepdims, where=where)

    def all(
        self,
        axis: AnyAxis = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> Array:
        return modules.reductions.all(self, axis, out, keepdims, where=where)

    def argmax(
        self, axis: int | None = None, out: None = None, keepdims: bool | None = None
    ) -> Array:
        return modules.reductions.argmax(self, axis, out, keepdims)

    def argmin(
        self, axis: int | None = None, out: None = None, keepdims: bool | None = None
    ) -> Array:
        return modules.reductions.argmin(self, axis, out, keepdims)

    def mean(
        self,
        axis: AnyAxis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
    ) -> Array:
        return modules.averages.mean(self, axis, dtype, out, keepdims, where=where)

    def var(
        self,
        axis: AnyAxis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        correction: int | float | None = None,
    ) -> Array:
        return modules.averages.var(
            self, axis, dtype, out, ddof, keepdims, where=where, correction=correction
        )

    def std(
        self,
        axis: AnyAxis = None,
        dtype: DTypeLike | None = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: ArrayLike | None = None,
        correction: int | float | None = None,
    ) -> Array:
        return modules.averages.std(
            self, axis, dtype, out, ddof, keepdims, where=where, correction=correction
        )

    # -- scans, sorting, indexing --

    def cumsum(
        self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        return modules.scans.cumsum(self, axis, dtype, out)

    def cumprod(
        self, axis: int | None = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        return modules.scans.cumprod(self, axis, dtype, out)

    def sort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        """A sorted copy; the array itself does not change."""
        return modules.sorting.sort(
            self, axis, kind=kind, order=order, stable=stable, descending=descending
        )

    def argsort(
        self,
        axis: int | None = -1,
        *,
        kind: None = None,
        order: None = None,
        stable: bool = True,
        descending: bool = False,
    ) -> Array:
        return modules.sorting.argsort(
            self, axis, kind=kind, order=order, stable=stable, descending=descending
        )

    def argpartition(self, kth: int, axis: int = -1) -> Array:
        return modules.sorting.argpartition(self, kth, axis)

    def searchsorted(
        self,
        v: ArrayLike,
        side: str = "left",
        sorter: ArrayLike | None = None,
        *,
        method: str = "scan",
    ) -> Array:
        return modules.sorting.searchsorted(self, v, side, sorter, method=method)

    def nonzero(
        self, *, size: int | None = None, fill_value: ArrayLike | None = None
    ) -> tuple[Array, ...]:
        return modules.searching.nonzero(self, size=size, fill_value=fill_value)

    def choose(
        self, choices: ArrayLike | Sequence[ArrayLike], out: None = None, mode: str = "raise"
    ) -> Array:
        return modules.searching.choose(self, choices, out, mode)

    def take(
        self,
        indices: ArrayLike,
        axis: int | None = None,
        out: None = None,
        mode: str | None = None,
        unique_indices: bool = False,
        indices_are_sorted: bool = False,
        fill_value: ArrayLike | None = None,
    ) -> Array:
        return modules.picking.take(
            self, indices, axis, out, mode, unique_indices, indices_are_sorted, fill_value
        )

    def compress(
        self,
        condition: ArrayLike,
        axis: int | None = None,
        *,
        size: int | None = None,
        fill_value: ArrayLike = 0,
        out: None = None,
    ) -> Array:
        return modules.picking.compress(
            condition, self, axis, size=size, fill_value=fill_value, out=out
        )


def _one(args: tuple[Any, ...]) -> Any:
    """A shape or an axis order, given as one argument or as several."""
    return args[0] if len(args) == 1 else args
