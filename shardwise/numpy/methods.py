"""`Methods`: the attributes and methods of arrays, as NumPy names them.

Each is one line over the function of the same name. Required of a subclass: `aval`.
"""

from __future__ import annotations

import sys
from typing import Any

from shardwise.numpy import (
    contractions,
    creation,
    elementary,
    picking,
    rearrange,
    reductions,
    scans,
    searching,
    sorting,
    statistics,
    ufuncs,
)
from shardwise.numpy.convert import place
from shardwise.numpy.reductions import Axis
from shardwise.numpy.shapes import (  # `numpy.shape` is the function, not this module
    matrix_transpose,
    ravel,
    reshape,
    squeeze,
    swapaxes,
    transpose,
)
from shardwise.types.array_type import ArrayType


class Methods:
    """The part of `Value` that does not depend on operators."""

    __slots__ = ()
    aval: ArrayType

    # -- facts --

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

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
        """Bytes of all elements, each counted once however many devices hold it."""
        return self.aval.nbytes

    @property
    def weak_type(self) -> bool:
        """Whether the dtype gives way in promotion: it came from a Python scalar."""
        return self.aval.weak_type

    @property
    def real(self) -> Any:
        return elementary.real(self)

    @property
    def imag(self) -> Any:
        return elementary.imag(self)

    @property
    def T(self) -> Any:
        """The dimensions in reverse order."""
        return transpose(self)

    @property
    def mT(self) -> Any:
        """The last two dimensions exchanged."""
        return matrix_transpose(self)

    def __array_namespace__(self, *, api_version: str | None = None, device: Any = None) -> Any:
        """The module with the functions of the array API standard."""
        return sys.modules["shardwise.numpy"]

    # -- copies and casts --

    def astype(self, dtype: Any, copy: bool = False, device: Any = None) -> Any:
        return creation.astype(self, dtype, copy=copy, device=device)

    def copy(self) -> Any:
        return creation.copy(self)

    def __copy__(self) -> Any:
        return creation.copy(self)

    def __deepcopy__(self, memo: dict) -> Any:
        return creation.copy(self)

    def view(self, dtype: Any = None, type: None = None) -> Any:
        return creation.view(self, dtype)

    def to_device(self, device: Any, *, stream: Any = None) -> Any:
        return place(self, device)

    # -- shape --

    def reshape(self, *args: Any, order: str = "C", copy: bool | None = None) -> Any:
        """In another shape, given as one argument or as several."""
        return reshape(self, args[0] if len(args) == 1 else args, order, copy=copy)

    def ravel(self, order: str = "C") -> Any:
        return ravel(self, order)

    def flatten(self, order: str = "C") -> Any:
        return ravel(self, order)

    def transpose(self, *axes: Any) -> Any:
        """With the dimensions in another order, given as one argument or as several."""
        if not axes:
            return transpose(self)
        return transpose(self, axes[0] if len(axes) == 1 else axes)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        return swapaxes(self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Any:
        return squeeze(self, axis)

    def repeat(
        self, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None
    ) -> Any:
        return rearrange.repeat(self, repeats, axis, total_repeat_length=total_repeat_length)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        return rearrange.diagonal(self, offset, axis1, axis2)

    # -- products --

    def dot(self, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
        return contractions.dot(
            self, b, precision=precision, preferred_element_type=preferred_element_type
        )

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
    ) -> Any:
        return contractions.trace(self, offset, axis1, axis2, dtype, out)

    # -- elementwise --

    def conj(self) -> Any:
        return elementary.conjugate(self)

    def conjugate(self) -> Any:
        return elementary.conjugate(self)

    def round(self, decimals: int = 0, out: None = None) -> Any:
        reductions.refuse_out("round", out)
        return elementary.round(self, decimals)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        return ufuncs.clip(self, min, max)

    # -- reductions --

    def sum(
        self, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False,
        initial: Any = None, where: Any = None, promote_integers: bool = True,
    ) -> Any:
        return reductions.sum(self, axis, dtype, out, keepdims, initial, where, promote_integers)

    def prod(
        self, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False,
        initial: Any = None, where: Any = None, promote_integers: bool = True,
    ) -> Any:
        return reductions.prod(self, axis, dtype, out, keepdims, initial, where, promote_integers)

    def max(
        self, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None,
    ) -> Any:
        return reductions.max(self, axis, out, keepdims, initial, where)

    def min(
        self, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None,
        where: Any = None,
    ) -> Any:
        return reductions.min(self, axis, out, keepdims, initial, where)

    def ptp(self, axis: Axis = None, out: None = None, keepdims: bool = False) -> Any:
        return reductions.ptp(self, axis, out, keepdims)

    def any(
        self, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None
    ) -> Any:
        return reductions.any(self, axis, out, keepdims, where=where)

    def all(
        self, axis: Axis = None, out: None = None, keepdims: bool = False, *, where: Any = None
    ) -> Any:
        return reductions.all(self, axis, out, keepdims, where=where)

    def argmax(
        self, axis: int | None = None, out: None = None, keepdims: bool | None = None
    ) -> Any:
        return reductions.argmax(self, axis, out, keepdims)

    def argmin(
        self, axis: int | None = None, out: None = None, keepdims: bool | None = None
    ) -> Any:
        return reductions.argmin(self, axis, out, keepdims)

    def mean(
        self, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *,
        where: Any = None,
    ) -> Any:
        return statistics.mean(self, axis, dtype, out, keepdims, where=where)

    def var(
        self, axis: Axis = None, dtype: Any = None, out: None = None, ddof: int = 0,
        keepdims: bool = False, *, where: Any = None, correction: Any = None,
    ) -> Any:
        return statistics.var(
            self, axis, dtype, out, ddof, keepdims, where=where, correction=correction
        )

    def std(
        self, axis: Axis = None, dtype: Any = None, out: None = None, ddof: int = 0,
        keepdims: bool = False, *, where: Any = None, correction: Any = None,
    ) -> Any:
        return statistics.std(
            self, axis, dtype, out, ddof, keepdims, where=where, correction=correction
        )

    # -- scans, order, places --

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        return scans.cumsum(self, axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: None = None) -> Any:
        return scans.cumprod(self, axis, dtype, out)

    def sort(
        self, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
        descending: bool = False,
    ) -> Any:
        """A sorted copy; the array itself does not change."""
        return sorting.sort(
            self, axis, kind=kind, order=order, stable=stable, descending=descending
        )

    def argsort(
        self, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
        descending: bool = False,
    ) -> Any:
        return sorting.argsort(
            self, axis, kind=kind, order=order, stable=stable, descending=descending
        )

    def argpartition(self, kth: int, axis: int = -1) -> Any:
        return sorting.argpartition(self, kth, axis)

    def searchsorted(
        self, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
    ) -> Any:
        return sorting.searchsorted(self, v, side, sorter, method=method)

    def nonzero(self, *, size: int | None = None, fill_value: Any = None) -> tuple[Any, ...]:
        return searching.nonzero(self, size=size, fill_value=fill_value)

    def choose(self, choices: Any, out: None = None, mode: str = "raise") -> Any:
        return searching.choose(self, choices, out, mode)

    def take(
        self, indices: Any, axis: int | None = None, out: None = None, mode: str | None = None,
        unique_indices: bool = False, indices_are_sorted: bool = False, fill_value: Any = None,
    ) -> Any:
        return picking.take(
            self, indices, axis, out, mode, unique_indices, indices_are_sorted, fill_value
        )

    def compress(
        self, condition: Any, axis: int | None = None, *, size: int | None = None,
        fill_value: Any = 0, out: None = None,
    ) -> Any:
        return picking.compress(
            condition, self, axis, size=size, fill_value=fill_value, out=out
        )
