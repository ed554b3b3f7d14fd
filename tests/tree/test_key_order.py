"""Dicts whose keys cannot be sorted: an error that names the dict and both keys in every function,
and that does not reduce the available recursion depth."""

import sys
from collections import OrderedDict, defaultdict

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.runtime import pytree
from tests.helpers.errors import fails

X = np.ones(3, np.float32)
BAD = {1: X, "a": X}
TREE = {"x": [{"y": BAD}]}


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


sw.tree_util.register_pytree_node(
    Pair, lambda p: ((p.a, p.b), None), lambda _, entries: Pair(*entries)
)


def error(name, keys="1 and 'a'"):
    return (
        f"{name} is a dict with the keys {keys}, which cannot be sorted; the entries of a pytree "
        "are sorted by key. Use keys of one type, such as strings."
    )


@sw.jit
def jitted(x, *rest, **more):
    return x


jitted({"known": X})
CALLS = {
    "tree.map": (lambda: sw.tree.map(lambda x: x, TREE), "tree['x'][0]['y']"),
    "tree.leaves": (lambda: sw.tree.leaves(TREE), "tree['x'][0]['y']"),
    "tree.leaves_with_path": (
        lambda: sw.tree_util.tree_leaves_with_path(TREE),
        "tree['x'][0]['y']",
    ),
    "tree.map is_leaf": (
        lambda: sw.tree.map(lambda x: x, [BAD, {"z": {**BAD}}], is_leaf=lambda x: x is BAD),
        "tree[1]['z']",
    ),
    "tree.map_with_path is_leaf": (
        lambda: sw.tree_util.tree_map_with_path(
            lambda _, x: x, [0, {"b": BAD}], is_leaf=lambda x: x == 0
        ),
        "tree[1]['b']",
    ),
    "one level": (lambda: sw.tree_util.flatten_one_level(BAD), "tree"),
    "jit": (lambda: jitted(TREE), "x['x'][0]['y']"),
    "jit rest": (lambda: jitted(X, 3, [BAD]), "rest[1][0]"),
    "jit named": (lambda: jitted(X, z={"p": BAD}), "more['z']['p']"),
    "jit static": (lambda: sw.jit(lambda n, x: x, static_argnums=0)(3, TREE), "x['x'][0]['y']"),
    "jit result": (lambda: sw.jit(lambda x: [BAD])(X), "tree[0]"),
    "lower": (lambda: jitted.lower(TREE), "x['x'][0]['y']"),
    "grad": (lambda: sw.grad(lambda x: 0.0)(BAD), "tree[0]"),
    "vmap": (lambda: sw.vmap(lambda x: x)(TREE), "x['x'][0]['y']"),
    "vmap named": (lambda: sw.vmap(lambda x: x)(x=BAD), "x"),
    "scan": (lambda: sw.lax.scan(lambda c, x: (c, x), BAD, X), "tree[0]"),
    "device_put": (lambda: sw.device_put(TREE), "tree['x'][0]['y']"),
    "defaultdict": (lambda: sw.tree.leaves([defaultdict(int, BAD)]), "tree[0]"),
    "class": (
        lambda: sw.tree.leaves(Pair(1, Pair([BAD], 2))),
        "tree[<flat index 1>][<flat index 0>][0]",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_dict_and_its_keys_are_named(name):
    call, where = CALLS[name]
    fails(ValueError, error(where), call)


@pytest.mark.parametrize("d, keys", [
    ({"b": 0, "a": 0, None: 0}, "'b' and None"),
    ({1: 0, 2: 0, "a": 0, "b": 0}, "1 and 'a'"),
    ({2j: 0, 1j: 0}, "2j and 1j"),
    ({(1, "a"): 0, ("a", 1): 0}, "(1, 'a') and ('a', 1)"),
    ({"x" * 100: 0, 1: 0}, f"'{'x' * 56}... and 1"),
])  # fmt: skip
def test_which_keys(d, keys):
    fails(ValueError, error("tree", keys), sw.tree.leaves, d)


def test_keys_with_an_order():
    tree = {2.5: 0, True: 1, 0: 2}
    assert sw.tree.leaves(tree) == [2, 1, 0]
    assert sw.tree.leaves(OrderedDict([(1, 2), ("a", 3)])) == [2, 3]
    assert pytree.unordered_dict([tree, {"a": {1: 2}}]) is None


def test_the_first_of_several_in_the_order_of_flattening():
    tree = {"b": {1: 0, "x": 0}, "a": [{2: 0, "y": 0}]}
    fails(ValueError, error("tree['a'][0]", "2 and 'y'"), sw.tree.leaves, tree)


def test_errors_of_users_are_as_they_were():
    def compared(x):
        return 1 < "a"

    for leaf in (compared, lambda x: int("no")):
        with pytest.raises((TypeError, ValueError)) as found:
            sw.tree.leaves([1], is_leaf=leaf)
        assert found.value.__cause__ is None and "tree" not in str(found.value)


def depth():
    """The recursion depth that remains from here."""

    def down(n):
        try:
            return down(n + 1)
        except RecursionError:
            return n

    return down(0)


def nested(levels, x):
    for i in range(levels):
        x = [x] if i % 2 else {"k": x}
    return x


@pytest.mark.parametrize("call", [
    sw.tree.leaves, jitted, sw.tree_util.tree_leaves_with_path, sw.vmap(lambda x: x)
])  # fmt: skip
def test_failures_cost_no_depth(call):
    """jaxlib alone loses a recursion level for each container above the dict, each time."""
    tree, before = nested(20, BAD), depth()
    for _ in range(2 * sys.getrecursionlimit() // 20):
        with pytest.raises(ValueError, match="cannot be sorted"):
            call(tree)
    assert depth() == before
    assert len(sw.tree.leaves(nested(80, {"a": 1}))) == 1


LOOP = [X, {"y": ()}]
LOOP[1]["y"] = (LOOP,)


@pytest.mark.parametrize(
    ("call", "inner", "outer"),
    [
        (lambda: sw.tree.map(lambda x: x, {"a": LOOP}), "tree['a'][1]['y'][0]", "tree['a']"),
        (lambda: sw.tree_util.tree_leaves_with_path(LOOP), "tree[1]['y'][0]", "tree"),
        (lambda: jitted(X, LOOP), "rest[0][1]['y'][0]", "rest[0]"),
        (lambda: jitted(X, more=LOOP), "more['more'][1]['y'][0]", "more['more']"),
        (lambda: sw.grad(lambda x: x[0])(LOOP), "tree[0][1]['y'][0]", "tree[0]"),
        (lambda: sw.device_put(LOOP), "tree[1]['y'][0]", "tree"),
    ],
    ids="map paths jit keyword grad put".split(),
)
def test_a_tree_that_contains_itself(call, inner, outer):
    for _ in range(3):  # which does not reduce the depth for later calls
        fails(
            ValueError,
            f"{inner} is {outer} itself: the pytree contains itself. Leave that entry out.",
            call,
        )
