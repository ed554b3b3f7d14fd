"""PartitionSpec: entries, normal form, identity, and printing. jax is the reference."""

import copy
import pickle

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

import shardwise as sw
from shardwise._src.types.partition_spec import UNCONSTRAINED, P, UnreducedKind
from tests.helpers.errors import message, messages
from tests.helpers.threads import at_once

NAMES = ["x", "y", "z", "w"]
ENTRIES = st.one_of(
    st.none(),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES), max_size=3).map(tuple),
    st.lists(st.sampled_from(NAMES), max_size=3),
)


@settings(max_examples=200)
@given(st.lists(ENTRIES, max_size=4), st.lists(ENTRIES, max_size=4))
def test_entries_and_equality_are_those_of_jax(a, b):
    theirs, others = jax.sharding.PartitionSpec(*a), jax.sharding.PartitionSpec(*b)
    assert tuple(P(*a)) == tuple(theirs)
    assert (P(*a) == P(*b)) == (theirs == others)
    assert tuple(P(*a) + P(*b)) == tuple(theirs + others)


def test_equal_specs_are_one_object():
    assert P("x", None) is P("x", None)
    assert P(("x",), ()) is P(["x"], None)
    assert P("x", unreduced={"y"}) is P("x", unreduced=frozenset("y"))
    assert P("x") is not P("x", None)
    assert len({P("x"), P(("x",)), P("x", None)}) == 2


def test_equals_nothing_but_specs():
    assert P("x") != ("x",)
    assert P("x") != "x"
    assert P("x") != P("x", unreduced={"y"})
    assert P("x", reduced={"y"}) != P("x", unreduced={"y"})


def test_is_a_sequence():
    spec = P("x", None, ("a", "b"))
    assert len(spec) == 3
    assert list(spec) == ["x", None, ("a", "b")]
    assert (spec[0], spec[-1], spec[:2]) == ("x", ("a", "b"), ("x", None))
    assert spec.index(None) == 1
    assert spec.count("x") == 1
    assert spec.axes == ("x", "a", "b")
    assert ("c", *spec) == tuple(("c",) + spec)
    assert spec + ("c",) is P("x", None, ("a", "b"), "c")


def test_prints():
    assert repr(P()) == "P()"
    assert repr(P("x", None, ("a", "b"))) == "P('x', None, ('a', 'b'))"
    assert (
        repr(P(P.UNCONSTRAINED, unreduced={"b", "a"})) == "P(UNCONSTRAINED, unreduced={'a', 'b'})"
    )
    assert str(P("x", reduced={"y"})) == "P('x', reduced={'y'})"


def test_update_replaces_parts():
    spec = P("x", unreduced={"y"})
    assert spec.update(partitions=("z",)) is P("z", unreduced={"y"})
    assert spec.update(unreduced=frozenset()) is P("x")


def test_dims_pads_and_flattens():
    spec = P("x", None, ("a", "b"), UNCONSTRAINED)
    assert spec.dims(5) == (("x",), (), ("a", "b"), (), ())
    assert spec.dims(5) is spec.dims(5)
    assert message(ValueError, lambda: P("x", None).dims(1)) == (
        "P('x', None) has 2 entries, but the array has only 1 dimension. "
        "Remove entries from the end of the spec."
    )


@pytest.mark.parametrize("spec", [P(), P("x", None), P(("a", "b"), UNCONSTRAINED, unreduced={"c"})])
def test_copies_and_pickles_are_the_same_object(spec):
    assert pickle.loads(pickle.dumps(spec)) is spec
    assert copy.copy(spec) is spec
    assert copy.deepcopy([spec])[0] is spec


def test_immutable():
    with pytest.raises(AttributeError) as error:
        P("x").partitions = ()
    assert str(error.value) == (
        "cannot assign to 'partitions': a PartitionSpec is immutable; "
        "make a new one with P(...) or spec.update(...)."
    )
    with pytest.raises(AttributeError, match="cannot delete 'reduced'"):
        del P("x").reduced


test_errors = messages(
    """
P({})
    TypeError: a PartitionSpec got {} of type dict; each entry must be an axis name, a tuple of
    axis names, None or P.UNCONSTRAINED.
P(P("x"))
    TypeError: a PartitionSpec got P('x') of type PartitionSpec; each entry must be an axis name, a
    tuple of axis names, None or P.UNCONSTRAINED.
P(("x", None))
    ValueError: the tuple ('x', None) of a PartitionSpec may contain only axis names, got None.
P("x", unreduced="y")
    TypeError: unreduced= of a PartitionSpec takes a set of axis names, got 'y' of type str; write
    unreduced={'x'}.
P(reduced={None})
    ValueError: reduced= of a PartitionSpec may contain only axis names, got None.
P(("x", "y"), unreduced={"x"})
    ValueError: unreduced={'x'} of a PartitionSpec names 'x', over which a dimension is already
    sharded: ('x', 'y'). An axis may be used only once in a spec.
P(unreduced={"a"}, reduced={"a"})
    ValueError: unreduced={'a'} and reduced={'a'} of a PartitionSpec both name 'a'. An axis may be
    used only once in a spec.
""",
    globals(),
)


def test_threads_get_the_same_object():
    names = [f"axis{i}" for i in range(200)]
    made = at_once(lambda: [P(name, (name + "a", name + "b")) for name in names])
    assert all(len(set(map(id, same))) == 1 for same in zip(*made, strict=True))


def test_kinds_of_unreduced_values():
    assert P("x", unreduced={"y"}).unreduced_kind is UnreducedKind.sum
    assert P("x").unreduced_kind is None
    summed = P("x", unreduced={"y"}, unreduced_kind=UnreducedKind.sum)
    assert summed is P("x", unreduced={"y"})
    assert summed.update(unreduced_kind=UnreducedKind.sum) is summed
    assert message(ValueError, P, unreduced_kind=UnreducedKind.sum) == (
        "unreduced_kind=sum of a PartitionSpec requires unreduced axes: add "
        "unreduced={...}, or leave it out."
    )
    assert message(TypeError, P, unreduced={"y"}, unreduced_kind="sum") == (
        "unreduced_kind= of a PartitionSpec takes a sharding.UnreducedKind, got 'sum' of type str."
    )
    largest = P("x", unreduced={"y"}, unreduced_kind=UnreducedKind.max)
    assert largest.unreduced_kind is UnreducedKind.max and largest is not summed
    assert largest.update(unreduced=frozenset()) is P("x")
    assert largest.update(partitions=("x",)) is P() + largest is largest
    assert pickle.loads(pickle.dumps(largest)) is largest is eval(repr(largest), globals())
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    text = (
        "unreduced_kind=max of a PartitionSpec: unreduced axes are for partial "
        "sums; partial maxima are not supported. Leave both out and reduce directly: "
        "`shardwise.numpy.max(x, axis)` also reduces sharded dimensions, and "
        "`shardwise.lax.pmax(x, axis_name)` along a mapped axis."
    )
    assert message(NotImplementedError, sw.NamedSharding, mesh, largest) == text
    with sw.set_mesh(mesh):
        found = message(ValueError, sw.reshard, np.ones(2, np.float32), largest)
        assert found == f"reshard: x: {text}"


def test_no_subclasses():
    with pytest.raises(TypeError, match="cannot be subclassed"):
        type("Mine", (P,), {})
