"""Sharding rules: strings and objects, as Shardy attributes, and their errors."""

import copy
import pickle

import jax.experimental.custom_partitioning as theirs
import numpy as np
import pytest
from jax._src.custom_partitioning_sharding_rule import (
    sdy_sharding_rule_to_mlir,
    str_to_sdy_sharding_rule,
)

from shardwise._src.partitioning.sharding_rules import fitted, probed, rule_of
from shardwise._src.runtime.compiler.shardy import in_context
from shardwise._src.types.array_type import array_type
from shardwise.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
)
from tests.helpers.errors import messages


def types_of(*shapes):
    return [array_type(shape, np.dtype("float32")) for shape in shapes]


def attribute(rule, ins, outs):
    return fitted(rule, types_of(*ins), types_of(*outs), "f").attribute()


def of_jax(text, ins, outs, **kwargs):
    """The attribute that jax makes of a rule."""
    from jaxlib.mlir import ir

    with in_context():
        types = [
            [ir.RankedTensorType.get(s, ir.F32Type.get()) for s in side] for side in (ins, outs)
        ]
        rule = str_to_sdy_sharding_rule(text, **kwargs)
        return str(sdy_sharding_rule_to_mlir(rule, *types))


MANY = " ".join(f"f{i}" for i in range(24))


@pytest.mark.parametrize(
    ("text", "ins", "outs", "kwargs"),
    [
        ("b i, i o -> b o", [(8, 4), (4, 2)], [(8, 2)], {"reduction_factors": ("i",)}),
        ("... i -> ... i", [(8, 4, 2)], [(8, 4, 2)], {"need_replication_factors": ("i",)}),
        ("...i -> ...i", [(8,)], [(8,)], {"permutation_factors": ("i",)}),
        ("... (h d) -> ... h d", [(5, 12)], [(5, 4, 3)], {}),
        ("(h d) e -> d (h e)", [(12, 5)], [(4, 15)], {"h": 3}),
        ("(a b) -> (b a)", [(12,)], [(12,)], {"a": 3, "b": 4, "permutation_factors": ("b",)}),
        ("...1 i, ...2 j -> ...2 i", [(3, 4), (5, 6)], [(5, 4)], {}),
        (" -> ", [()], [()], {}),
        ("i,->i,", [(4,), ()], [(4,), ()], {}),
        ("i, i -> i", [(8,), (4,)], [(4,)], {}),
        (
            f"{MANY} -> {MANY}",
            [tuple([2] * 24)],
            [tuple([2] * 24)],
            {"reduction_factors": ("f3", "f19", "f20")},
        ),
    ],
)
def test_rules_are_those_of_jax(text, ins, outs, kwargs):
    assert attribute(rule_of(text, **kwargs), ins, outs) == of_jax(text, ins, outs, **kwargs)


def test_objects_are_strings():
    rule = SdyShardingRule(
        (ArrayMapping(BATCHING, CompoundFactor("h", "d")),), ((BATCHING, "h", "d"),)
    )
    assert rule == rule_of("... (h d) -> ... h d")
    assert hash(rule) == hash(rule_of("...(h d)->...h d"))
    assert repr(rule) == "SdyShardingRule('... (h d) -> ... h d')"
    assert rule != rule_of("... (h d) -> ... h d", reduction_factors=("h",))
    assert attribute(rule, [(2, 12)], [(2, 4, 3)]) == of_jax(
        "... (h d) -> ... h d", [(2, 12)], [(2, 4, 3)]
    )
    assert isinstance(rule.operand_mappings[0], tuple)
    assert pickle.loads(pickle.dumps(rule)) == rule == copy.deepcopy(rule)
    assert ArrayMapping("i", "j") == theirs.ArrayMapping("i", "j")


def test_a_mapped_dimension():
    rule = fitted(
        rule_of("b i, i o -> b o", reduction_factors=("i",)),
        types_of((8, 4), (4, 2)),
        types_of((8, 2)),
        "f",
    )
    assert rule.batched(3, (True, False)).attribute() == (
        "#sdy.op_sharding_rule<([i, j, k], [k, l])->([i, j, l]) {i=3, j=8, k=4, l=2} "
        "reduction={k}, custom>"
    )
    assert rule.batched(3, (False, True)).attribute() == (
        "#sdy.op_sharding_rule<([i, j], [k, j, l])->([k, i, l]) {i=8, j=4, k=3, l=2} "
        "reduction={j}, custom>"
    )


def test_rules_from_what_follows_what():
    found = probed(
        [(0, 0, [(0, 1)]), (0, 1, [(0, 0)]), (1, 0, [(0, 1)])],
        types_of((8, 4), (8,)),
        types_of((4, 8)),
    )
    assert found.attribute() == (
        "#sdy.op_sharding_rule<([i, j], [i])->([j, i]) {i=8, j=4}, custom>"
    )
    both = probed([(0, 0, [(0, 0)]), (0, 1, [(0, 0)])], types_of((4, 4)), types_of((4,)))
    assert both.attribute() == "#sdy.op_sharding_rule<([i, j])->([i]) {i=4, j=4}, custom>"


