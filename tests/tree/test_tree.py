"""`tree` and `tree_util` compared with jax; registered classes and Partial in transforms."""

import collections
import dataclasses
import functools
import inspect

import jax
import jax.numpy
import jax.tree_util
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from tests.helpers.errors import failing_calls, message, raised

Point = collections.namedtuple("Point", "x y")
TREES = [
    *(7, None, (), [], {}, [1, 2], (1, [2, None], {"b": 3, "a": (4,)})),
    *(Point(1, [2]), collections.OrderedDict(b=1, a=[2]), [None, Point({"k": 1}, ())]),
    collections.defaultdict(list, b=1, a=2),
]


def pairs(tree):
    return isinstance(tree, tuple) and len(tree) == 2


# ------------------------------------------------------------------------------- compared with jax


def test_every_name_of_jax_is_there_with_its_parameters():
    for ours, theirs in [(sw.tree, jax.tree), (sw.tree_util, jax.tree_util)]:
        for name in dir(theirs):
            if name.startswith("_"):
                continue
            assert hasattr(ours, name), name
            if inspect.isfunction(getattr(theirs, name)):
                got = inspect.signature(getattr(ours, name)).parameters
                expected = inspect.signature(getattr(theirs, name)).parameters
                assert list(got) == list(expected), name
                assert [p.kind for p in got.values()] == [p.kind for p in expected.values()], name


@pytest.mark.parametrize("tree", TREES, ids=str)
@pytest.mark.parametrize("is_leaf", [None, pairs, lambda x: x is None])
def test_flattening(tree, is_leaf):
    leaves, treedef = sw.tree.flatten(tree, is_leaf)
    expected, jaxdef = jax.tree.flatten(tree, is_leaf)
    assert leaves == expected == sw.tree.leaves(tree, is_leaf)
    assert str(treedef) == str(jaxdef)
    assert treedef == sw.tree.structure(tree, is_leaf)
    again = sw.tree.unflatten(treedef, iter(leaves))
    assert again == tree and type(again) is type(tree)
    got = sw.tree.leaves_with_path(tree, is_leaf)
    expected = jax.tree.leaves_with_path(tree, is_leaf)
    assert [x for _, x in got] == [x for _, x in expected]
    for kwargs in [{}, {"simple": True}, {"separator": "/"}, {"simple": True, "separator": "."}]:
        ours = [sw.tree_util.keystr(path, **kwargs) for path, _ in got]
        assert ours == [jax.tree_util.keystr(path, **kwargs) for path, _ in expected]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_mapping_and_reducing(tree):
    for of in [
        lambda t: t.map(lambda x: (x, 1), tree),
        lambda t: t.map(lambda x, y: (x, y), tree, tree),
        lambda t: t.map(lambda x: str(x), tree, is_leaf=pairs),
        lambda t: t.all(tree),
        lambda t: t.all(tree, is_leaf=lambda x: x is None),
        lambda t: t.reduce(lambda x, y: f"({x}{y})", tree, "0"),
        lambda t: t.reduce(lambda x, y: (x, y), tree, None, pairs),
        lambda t: t.reduce_associative(lambda x, y: f"({x}{y})", tree, identity="0"),
        lambda t: t.broadcast(5, tree),
        lambda t: t.broadcast(tree, tree),
    ]:
        assert of(sw.tree) == of(jax.tree)
    ours = sw.tree.map_with_path(lambda p, *xs: (sw.tree_util.keystr(p), *xs), tree, tree)
    theirs = jax.tree.map_with_path(lambda p, *xs: (jax.tree_util.keystr(p), *xs), tree, tree)
    assert ours == theirs


@pytest.mark.parametrize("count", range(1, 12))
def test_an_associative_reduction_calls_in_the_same_order(count):
    def call(x, y):
        return f"({x}{y})"

    letters = list("abcdefghijkl"[:count])
    assert sw.tree.reduce_associative(call, letters) == jax.tree.reduce_associative(call, letters)


