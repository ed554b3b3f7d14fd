"""`Value`: the operators that arrays and tracers share; their methods are in `methods`.

A subclass provides `aval`; everything else is written with the functions of `shardwise.numpy`. An
operator gives way (`NotImplemented`) to operands that no function here takes: lists, text, objects
of other libraries that define the reflected operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

import shardwise._src.numpy as modules
from shardwise._src.core.infer import is_operand, known
from shardwise._src.numpy import ufuncs
from shardwise._src.numpy.methods import Methods


def _other_way(fun: Any, x: Any, y: Any, error: TypeError) -> Any:
    """An operator's second try after a TypeError: with an operand of another library converted.

    Gives way where the operand is nothing that functions take; else the error was about something
    else, and is raised.
    """
    new_x, new_y = known(x), known(y)
    if new_x is not x or new_y is not y:
        return fun(new_x, new_y)
    if all(is_operand(v) for v in (x, y)):
        raise error
    return NotImplemented


class _Missing:
    """An attribute of NumPy's arrays, or of earlier ones here, that arrays do not have."""

    def __init__(self, instead: str):
        self.instead = instead  # what to write

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> Any:
        if x is None:
            return self
        message = f"{owner.__name__!r} object has no attribute {self.name!r}. Use `{self.instead}`."
        raise AttributeError(message, name=self.name, obj=x)