test_wrong_rules = messages(
    """
rule_of("i")
    ValueError: sharding_rule 'i' must have one -> between operands and results, as in 'b i, i o ->
    b o'.
rule_of("i -> i -> i")
    ValueError: sharding_rule 'i -> i -> i' must have one -> between operands and results, as in 'b
    i, i o -> b o'.
rule_of("(i -> i")
    ValueError: sharding_rule '(i -> i': parentheses are not balanced, or are within others.
rule_of("((i j)) -> i")
    ValueError: sharding_rule '((i j)) -> i': parentheses are not balanced, or are within others.
rule_of("(i) -> i")
    ValueError: sharding_rule '(i) -> i': parentheses must have two factors or more in them.
rule_of("i ... -> i")
    ValueError: sharding_rule 'i ... -> i': an ellipsis may only be the first of an array.
rule_of("1i -> i")
    ValueError: sharding_rule '1i -> i': '1i' is not a factor name: a letter followed by letters,
    digits and underscores.
rule_of("i.j -> i")
    ValueError: sharding_rule 'i.j -> i': '.' is not a factor name: a letter followed by letters,
    digits and underscores.
rule_of("i -> i", j=3)
    ValueError: SdyShardingRule('i -> i'): the factor 'j' has a size, but is in no mapping.
rule_of("i -> i", i=3)
    ValueError: SdyShardingRule('i -> i'): the factor 'i' has a size, but is a full dimension,
    whose size is known.
rule_of("(i j) -> i")
    ValueError: SdyShardingRule('(i j) -> i'): the factor 'j' is only used within compound factors:
    pass its size, j=….
rule_of("(i j) -> i", j="3")
    ValueError: SdyShardingRule('(i j) -> i'): the factor 'j' has the size '3', which is not a
    positive integer.
rule_of("i -> i", reduction_factors="i")
    ValueError: SdyShardingRule('i -> i'): reduction_factors must be a tuple of names; got 'i' of
    type str.
rule_of("i -> i", reduction_factors=("j",))
    ValueError: SdyShardingRule('i -> i'): 'j' of reduction_factors is in no mapping.
rule_of("i -> i", reduction_factors=("i", "i"))
    ValueError: SdyShardingRule('i -> i'): 'i' is of reduction_factors twice; a factor may be
    listed only once.
rule_of("i -> i", reduction_factors=("i",), permutation_factors=("i",))
    ValueError: SdyShardingRule('i -> i'): 'i' is of permutation_factors and of reduction_factors;
    a factor may be listed only once.
""",
    globals(),
)


test_wrong_objects = messages(
    """
CompoundFactor("i")
    ValueError: CompoundFactor takes two factors or more; got 1 factor. Write a single factor on
    its own.
CompoundFactor("i", BATCHING)
    ValueError: CompoundFactor: '…' is not a factor name: a letter followed by letters, digits and
    underscores.
ArrayMapping(3)
    ValueError: ArrayMapping: a factor must be a string; got 3 of type int.
ArrayMapping("i", BATCHING)
    ValueError: ArrayMapping('i', '…'): an ellipsis may only be the first entry.
""",
    globals(),
)


test_rules_that_do_not_fit = messages(
    """
attribute(rule_of("i -> i"), [(2,), (3,)], [(2,)])
    ValueError: custom_partitioning function f: sharding_rule 'i -> i' is for 1 operand, but there
    are 2.
attribute(rule_of("i -> i, j"), [(2,)], [(2,)])
    ValueError: custom_partitioning function f: sharding_rule 'i -> i, j' is for 2 results, but
    there is 1.
attribute(rule_of("... i -> i"), [()], [(2,)])
    ValueError: custom_partitioning function f: sharding_rule '... i -> i': operand 0 of type f32[]
    has 0 dimensions, and its mapping '... i' 2 entries.
attribute(rule_of("... i, ... i -> i"), [(3, 2), (2,)], [(2,)])
    ValueError: custom_partitioning function f: sharding_rule '... i, ... i -> i': operand 1 of
    type f32[2] has 0 dimensions for the ellipsis, which represents 1 elsewhere.
attribute(rule_of("... i, ... i -> i"), [(3, 2), (4, 2)], [(2,)])
    ValueError: custom_partitioning function f: sharding_rule '... i, ... i -> i': operand 1 of
    type f32[4,2] has 4 elements along dimension 0, of the ellipsis, which has 3 elsewhere.
attribute(rule_of("(i j) -> i j"), [(7,)], [(2, 3)])
    ValueError: custom_partitioning function f: sharding_rule '(i j) -> i j': a dimension of 7
    elements of f32[7] is factored as (i j), but i=2 × j=3 is 6.
""",
    globals(),
)
