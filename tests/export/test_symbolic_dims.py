"""Symbolic dimensions: arithmetic is that of the represented numbers, comparisons are certain."""

import contextlib
import operator

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import export
from shardwise._src.base.errors import InconclusiveDimensionOperation
from shardwise._src.export.symbolic_dims import Dim, max_dim, min_dim
from tests.helpers.errors import fails, message

X = np.ones((2, 3))
A, B, C = export.symbolic_shape("a, b, c")
VARIABLES = {"a": A, "b": B, "c": C}
OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max_dim,
    "min": min_dim,
}
LEAVES = st.one_of(st.sampled_from("abc"), st.integers(-4, 6))
NAMES = st.sampled_from([*OPERATIONS])
TREES = st.recursive(LEAVES, lambda t: st.tuples(NAMES, t, t), max_leaves=7)
SIZES = st.fixed_dictionaries({name: st.integers(1, 9) for name in VARIABLES})


def value(tree, variables):
    if not isinstance(tree, tuple):
        return variables.get(tree, tree)
    name, *sides = tree
    return OPERATIONS[name](*[value(s, variables) for s in sides])


@settings(max_examples=200, deadline=None)
@given(TREES, TREES, SIZES)
def test_arithmetic_and_comparisons_are_those_of_numbers(one, other, sizes):
    try:
        wanted, against = value(one, sizes), value(other, sizes)
        got, than = value(one, VARIABLES), value(other, VARIABLES)
    except (ZeroDivisionError, RecursionError):
        return
    assert (got.at(sizes) if isinstance(got, Dim) else got) == wanted
    text = str(got)
    (again,) = export.symbolic_shape(text, scope=A.scope)
    assert again == got and str(again) == text
    for compare in (operator.ge, operator.gt, operator.le, operator.lt):
        with contextlib.suppress(InconclusiveDimensionOperation):
            assert compare(got, than) == compare(wanted, against)
    if got == than:
        assert wanted == against


@pytest.mark.parametrize("text", [
    "a", "2*b", "a + b", "a*b + 3", "a - 2*b", "a*a*b", "floordiv(a + 1, 2)", "mod(a, b) + 4",
    "max(a, b)", "a*a - a*b", "a^2", "8*a - 8*a + 5", "mod(a, 4) + floordiv(b, 2)*b - a - b*a^2",
])  # fmt: skip
def test_texts_are_read_as_in_jax(text):
    (ours,) = export.symbolic_shape(text)
    (theirs,) = jax.export.symbolic_shape(text)
    assert str(ours) == str(theirs)
    (read,) = jax.export.symbolic_shape(str(ours), scope=getattr(theirs, "scope", None))
    assert read == theirs and export.is_symbolic_dim(ours) == jax.export.is_symbolic_dim(theirs)


def test_constraints_decide():
    given = ["a >= b + 2", "n <= 8", "mod(a, 4) == 0"]
    a, b, n = export.symbolic_shape("(a, b, n)", constraints=given)
    assert a >= b and a - b > 1 and a >= 3 and n < 9 and n >= 1
    assert a % 4 == 0 and (a + 4 * b) // 4 == a // 4 + b
    assert not a < b and not n > 8
    assert (a == b, a == a + 0, a != b) == (False, True, True)
    with pytest.raises(InconclusiveDimensionOperation) as caught:
        assert n > 3
    assert str(caught.value) == (
        "whether n > 3 depends on the sizes of symbolic dimensions. Add a constraint, as "
        "in symbolic_shape(..., constraints=['n >= 4'])."
    )


def test_quotients_of_polynomials():
    assert ((A + 2) * (B + 10) * 3) // (A + 2) == 3 * B + 30
    assert divmod(A * A - B * B, A + B) == (A - B, 0)
    assert divmod(3, A) == (3 // A, 3 % A)
    assert str((A * B + 1) // (A + B)) == "floordiv(a*b + 1, b + a)"


def test_equalities_replace_multiples():
    (a,) = export.symbolic_shape("a", constraints=["mod(a + mod(a, 2), -2) == 0"])
    quotient, rest = divmod(a + a % 2, -2)
    assert rest == 0 and -2 * quotient == a + a % 2
    a, b, c = export.symbolic_shape("a, b, c", constraints=["2*a*b == c"])
    assert 6 * a * b + b == 3 * c + b and str(3 * a * b) == "3*a*b"


@pytest.mark.parametrize("constraints", [
    ["a >= a + 1"], ["a + 1 == a"], ["a >= c + 1", "c >= 4", "a <= d + 2", "d <= 2"],
])  # fmt: skip
def test_constraints_that_cannot_hold(constraints):
    with pytest.raises(ValueError, match="cannot hold for any sizes"):
        export.symbolic_shape("a, c, d", constraints=constraints)


def test_messages():
    fails(
        ValueError,
        "symbolic_shape: 'a, b c': 'b c' is not a dimension: it may contain variable names, "
        "integers, +, -, *, ^, and floordiv, mod, max and min of two dimensions.",
        export.symbolic_shape, "a, b c",
    )  # fmt: skip
    (other,) = export.symbolic_shape("a")
    fails(
        ValueError,
        "the symbolic dimensions a and a have different scopes: create them with one call of "
        "`shardwise.export.symbolic_shape`, or pass `scope`.",
        operator.add, A, other,
    )  # fmt: skip
    for kind in (InconclusiveDimensionOperation, TypeError):  # as Python and NumPy expect
        assert message(kind, range, A) == (
            "an integer is required, but the symbolic dimension a has no value before an "
            "exported function is called. Inside an exported function, use it as the size of a "
            "dimension, or in arithmetic with arrays."
        )
    (spec,) = export.symbolic_args_specs((np.ones((2, 3)),), "a, _")
    assert str(spec) == "ShapeDtypeStruct(shape=(a, 3), dtype=float32)"
    assert export.symbolic_shape("a, _, ...", like=(2, 3, 4))[1:] == (3, 4)
    assert export.symbolic_args_specs((1.0, X), [None, "a, ..."])[1].shape[1:] == (3,)
    same = export.symbolic_args_specs({"x": np.ones((2, 3)), "y": 1.0}, None)
    assert (same["x"].shape, same["y"].shape) == ((2, 3), ())
    assert sw.tree.structure(same) == sw.tree.structure({"x": 0, "y": 0})