class Value(Methods):
    """Base of `Array` and of all tracers. Required of a subclass: `aval`."""

    __slots__ = ()
    __array_priority__ = 100  # NumPy's arrays leave binary operators to us

    # Named one by one: NumPy asks arrays for attributes, and `__getattr__` would be slow to answer.
    device_buffer = _Missing("x.addressable_data(0)")
    device_buffers = _Missing("[shard.data for shard in x.addressable_shards]")
    fill = _Missing("x = numpy.full_like(x, value)")
    flat = _Missing("x.ravel()")
    itemset = _Missing("x = x.at[idx].set(value)")
    partition = _Missing("x = numpy.partition(x, kth)")
    put = _Missing("x = numpy.put(x, idx, values, inplace=False)")
    resize = _Missing("x = numpy.resize(x, shape)")
    tofile = _Missing("numpy.asarray(x).tofile(file)")

    # -- arithmetic --

    def __add__(self, other: Any) -> Any:
        try:
            return ufuncs.add(self, other)
        except TypeError as error:
            return _other_way(ufuncs.add, self, other, error)

    def __radd__(self, other: Any) -> Any:
        try:
            return ufuncs.add(other, self)
        except TypeError as error:
            return _other_way(ufuncs.add, other, self, error)

    def __sub__(self, other: Any) -> Any:
        try:
            return ufuncs.subtract(self, other)
        except TypeError as error:
            return _other_way(ufuncs.subtract, self, other, error)

    def __rsub__(self, other: Any) -> Any:
        try:
            return ufuncs.subtract(other, self)
        except TypeError as error:
            return _other_way(ufuncs.subtract, other, self, error)

    def __mul__(self, other: Any) -> Any:
        try:
            return ufuncs.multiply(self, other)
        except TypeError as error:
            return _other_way(ufuncs.multiply, self, other, error)

    def __rmul__(self, other: Any) -> Any:
        try:
            return ufuncs.multiply(other, self)
        except TypeError as error:
            return _other_way(ufuncs.multiply, other, self, error)

    def __truediv__(self, other: Any) -> Any:
        try:
            return ufuncs.true_divide(self, other)
        except TypeError as error:
            return _other_way(ufuncs.true_divide, self, other, error)

    def __rtruediv__(self, other: Any) -> Any:
        try:
            return ufuncs.true_divide(other, self)
        except TypeError as error:
            return _other_way(ufuncs.true_divide, other, self, error)

    def __floordiv__(self, other: Any) -> Any:
        try:
            return ufuncs.floor_divide(self, other)
        except TypeError as error:
            return _other_way(ufuncs.floor_divide, self, other, error)

    def __rfloordiv__(self, other: Any) -> Any:
        try:
            return ufuncs.floor_divide(other, self)
        except TypeError as error:
            return _other_way(ufuncs.floor_divide, other, self, error)

    def __mod__(self, other: Any) -> Any:
        try:
            return ufuncs.remainder(self, other)
        except TypeError as error:
            return _other_way(ufuncs.remainder, self, other, error)

    def __rmod__(self, other: Any) -> Any:
        try:
            return ufuncs.remainder(other, self)
        except TypeError as error:
            return _other_way(ufuncs.remainder, other, self, error)

    def __divmod__(self, other: Any) -> Any:
        try:
            return ufuncs.divmod(self, other)
        except TypeError as error:
            return _other_way(ufuncs.divmod, self, other, error)

    def __rdivmod__(self, other: Any) -> Any:
        try:
            return ufuncs.divmod(other, self)
        except TypeError as error:
            return _other_way(ufuncs.divmod, other, self, error)

    def __pow__(self, other: Any) -> Any:
        try:
            return ufuncs.power(self, other)
        except TypeError as error:
            return _other_way(ufuncs.power, self, other, error)

    def __rpow__(self, other: Any) -> Any:
        try:
            return ufuncs.power(other, self)
        except TypeError as error:
            return _other_way(ufuncs.power, other, self, error)

    def __matmul__(self, other: Any) -> Any:
        try:
            return modules.contractions.matmul(self, other)
        except TypeError as error:
            return _other_way(modules.contractions.matmul, self, other, error)

    def __rmatmul__(self, other: Any) -> Any:
        try:
            return modules.contractions.matmul(other, self)
        except TypeError as error:
            return _other_way(modules.contractions.matmul, other, self, error)

    def __neg__(self) -> Any:
        return modules.elementary.negative(self)

    def __pos__(self) -> Any:
        return ufuncs.positive(self)

    def __abs__(self) -> Any:
        return modules.elementary.absolute(self)

    def __round__(self, ndigits: int | None = None) -> Any:
        rounded = modules.elementary.round(self, ndigits or 0)
        return rounded.astype(int) if ndigits is None else rounded

    # -- bits and logic --

    def __lshift__(self, other: Any) -> Any:
        try:
            return ufuncs.left_shift(self, other)
        except TypeError as error:
            return _other_way(ufuncs.left_shift, self, other, error)

    def __rlshift__(self, other: Any) -> Any:
        try:
            return ufuncs.left_shift(other, self)
        except TypeError as error:
            return _other_way(ufuncs.left_shift, other, self, error)

    def __rshift__(self, other: Any) -> Any:
        try:
            return ufuncs.right_shift(self, other)
        except TypeError as error:
            return _other_way(ufuncs.right_shift, self, other, error)

    def __rrshift__(self, other: Any) -> Any:
        try:
            return ufuncs.right_shift(other, self)
        except TypeError as error:
            return _other_way(ufuncs.right_shift, other, self, error)

    def __and__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_and(self, other)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_and, self, other, error)

    def __rand__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_and(other, self)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_and, other, self, error)

    def __or__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_or(self, other)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_or, self, other, error)

    def __ror__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_or(other, self)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_or, other, self, error)

    def __xor__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_xor(self, other)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_xor, self, other, error)

    def __rxor__(self, other: Any) -> Any:
        try:
            return ufuncs.bitwise_xor(other, self)
        except TypeError as error:
            return _other_way(ufuncs.bitwise_xor, other, self, error)

    def __invert__(self) -> Any:
        return ufuncs.bitwise_not(self)

    # -- comparison; values are not hashable: equality is elementwise --

    def __eq__(self, other: Any) -> Any:
        try:
            return ufuncs.equal(self, other)
        except TypeError as error:
            return _other_way(ufuncs.equal, self, other, error)

    def __ne__(self, other: Any) -> Any:
        try:
            return ufuncs.not_equal(self, other)
        except TypeError as error:
            return _other_way(ufuncs.not_equal, self, other, error)

    def __lt__(self, other: Any) -> Any:
        try:
            return ufuncs.less(self, other)
        except TypeError as error:
            return _other_way(ufuncs.less, self, other, error)

    def __le__(self, other: Any) -> Any:
        try:
            return ufuncs.less_equal(self, other)
        except TypeError as error:
            return _other_way(ufuncs.less_equal, self, other, error)

    def __gt__(self, other: Any) -> Any:
        try:
            return ufuncs.greater(self, other)
        except TypeError as error:
            return _other_way(ufuncs.greater, self, other, error)

    def __ge__(self, other: Any) -> Any:
        try:
            return ufuncs.greater_equal(self, other)
        except TypeError as error:
            return _other_way(ufuncs.greater_equal, self, other, error)

    __hash__ = None  # pyright: ignore[reportAssignmentType] (unhashable)

    # -- elements --

    def __getitem__(self, idx: Any) -> Any:
        return modules.indexing.getitem(self, idx)

    @property
    def at(self) -> Any:
        """`x.at[idx].set(v)`, `.add(v)`, …: a new array with some elements changed."""
        return modules.at.At(self)

    def __setitem__(self, idx: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"{_title(self)} cannot be changed in place. For a new array with the elements "
            "changed, write x = x.at[idx].set(value)."
        )

    def __delitem__(self, idx: Any) -> NoReturn:
        raise TypeError(
            f"elements of {_title(self)} cannot be deleted in place. For a new array "
            "without them, write x = numpy.delete(x, idx)."
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions; its size is 1.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over an array without dimensions. Use x.item() or x[()].")
        return iter(modules.indexing.unstack(self))

    def __contains__(self, item: Any) -> bool:
        return bool(modules.reductions.any(self == item))


def _title(x: Any) -> str:
    return "a traced value" if hasattr(x, "interpreter") else type(x).__name__
