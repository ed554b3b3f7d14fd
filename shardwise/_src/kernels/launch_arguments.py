"""The arguments of a launch: checked, and in the form that records have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.kernels.blocks import Block, Tile
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.tree_paths import leaf_paths
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.dtypes import canonicalize, is_integer
from shardwise._src.values.convert import cast


def grid_of(who: str, grid: Any) -> tuple[list[Any], tuple[Any, ...]]:
    entries = grid if isinstance(grid, tuple | list) else (grid,)
    sizes, names = [], []
    for entry in entries:
        name = None
        if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str):
            name, entry = entry
        if isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            if entry < 0:
                raise ValueError(f"kernel {who}: the grid has a negative size: {short_repr(grid)}.")
            sizes.append(int(entry))
        else:
            sizes.append(_traced_size(who, entry))
        if name is not None and name in names:
            raise ValueError(f"kernel {who}: two axes of the grid have the name {name!r}.")
        names.append(name)
    return sizes, tuple(names)


def _traced_size(who: str, entry: Any) -> Any:
    try:
        x = as_arraylike(entry)
        if not (type_of(x).shape or not is_integer(type_of(x).dtype)):
            return x
    except TypeError:
        pass
    raise TypeError(
        f"kernel {who}: the sizes of a grid are integers, or traced scalars; got "
        f"{short_repr(entry)}."
    )


def out_type(who: str, x: Any) -> ArrayType:
    try:
        return array_type(tuple(x.shape), canonicalize(x.dtype))
    except AttributeError:
        raise TypeError(
            f"kernel {who}: out has objects with a shape and a dtype, such as ShapeDtypeStruct; "
            f"got {short_repr(x)}."
        ) from None


def value_of_argument(who: str, x: Any) -> Any:
    try:
        x = as_arraylike(x)
    except TypeError as error:
        raise TypeError(f"kernel {who}: {error}") from None
    value = x if is_array(x) else eval_trace().new_array(x)
    t = type_of(value)
    return cast(value, t.dtype, False) if t.weak_type else value


def parameters_of(body: Callable[..., Any]) -> list[str]:
    """The names of a kernel's positional parameters, as far as they are known."""
    try:
        found = inspect.signature(body).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def argument_names(names: Sequence[str], args: Sequence[Any], prefetch: int) -> list[str]:
    """The path of each leaf, which begins with the name of the kernel's parameter. Prefetched
    arguments are one leaf each."""
    found = []
    for i, argument in enumerate(args):
        name = names[i] if i < len(names) else f"[{i}]"
        paths = [""] if i < prefetch else leaf_paths(argument)
        found += [f"argument {name}{path}" for path in paths]
    return found


def blocks_of(who: str, what: str, specs: Any, tree: Any) -> list[Block]:
    """A block for each leaf, from a prefix."""
    specs = tuple(specs) if isinstance(specs, list) else specs

    def blocks(spec: Any, part: Any) -> list[Block]:
        if spec is None or isinstance(spec, Block):
            return [spec or Block()] * len(flatten(part)[0])
        children, below = [flatten(x, lambda y, x=x: y is not x)[0] for x in (spec, part)]
        if len(children) != len(below) or (children and children[0] is spec):
            raise ValueError(
                f"kernel {who}: {what} must be a prefix of the pytree of {tree.num_leaves} arrays, "
                f"with a Block at each leaf; got {short_repr(specs)}."
            )
        return [block for row in zip(children, below, strict=True) for block in blocks(*row)]

    return blocks(specs, tree.unflatten(range(tree.num_leaves)))


def parallel_marks(who: str, axes: Any, names: Sequence[Any]) -> tuple[bool, ...]:
    marks = [False] * len(names)
    for axis in axes:
        at = names.index(axis) if axis in names and axis is not None else axis
        if not isinstance(at, int) or not 0 <= at < len(names):
            raise ValueError(
                f"kernel {who}: parallel has axis {short_repr(axis)}, which the grid of "
                f"{len(names)} axes does not have."
            )
        marks[at] = True
    return tuple(marks)


def alias_pairs(
    who: str, aliases: Mapping[int, int] | None, ins: Sequence[Tile], outs: Sequence[Tile]
) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    if not isinstance(aliases, Mapping | None):
        raise TypeError(
            f"kernel {who}: aliases is a dict from numbers of arguments to numbers of results, "
            f"such as {{0: 0}}; got {short_repr(aliases)}."
        )
    for i, j in (aliases or {}).items():
        if not all(isinstance(x, int | np.integer) and not isinstance(x, bool) for x in (i, j)):
            raise TypeError(
                f"kernel {who}: aliases has {short_repr(i)}: {short_repr(j)}; expected the number "
                "of an argument, counted after the prefetched ones, and that of a result."
            )
        if not (0 <= i < len(ins) and 0 <= j < len(outs)):
            raise ValueError(
                f"kernel {who}: aliases has {i}: {j}; there are {len(ins)} arguments and "
                f"{len(outs)} results."
            )
        a, b = ins[i].type, outs[j].type
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise ValueError(
                f"kernel {who}: argument {i}, {a.str_short(True)}, and result {j}, "
                f"{b.str_short(True)}, cannot share memory: they must have one shape and dtype."
            )
        if j in [out for _, out in found]:
            raise ValueError(f"kernel {who}: result {j} is aliased with two arguments.")
        found.append((i, j))
    return tuple(found)
