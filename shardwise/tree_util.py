"""Classes as pytree containers, keys and paths, and `shardwise.tree` under its longer names.

A class is registered once, with functions that flatten and unflatten its objects:

    @register_dataclass
    @dataclass
    class Layer:
        weight: Array
        activation: str = field(metadata=dict(static=True), default="relu")

Layers may then be arguments and results of `jit`, `grad`, `vmap` and all other transforms: their
data fields are leaves, their static fields part of the structure (hashable, compared by `==`).
Registration is specific to shardwise: it ignores classes registered with other libraries.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.arguments.partial_container import Partial as Partial
    from shardwise._src.tree.registration import DictKey as DictKey
    from shardwise._src.tree.registration import FlattenedIndexKey as FlattenedIndexKey
    from shardwise._src.tree.registration import GetAttrKey as GetAttrKey
    from shardwise._src.tree.registration import KeyEntry as KeyEntry
    from shardwise._src.tree.registration import KeyPath as KeyPath
    from shardwise._src.tree.registration import PyTreeDef as PyTreeDef
    from shardwise._src.tree.registration import SequenceKey as SequenceKey
    from shardwise._src.tree.registration import all_leaves as all_leaves
    from shardwise._src.tree.registration import default_registry as default_registry
    from shardwise._src.tree.registration import flatten_one_level as flatten_one_level
    from shardwise._src.tree.registration import (
        flatten_one_level_with_keys as flatten_one_level_with_keys,
    )
    from shardwise._src.tree.registration import is_tree_node as is_tree_node
    from shardwise._src.tree.registration import keystr as keystr
    from shardwise._src.tree.registration import register_dataclass as register_dataclass
    from shardwise._src.tree.registration import register_pytree_node as register_pytree_node
    from shardwise._src.tree.registration import (
        register_pytree_node_class as register_pytree_node_class,
    )
    from shardwise._src.tree.registration import (
        register_pytree_with_keys as register_pytree_with_keys,
    )
    from shardwise._src.tree.registration import (
        register_pytree_with_keys_class as register_pytree_with_keys_class,
    )
    from shardwise._src.tree.registration import register_static as register_static
    from shardwise._src.tree.registration import tree_all as tree_all
    from shardwise._src.tree.registration import tree_broadcast as tree_broadcast
    from shardwise._src.tree.registration import tree_flatten as tree_flatten
    from shardwise._src.tree.registration import tree_flatten_with_path as tree_flatten_with_path
    from shardwise._src.tree.registration import tree_leaves as tree_leaves
    from shardwise._src.tree.registration import tree_leaves_with_path as tree_leaves_with_path
    from shardwise._src.tree.registration import tree_map as tree_map
    from shardwise._src.tree.registration import tree_map_with_path as tree_map_with_path
    from shardwise._src.tree.registration import tree_reduce as tree_reduce
    from shardwise._src.tree.registration import tree_reduce_associative as tree_reduce_associative
    from shardwise._src.tree.registration import tree_structure as tree_structure
    from shardwise._src.tree.registration import tree_transpose as tree_transpose
    from shardwise._src.tree.registration import tree_unflatten as tree_unflatten
    from shardwise._src.tree.registration import treedef_children as treedef_children
    from shardwise._src.tree.registration import treedef_is_leaf as treedef_is_leaf
    from shardwise._src.tree.registration import treedef_tuple as treedef_tuple

lazy_names(__name__)
