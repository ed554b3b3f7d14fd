"""Calls host functions from programs: `pure_callback`, `io_callback`, `debug.print`.

A jitted function is compiled; its Python code does not run again. These functions put calls of
Python functions into the program. On several devices a call happens once, with full values: they
are gathered on one device, which sends the results to the other devices.
"""

from __future__ import annotations

import functools
import logging
import string
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.core.infer import HOST, as_arraylike, is_array, type_of
from shardwise._src.effects.callback import (
    METHODS,
    Callback,
    Quoted,
    bind,
    debug_callback,
    ordered_debug_callback,
    ordered_io_callback,
)
from shardwise._src.effects.callback import io_callback as io_op
from shardwise._src.effects.callback import pure_callback as pure_op
from shardwise._src.messages.argument_names import name_of
from shardwise._src.messages.formatting import pluralize
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.ops.random.bits import random_unwrap
from shardwise._src.refs.refs import is_ref, value_of
from shardwise._src.runtime.compiler.callback_targets import effects_barrier as effects_barrier
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.sharding import SingleDeviceSharding
from shardwise._src.types.sharding_base import Sharding

_log = logging.getLogger("shardwise.debug")


@hides_frames
def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Calls a host function without side effects, including in a compiled program.

    The compiler decides how often it is called, and whether it is called at all.

    Args:
      callback: takes `*args, **kwargs` with arrays for their leaves, on the CPU; returns NumPy
        arrays, arrays or scalars in the pytree of `result_shape_dtypes`.
      result_shape_dtypes: a pytree of objects with the shape and dtype of a result, such as
        `ShapeDtypeStruct`.
      args, kwargs: pytrees of arrays.
      sharding: None, or a `SingleDeviceSharding`: the device that makes the call.
      vmap_method: how `vmap` treats it: "sequential" (or "sequential_unrolled") calls the function
        for each element. With the others it receives and returns arrays with a leading batch
        dimension; for unbatched arguments this has size 1 ("expand_dims"), the full size
        ("broadcast_all"), or is absent ("legacy_vectorized"). None raises an error.

    Returns:
      The return value of the function, as arrays.

    Raises:
      TypeError: if a result does not have its shape and dtype; in a compiled program, the error
        is raised by the call, or when a result is fetched.
    """
    if vmap_method is not None and vmap_method not in METHODS:
        raise ValueError(
            f"pure_callback: vmap_method must be None or one of {', '.join(map(repr, METHODS))}; "
            f"got {vmap_method!r}."
        )
    device = _device("pure_callback", sharding)
    wanted = result_shape_dtypes
    return _call(pure_op, "pure_callback", callback, wanted, args, kwargs, vmap_method, device)


@hides_frames
def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Calls a host function that has side effects, as often as the program does.

    Args, Returns, Raises: as for `pure_callback`; and
      ordered: whether calls happen in program order, also across successive programs.
    """
    device = _device("io_callback", sharding)
    op = ordered_io_callback if ordered else io_op
    return _call(op, "io_callback", callback, result_shape_dtypes, args, kwargs, None, device)


def _call(
    op: Any,
    kind: str,
    fun: Any,
    wanted: Any,
    args: tuple,
    kwargs: dict,
    method: str | None,
    device: Any,
) -> Any:
    _check_callable(kind, fun)
    title = f"{kind} of {name_of(fun)}"
    results, out_tree = result_types(title, wanted)
    values, in_tree = operands(title, args, kwargs)
    record = Callback(fun, kind, in_tree, {}, out_tree, method, False, device)
    return out_tree.unflatten(bind(op, values, record, results))


def debug_call(
    fun: Callable[..., Any], kind: str, args: tuple, kwargs: dict, ordered: bool, local: bool
) -> None:
    """Adds a call to the program, of a function whose results are ignored.

    Leaves of the arguments that are not arrays are passed unchanged.
    """
    leaves, in_tree = _leaves(args, kwargs)
    static = {i: x for i, x in enumerate(leaves) if not can_be_operand(x)}
    values = [_plain(x) for i, x in enumerate(leaves) if i not in static]
    record = Callback(fun, kind, in_tree, static, local=local)
    bind(ordered_debug_callback if ordered else debug_callback, values, record)


