"""The table of rules: where logical axes go, also with mesh axes missing, and what it rejects."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import named
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import fails
from tests.helpers.meshes import MESH, mesh_of

TABLE = {"batch": "x", "embed": named.stored("x"), "mlp": ("x", "y"), "heads": "y", "seq": None}


def enter(table, mesh=MESH):
    with named.rules(table, mesh):
        pass


def test_a_value_in_use_and_one_that_is_kept():
    with named.rules(TABLE, MESH):
        found = named.shardings({
            "stream": "batch seq embed", "w": named.parameters("embed heads"), "up": "seq mlp",
        })  # fmt: skip
    assert found == {
        "stream": NamedSharding(MESH, P("x", None, None)),
        "w": NamedSharding(MESH, P("x", "y")),
        "up": NamedSharding(MESH, P(None, ("x", "y"))),
    }


def test_the_table_is_a_part_of_keys():
    traced = []

    @sw.jit
    def f(x):
        traced.append(1)
        return named.axes(snp.sin(x), "a b")

    x = np.ones((8, 4), np.float32)
    specs = []
    for table in ({"a": "x", "b": None}, {"a": None, "b": "y"}, {"a": "x", "b": None}):
        with named.rules(table, MESH):
            specs.append(f(x).sharding.spec)
    assert [spec.dims(2) for spec in specs] == [(("x",), ()), ((), ("y",)), (("x",), ())]
    assert len(traced) == 2
    assert f(x).sharding.is_fully_replicated  # without rules nothing is sharded


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_axes_of_either_type(kind):
    mesh = mesh_of(4, 2, types=(kind, kind))
    with named.rules({"a": "x", "b": "y"}, mesh):
        y = sw.jit(lambda x: named.axes(x + 1, "a b"))(np.zeros((8, 4), np.float32))
    assert y.sharding.spec.dims(2) == (("x",), ("y",))
    explicit = kind is AxisType.Explicit
    assert sw.typeof(y).str_short(True) == ("f32[8@x,4@y]" if explicit else "f32[8,4]")
    np.testing.assert_array_equal(y, np.ones((8, 4)))


def test_axes_of_both_types_in_one_mesh():
    mesh = mesh_of(4, 2, types=(AxisType.Explicit, AxisType.Auto))
    with named.rules({"a": "x", "b": "y"}, mesh):
        y = sw.jit(lambda x: named.axes(x + 1, "a b"))(np.zeros((8, 4), np.float32))
    assert y.sharding.spec.dims(2) == (("x",), ("y",))
    assert sw.typeof(y).str_short(True) == "f32[8@x,4]"


@pytest.mark.parametrize("manual", [{"x", "y"}, {"x"}])
def test_inside_of_a_shard_map_words_go_over_the_other_axes(manual):
    def part(x):
        assert x.shape == (2, 4)
        return named.axes(snp.cos(x), "a b")

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    with named.rules({"a": "x", "b": "y"}, MESH):
        f = sw.jit(sw.shard_map(part, mesh=MESH, in_specs=P("x"), out_specs=P("x"),
                                axis_names=manual))  # fmt: skip
        y = f(x)
        assert ("sharding_constraint" in f.lower(x).as_text()) == (manual == {"x"})
    np.testing.assert_allclose(y, np.cos(x), rtol=1e-6)


def test_a_word_that_the_rules_do_not_know():
    message = (
        "axes: the rules have no entry for 'bacth'. Did you mean 'batch'? They have 'batch', "
        "'embed', 'mlp', 'heads' and 'seq'. Add it to the table: with None, it is replicated."
    )
    with named.rules(TABLE, MESH):
        fails(ValueError, message, named.axes, np.ones((4, 4)), "bacth seq")


def test_two_words_over_one_mesh_axis():
    message = (
        "axes: by the rules, 'batch' and 'mlp' are both sharded over mesh axis 'x', which can "
        "shard only one of them. Choose another for one; or, if it should be sharded only where "
        "parameters and states are stored, use `stored('x')`."
    )
    with named.rules(TABLE, MESH):
        fails(ValueError, message, named.axes, np.ones((4, 4)), "batch mlp")
        named.axes(np.ones((4, 4)), "batch embed")  # in use, `embed` is replicated


@pytest.mark.parametrize(
    "kind, table, mesh, message",
    [
        (ValueError, {"a": "z"}, MESH,
         f"rules: 'a' is sharded over 'z', but the axes of {MESH} are 'x' and 'y'."),
        (ValueError, {"a": named.stored("z")}, MESH,
         f"rules: 'a' is sharded over 'z', but the axes of {MESH} are 'x' and 'y'."),
        (ValueError, {"a b": "x"}, MESH, "rules: a key of the table must be one axis name; got 'a "
         "b'."),
        (TypeError, {"a": 3}, MESH,
         "rules: 'a' must be sharded over a mesh axis, a tuple of them, None or `stored(...)`; got "
         "3 of type int."),
        (TypeError, [("a", "x")], MESH,
         "rules: the table must be a dict such as {'batch': 'data'}; got [('a', 'x')] of type "
         "list."),
        (TypeError, {"a": "x"}, "x", "rules: mesh must be a Mesh; got 'x' of type str."),
    ],
)  # fmt: skip
def test_tables_that_are_refused(kind, table, mesh, message):
    fails(kind, message, enter, table, mesh)


def test_rules_end_with_their_block():
    with named.rules({"a": "x"}, MESH):
        with named.rules({"a": "y"}, MESH):
            assert named.shardings("a").spec == P("y")
        assert named.shardings("a").spec == P("x")
    message = "shardings: no rules are in scope. Enter `with shardwise.named.rules(table, mesh):`."
    fails(ValueError, message, named.shardings, "a")
    assert isinstance(MESH, Mesh)