def test_trees_of_trees():
    for t in [sw.tree, jax.tree]:
        outer, inner = t.structure([0, 0]), t.structure((0, {"a": 0}))
        tree = [(1, {"a": 2}), (3, {"a": 4})]
        assert t.transpose(outer, inner, tree) == ([1, 3], {"a": [2, 4]})
        assert t.transpose(outer, inner, tree) == t.transpose(outer, None, tree)
        assert t.transpose(t.structure([0]), t.structure(()), [()]) == ()
        assert t.broadcast([1, (2, 3)], [{"x": 7, "y": (8, 9)}, (5, [6])]) == [
            {"x": 1, "y": (1, 1)},
            (2, [3]),
        ]
        assert t.broadcast([(7, 8), 2], [[1, (3,)], None], pairs) == [[(7, 8), ((7, 8),)], None]
        assert t.map(lambda x, y: (x, y), [None, 2], [[1], {}], is_leaf=lambda x: x is None) == [
            (None, [1]),
            (2, {}),
        ]
    assert sw.tree.transpose(sw.tree.structure([]), sw.tree.structure((0, 0)), []) == ([], [])


def test_a_leaf_may_be_told_by_its_path():
    for t in [sw.tree, jax.tree]:
        found = t.leaves_with_path(
            {"a": [1, [2]]}, is_leaf=lambda path, x: len(path) == 2, is_leaf_takes_path=True
        )
        assert [x for _, x in found] == [1, [2]]
        got = t.map_with_path(
            lambda path, x, y: (len(path), x, y),
            *([[1, [2]]] * 2),
            is_leaf=lambda path, x: len(path) == 1,
            is_leaf_takes_path=True,
        )
        assert got == [(1, 1, 1), (1, [2], [2])]


def test_structures():
    for u in [sw.tree_util, jax.tree_util]:
        one, two = u.tree_structure(1), u.tree_structure([1, (2,)])
        assert u.treedef_tuple(iter([one, two])) == u.tree_structure((1, [1, (2,)]))
        assert u.treedef_children(two) == [one, u.tree_structure((2,))]
        assert [u.treedef_is_leaf(d) for d in (one, two)] == [True, False]
        assert u.all_leaves(iter([1, "x"])) and not u.all_leaves([1, None])
        assert u.all_leaves([(1, 2), 3], is_leaf=pairs) and not u.all_leaves([(1,)], pairs)
        assert [u.is_tree_node(c) for c in (list, int, type(None), Point)] == [1, 0, 1, 1]
        assert u.flatten_one_level({"b": [1], "a": 2}) == ((2, [1]), ("a", "b"))
    (first, _), (second, _) = sw.tree_util.flatten_one_level_with_keys(Point(1, 2))[0]
    assert (str(first), str(second)) == (".x", ".y")


def test_keys():
    for u in [sw.tree_util, jax.tree_util]:
        path = (u.DictKey("a"), u.SequenceKey(1), u.GetAttrKey("b"), u.FlattenedIndexKey(2), "own")
        assert u.keystr(path) == "['a'][1].b[<flat index 2>]own"
        assert u.keystr(path, simple=True, separator="/") == "a/1/b/2/own"


# --------------------------------------------------------------------------- registered classes


def classes(u):
    """Classes registered with `u`, with every registration function."""

    class Base:
        def __init__(self, a, b, tag="t"):
            self.a, self.b, self.tag = a, b, tag

        def tree_flatten(self):
            return (self.a, self.b), self.tag

        @classmethod
        def tree_unflatten(cls, tag, entries):
            return cls(*entries, tag)

        def with_keys(self):
            return ((u.GetAttrKey("a"), self.a), (u.DictKey("b"), self.b)), self.tag

    kinds = [type("Base", (Base,), {}) for _ in range(6)]
    flat, keyed = Base.tree_flatten, Base.with_keys
    build = [kind.tree_unflatten for kind in kinds]
    u.register_pytree_node(kinds[0], flat, build[0])
    u.register_pytree_node(kinds[1], flat, build[1], keyed)
    u.register_pytree_with_keys(kinds[2], keyed, build[2])
    assert u.register_pytree_node_class(kinds[3]) is kinds[3]
    kinds[4].tree_flatten_with_keys = keyed
    assert u.register_pytree_with_keys_class(kinds[4]) is kinds[4]
    assert u.register_dataclass(kinds[5], ["a", "b"], ["tag"]) is kinds[5]

    @u.register_dataclass
    @dataclasses.dataclass
    class Data:
        a: object
        tag: str = dataclasses.field(metadata={"static": True}, default="t")
        b: object = 0

    return [*kinds, lambda a, b, tag="t": Data(a, tag, b)]


