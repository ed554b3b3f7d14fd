"""`pmap`: a function of single examples, each of which a device of its own computes.

It is `jit` of a `shard_map` over one axis. Inside of another map the devices are taken already: it
maps as `vmap` does there, which gives the same values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.api.jit import jit
from shardwise._src.api.mapped_axes import axis_of, size_of
from shardwise._src.api.prefixes import broadcast_prefix, broadcast_to_arguments
from shardwise._src.api.shard_map import over_parts
from shardwise._src.api.signatures import called, check_function
from shardwise._src.api.values import as_input
from shardwise._src.api.vmap import vmap
from shardwise._src.base.caches import make_room
from shardwise._src.base.context import current
from shardwise._src.core.infer import type_of
from shardwise._src.messages.arguments import argument_names, name_of, names_of
from shardwise._src.messages.tracebacks import hides_frames
from shardwise._src.messages.trees import path_in
from shardwise._src.messages.words import counted
from shardwise._src.ops.basis import reshape
from shardwise._src.ops.shape import expand_dims
from shardwise._src.runtime import backend as runtime
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import P, T
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding

RUNS = 1024  # of one function


def pmap(
    fun: Callable[P, T], axis_name: Any = None, *, in_axes: Any = 0, out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (), devices: Sequence[Any] | None = None,
    backend: str | None = None, axis_size: int | None = None,
    donate_argnums: int | Sequence[int] = (), global_arg_shapes: None = None,
) -> Callable[P, T]:
    """Maps `fun` over an axis of its arguments, with a device for each index.

    Args:
      axis_name: a name for the axis, for collectives.
      in_axes: which axis of each argument is mapped: an int, None (the same for all), or a prefix
        of the tree of positional arguments. Named arguments are mapped over axis 0.
      out_axes: where the mapped axis goes in the results: an int, None (the result of the first
        device, where all are the same), or a prefix of their tree.
      static_broadcasted_argnums: arguments that are no arrays, and part of the program.
      devices: those that are used; by default the first of this process's. Inside of another map
        they are taken already: there it maps as `vmap` does, and devices may not be given.
      backend: the platform whose devices are used.
      axis_size: the size of the axis, where no argument says it.
      donate_argnums: arguments whose memory may be reused.
      global_arg_shapes: not needed: shapes are those of the whole arrays.

    Returns:
      The mapped function, compiled once for each kind of arguments.

    Raises:
      ValueError: if mapped axes differ in size, or there are fewer devices than indices.
    """
    check_function("pmap", fun)
    if global_arg_shapes is not None:
        raise ValueError("pmap: global_arg_shapes is not needed; shapes are those of whole arrays.")
    what = f"pmap of {name_of(fun)}"
    numbers = _numbers(static_broadcasted_argnums)
    places = None if devices is None else tuple(devices)
    runs: dict[Any, Callable[..., Any]] = {}

    @functools.wraps(fun)
    @hides_frames
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, whole = flatten((args, kwargs))
        try:  # where all arguments are arrays, their types decide
            kind: Any = (whole, current().key, *[x.aval for x in leaves])
            known = runs.get(kind)
        except AttributeError:
            kind = known = None
        if known is not None:
            return known(*args, **kwargs)
        static = tuple([i + len(args) if i < 0 else i for i in numbers])
        dynamic = tuple([a for i, a in enumerate(args) if i not in static])
        leaves, tree = flatten((dynamic, kwargs))
        names = argument_names(dynamic, kwargs, names_of(fun))
        axes = _without(in_axes, static)
        dims = broadcast_to_arguments(axes, dynamic, f"{what}: in_axes", names_of(fun))
        dims += [0] * (len(leaves) - len(dims))
        values = [as_input(x, what, lambda i=i: names[i]) for i, x in enumerate(leaves)]
        dims = [axis_of(what, lambda: names, i, x, d)
                for i, (x, d) in enumerate(zip(values, dims, strict=True))]
        size = size_of(what, lambda: names, values, dims, axis_size)
        if current().axes:
            if places is not None:
                raise ValueError(
                    f"{what} is inside of another map, which has taken the devices: leave out "
                    "`devices`."
                )
            return _as_vmap(fun, axis_name, args, kwargs, static, dims, tree, out_axes, size)
        key = size, tree, tuple(dims)
        run = runs.get(key)
        if run is None:
            one = _on_devices(what, fun, axis_name, static, dims, out_axes,
                              _mesh(what, axis_name, places, backend, size))
            run = runs[key] = jit(one, static_argnums=static, donate_argnums=donate_argnums)
        if kind is not None:
            make_room(runs, RUNS)
            runs[kind] = run
        return run(*args, **kwargs)

    return mapped


def _numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


def _without(in_axes: Any, static: tuple[int, ...]) -> Any:
    """The axes of the arguments that are not static."""
    if not isinstance(in_axes, tuple | list):
        return in_axes
    return tuple([a for i, a in enumerate(in_axes) if i not in static])


def _mesh(
    what: str, axis_name: Any, devices: tuple[Any, ...] | None, backend: str | None, size: int
) -> Mesh:
    found = devices if devices is not None else tuple(runtime.local_devices(backend))
    if size > len(found) or (devices is not None and size != len(found)):
        raise ValueError(
            f"{what}: the mapped axis has size {size}, and there "
            f"{'is' if len(found) == 1 else 'are'} {counted(len(found), 'device')}. Each index has "
            "a device of its own: give fewer, or use `shardwise.vmap`, or `shardwise.jit` with "
            "shardings."
        )
    return Mesh(np.array(found[:size], object), (_name(axis_name),))


def _name(axis_name: Any) -> Any:
    return "<axis of pmap>" if axis_name is None else axis_name


def _on_devices(
    what: str, fun: Callable[..., Any], axis_name: Any, static: tuple[int, ...],
    dims: Sequence[int | None], out_axes: Any, mesh: Mesh,
) -> Callable[..., Any]:
    """The function of whole arrays that maps it over a mesh."""
    name = _name(axis_name)

    @functools.wraps(fun)
    def whole(*args: Any, **kwargs: Any) -> Any:
        dynamic = tuple([a for i, a in enumerate(args) if i not in static])
        leaves, tree = flatten((dynamic, kwargs))
        results: list[Any] = []

        def part(*parts: Any) -> list[Any]:
            inner = [x if d is None else _one(x, d) for x, d in zip(parts, dims, strict=True)]
            given, named = tree.unflatten(inner)
            found = called(what, fun, _with_static(given, args, static), named)
            outs, out_tree = flatten(found)
            skeleton = out_tree.unflatten(range(out_tree.num_leaves))
            wanted = broadcast_prefix(out_axes, skeleton, f"{what}: out_axes", root="result")
            places = [_out_axis(what, path_in("result", out_tree, i), x, w)
                      for i, (x, w) in enumerate(zip(outs, wanted, strict=True))]
            results.append((out_tree, places))
            return [x if d is None else expand_dims(x, (d,))
                    for x, d in zip(outs, places, strict=True)]

        def specs(axes: Sequence[int | None]) -> list[PartitionSpec]:
            return [PartitionSpec() if d is None else PartitionSpec(*[None] * d, name)
                    for d in axes]

        place = NamedSharding(mesh, PartitionSpec())
        names = argument_names(dynamic, kwargs, names_of(fun))
        found = over_parts(
            what, name_of(fun), part, leaves, names, specs(dims),
            lambda program: specs(results[0][1]), place, (name,), False,
        )
        return results[0][0].unflatten(found)

    return whole


def _one(x: Any, d: int) -> Any:
    shape = type_of(x).shape
    return reshape(x, shape=shape[:d] + shape[d + 1 :])


def _with_static(given: Sequence[Any], args: Sequence[Any], static: tuple[int, ...]) -> list[Any]:
    rest = iter(given)
    return [a if i in static else next(rest) for i, a in enumerate(args)]


def _out_axis(what: str, path: str, x: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    ndim = type_of(x).ndim + 1
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise ValueError(
            f"{what}: out_axes is {axis!r} for {path}, which has "
            f"{counted(ndim, 'dimension')} with the mapped one."
        )
    return axis % ndim


def _as_vmap(
    fun: Callable[..., Any], axis_name: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    static: tuple[int, ...], dims: Sequence[int | None], tree: Any, out_axes: Any, size: int,
) -> Any:
    """Inside of another map, where the devices are taken."""
    axes, _ = tree.unflatten(dims)

    def one(*given: Any, **named: Any) -> Any:
        return fun(*_with_static(given, args, static), **named)

    dynamic = [a for i, a in enumerate(args) if i not in static]
    return vmap(one, axes, out_axes, axis_name=axis_name, axis_size=size)(*dynamic, **kwargs)

