"""`assert_comm` and `explain.diff`."""

import json

import numpy as np
import pytest

import shardwise as sw
from shardwise import explain
from shardwise.explain import assert_comm
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.meshes import MESH


def struct(shape, *spec):
    return sw.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def product(a, b):
    return a @ b


SPLIT = struct((8, 16), None, "x"), struct((16, 8), "x")
LINE = f"{__file__}:{product.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize(
    "limits",
    [
        {"all_gather": 0}, {"all_reduce": 1}, {"all_reduce": "<=1"}, {"all_reduce": ">0"},
        {"all_reduce_bytes": "256"}, {"all_reduce_bytes": "< 1 KiB", "collectives": 1},
        {"bytes": ">=0.25KiB"}, {"all_reduce_bytes": "<1kb"}, {},
    ],
    ids=str,
)  # fmt: skip
def test_limits_that_are_kept(limits):
    assert assert_comm(product, **limits)(*SPLIT).bytes() == 256


def test_limits_that_are_not():
    assert message(
        AssertionError,
        lambda: assert_comm(product, all_gather=1, all_reduce_bytes="<200B", all_reduce=1)(*SPLIT),
    ) == (
        "product does not communicate as expected: all_gather is 0; expected 1; "
        "all_reduce_bytes is 256; expected '<200B'. Its communication:\n"
        f"  {LINE}: all-reduce over x, 1 x, 256 B: dot_general(f32[8,16@x], f32[16@x,8]) → "
        "f32[8,8]: sums over dimension 1 of operand 0, which is sharded over 'x'"
    )


def test_of_a_program_that_is_silent():
    assert message(
        AssertionError,
        lambda: assert_comm(product, all_reduce=">0")(struct((8, 16), "x"), struct((16, 8))),
    ) == (
        "product does not communicate as expected: all_reduce is 0; expected '>0'. "
        "Its communication: none"
    )


def test_loops_of_unknown_length_keep_no_upper_limit():
    def halved(x):
        return sw.lax.while_loop(lambda v: v.sum() > 1, lambda v: v / v.sum(), x)

    assert_comm(halved, all_reduce=">0")(struct((8,), "x"))
    with pytest.raises(AssertionError) as caught:
        assert_comm(halved, all_reduce="<9")(struct((8,), "x"))
    assert ("all_reduce is unknown, because a loop's length is; expected '<9'.") in str(
        caught.value
    )


def test_unknown_limits():
    assert message(TypeError, assert_comm, product, all_gathers=0) == (
        "assert_comm: unknown limit 'all_gathers'; limits are 'all_reduce', 'all_gather', "
        "'reduce_scatter', 'all_to_all', 'ragged_all_to_all', 'collective_permute', "
        "'collective_broadcast', 'all_reduce_bytes', 'all_gather_bytes', 'reduce_scatter_bytes', "
        "'all_to_all_bytes', 'ragged_all_to_all_bytes', 'collective_permute_bytes', "
        "'collective_broadcast_bytes', 'collectives' and 'bytes'. Did you mean 'all_gather'?"
    )


@pytest.mark.parametrize("limit", ["many", "<", "4 apples", True, 1.5, "1.2.3"])
def test_limits_that_cannot_be_read(limit):
    assert message(ValueError, assert_comm, product, all_gather=limit) == (
        f"assert_comm: all_gather={limit!r} is not a limit; pass an integer, or a string such as "
        "'<=3' or '<4MiB'."
    )


def test_difference_of_two_shardings():
    before = explain(product)(*SPLIT)
    after = explain(product)(struct((8, 16), "x"), struct((16, 8), None, "x"))
    found = explain.diff(before, after)
    assert [(c.kind, c.count, c.bytes) for c in found.communication] == [
        ("all-gather", (0, 1), (0, 512)), ("all-reduce", (1, 0), (256, 0)),
    ]  # fmt: skip
    data = json.loads(json.dumps(found.to_dict()))
    assert data["bytes"] == [256, 512]
    assert data["peak"] == [before.memory.peak, after.memory.peak]


def test_difference_as_text():
    before = explain(product)(*SPLIT)
    after = explain(product)(struct((8, 16), "x"), struct((16, 8)))
    lines = str(explain.diff(before, after)).splitlines()
    assert lines[:2] == [
        "product on 8 devices → product on 8", "  communicated per device  256 B → 0 B"
    ]  # fmt: skip
    assert lines[-1] == (f"  - all-reduce over x: 256 B → 0 B, 1 → 0 x, dot_general at {LINE}")
    assert str(explain.diff(before, before)).endswith("  the same communication")
