"""`vmap`: a function of single examples, made to work on batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise.api.grad import as_value
from shardwise.api.refs import mapped_with_refs
from shardwise.api.signatures import names_of
from shardwise.api.trees import argument_names, broadcast_prefix
from shardwise.base.context import current
from shardwise.control.refs import is_ref
from shardwise.core.infer import type_of
from shardwise.core.interpreter import name_of
from shardwise.runtime.pytree import flatten
from shardwise.transforms.batch import batch, hidden_sharding, to_dim
from shardwise.types.sharding import NamedSharding


def vmap(
    fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None,
    axis_size: int | None = None, spmd_axis_name: Any = None,
) -> Callable:
    """Maps `fun` over an axis of its arguments, without a loop.

    Args:
      in_axes: which axis of each argument is mapped; an int, None (the same for all), or a prefix
        of the tree of positional arguments. Named arguments are mapped over axis 0.
      out_axes: where the mapped axis goes in the results; None only for results that do not
        depend on mapped arguments.
      axis_name: a name for the axis, for collectives.
      axis_size: its size, where no argument says it.
      spmd_axis_name: mesh axes that shard the mapped axis in sharding constraints.

    Returns:
      The mapped function.

    Raises:
      ValueError: if mapped axes differ in size, or an axis does not exist.
    """
    name = name_of(fun)
    axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((args, kwargs))
        if isinstance(axes, int) and not kwargs:
            dims: list[Any] = [axes] * len(leaves)
        else:
            dims = broadcast_prefix(axes, args, f"vmap of {name}: in_axes")
            dims += [0] * (len(leaves) - len(dims))
        if any(map(is_ref, leaves)):
            options = {"axis_name": axis_name, "axis_size": axis_size,
                       "spmd_axis_name": spmd_axis_name}
            return mapped_with_refs(vmap, fun, name, args, kwargs, dims, out_axes, options)
        values = [as_value(x) for x in leaves]

        def names() -> list[str]:
            return argument_names(args, kwargs, names_of(fun))

        pairs = enumerate(zip(values, dims, strict=True))
        dims = [_axis(name, names, i, x, d) for i, (x, d) in pairs]
        size = _size(name, names, values, dims, axis_size)
        out_trees: list[Any] = []

        def flat(*inner: Any) -> list[Any]:
            inner_args, inner_kwargs = tree.unflatten(inner)
            outs, out_tree = flatten(fun(*inner_args, **inner_kwargs))
            out_trees.append(out_tree)
            return outs

        hidden = hidden_sharding(values, dims)
        run = functools.partial(
            batch, flat, values, dims, size, axis_name, "vmap", name,
            spmd_axis_name=spmd_axis_name,
        )
        if axis_name is None:
            outs, out_dims = run()
        else:
            scope = current()
            with scope.replace(axes=(*scope.axes, (axis_name, size))).entered():
                outs, out_dims = run()
        out_tree = out_trees[0]
        if isinstance(out_axes, int):
            wanted: list[Any] = [out_axes] * len(outs)
        else:
            skeleton = out_tree.unflatten(range(out_tree.num_leaves))
            wanted = broadcast_prefix(out_axes, skeleton, f"vmap of {name}: out_axes")
        moved = [
            _placed(name, o, d, w, size, hidden)
            for o, d, w in zip(outs, out_dims, wanted, strict=True)
        ]
        return out_tree.unflatten(moved)

    return wrapped


def _axis(name: str, names: Callable[[], list[str]], i: int, x: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    if not isinstance(axis, int):
        raise TypeError(
            f"vmap of {name}: axes must be ints or None; got {axis!r} for {names()[i]}."
        )
    t = type_of(x)
    if not -t.ndim <= axis < t.ndim:
        raise ValueError(
            f"vmap of {name}: {names()[i]} is of type {t.str_short(True)}, which has no axis "
            f"{axis} to map over."
        )
    return axis % t.ndim


def _size(
    name: str, names: Callable[[], list[str]], values: list, dims: list, axis_size: int | None
) -> int:
    sizes = {type_of(x).shape[d] for x, d in zip(values, dims, strict=True) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise ValueError(
            f"vmap of {name} needs an argument with a mapped axis, or axis_size: all in_axes are "
            "None."
        )
    if len(sizes) > 1:
        rows = zip(names(), values, dims, strict=True)
        listed = ", ".join(f"{n} has {type_of(x).shape[d]}" for n, x, d in rows if d is not None)
        given = "" if axis_size is None else f" axis_size is {axis_size}."
        raise ValueError(f"vmap of {name}: mapped axes must have one size; {listed}.{given}")
    return sizes.pop()


def _placed(
    name: str, x: Any, dim: int | None, wanted: Any, size: int, hidden: NamedSharding | None
) -> Any:
    if wanted is None:
        if dim is not None:
            raise ValueError(
                f"vmap of {name}: out_axes is None for a result that depends on mapped arguments. "
                "Give it an axis."
            )
        return x
    ndim = type_of(x).ndim + (dim is None)
    if not isinstance(wanted, int) or not -ndim <= wanted < ndim:
        raise ValueError(f"vmap of {name}: a result with {ndim} dimensions has no axis {wanted!r}.")
    return to_dim(x, dim, wanted % ndim, size, hidden)
