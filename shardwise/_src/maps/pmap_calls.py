"""Calls of functions under `pmap`: their arrays, and which axis of each is mapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from shardwise._src.arguments.prefixes import broadcast_to_arguments
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arguments.values import as_input
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.base.positions import join, split
from shardwise._src.core.infer import type_of
from shardwise._src.jit.staging import is_like_type, struct_of
from shardwise._src.jit.static_arguments import unhashable
from shardwise._src.maps.mapped_axes import axis_of, size_of
from shardwise._src.messages.argument_names import argument_names, parameters_of
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten


@dataclass(frozen=True, eq=False)
class Options:
    """The arguments of `pmap`. static, donated: numbers, which may count from the end.

    runs:  the jitted functions, for each form of arguments.
    ready: by argument signatures: the function that runs a call, and shardings (see `_places`).
    of_all: the same over the devices of all processes, once it is needed.
    """

    what: str
    fun: Callable[..., Any]
    axis_name: Any
    in_axes: Any
    out_axes: Any
    static: tuple[int, ...]
    devices: tuple[Any, ...] | None
    backend: str | None
    axis_size: int | None
    donated: tuple[int, ...]
    global_arg_shapes: Any
    runs: dict[Any, Any] = field(default_factory=dict, init=False)
    ready: dict[Any, tuple[Any, Any]] = field(default_factory=dict, init=False)
    of_all: list[Options] = field(default_factory=list, init=False)

    def __reduce__(self) -> Any:
        return reduced("pmap", *[getattr(self, f.name) for f in fields(self) if f.init])

    def numbers(self, args: Sequence[Any]) -> tuple[int, ...]:
        """The static arguments of a call, in order."""
        return self._placed("static_broadcasted_argnums", self.static, len(args))

    def donating(self, args: Sequence[Any]) -> tuple[int, ...]:
        return self._placed("donate_argnums", self.donated, len(args))

    def _placed(self, option: str, given: tuple[int, ...], count: int) -> tuple[int, ...]:
        found = sorted({n + count if n < 0 else n for n in given})
        if found and (found[0] < 0 or found[-1] >= count):
            raise ValueError(
                f"{self.what}: {option} is {given}, but the call has "
                f"{pluralize(count, 'positional argument')}. Its entries are positions of "
                "arguments."
            )
        return tuple(found)


read_by("pmap", Options)


class Call(NamedTuple):
    """A checked call.

    static, donated: numbers of arguments; fixed: the values of static ones.
    leaves, names, dims: the arrays of the others, and the mapped axis of each; tree: their pytree.
    """

    own: Options
    static: tuple[int, ...]
    donated: tuple[int, ...]
    fixed: tuple[Any, ...]
    leaves: list[Any]
    names: list[str]
    dims: tuple[int | None, ...]
    tree: Any
    size: int

    def arguments(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = self.tree.unflatten(leaves)
        return join(self.static, self.fixed, args), kwargs


def checked(
    own: Options, args: tuple[Any, ...], kwargs: dict[str, Any], described: bool = False
) -> Call:
    """Checks the arguments of a call. described: whether types may be in place of arrays."""
    what, parameters = own.what, parameters_of(own.fun)
    static = own.numbers(args)
    fixed, rest = split(args, static)
    try:
        hash(fixed)
    except Exception as error:
        rows = tuple([(i, None, v) for i, v in zip(static, fixed, strict=True)])
        raise unhashable(what, parameters, (rows, ()), error) from None
    dynamic = tuple(rest)
    leaves, tree = flatten((dynamic, kwargs))
    others = parameters.without(static)
    names = argument_names(dynamic, kwargs, others)
    axes = _without(own.in_axes, static, len(args))
    dims = broadcast_to_arguments(axes, dynamic, f"{what}: in_axes", others)
    dims += [0] * (len(leaves) - len(dims))
    values = [_value(x, what, lambda i=i: names[i], described) for i, x in enumerate(leaves)]
    dims = [
        axis_of(what, lambda: names, i, x, d)
        for i, (x, d) in enumerate(zip(values, dims, strict=True))
    ]
    size = size_of(what, lambda: names, values, dims, own.axis_size)
    values = [x if is_ref(x) else v for x, v in zip(leaves, values, strict=True)]
    call = Call(own, static, own.donating(args), fixed, values, names, tuple(dims), tree, size)
    if own.global_arg_shapes is not None:
        _check_shapes(call)
    return call


def _value(x: Any, what: str, path: Callable[[], str], described: bool) -> Any:
    """A leaf of the arguments. Host values stay on the host, to be sent to all devices together."""
    if is_ref(x):
        return x.get()
    if isinstance(x, ShapeDtypeStruct):
        if described:
            return x
        raise TypeError(
            f"{what}: {path()}: {x} has no data; types are for `lower`, as in "
            "`pmap(f).lower(ShapeDtypeStruct(shape, dtype))`."
        )
    if described and is_type(x):
        return struct_of(x)
    return x if x.__class__ is np.ndarray and x.dtype.kind in "biufc" else as_input(x, what, path)


def is_type(x: Any) -> bool:
    """Whether this only describes an array, such as a `ShapedArray`."""
    return not isinstance(x, np.ndarray | np.generic) and is_like_type(x)


def _check_shapes(call: Call) -> None:
    what, given = call.own.what, call.own.global_arg_shapes
    if not isinstance(given, tuple | list) or len(given) != len(call.leaves):
        raise ValueError(
            f"{what}: global_arg_shapes must have a shape or None for each of the "
            f"{pluralize(len(call.leaves), 'array')} of the call; got {short_repr(given)}. It can "
            "be left out: arrays have shapes."
        )
    for name, x, d, shape in zip(call.names, call.leaves, call.dims, given, strict=True):
        if shape is None or is_ref(x):
            continue
        found = type_of(x).shape
        inner = found if d is None else found[:d] + found[d + 1 :]
        if tuple(shape) != inner:
            raise ValueError(
                f"{what}: global_arg_shapes has {tuple(shape)} for {name}, which is of type "
                f"{type_of(x).str_short(True)}: {inner} without the mapped axis. It can be left "
                "out: arrays have shapes."
            )


def numbers(what: str, given: Any) -> tuple[int, ...]:
    found = (given,) if isinstance(given, int) else given
    if not isinstance(found, tuple | list) or not all([type(n) is int for n in found]):
        raise TypeError(f"{what} takes ints; got {short_repr(given)}.")
    return tuple(found)


def check_apart(own: Options) -> None:
    if both := sorted({*own.static} & {*own.donated}):
        raise ValueError(
            f"{own.what}: argument {', '.join(map(str, both))} cannot be both static and donated; "
            "a static argument has no memory on a device."
        )


def _without(in_axes: Any, static: tuple[int, ...], count: int) -> Any:
    """The axes of the arguments that are not static. count: of all positional ones."""
    if not isinstance(in_axes, tuple | list):
        return in_axes
    if len(in_axes) != count:  # rejected later, by their numbers
        return tuple(in_axes)
    return tuple([a for i, a in enumerate(in_axes) if i not in static])
