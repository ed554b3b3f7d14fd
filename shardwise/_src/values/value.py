"""`Value`: the operators that arrays and tracers share; their methods are in `methods`.

A subclass provides `aval`; everything else uses the functions of `shardwise.numpy`. An operator
returns `NotImplemented` for operands that no function here accepts: lists, strings, and objects of
other libraries that define the reflected operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

from shardwise._src.base.named import named
from shardwise._src.core.infer import as_arraylike, check_alive, is_operand, type_of
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.array_base import ArrayBase
from shardwise._src.values import binary, indexing
from shardwise._src.values.at import At
from shardwise._src.values.elsewhere import Elsewhere
from shardwise._src.values.methods import Methods
from shardwise._src.values.numpy_modules import modules

_EQUALITIES = {"eq": "==", "ne": "!="}


def _other_way(fun: Any, x: Any, y: Any, error: Exception) -> Any:
    """The result of an operator after an error: retries with another library's operand converted.

    Returns NotImplemented if no function accepts the operand, or if it opts out by NumPy's
    protocol. None if the error has another cause and must be raised.
    """
    if any([getattr(v, "__array_ufunc__", 0) is None for v in (x, y)]):
        return NotImplemented
    if not isinstance(error, TypeError):
        return None
    new_x, new_y = as_arraylike(x), as_arraylike(y)
    if new_x is not x or new_y is not y:
        try:
            return fun(new_x, new_y)
        except Exception as again:
            pass_on(again)
            raise again from None
    return None if all(is_operand(v) for v in (x, y)) else NotImplemented


def _reject_container(name: str, other: Any) -> None:
    """Raises for `x == [0, 1]`: Python would compare identities, and say False."""
    if name in _EQUALITIES and isinstance(other, list | tuple | set | dict):
        raise TypeError(
            f"unsupported operand type(s) for {_EQUALITIES[name]}: 'Array' and "
            f"{type(other).__name__!r}. Compare with `shardwise.numpy.asarray(...)` of it."
        )


def _operators(name: str, fun: Callable[[Any, Any], Any]) -> tuple[_Method, _Method]:
    """The methods of an operator, `x + y` and its reflection, as if written out."""

    def forward(self: Any, other: Any) -> Any:
        try:
            return fun(self, other)
        except Exception as error:
            found = _other_way(fun, self, other, error)
            if found is None:
                pass_on(error)
                raise
        if found is NotImplemented:
            _reject_container(name, other)
        return found

    def reflected(self: Any, other: Any) -> Any:
        try:
            return fun(other, self)
        except Exception as error:
            found = _other_way(fun, other, self, error)
            if found is None:
                pass_on(error)
                raise
            return found

    owner = "Value"
    return (
        named(forward, f"__{name}__", owner=owner),
        named(reflected, f"__r{name}__", owner=owner),
    )


def _matmul(x: Any, y: Any) -> Any:
    return modules.contractions.matmul(x, y)


_Method = Callable[[Any, ArrayLike], Array]


class Value(Methods, Elsewhere, ArrayBase):
    """Base class of `Array` and of all tracers. A subclass must provide `aval`."""

    __slots__ = ()
    __array_priority__ = 100  # NumPy arrays defer binary operators to this class

    # -- arithmetic --

    __add__, __radd__ = _operators("add", binary.add)
    __sub__, __rsub__ = _operators("sub", binary.subtract)
    __mul__, __rmul__ = _operators("mul", binary.multiply)
    __truediv__, __rtruediv__ = _operators("truediv", binary.true_divide)
    __floordiv__, __rfloordiv__ = _operators("floordiv", binary.floor_divide)
    __mod__, __rmod__ = _operators("mod", binary.remainder)
    __divmod__, __rdivmod__ = _operators("divmod", binary.divmod)
    __pow__, __rpow__ = _operators("pow", binary.power)
    __matmul__, __rmatmul__ = _operators("matmul", _matmul)

    def __neg__(self) -> Array:
        return modules.unary.negative(self)

    def __pos__(self) -> Array:
        return binary.positive(self)

    def __abs__(self) -> Array:
        return modules.unary.absolute(self)

    def __round__(self, ndigits: int | None = None) -> Array:
        rounded = modules.unary.round(self, ndigits or 0)
        return rounded.astype(int) if ndigits is None else rounded

    # -- bits and logic --

    __lshift__, __rlshift__ = _operators("lshift", binary.left_shift)
    __rshift__, __rrshift__ = _operators("rshift", binary.right_shift)
    __and__, __rand__ = _operators("and", binary.bitwise_and)
    __or__, __ror__ = _operators("or", binary.bitwise_or)
    __xor__, __rxor__ = _operators("xor", binary.bitwise_xor)

    def __invert__(self) -> Array:
        return binary.bitwise_not(self)

    # -- comparison; values are not hashable, since equality is element-wise --

    __eq__: ClassVar[_Method] = _operators("eq", binary.equal)[0]  # pyright: ignore[reportIncompatibleMethodOverride]
    __ne__: ClassVar[_Method] = _operators("ne", binary.not_equal)[0]  # pyright: ignore[reportIncompatibleMethodOverride]
    __lt__ = _operators("lt", binary.less)[0]
    __le__ = _operators("le", binary.less_equal)[0]
    __gt__ = _operators("gt", binary.greater)[0]
    __ge__ = _operators("ge", binary.greater_equal)[0]
    __hash__ = None  # pyright: ignore[reportAssignmentType] (unhashable)

    # -- elements --

    def __getitem__(self, idx: Any) -> Array:
        try:
            return indexing.getitem(self, idx)
        except Exception as error:
            pass_on(error)
            raise

    @property
    def at(self) -> At:
        """`x.at[idx].set(v)`, `.add(v)`, …: a new array with some elements changed."""
        return At(self)

    def __setitem__(self, idx: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"{_title(self)} cannot be changed in place. For a new array with the elements "
            "changed, write x = x.at[idx].set(value)."
        )

    def __delitem__(self, idx: Any) -> NoReturn:
        raise TypeError(
            f"elements of {_title(self)} cannot be deleted in place. For a new array "
            "without them, write x = shardwise.numpy.delete(x, idx)."
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d array; its size is 1.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array. Use x.item() or x[()].")
        return iter(indexing.unstack(self))

    def __contains__(self, item: Any) -> bool:
        """Whether a scalar is an element of a vector."""
        check_alive(self)
        for x, rank, what in ((self, 1, "array"), (item, 0, "element")):
            if type_of(x).ndim != rank:
                raise ValueError(
                    f"`x in array` takes an element without dimensions and an array of one; the "
                    f"{what} is {type_of(x).str_short(True)}. Use (array == x).any()."
                )
        return bool(modules.reductions.any(self == item))


def _title(x: Any) -> str:
    return "a traced value" if hasattr(x, "interpreter") else type(x).__name__