@pytest.mark.parametrize("i", range(7))
def test_registered_classes_are_as_those_of_jax(i):
    ours, theirs = classes(sw.tree_util)[i], classes(jax.tree_util)[i]
    seen = []
    for u, kind in [(sw.tree_util, ours), (jax.tree_util, theirs)]:
        found, treedef = u.tree_flatten_with_path([kind((1, 2), None), kind(3, {"k": 4})])
        assert treedef != u.tree_structure([kind((1, 2), None, "u"), kind(3, {"k": 4})])
        made = u.tree_map(lambda x: 2 * x, kind(1, (2,), "s"))
        seen.append(([(u.keystr(path), x) for path, x in found], (made.a, made.b, made.tag)))
    assert seen[0] == seen[1]
    assert seen[0][1] == (2, (4,), "s")


@pytest.mark.parametrize("i", [0, 4, 5, 6])
def test_registered_classes_go_through_transforms(i):
    kind = classes(sw.tree_util)[i]
    w, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    traced = []

    @sw.jit
    def double(p):
        traced.append(p.tag)
        return sw.tree.map(lambda x: 2 * x, p)

    p = kind(jnp.asarray(w), jnp.asarray(b))
    for tag in ["t", "t", "u"]:
        out = double(kind(jnp.asarray(w), jnp.asarray(b), tag))
        np.testing.assert_array_equal(out.a, 2 * w)
        assert (type(out).__name__, out.tag) == (type(p).__name__, tag)
    assert traced == ["t", "u"]
    g = sw.grad(lambda p: jnp.sum(p.a * p.a * p.b))(p)
    np.testing.assert_array_equal(g.a, 2 * w)
    np.testing.assert_array_equal(g.b, (w * w).sum(0))
    out = sw.vmap(lambda p: kind(p.a.sum(), p.b), in_axes=(kind(0, None),), out_axes=kind(0, None))
    np.testing.assert_array_equal(out(p).a, w.sum(1))


def test_static_classes():
    for u, jit in [(sw.tree_util, sw.jit), (jax.tree_util, jax.jit)]:
        name = u.register_static(type("Name", (str,), {}))
        assert u.tree_leaves([name("x"), 1]) == [1]
        assert u.tree_structure(name("x")) == u.tree_structure(name("x"))
        assert u.tree_structure(name("x")) != u.tree_structure(name("y"))
        assert jit(lambda n, x: x + len(n))(name("abc"), 1) == 4
    assert sw.tree.static(default=3, metadata={"unit": "m"}).metadata == {
        "static": True,
        "unit": "m",
    }
    assert sw.tree.static(metadata={"static": False}).metadata == {"static": False}


class Flattened:
    """A container whose entries are the leaves of its contents."""

    def __init__(self, tree):
        self.leaves, self.treedef = sw.tree.flatten(tree)


def test_transposition_of_containers_of_leaves():
    def rebuilt(treedef, leaves):
        return Flattened(sw.tree.unflatten(treedef, leaves))

    sw.tree_util.register_pytree_node(Flattened, lambda x: (x.leaves, x.treedef), rebuilt)
    outer, inner = map(sw.tree.structure, (Flattened({"a": 1, "b": 2}), (1, 2)))
    first, second = sw.tree.transpose(outer, inner, Flattened({"a": (3, 4), "b": (5, 6)}))
    assert (first.leaves, second.leaves) == ([3, 5], [4, 6])
    with pytest.raises(TypeError):
        sw.tree.transpose(outer, inner, Flattened({"a": (3, 4), "b": 5}))


def test_fields_that_are_dropped_or_not_of_init_are_left_alone():
    @dataclasses.dataclass
    class Data:
        x: int
        cached: int = 5
        derived: int = dataclasses.field(init=False, default=6)

    for lib in [jax, sw]:
        found = message(ValueError, lib.tree_util.register_dataclass, Data, drop_fields=["cached"])
        assert "derived" in found
    sw.tree_util.register_dataclass(Data, drop_fields=["cached", "derived"])
    got = sw.tree.map(lambda x: x + 1, Data(1, cached=9))
    assert got == Data(2, cached=5)


