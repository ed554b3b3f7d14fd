"""Logical axes for pytrees: shapes and shardings of parameters and similar trees.

    WEIGHTS = parameters({"up": "embed mlp", "down": "mlp embed"})
    shapes(WEIGHTS, {"embed": 512, "mlp": 2048})        # ShapeDtypeStructs, placed by the rules
    shardings(WEIGHTS)                                  # for `jit(out_shardings=)`, `device_put`
    like(WEIGHTS, state)                                # the logical axes of an optimizer's state

The axes of a pytree are any pytree of strings; nothing is wrapped or unwrapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.messages.formatting import join
from shardwise._src.messages.tree_paths import leaf_paths, paths_in
from shardwise._src.named.logical_axes import ANY, Parameter, parse
from shardwise._src.named.logical_axis_rules import Rules, current_rules
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import DTypeLike, T
from shardwise._src.types.sharding import NamedSharding


def parameters(words: T) -> T:
    """Marks logical axes as those of parameters, or of similarly stored values.

    Only these are sharded over the mesh axes of `stored` rules: they are replicated where an
    `einsum` pattern uses them.

    Args:
      words: a pytree of strings.
    """
    leaves, tree = flatten(words)
    for text, path in zip(leaves, leaf_paths(words), strict=True):
        parse(text, f"parameters: words{path}")
    return tree.unflatten([Parameter(text) for text in leaves])


def shardings(words: Any) -> Any:
    """The shardings for logical axes: a NamedSharding for each string of a pytree.

    Raises:
      ValueError: outside of `rules`, and if the rules cannot shard an axis.
    """
    found = current_rules()
    if found is None:
        raise ValueError(
            "shardings: no rules are in scope. Enter `with shardwise.named.rules(table, mesh):`."
        )
    return _mapped(words, "shardings", lambda text, who: _place(found, text, who))


def shapes(words: Any, sizes: Mapping[str, int], dtype: DTypeLike = np.float32) -> Any:
    """The shape for each string of a pytree, as a ShapeDtypeStruct; with a sharding under `rules`.

    Args:
      words: a pytree of strings.
      sizes: of all logical axes in it.

    Raises:
      ValueError: if a logical axis has no size, or the rules cannot shard it.
    """
    found = current_rules()

    def shape(text: str, who: str) -> ShapeDtypeStruct:
        row = parse(text, who)
        missing = [word for word in row if word not in sizes]
        if missing:
            raise ValueError(
                f"{who}: {str(text)!r} has {join(missing)}, whose size is missing; "
                f"got sizes of {join(sizes)}."
            )
        where = None if found is None else _place(found, text, who)
        return ShapeDtypeStruct([sizes[word] for word in row], dtype, sharding=where)

    return _mapped(words, "shapes", shape)


def like(words: Any, state: Any) -> Any:
    """The logical axes of a state with parts like the parameters: moments, averages, ….

    Args:
      words: the pytree of strings of the parameters.
      state: any pytree of arrays or their types. A subtree with the structure of `words` gets its
        axes, a scalar gets none.

    Returns:
      The pytree `state` with a string for each leaf.

    Raises:
      ValueError: for another leaf with dimensions.
    """
    names, tree = flatten(words)
    ndims = [len(parse(text, "like")) for text in names]

    def alike(x: Any) -> bool:
        leaves, own = flatten(x)
        return own == tree and [np.ndim(leaf) for leaf in leaves] == ndims

    parts, whole = flatten(state, alike)
    found: list[Any] = []
    for part, path in zip(parts, paths_in("state", whole), strict=True):
        if alike(part):
            found.append(words)
        elif np.ndim(part) == 0:
            found.append("")
        else:
            raise ValueError(
                f"like: {path} has shape {np.shape(part)}, but is not in a subtree like "
                "the parameters. Specify its axes separately."
            )
    return whole.unflatten(found)


def _mapped(words: Any, who: str, fun: Any) -> Any:
    leaves, tree = flatten(words)
    rows = zip(leaves, leaf_paths(words), strict=True)
    return tree.unflatten([fun(text, f"{who}: words{path}") for text, path in rows])


def _place(found: Rules, text: str, who: str) -> NamedSharding:
    row = parse(text, who)
    if ANY in row:
        raise ValueError(f"{who}: `_` in {str(text)!r}: each axis needs a name here.")
    return NamedSharding(found.mesh, found.spec(row, who, kept=isinstance(text, Parameter)))
