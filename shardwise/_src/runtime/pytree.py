"""Pytrees, based on jaxlib's C++ registry (a private instance).

Tuples, lists, dicts, named tuples, `None`, ordered and default dicts are registered; classes are
added with `register_node` and `register_dataclass`.

Entries of a dict are sorted by key. If the keys cannot be ordered, jaxlib reports that a comparator
failed, and does not restore the recursion depth used by the enclosing containers: after some
hundred failures every function would raise RecursionError. `flatten` names the dict and two of its
keys, and restores the depth.
"""

from __future__ import annotations

import copyreg
import ctypes
import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from jaxlib import _jax

from shardwise._src.base.pickles import read_by, reduced

registry = _jax.pytree.PyTreeRegistry(
    enable_none=True, enable_tuple=True, enable_namedtuple=True, enable_list=True, enable_dict=True
)
if TYPE_CHECKING:  # for users' programs: there jaxlib has no stubs
    PyTreeDef = Any
else:
    PyTreeDef = _jax.pytree.PyTreeDef
flatten_quickly = registry.flatten  # callers must call `refund` if it fails
_flatten_with_path = registry.flatten_with_path
_flatten_one_level = registry.flatten_one_level
DictKey = _jax.pytree.DictKey
SequenceKey = _jax.pytree.SequenceKey
GetAttrKey = _jax.pytree.GetAttrKey
FlattenedIndexKey = _jax.pytree.FlattenedIndexKey
treedef_tuple = _jax.pytree.treedef_tuple
KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
_FAILURES = (ValueError, TypeError, SystemError)  # SystemError: nested too deeply for jaxlib


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None, /) -> tuple[list[Any], Any]:
    """The leaves of a pytree, and its treedef.

    Raises:
      ValueError: the keys of a dict in it cannot be ordered, or it contains itself.
    """
    try:
        return flatten_quickly(tree, is_leaf)
    except _FAILURES as error:
        _explain(tree, error, is_leaf and (lambda _, x: is_leaf(x)))
        raise


def flatten_with_path(
    tree: Any, is_leaf: Callable[[KeyPath, Any], bool] | None = None, /
) -> tuple[list[tuple[KeyPath, Any]], Any]:
    """Like `flatten`, with the path of each leaf. is_leaf: takes a path and a node."""
    try:
        return _flatten_with_path(tree, is_leaf)
    except _FAILURES as error:
        _explain(tree, error, is_leaf)
        raise


def flatten_one_level(tree: Any, /) -> tuple[Iterable[Any], Any] | None:
    """The entries of a container, and its static part; None for a leaf."""
    try:
        return _flatten_one_level(tree)
    except (ValueError, TypeError) as error:
        _explain(tree, error, lambda path, _: bool(path))
        raise


def _reduced(found: _jax.pytree.PyTreeRegistry) -> Any:
    """Pickles this registry by reference to the reader's registry; others as before."""
    return reduced("trees") if found is registry else found.__reduce__()


def _reduced_method(found: Any) -> Any:
    """Pickles registry methods, which functions pickled by cloudpickle may reference."""
    return getattr, (found.__self__, found.__name__)


read_by("trees", lambda: registry)
copyreg.pickle(_jax.pytree.PyTreeRegistry, _reduced)
copyreg.pickle(cast(Any, type(flatten_quickly)), _reduced_method)


def _explain(tree: Any, error: Exception, is_leaf: Callable[[KeyPath, Any], bool] | None) -> None:
    """Raises an error that names the dict with unorderable keys, or the container that contains
    itself, if that caused the failure."""
    found = refund(tree, error, is_leaf)
    if found is not None:
        path, keys = found
        raise order_error(f"tree{''.join(map(str, path))}", keys) from None
    paths = cycle(tree, error, is_leaf)
    if paths is not None:
        inner, outer = ["tree" + "".join(map(str, path)) for path in paths]
        raise cycle_error(inner, outer) from None


# ------------------------------------------------------------------------------ unorderable keys


def refund(
    tree: Any, error: Exception, is_leaf: Callable[[KeyPath, Any], bool] | None = None
) -> tuple[KeyPath, tuple[Any, Any]] | None:
    """Restores the recursion depth lost by a failed flatten, if the cause was a dict with
    unorderable keys; then returns the result of `unordered_dict`."""
    text = str(error)
    if not text.startswith("Comparator raised") and "not supported between" not in text:
        return None
    found = unordered_dict(tree, is_leaf)
    if found is not None:
        _give_back(len(found[0]))
    return found


def order_error(name: str, keys: tuple[Any, Any]) -> ValueError:
    """The error for a dict, by its name, with two keys that cannot be ordered."""
    one, other = [text if len(text := repr(key)) <= 60 else f"{text[:57]}..." for key in keys]
    return ValueError(
        f"{name} is a dict with the keys {one} and {other}, which cannot be sorted; the entries of "
        "a pytree are sorted by key. Use keys of one type, such as strings."
    )


def unordered_dict(
    tree: Any, is_leaf: Callable[[KeyPath, Any], bool] | None = None
) -> tuple[KeyPath, tuple[Any, Any]] | None:
    """The path of the first dict, in flattening order, whose keys cannot be ordered, and two of
    these keys; None if there is no such dict."""
    waiting: list[tuple[KeyPath, Any]] = [((), tree)]
    while waiting:
        path, x = waiting.pop()
        if is_leaf is not None and is_leaf(path, x):
            continue
        keys = unordered_keys(x)
        if keys is not None:
            return path, keys
        waiting += reversed(_entries(path, x))
    return None


