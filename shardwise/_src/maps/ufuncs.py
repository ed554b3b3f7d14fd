"""Universal functions: elementwise functions with `reduce`, `accumulate`, `at` and others.

    add.reduce(x)           maximum.accumulate(x, axis=1)         multiply.outer(x, y)
    frompyfunc(lambda x, y: x * y + 1, 2, 1).reduce(x)

Library ufuncs have methods that are single ops if possible: `add.reduce` is `sum`. The others
process one element after another, in a loop in the program, so that functions need not be
associative. The functions behind operators (`x + y`) are the plain functions in `values/binary`.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.base.config import numpy_rank_promotion
from shardwise._src.base.context import current
from shardwise._src.base.lazy import public
from shardwise._src.control.scan_api import scan
from shardwise._src.core.fused import Fused
from shardwise._src.core.infer import type_of
from shardwise._src.jit.eval_shape import eval_shape
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vectorize import vectorize
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tracebacks import pass_on
from shardwise._src.numpy import unary
from shardwise._src.numpy.creation import asarray, full
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import unravel_index, where
from shardwise._src.numpy.picking import take
from shardwise._src.numpy.ranges import arange
from shardwise._src.numpy.shapes import expand_dims, moveaxis, ravel, reshape
from shardwise._src.numpy.statistics import folds, reductions, scans
from shardwise._src.ops.shape import canonical_axis
from shardwise._src.ops.sharded.sharding_ops import own_sharding, placed
from shardwise._src.types.annotations import Array, ArrayLike, Axis, DTypeLike
from shardwise._src.types.dtypes import check_user_dtype, is_bool
from shardwise._src.values import binary
from shardwise._src.values.convert import broadcast_to, reject_out


@public("shardwise.numpy")
class ufunc:
    """An elementwise function, applied to arrays with broadcasting; see `numpy.ufunc`.

    Arrays are immutable: `out` must be None, and `at` returns a new array. `where` must be None in
    a call, as other elements would have no value.

    Attributes:
      nin, nout, nargs: the number of arguments, of results, and of both.
      identity: the initial value of `reduce`, or None.
    """

    # `functools.wraps` copies `__dict__`, so it contains only attributes that functions have too.
    __slots__ = (
        "nin",
        "nout",
        "nargs",
        "identity",
        "_record",
        "_call",
        "_methods",
        "__dict__",
        "__weakref__",
    )

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ):
        self.nin, self.nout = operator.index(nin), operator.index(nout)
        self.nargs = self.nin + self.nout if nargs is None else operator.index(nargs)
        self.identity = identity
        self.__name__ = self.__qualname__ = name or getattr(func, "__name__", "ufunc")
        self.__doc__, self.__wrapped__ = func.__doc__, func
        self.__module__ = getattr(func, "__module__", __name__)
        with suppress(TypeError, ValueError):
            self.__signature__ = _signature(func)
        self._record: Fused | None = getattr(call, "fused", None)
        self._call = call
        self._methods = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("nin", "nout", "nargs", "identity") and hasattr(self, name):
            raise AttributeError(f"{name} of a universal function cannot be changed.")
        super().__setattr__(name, value)

    def _parts(self) -> tuple[Any, ...]:
        return self.__wrapped__, self.nin, self.nout, self.identity

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ufunc) and self._parts() == other._parts())

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __call__(self, *args: ArrayLike, **out_where: None) -> Array:
        record = self._record
        if out_where or record is None:  # keywords by name would take longer
            return self._other_call(args, **out_where)
        try:
            return current().interpreter.call(record, args, out_where)
        except Exception as error:
            pass_on(error)
            raise

    def _other_call(
        self, args: tuple[Any, ...], out: Any = None, where: Any = None, **unknown: Any
    ) -> Any:
        if unknown:
            raise TypeError(
                f"{self.__name__}() got an unexpected keyword argument {next(iter(unknown))!r}"
            )
        reject_out(self.__name__, out)
        if where is not None:
            raise NotImplementedError(
                f"{self.__name__}: `where` is not supported, as the other elements would have no "
                "value. Select with `shardwise.numpy.where`."
            )
        if len(args) != self.nin:
            raise TypeError(f"{self.__name__} takes {self.nin} arguments; got {len(args)}.")
        if self._call is None:
            self._call = jit(vectorize(self._checked))
        return self._call(*args)

    def _checked(self, *args: Any) -> Any:
        out = self.__wrapped__(*args)
        if (len(out) if isinstance(out, tuple | list) else 1) != self.nout:
            raise TypeError(
                f"{self.__name__} must return {self.nout} results; it returned {short_repr(out)}."
            )
        return tuple(out) if isinstance(out, list) else out

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r}>"

    def __reduce__(self) -> Any:
        if self._call is None or self._record is None:
            return _made, (self.__wrapped__, self.nin, self.nout, self.identity)
        return self.__name__

    # -- methods of functions of two elements --

    def reduce(
        self,
        a: ArrayLike,
        axis: Axis = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """The elements along `axis` combined from the first to the last; all axes for None.

        Args:
          dtype: of the result; by default that of the function's results.
          initial: the initial value; by default the identity, if there is one.
          where: booleans; other elements are omitted. Needs an identity or `initial`.

        Raises:
          ValueError: if there are no elements, and no initial value.
        """
        self._check("reduce", out)
        wanted = None if dtype is None else check_user_dtype(dtype, f"{self.__name__}.reduce")
        own = self._methods["reduce"]
        if where is not None and self.identity is None and initial is None:
            raise ValueError(
                f"{self.__name__}.reduce: there is no identity, so `where` needs `initial`."
            )
        if own is not None:
            return own(a, axis, wanted, None, bool(keepdims), initial, where)
        x = asarray(a)
        axes = reductions.axes_of(axis, x.ndim)
        start = self.identity if initial is None else initial
        how = {"each": self, "axes": axes, "dtype": wanted, "keepdims": bool(keepdims)}
        if where is not None:
            where = broadcast_to(asarray(where, bool), x.shape)
        spec = [None if i in axes else i for i in range(x.ndim) if keepdims or i not in axes]
        return _as(spec, _fold, x, start, where, **how)

    def accumulate(
        self, a: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None, out: None = None
    ) -> Array:
        """The partial result of `reduce` after each element along `axis`."""
        self._check("accumulate", out)
        if axis is None or isinstance(axis, Sequence):
            raise ValueError(f"{self.__name__}.accumulate works along one axis; got {axis!r}.")
        wanted = None if dtype is None else check_user_dtype(dtype, f"{self.__name__}.accumulate")
        x = asarray(a)
        own = self._methods["accumulate"]
        axis = canonical_axis(axis, x.ndim)
        found = NotImplemented if own is None else own(x, axis, wanted)
        if found is not NotImplemented:
            return found
        return _as(range(x.ndim), _accumulated, x, each=self, axis=axis, dtype=wanted)

    def at(
        self, a: ArrayLike, indices: Any, b: ArrayLike | None = None, /, *, inplace: bool = True
    ) -> Array:
        """`a` with the function applied at `indices`, once per occurrence of an index.

        inplace: must be False: arrays are immutable, so use the result.
        """
        if inplace:
            raise NotImplementedError(
                f"{self.__name__}.at: arrays are immutable; pass inplace=False to get a new one."
            )
        if self.nin != (1 if b is None else 2) or self.nout != 1:
            raise ValueError(
                f"{self.__name__}.at is for a function of {1 if b is None else 2} with one result; "
                f"this one has {self.nin} and {self.nout}."
            )
        x = asarray(a)
        given = indices if isinstance(indices, tuple) else (indices,)
        index = tuple([np.asarray(i) if isinstance(i, list) else i for i in given])
        own = self._methods["at"]
        if own is not None:
            return own(x, index, b)
        values = () if b is None else (asarray(b),)
        if not any(map(_may_repeat, index)):
            at = x.at[index]
            return at.set(self(at.get(), *values).astype(x.dtype))
        number = arange(x.size).reshape(x.shape)
        places = number.at[index].get(mode="fill", fill_value=x.size)
        spread = [ravel(broadcast_to(v, places.shape)) for v in values]
        return _as(range(x.ndim), _written, x, ravel(places), *spread, each=self)

    def reduceat(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: int = 0,
        dtype: DTypeLike | None = None,
        out: None = None,
    ) -> Array:
        """`reduce` of `a[i:j]` for each index i and the next one j; `a[i]` where i is not below j.

        indices: a vector of integers within bounds; the last slice extends to the end.
        """
        self._check("reduceat", out)
        x, at = asarray(a), asarray(indices)
        if at.ndim != 1:
            raise ValueError(
                f"{self.__name__}.reduceat: indices must be a vector; got "
                f"{type_of(at).str_short(True)}."
            )
        axis = canonical_axis(axis, x.ndim)
        if dtype is not None:
            x = x.astype(check_user_dtype(dtype, f"{self.__name__}.reduceat"))
        own = self._methods["reduceat"]
        if own is not None:
            return own(x, at, axis, dtype)
        spec = [None if i == axis else i for i in range(x.ndim)]
        return _as(spec, _reduced_between, x, at, each=self, axis=axis)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """The function of each pair of elements; of shape `A.shape + B.shape`."""
        self._check("outer", None)
        x, y = asarray(A), asarray(B)
        with numpy_rank_promotion("allow"):
            return self(expand_dims(x, tuple(range(x.ndim, x.ndim + y.ndim))), y)

    def _check(self, method: str, out: Any) -> None:
        reject_out(f"{self.__name__}.{method}", out)
        if self.nin != 2 or self.nout != 1:
            raise ValueError(
                f"{self.__name__}.{method} is for functions of two arguments with one result; this "
                f"one has {self.nin} and {self.nout}."
            )


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """A universal function from a scalar function, which is traced: it must use array functions.

    Args:
      nin, nout: the number of arguments and results.
      identity: the initial value of `reduce`.
    """
    if not callable(func):
        raise TypeError(f"frompyfunc takes a function; got {short_repr(func)}.")
    return ufunc(func, nin, nout, identity=identity)


def _made(func: Any, nin: int, nout: int, identity: Any) -> ufunc:
    return ufunc(func, nin, nout, identity=identity)


def _signature(func: Any) -> inspect.Signature:
    """The function's parameters, and those that all universal functions have."""
    found = inspect.signature(func)
    own = [p.replace(kind=p.POSITIONAL_ONLY) for p in found.parameters.values()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    more = [inspect.Parameter(n, keyword, default=None, annotation=None) for n in ("out", "where")]
    return found.replace(parameters=[*own, *more])


# -- any function, element by element --


def _as(dims: Sequence[int | None], fun: Callable[..., Any], x: Any, *args: Any, **how: Any) -> Any:
    """`fun(x, …)`, sharded over explicit mesh axes like these dimensions of `x`."""
    sharding = own_sharding(x, x.shape)
    if sharding is None:
        return fun(x, *args, **how)
    spec = [*sharding.spec, *[None] * x.ndim]
    out = sharding.with_spec([None if d is None else spec[d] for d in dims])
    return placed(fun, out, x, *args, **how)


def _result_dtype(each: ufunc, x: Any) -> Any:
    one = ShapeDtypeStruct((), x.dtype)
    return eval_shape(each, one, one).dtype


@functools.partial(jit, static_argnames=("each", "axes", "dtype", "keepdims"))
def _fold(
    x: Any, start: Any, mask: Any, *, each: ufunc, axes: tuple[int, ...], dtype: Any, keepdims: bool
) -> Any:
    wanted = _result_dtype(each, x) if dtype is None else dtype
    kept = tuple([n for i, n in enumerate(x.shape) if i not in axes])
    shape = tuple([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else kept
    count = math.prod([x.shape[i] for i in axes])
    if start is None and not count:
        raise ValueError(f"{each.__name__}.reduce: there are no elements, and no identity.")
    front = tuple(range(len(axes)))
    rows = [
        reshape(moveaxis(v, axes, front), (count, *kept))
        for v in ([x] if mask is None else [x, mask])
    ]
    first = rows[0][0] if start is None else start
    first = broadcast_to(asarray(first).astype(wanted), kept)
    rows = [v[1:] for v in rows] if start is None else rows

    def step(total: Any, row: Any) -> tuple[Any, None]:
        new = each(total, row[0].astype(wanted)).astype(wanted)
        return (new if len(row) == 1 else where(row[1], new, total)), None

    return reshape(scan(step, first, rows)[0], shape)


@functools.partial(jit, static_argnames=("each", "axis", "dtype"))
def _accumulated(x: Any, *, each: ufunc, axis: int, dtype: Any) -> Any:
    wanted = _result_dtype(each, x) if dtype is None else dtype
    rows = moveaxis(x, axis, 0).astype(wanted)
    if not x.size:
        return rows.reshape(x.shape)

    def step(total: Any, row: Any) -> tuple[Any, Any]:
        new = each(total, row).astype(wanted)
        return new, new

    later = scan(step, rows[0], rows[1:])[1]
    return moveaxis(concatenate([rows[:1], later]), 0, axis)


@functools.partial(jit, static_argnames=("each",))
def _written(x: Any, places: Any, *values: Any, each: ufunc) -> Any:
    def step(x: Any, row: Any) -> tuple[Any, None]:
        place, *value = row
        at = x.at[unravel_index(place, x.shape)]
        new = at.set(each(at.get(), *value).astype(x.dtype))
        return where(place < x.size, new, x), None

    return scan(step, x, (places, *values))[0]


@functools.partial(jit, static_argnames=("each", "axis"))
def _reduced_between(x: Any, places: Any, *, each: ufunc, axis: int) -> Any:
    rows = moveaxis(x, axis, 0)
    n = rows.shape[0]
    places = where(places < 0, places + n, places)
    ends = concatenate([places[1:], full((1,), n, places.dtype)])
    wide = (-1, *[1] * (x.ndim - 1))
    first, last = reshape(places, wide), reshape(ends, wide)

    def step(total: Any, row: Any) -> tuple[Any, None]:
        i, value = row
        new = each(total, value[None]).astype(total.dtype)
        return where((i > first) & (i < last), new, total), None

    start = take(rows, places, axis=0).astype(_result_dtype(each, x))
    return moveaxis(scan(step, start, (arange(n), rows))[0], 0, axis)


def _may_repeat(index: Any) -> bool:
    """Whether one position may occur several times."""
    if index is None or index is Ellipsis or isinstance(index, slice | int):
        return False
    t = type_of(index)
    return bool(t.ndim) and not is_bool(t.dtype)


# -- the library's own --


def _scatter(name: str) -> Callable[..., Any]:
    """`at` by a scatter; booleans are converted to integers."""

    def at(x: Any, indices: Any, b: Any) -> Any:
        if not is_bool(x.dtype):
            return getattr(x.at[indices], name)(b)
        wide, truth = x.astype(np.int32), asarray(b).astype(bool).astype(np.int32)
        return getattr(wide.at[indices], name)(truth).astype(bool)

    return at


def _binary(call: Callable[..., Any], **methods: Any) -> ufunc:
    return ufunc(call, 2, 1, call=call, **methods)


def _extreme(name: str) -> Callable[..., Any]:
    fold = getattr(reductions, name)

    def reduce(
        a: Any, axis: Any, dtype: Any, out: None, keepdims: bool, initial: Any, where: Any
    ) -> Any:
        x = a if dtype is None else asarray(a).astype(dtype)
        return fold(x, axis, out, keepdims, initial, where)

    return reduce


add = _binary(
    binary.add, identity=0, reduce=reductions.sum, accumulate=scans.cumsum, at=_scatter("add")
)
multiply = _binary(
    binary.multiply,
    identity=1,
    reduce=reductions.prod,
    accumulate=scans.cumprod,
    at=_scatter("multiply"),
)
subtract = _binary(binary.subtract, at=_scatter("subtract"))
maximum = _binary(
    binary.maximum, reduce=_extreme("max"), accumulate=folds.running_max, at=_scatter("max")
)
minimum = _binary(
    binary.minimum, reduce=_extreme("min"), accumulate=folds.running_min, at=_scatter("min")
)
bitwise_and = _binary(binary.bitwise_and, identity=-1, reduce=folds.all_bits)
bitwise_or = _binary(binary.bitwise_or, identity=0, reduce=folds.any_bit)
bitwise_xor = _binary(binary.bitwise_xor, identity=0, reduce=folds.odd_bits)
logical_and = _binary(binary.logical_and, identity=True, reduce=folds.all_true)
logical_or = _binary(binary.logical_or, identity=False, reduce=folds.any_true)
logical_xor = _binary(binary.logical_xor, identity=False, reduce=folds.odd_truths)
logaddexp = _binary(
    binary.logaddexp, identity=-np.inf, reduce=folds.log_sum_exp, accumulate=folds.running_log_sum
)
logaddexp2 = _binary(
    binary.logaddexp2,
    identity=-np.inf,
    reduce=folds.log2_sum_exp2,
    accumulate=folds.running_log2_sum,
)
negative = ufunc(unary.negative, 1, 1, call=unary.negative)