def debug_function(
    callback: Callable[..., Any] | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Callable[..., Any] | None:
    """Calls a host function with values of a program; its return value is ignored.

    Args:
      callback: takes `*args, **kwargs`, with arrays on the CPU for their arrays. Without it, a
        function that takes it, and the arguments, is returned.
      args, kwargs: pytrees of arrays; other leaves are passed unchanged.
      ordered: whether calls happen in program order, also across successive programs.
      partitioned: whether each device makes a call, with its own shards of the values.
    """
    if callback is None:
        return functools.partial(debug_function, ordered=ordered, partitioned=partitioned)
    _check_callable("debug.callback", callback)
    debug_call(callback, "debug.callback", args, kwargs, ordered, partitioned)
    return None


class _Printer(Quoted):
    """Prints a format string, with the number format of where it was created; or logs it."""

    def __init__(self, fmt: str, options: dict[str, Any], logs: bool):
        self.fmt, self.options, self.logs = fmt, options, logs

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with np.printoptions(**self.options):
            text = self.fmt.format(*args, **kwargs)
        if self.logs:
            _log.info("%s", text)
        else:
            sys.stdout.write(text + "\n")  # one write: other threads print too

    @property
    def __name__(self) -> str:
        return repr(self.fmt)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Printer) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.fmt)


class _Checker(string.Formatter):
    """Formats nothing: determines which arguments a format uses."""

    used: set[Any]

    def check_unused_args(self, used_args: set[Any], args: Any, kwargs: Any) -> None:
        self.used = used_args

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        name = field_name.split(".")[0].split("[")[0]
        key = int(name) if name.isdigit() else name
        self.get_value(key, args, kwargs)
        return "", key

    def format_field(self, value: Any, format_spec: str) -> str:
        return ""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion not in (None, "s", "r", "a"):
            raise ValueError(f"unknown conversion specifier {conversion!r}")
        return value


def check_format(name: str, fmt: str, args: tuple, kwargs: dict) -> None:
    """Raises if the format uses arguments that are missing, or does not use all of them."""
    checker = _Checker()
    try:
        checker.vformat(fmt, args, kwargs)
    except (IndexError, KeyError) as error:
        names = f"the names {', '.join(sorted(kwargs))}" if kwargs else "no names"
        missing = f"argument number {len(args)}" if isinstance(error, IndexError) else str(error)
        raise type(error)(
            f"{name}: the format {fmt!r} needs {missing}, but was given "
            f"{pluralize(len(args), 'positional argument')} and {names}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{name}: the format {fmt!r}: {error}.") from None
    unused = [str(i) for i in range(len(args)) if i not in checker.used]
    unused += [repr(k) for k in kwargs if k not in checker.used]
    if unused:
        raise ValueError(
            f"{name}: the format {fmt!r} does not use the arguments {', '.join(unused)}. "
            "Give it a field for each; an f-string would have been formatted before the call."
        )


def debug_print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Callable[..., Any] | None:
    """Prints values of a program on the host: `debug.print("x: {} {y}", x, y=y)`.

    Args:
      fmt: a format as in `str.format`; its fields are filled with the arguments' values. Without
        it, a function that takes it, and the arguments, is returned.
      args, kwargs: pytrees of arrays, and anything else.
      ordered: whether lines are printed in program order, also across successive programs.
      partitioned: whether each device prints its own shards of the values.
      skip_format_check: whether to skip the check that the format matches the arguments.

    Raises:
      IndexError, KeyError, ValueError: immediately, if the format does not match the arguments.
    """
    return _written("debug.print", fmt, args, kwargs, (ordered, partitioned, skip_format_check))


