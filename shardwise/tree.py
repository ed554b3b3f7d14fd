"""Pytrees: nested containers of leaves, with functions to map, flatten and unflatten them.

Tuples, lists, dicts, named tuples and `None` are containers. Other objects are leaves, unless
their class is registered (`shardwise.tree_util`). Names and arguments are as in `jax.tree`.

    tree.map(lambda p, g: p - 0.1 * g, parameters, gradients)
    tree.leaves_with_path({"w": [1, 2]})    # [((DictKey('w'), SequenceKey(0)), 1), ...]
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.tree.functions import IsLeaf as IsLeaf
    from shardwise._src.tree.functions import all as all
    from shardwise._src.tree.functions import broadcast as broadcast
    from shardwise._src.tree.functions import flatten as flatten
    from shardwise._src.tree.functions import flatten_with_path as flatten_with_path
    from shardwise._src.tree.functions import leaves as leaves
    from shardwise._src.tree.functions import leaves_with_path as leaves_with_path
    from shardwise._src.tree.functions import map as map
    from shardwise._src.tree.functions import map_with_path as map_with_path
    from shardwise._src.tree.functions import reduce as reduce
    from shardwise._src.tree.functions import reduce_associative as reduce_associative
    from shardwise._src.tree.functions import register_pytree_node as register_pytree_node
    from shardwise._src.tree.functions import static as static
    from shardwise._src.tree.functions import structure as structure
    from shardwise._src.tree.functions import transpose as transpose
    from shardwise._src.tree.functions import unflatten as unflatten

lazy_names(__name__)