def test_classes_of_jax_and_ours_are_apart():
    ours, theirs = classes(sw.tree_util)[0], classes(jax.tree_util)[0]
    assert sw.tree_util.all_leaves([theirs(1, 2)])
    assert jax.tree_util.all_leaves([ours(1, 2)])


# -------------------------------------------------------------------------------------- Partial


def test_partial_is_a_container_of_its_arguments():
    def f(*args, **kwargs):
        return args, kwargs

    seen = []
    for u in [sw.tree_util, jax.tree_util]:
        p = u.Partial(f, 1, {"k": 2}, y=3)
        assert isinstance(p, functools.partial) and p(0) == ((1, {"k": 2}, 0), {"y": 3})
        nested = u.Partial(p, 4)
        whole = u.Partial(functools.partial(f, 5), z=6)
        assert nested(0) == ((1, {"k": 2}, 4, 0), {"y": 3})
        assert whole(0) == ((5, 0), {"z": 6})
        same = functools.partial(f, 5)
        held = u.Partial(same).func
        assert held == same == u.Partial(same, 2).func and hash(held) == hash(same)
        assert (held.func, held.args, held.keywords) == (f, (5,), {})
        assert u.tree_structure(u.Partial(same)) == u.tree_structure(u.Partial(same))
        assert u.tree_map(lambda x: 10 * x, p)(0) == ((10, {"k": 20}, 0), {"y": 30})
        trees = [u.tree_leaves_with_path(t) for t in (p, nested, whole)]
        seen.append([[(u.keystr(path), x) for path, x in found] for found in trees])
    assert seen[0] == seen[1]
    assert repr(sw.tree_util.Partial(f, 1)).startswith("Partial(<function ")


def test_the_derivative_of_linearize_is_a_partial():
    for lib in [sw, jax]:
        derivative = lib.linearize(lib.numpy.sin, 0.0)[1]
        assert isinstance(derivative, lib.tree_util.Partial)
        assert " mul " in str(derivative.func.args[0])
        assert float(lib.jit(lambda d: d(2.0))(derivative)) == 2.0


def test_partial_as_an_argument_of_jit_and_grad():
    traces = []

    def scale(w, x):
        return w * x

    @sw.jit
    def call(f, x):
        traces.append(0)
        return f(x)

    x = jnp.arange(3.0)
    for w in [2.0, 3.0]:
        p = sw.tree_util.Partial(scale, jnp.asarray(w))
        np.testing.assert_array_equal(call(p, x), w * np.arange(3))
    assert len(traces) == 1
    g = sw.grad(lambda p: p(x).sum())(sw.tree_util.Partial(scale, 2.0))
    assert isinstance(g, sw.tree_util.Partial) and float(g.args[0]) == 3.0
    out = sw.vmap(lambda p: p(2.0))(sw.tree_util.Partial(scale, x))
    np.testing.assert_array_equal(out, 2 * np.arange(3))
    made = sw.jit(lambda w: sw.tree_util.Partial(scale, w))(x)  # as a result
    np.testing.assert_array_equal(made(2.0), 2 * np.arange(3))


# --------------------------------------------------------------------------------------- errors


class Bare:
    pass


@dataclasses.dataclass
class Fields:
    x: int
    y: int


class Streamed:
    """A container whose entries are an iterator."""

    def __init__(self, *entries):
        self.entries = entries


for library in (sw, jax):
    library.tree_util.register_pytree_node(
        Streamed, lambda s: (iter(s.entries), None), lambda _, entries: Streamed(*entries)
    )


def two(x, y):
    return x


