"""Words of trees: shapes and shardings of parameters, and of all that is like them.

    WEIGHTS = parameters({"up": "embed mlp", "down": "mlp embed"})
    shapes(WEIGHTS, {"embed": 512, "mlp": 2048})        # ShapeDtypeStructs, placed by the rules
    shardings(WEIGHTS)                                  # for `jit(out_shardings=)`, `device_put`
    like(WEIGHTS, state)                                # the words of an optimiser's state

A tree of words is any pytree of texts; nothing is wrapped, and nothing has to be unwrapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwise._src.api.shapes import ShapeDtypeStruct
from shardwise._src.messages.trees import leaf_paths, paths_in
from shardwise._src.messages.words import join
from shardwise._src.named.rules import Rules, current_rules
from shardwise._src.named.words import ANY, Parameter, parse
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import DTypeLike, T
from shardwise._src.types.sharding import NamedSharding


def parameters(words: T) -> T:
    """The same words, said of parameters and of what is kept like them.

    Mesh axes that the rules give by `stored` split these, and nothing else: they are whole where
    a pattern of `einsum` computes with them.

    Args:
      words: a tree of texts.
    """
    leaves, tree = flatten(words)
    for text, path in zip(leaves, leaf_paths(words), strict=True):
        parse(text, f"parameters: words{path}")
    return tree.unflatten([Parameter(text) for text in leaves])


def shardings(words: Any) -> Any:
    """Where values of these words are: a NamedSharding for each text of a tree.

    Raises:
      ValueError: outside of `rules`, and for words that these cannot place.
    """
    found = current_rules()
    if found is None:
        raise ValueError(
            "shardings: no rules are in scope. Enter `with shardwise.named.rules(table, mesh):`."
        )
    return _mapped(words, "shardings", lambda text, who: _place(found, text, who))


def shapes(words: Any, sizes: Mapping[str, int], dtype: DTypeLike = np.float32) -> Any:
    """The shape of each text of a tree, as a ShapeDtypeStruct; where it is, under `rules`.

    Args:
      words: a tree of texts.
      sizes: of all words in it.

    Raises:
      ValueError: for words that have no size, or that the rules cannot place.
    """
    found = current_rules()

    def shape(text: str, who: str) -> ShapeDtypeStruct:
        row = parse(text, who)
        missing = [word for word in row if word not in sizes]
        if missing:
            raise ValueError(
                f"{who}: {str(text)!r} has {join(missing)}, whose size is not given; there "
                f"are sizes of {join(sizes)}."
            )
        where = None if found is None else _place(found, text, who)
        return ShapeDtypeStruct([sizes[word] for word in row], dtype, sharding=where)

    return _mapped(words, "shapes", shape)


def like(words: Any, state: Any) -> Any:
    """The words of a state that has parts like the parameters of `words`: moments, averages, ….

    Args:
      words: the tree of texts of the parameters.
      state: any tree of arrays or their types. A subtree with the structure of `words` has its
        words, a scalar has none.

    Returns:
      The tree of `state` with a text for each leaf.

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
                f"like: {path} has shape {np.shape(part)}, and is not in a part that is like "
                "the parameters. Give it words of its own."
            )
    return whole.unflatten(found)


def _mapped(words: Any, who: str, fun: Any) -> Any:
    leaves, tree = flatten(words)
    rows = zip(leaves, leaf_paths(words), strict=True)
    return tree.unflatten([fun(text, f"{who}: words{path}") for text, path in rows])


def _place(found: Rules, text: str, who: str) -> NamedSharding:
    row = parse(text, who)
    if ANY in row:
        raise ValueError(f"{who}: `_` in {str(text)!r}: each axis needs a word here.")
    return NamedSharding(found.mesh, found.spec(row, who, kept=isinstance(text, Parameter)))