def unordered_keys(x: Any) -> tuple[Any, Any] | None:
    """Two keys that cannot be ordered, of a dict whose entries are sorted by key; else None."""
    if type(x) not in (dict, defaultdict):
        return None
    try:
        sorted(x)
    except Exception:
        return next(pair for pair in itertools.combinations(x, 2) if not _has_order(*pair))
    return None


def _has_order(a: Any, b: Any) -> bool:
    try:
        sorted([a, b])
    except Exception:
        return False
    return True


def _give_back(levels: int) -> None:
    """Undoes calls of `Py_EnterRecursiveCall`, which jaxlib does not do when it fails."""
    leave = ctypes.pythonapi.Py_LeaveRecursiveCall
    leave.restype = None
    for _ in range(levels):
        leave()


# ----------------------------------------------------------------------------------- cyclic trees


def cycle_error(inner: str, outer: str) -> ValueError:
    """The error for a container, by its path, that is also one of its own ancestors."""
    return ValueError(
        f"{inner} is {outer} itself: the pytree contains itself. Leave that entry out."
    )


def cycle(
    tree: Any, error: Exception, is_leaf: Callable[[KeyPath, Any], bool] | None = None
) -> tuple[KeyPath, KeyPath] | None:
    """The path of the first container that is its own ancestor, and the ancestor's path; None if
    absent, or if flattening failed for another reason."""
    if not isinstance(error, SystemError):
        return None
    waiting: list[tuple[KeyPath, Any, dict[int, KeyPath]]] = [((), tree, {})]
    while waiting:
        path, x, above = waiting.pop()
        if id(x) in above:
            return path, above[id(x)]
        if is_leaf is None or not is_leaf(path, x):
            inside = {**above, id(x): path}
            waiting += reversed([(below, y, inside) for below, y in _entries(path, x)])
    return None


def _entries(path: KeyPath, x: Any) -> list[tuple[KeyPath, Any]]:
    """The entries of a container, with their paths; [] for a leaf."""
    parts = _flatten_one_level(x)
    if parts is None:
        return []
    entries = [*parts[0]]
    names = steps(x) or tuple(map(FlattenedIndexKey, range(len(entries))))
    return [((*path, name), y) for name, y in zip(names, entries, strict=True)]


def tree_of(node_data: tuple[type, Any] | None, children: Iterable[PyTreeDef]) -> PyTreeDef:
    """A treedef from `PyTreeDef.node_data` and the treedefs of its children."""
    return _jax.pytree.PyTreeDef.from_node_data_and_children(registry, node_data, children)


def register_node(
    kind: type,
    to_iter: Callable[..., Any],
    from_iter: Callable[..., Any],
    to_iter_with_keys: Callable[..., Any] | None = None,
) -> None:
    try:
        registry.register_node(kind, to_iter, from_iter, to_iter_with_keys)
    except ValueError as error:
        raise _registered_before(kind) from error


def register_dataclass(kind: type, data_fields: list[str], meta_fields: list[str]) -> None:
    try:
        registry.register_dataclass_node(kind, data_fields, meta_fields)
    except ValueError as error:
        raise _registered_before(kind) from error


def _registered_before(kind: type) -> ValueError:
    return ValueError(
        f"{kind.__module__}.{kind.__qualname__} is already a pytree container: a class can be "
        "registered only once."
    )


def steps(node: Any) -> tuple[KeyEntry, ...]:
    """The keys of a container's entries. (jaxlib's own, for a named tuple, repeat the first.)"""
    parts = registry.flatten_one_level_with_keys(node)
    if parts is None:
        return ()
    if parts[1] is type(node) and hasattr(node, "_fields"):  # a named tuple
        return tuple(GetAttrKey(name) for name in node._fields)
    return tuple(key for key, _ in parts[0])


def _parts_of_ordered(d: OrderedDict[Any, Any]) -> tuple[Any, Any]:
    return tuple(d.values()), tuple(d.keys())


def _ordered(keys: Any, values: Any) -> OrderedDict[Any, Any]:
    return OrderedDict(zip(keys, values, strict=True))


def _parts_of_default(d: defaultdict[Any, Any]) -> tuple[Any, Any]:
    keys = tuple(sorted(d))
    return tuple(d[k] for k in keys), (d.default_factory, keys)


def _default(made_of: Any, values: Any) -> defaultdict[Any, Any]:
    factory, keys = made_of
    return defaultdict(factory, zip(keys, values, strict=True))


def _with_keys(parts: Callable[[Any], tuple[Any, Any]]) -> Callable[[Any], tuple[Any, Any]]:
    """Like `parts`, with keys: the order of its entries is that of the keys in the static part."""

    def pairs(d: Any) -> tuple[Any, Any]:
        values, made_of = parts(d)
        keys = made_of if isinstance(d, OrderedDict) else made_of[1]
        return tuple((DictKey(k), v) for k, v in zip(keys, values, strict=True)), made_of

    return pairs


register_node(OrderedDict, _parts_of_ordered, _ordered, _with_keys(_parts_of_ordered))
register_node(defaultdict, _parts_of_default, _default, _with_keys(_parts_of_default))