ERRORS = """
t.map(two, {"a": [1, (2, 3)]}, {"a": [1, [2, 3]]})
    ValueError: tree.map: tree is not a prefix of rest[0]: ['a'][1] is a tuple of 2 in tree and a
    list of 2 in rest[0].
t.map(two, {"a": 1}, {"a": 1}, {"a": 1, "b": 2})
    ValueError: tree.map: tree is not a prefix of rest[1]: only rest[1] has ['b'].
t.map(two, [1, {}], [1, 2])
    ValueError: tree.map: tree is not a prefix of rest[0]: [1] is an empty dict in tree and a leaf
    in rest[0].
t.map(two, Point(1, None), Point(1, 2))
    ValueError: tree.map: tree is not a prefix of rest[0]: .y is None in tree and a leaf in
    rest[0]. For None as a leaf, pass is_leaf=lambda x: x is None.
t.map(two, [Streamed(1, 2)], [3])
    ValueError: tree.map: tree is not a prefix of rest[0]: [0] is a Streamed in tree and a leaf in
    rest[0].
t.map(two, [Streamed(1)], [Streamed(1, 2)])
    ValueError: tree.map: tree is not a prefix of rest[0]: only rest[0] has [0][<flat index 1>].
t.map_with_path(two, [[1]], [[1, 2]])
    ValueError: tree.map_with_path: tree is not a prefix of rest[0]: only rest[0] has [0][1].
t.broadcast([1, 2], [1])
    ValueError: tree.broadcast: prefix_tree is not a prefix of full_tree: only prefix_tree has [1].
t.transpose(t.structure([0, 0]), t.structure((0, 0)), [(1, 2), (3, [4])])
    TypeError: tree.transpose: the subtree at [1] has the structure (*, [*]), but the inner
    structure is (*, *).
t.transpose(t.structure([0, 0]), None, [1])
    TypeError: tree.transpose: outer_treedef is not the outer part of the tree: only outer_treedef
    has [1].
t.reduce(two, [])
    TypeError: tree.reduce: the tree has no leaves; pass an initializer, which is returned in that
    case.
t.reduce_associative(two, None)
    TypeError: tree.reduce_associative: the tree has no leaves; pass the identity, which is
    returned in that case.
u.register_dataclass(Fields, ["x"], [])
    ValueError: tree_util.register_dataclass: fields of Fields are neither in data_fields nor in
    meta_fields: y. List those to be rebuilt from their defaults in drop_fields.
u.register_dataclass(Fields, ["x", "y", "z"], [])
    ValueError: tree_util.register_dataclass: __init__ of Fields does not accept the fields: z. Fields
    that it does not take belong in drop_fields.
u.register_dataclass(Fields, ["x", "y"], ["y"])
    ValueError: tree_util.register_dataclass: fields of Fields are both in data_fields and in
    meta_fields: y.
u.register_dataclass(Fields, meta_fields=["y"])
    TypeError: tree_util.register_dataclass: got meta_fields without data_fields; list all fields
    in the two, or leave both out for a dataclass.
u.register_dataclass(Bare)
    TypeError: tree_util.register_dataclass: Bare is not a dataclass, so its fields are unknown:
    pass data_fields and meta_fields.
u.register_pytree_node_class(Bare)
    AttributeError: tree_util.register_pytree_node_class: Bare has no tree_flatten; it needs the
    methods tree_flatten and tree_unflatten.
u.flatten_one_level(3)
    ValueError: tree_util.flatten_one_level: expected a container, but objects of type int are
    leaves.
"""


@failing_calls(ERRORS)
def test_errors(call, error):
    assert raised(eval, call, globals(), {"t": sw.tree, "u": sw.tree_util}) == error
    if "tree.transpose" not in error:  # jax compares only the numbers of leaves
        theirs = raised(eval, call, globals(), {"t": jax.tree, "u": jax.tree_util})
        assert theirs.partition(":")[0] == error.partition(":")[0]


def test_errors_of_our_own():
    message = (
        "tree.transpose: outer_treedef has no leaves, so the inner structure cannot be inferred "
        "from the tree: pass inner_treedef."
    )
    with pytest.raises(ValueError) as error:
        sw.tree.transpose(sw.tree.structure([]), None, [])
    assert str(error.value) == message
    sw.tree_util.register_static(Bare)
    with pytest.raises(ValueError) as error:
        sw.tree_util.register_static(Bare)
    assert str(error.value) == (
        f"{__name__}.Bare is already a pytree container: a class can be registered only once."
    )
