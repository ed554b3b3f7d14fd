"""Names of `jax.core` as programs of 2024 use it: about types, dimensions and named axes.

    raise_to_shaped(get_aval(3))        # ~i32[]: values have such types already
    with extend_axis_env("i", 8, None):
        make_jaxpr(lambda x: lax.psum(x, "i"))(1.0)

Symbolic dimensions compute with ordinary operators, so that functions of dimensions are short.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise._src.base.context import NamedAxis, current
from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.core.infer import type_of
from shardwise._src.export.symbolic_dims import Dim, max_dim
from shardwise._src.extend.jaxpr import AbstractToken, valid_jaxtype
from shardwise._src.numpy.creation import asarray
from shardwise._src.types.array_type import ArrayType

abstract_token = AbstractToken()


def raise_to_shaped(aval: Any, weak_type: bool | None = None) -> Any:
    """The type without a value, which types here never have; `weak_type` changes that flag."""
    if weak_type is None or not isinstance(aval, ArrayType):
        return aval
    return aval.update(weak_type=weak_type)


def typematch(t1: Any, t2: Any) -> bool:
    """Whether types are equal but for their weak types."""
    return raise_to_shaped(t1, False) == raise_to_shaped(t2, False)


def typecheck(aval: Any, x: Any) -> bool:
    """Whether a value is of a type, or of one that differs by its weak type."""
    return valid_jaxtype(x) and typematch(aval, type_of(x))


def lattice_join(x: Any, y: Any) -> Any:
    """The common type of two, which may differ by weak types; None has no type.

    Raises:
      TypeError: if they differ otherwise.
    """
    if x is None or y is None:
        return y if x is None else x
    if not typematch(x, y):
        raise TypeError(f"lattice_join: {x} and {y} have no common type: they must be equal.")
    return x if not x.weak_type else y


def check_valid_jaxtype(x: Any) -> None:
    """Raises a TypeError for a value that functions do not accept as an array."""
    if not valid_jaxtype(x):
        raise TypeError(f"expected an array or a scalar, got {x!r} of type {type(x).__name__}.")


def canonicalize_shape(shape: Sequence[Any], context: str = "") -> tuple[Any, ...]:
    """A shape as a tuple of ints and symbolic dimensions. context: the beginning of the error."""
    try:
        return tuple([d if isinstance(d, Dim) else operator.index(d) for d in shape])
    except TypeError:
        where = f"{context}: " if context else ""
        raise TypeError(
            f"{where}a shape must be a sequence of ints; got {shape!r}. Sizes are part of types, "
            "so that they are known while a function is traced."
        ) from None


def is_constant_dim(d: Any) -> bool:
    """Whether a dimension is an integer."""
    return not isinstance(d, Dim) and hasattr(d, "__index__") and getattr(d, "aval", None) is None


def is_constant_shape(s: Sequence[Any]) -> bool:
    """Whether all dimensions are integers."""
    return all(map(is_constant_dim, s))


def definitely_equal(x: Any, y: Any) -> bool:
    """Whether two dimensions are equal whatever the values of their variables."""
    try:
        return x is y or bool(x == y)
    except InconclusiveDimensionOperation:
        return False


def non_negative_dim(d: Any) -> Any:
    """The dimension, or 0 if it is negative."""
    return max_dim(d, 0)


def dimension_as_value(d: Any) -> Any:
    """A dimension as a number in a computation: an array for a symbolic one."""
    return asarray(d) if isinstance(d, Dim) else d


def as_named_shape(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape as a tuple; named dimensions are not part of it here."""
    return tuple(shape)


def axis_frame(axis_name: Any) -> NamedAxis:
    """The named axis in scope, with its `name` and `size`.

    Raises:
      NameError: if no axis in scope has this name.
    """
    return current().axis(axis_name, "axis_frame: ")


def extend_axis_env(axis_name: Any, size: int, tag: Any = None) -> Any:
    """A context with a named axis, for staging functions that use it. tag: not needed."""
    return extend_axis_env_nd([(axis_name, size)])


@contextmanager
def extend_axis_env_nd(axes: Iterable[tuple[Any, int]], tag: Any = None) -> Iterator[None]:
    """The same with several axes: pairs of a name and a size."""
    named = [NamedAxis(name, size) for name, size in axes]
    with current().with_axes("extend_axis_env", *named).entered():
        yield
