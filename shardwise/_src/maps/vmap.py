"""`vmap`: applies a function of single examples to batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise._src.arguments.float0_partition import along, is_trivial, of_one
from shardwise._src.arguments.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.arguments.signatures import called, check_function
from shardwise._src.arguments.values import as_input, checked_results
from shardwise._src.arrays.array import Array
from shardwise._src.base.context import current
from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.infer import type_of
from shardwise._src.jit.ref_arguments import mapped_with_refs
from shardwise._src.maps.mapped_axes import axis_of, size_of
from shardwise._src.maps.vmappables import RULES, has_rules, is_spec, mapped_by_rules
from shardwise._src.messages.argument_names import (
    argument_names,
    flat_arguments,
    name_of,
    parameters_of,
)
from shardwise._src.messages.formatting import pluralize, short_repr
from shardwise._src.messages.source import transforming
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.tree_paths import path_in
from shardwise._src.refs.refs import is_ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.transforms.batch import Axis, Batch, batch_sharding_of, run_batched, to_dim
from shardwise._src.types.annotations import P, T
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.values.value import Value


def vmap(
    fun: Callable[P, T],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable[P, T]:
    """Maps `fun` over an axis of its arguments, without a loop.

    Args:
      in_axes: which axis of each argument is mapped; an int, None (the same for all), or a prefix
        of the pytree of positional arguments. Keyword arguments are mapped over axis 0. Arguments
        with None are passed unchanged, and need not be arrays: a number, a string, a function.
      out_axes: where the mapped axis goes in the results; None only for results that do not
        depend on mapped arguments.
      axis_name: a name for the axis, for collectives.
      axis_size: its size, if no argument determines it.
      spmd_axis_name: mesh axes that shard the mapped axis in sharding constraints.
      sum_match: False. In JAX, True sums results that are not mapped according to `out_axes`.

    Returns:
      The mapped function.

    Raises:
      TypeError: if `in_axes` or `out_axes` contain something other than ints and None.
      ValueError: if mapped axes differ in size, or an axis does not exist.
    """
    check_function("vmap", fun)
    if sum_match:
        raise NotImplementedError(
            "vmap: sum_match=True is not supported. Name the axis, and sum the results that are "
            "not to be mapped with `shardwise.lax.psum(x, axis_name)` in the function."
        )
    name = name_of(fun)
    what = f"vmap of {name}"
    _check_name(what, axis_name)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    if not (axes is None or isinstance(axes, int | np.integer | tuple) or is_spec(axes)):
        raise TypeError(
            f"{what}: in_axes must be an int, None, or a tuple with an entry for each positional "
            f"argument; got {short_repr(in_axes)}."
        )
    _check_axes(f"{what}: in_axes", axes)
    _check_axes(f"{what}: out_axes", out_axes)

    @functools.wraps(fun)
    @hides_frames
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if RULES and any(map(has_rules, flatten((args, kwargs), has_rules)[0])):
            about = axis_name, axis_size, spmd_axis_name
            return mapped_by_rules(fun, what, (axes, out_axes), about, args, kwargs)
        leaves, tree = flat_arguments(args, kwargs, lambda: parameters_of(fun))
        if isinstance(axes, int) and not kwargs:
            dims: list[Any] = [axes] * len(leaves)
        else:
            dims = broadcast_to_arguments(axes, args, f"{what}: in_axes", parameters_of(fun))
            dims += [0] * (len(leaves) - len(dims))
        if any(map(is_ref, leaves)):
            options = {
                "axis_name": axis_name,
                "axis_size": axis_size,
                "spmd_axis_name": spmd_axis_name,
            }
            return mapped_with_refs(vmap, fun, name, args, kwargs, dims, out_axes, options)

        def names() -> list[str]:
            return argument_names(args, kwargs, parameters_of(fun))

        values = [
            x._itself()
            if x.__class__ is Array
            else x
            if d is None and not isinstance(x, Value)  # static, a number, a function, …
            else as_input(x, what, lambda i=i: names()[i])
            for i, (x, d) in enumerate(zip(leaves, dims, strict=True))
        ]
        pairs = enumerate(zip(values, dims, strict=True))
        dims = [axis_of(what, names, i, x, d) for i, (x, d) in pairs]
        size = size_of(what, names, values, dims, axis_size)
        for i in [i for i, x in enumerate(values) if is_trivial(x) and dims[i] is not None]:
            values[i], dims[i] = of_one(values[i], dims[i]), None
        out_trees: list[Any] = []
        trivial: dict[int, Any] = {}  # results of dtype float0, by position

        def flat(*inner: Any) -> list[Any]:
            inner_args, inner_kwargs = tree.unflatten(inner)
            outs, out_tree = flatten(called(what, fun, inner_args, inner_kwargs))
            out_trees.append(out_tree)
            trivial.update((i, x) for i, x in enumerate(outs) if is_trivial(x))
            outs = [0 if i in trivial else x for i, x in enumerate(outs)] if trivial else outs
            return checked_results(outs, out_tree, what)

        batch_sharding = batch_sharding_of(values, dims)
        if batch_sharding is not None:
            _check_same(what, names, values, dims, batch_sharding)
        with transforming("vmap"):
            axis = Axis(size, axis_name, spmd_axis_name, batch_sharding)
            interpreter = Batch(current().interpreter, axis, "vmap", name)
            outs, out_dims = run_batched(interpreter, flat, values, dims)
        out_tree = out_trees[0]
        wanted = _wanted(out_axes, out_tree, what)
        outs = [trivial.get(i, x) for i, x in enumerate(outs)] if trivial else outs
        rows = enumerate(zip(outs, out_dims, wanted, strict=True))
        return out_tree.unflatten(
            [
                _placed(
                    what, lambda i=i: path_in("result", out_tree, i), o, d, w, size, batch_sharding
                )
                for i, (o, d, w) in rows
            ]
        )

    heading = f"`{name}`, mapped over an axis of its arguments."
    wrapped.__doc__ = f"{heading}\n\nOf one example:\n\n{fun.__doc__}" if fun.__doc__ else heading
    return wrapped


def _check_same(
    what: str, names: Callable[[], list[str]], values: list[Any], dims: list[Any], place: Any
) -> None:
    """Raises if the mapped axes of some arguments are sharded, and of others not, as in JAX."""
    for i, (x, d) in enumerate(zip(values, dims, strict=True)):
        t = type_of(x)
        if d is not None and (t.spec is None or t.spec[d] is None):
            raise ShardingTypeError(
                f"{what}: the mapped axis of {names()[i]}, of type {t.str_short(True)}, is not "
                f"sharded, and those of other arguments are, by {place.spec}. Shard all in the "
                "same way with `shardwise.sharding.reshard`."
            )


def _check_axes(what: str, axes: Any) -> None:
    if axes.__class__ is int:
        return
    for axis in flatten(axes)[0]:
        if not (isinstance(axis, int | np.integer) or is_spec(axis)):
            raise TypeError(
                f"{what} must be an int, None, or a pytree of them; it contains {short_repr(axis)}."
            )


def _check_name(what: str, axis_name: Any) -> None:
    try:
        hash(axis_name)
    except TypeError:
        message = f"{what}: axis_name must be hashable; got {short_repr(axis_name)}."
        raise TypeError(message) from None


def _wanted(out_axes: Any, out_tree: Any, what: str) -> list[Any]:
    """The position of the mapped axis in each result."""
    if isinstance(out_axes, int):
        return [out_axes] * out_tree.num_leaves
    skeleton = out_tree.unflatten(range(out_tree.num_leaves))
    return broadcast_prefix(out_axes, skeleton, f"{what}: out_axes", root="result")


def _placed(
    what: str,
    path: Callable[[], str],
    x: Any,
    dim: int | None,
    wanted: Any,
    size: int,
    batch_sharding: NamedSharding | None,
) -> Any:
    if wanted is None:
        if dim is not None:
            raise ValueError(
                f"{what}: out_axes is None for {path()}, which depends on mapped arguments. Give "
                "it an axis."
            )
        return x
    t = type_of(x)
    ndim = t.ndim + (dim is None)
    if not isinstance(wanted, int) or not -ndim <= wanted < ndim:
        raise ValueError(
            f"{what}: out_axes is {wanted!r} for {path()}, which has "
            f"{pluralize(ndim, 'dimension')} including the mapped one."
        )
    if is_trivial(x):
        return along(x, wanted % ndim, size)
    return to_dim(x, dim, wanted % ndim, size, batch_sharding)