def debug_log(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Callable[..., Any] | None:
    """Like `debug.print`, but to the logger `shardwise.debug`, at level INFO."""
    return _written("debug.log", fmt, args, kwargs, (ordered, partitioned, skip_format_check))


def _written(name: str, fmt: Any, args: tuple, kwargs: dict, options: tuple) -> Any:
    ordered, partitioned, unchecked = options
    if fmt is None:
        if args or kwargs:
            raise TypeError(f"{name}: got arguments, but no format string.")
        return lambda fmt, *args, **kwargs: _written(name, fmt, args, kwargs, options)
    if not isinstance(fmt, str):
        raise TypeError(
            f"{name} takes a format string as its first argument; got {fmt!r} of type "
            f"{type(fmt).__name__}. "
            f'Write `{name}("{{}}", x)`.'
        )
    if not unchecked:
        check_format(name, fmt, args, kwargs)
    printer = _Printer(fmt, {**np.get_printoptions()}, name == "debug.log")
    debug_call(printer, name, args, kwargs, ordered, partitioned)
    return None


# -- arguments --


def _check_callable(kind: str, fun: Any) -> None:
    if not callable(fun):
        raise TypeError(
            f"{kind} takes a function as its first argument; got {fun!r} of type "
            f"{type(fun).__name__}."
        )


def _leaves(args: tuple, kwargs: dict) -> tuple[list[Any], Any]:
    """The leaves of the arguments, with the values of refs, and their pytree."""
    leaves, tree = flatten((args, kwargs))
    return [value_of(x) if is_ref(x) else x for x in leaves], tree


def operands(title: str, args: tuple, kwargs: dict) -> tuple[list[Any], Any]:
    """The leaves of the arguments for ops, keys as their integers, and the pytree."""
    leaves, tree = _leaves(args, kwargs)
    for x in leaves:
        if not can_be_operand(x):
            raise TypeError(
                f"{title}: arguments must be pytrees of arrays and scalars; got {x!r} of type "
                f"{type(x).__name__}. Bind others with functools.partial."
            )
    return [_plain(x) for x in leaves], tree


def can_be_operand(x: Any) -> bool:
    """Whether ops accept `x`, unchanged or converted."""
    return isinstance(x, HOST) or is_array(x) or as_arraylike(x) is not x


def _plain(x: Any) -> Any:
    """The integers of keys; other values unchanged."""
    return random_unwrap(x) if isinstance(type_of(x).dtype, ExtendedDType) else x


def result_types(title: str, wanted: Any, wide: bool = False) -> tuple[list[ArrayType], Any]:
    """The required types of a host function's results, and their pytree.

    wide: whether 64-bit types are allowed if they are disabled.
    """
    leaves, tree = flatten(wanted)
    types = []
    for x in leaves:
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            raise TypeError(
                f"{title}: result_shape_dtypes must be a pytree of objects with a shape and "
                f"a dtype; got {x!r} of type {type(x).__name__}. Use `ShapeDtypeStruct`."
            )
        if isinstance(x.dtype, ExtendedDType):
            raise TypeError(
                f"{title}: a host function cannot return {x.dtype}. Return "
                "the integers of keys, and convert them to keys with "
                "`shardwise.random.wrap_key_data`."
            )
        dtype = x.dtype if wide else canonicalize(x.dtype)
        if dtype != x.dtype:
            raise ValueError(
                f"{title}: result_shape_dtypes requests {x.dtype}, but 64-bit "
                f"types are off. Request {dtype}, or set the flag enable_x64."
            )
        types.append(array_type(tuple(x.shape), dtype))
    return types, tree


def _device(kind: str, sharding: Any) -> Any:
    if sharding is None:
        return None
    if not isinstance(sharding, SingleDeviceSharding):
        raise NotImplementedError(
            f"{kind}: sharding must be None or a SingleDeviceSharding, as one device makes the "
            f"call; got {sharding!r}."
        )
    return sharding.devices[0]
