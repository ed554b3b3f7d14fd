"""How processes find the first leaf that differs in large trees; threads represent processes."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwise._src.distributed import host_exchange, tree_comparison


class Talk:
    """Meetings between threads. `sizes`: the bytes of every message."""

    def __init__(self, count):
        self.said, self.sizes = [""] * count, []
        self.barrier = threading.Barrier(count)
        self.rank = threading.local()

    def meeting(self, what, message, timeout=None):
        text = json.dumps(message)
        self.sizes.append(len(text))
        self.said[self.rank.value] = text
        self.barrier.wait(10)
        said = [json.loads(one) for one in self.said]
        self.barrier.wait(10)
        return said


def found_by(trees, monkeypatch):
    """Each process's result for its tree of {index: (holders, value)}, and the `Talk`."""
    talk = Talk(len(trees))
    monkeypatch.setattr(host_exchange, "meeting", talk.meeting)
    types = [(f"in_tree[{i}]", "") for i in range(len(trees[0]))]

    def process(rank):
        talk.rank.value = rank
        rows = [tree_comparison.digests(held) for held in trees[rank]]
        return tree_comparison.first_unequal("assert_equal", None, types, rows)

    with ThreadPoolExecutor(len(trees)) as pool:
        return list(pool.map(process, range(len(trees)))), talk


def whole(*values):
    return [{"": ((), np.float32(value))} for value in values]


def test_messages_stay_small(monkeypatch):
    trees = [whole(*[float(i) for i in range(5000)]) for _ in range(4)]
    found, talk = found_by(trees, monkeypatch)
    assert found == [None] * 4
    assert len(talk.sizes) == 4
    trees[2][4321] = trees[3][4999] = {"": ((), np.float32(-1))}
    found, talk = found_by(trees, monkeypatch)
    text = "processes 0, 1, 3 have 4321.0, process 2 has -1.0"
    assert found == [(4321, text)] * 4
    assert max(talk.sizes) < 4096


def test_of_parts_only_those_with_several_holders_count(monkeypatch):
    def held(rank, mine, both):
        return [
            {
                "[0:2]" if rank else "[2:4]": ((rank,), np.full(2, mine)),
                "[4:6]": ((0, 1), np.full(2, both)),
            }
        ]

    assert found_by([held(0, 1, 5), held(1, 2, 5)], monkeypatch)[0] == [None, None]
    found, _ = found_by([held(0, 1, 5), held(1, 1, 6)], monkeypatch)
    text = "at [4:6], process 0 has [5, 5], process 1 has [6, 6]"
    assert found == [(0, text)] * 2


def test_zeros_of_both_signs_and_nan_are_equal(monkeypatch):
    found, _ = found_by([whole(0.0, np.nan), whole(-0.0, -np.nan)], monkeypatch)
    assert found == [None, None]


@given(st.integers(1, 200), st.sets(st.integers(0, 199)), st.integers(2, 3))
def test_the_first_that_differs_is_found(count, wrong, processes):
    trees = [whole(*range(count)) for _ in range(processes)]
    wrong = sorted(i for i in wrong if i < count)
    for i in wrong:
        trees[-1][i] = {"": ((), np.float32(-1 - i))}
    with pytest.MonkeyPatch.context() as patch:
        found, _ = found_by(trees, patch)
    assert {None if f is None else f[0] for f in found} == {wrong[0] if wrong else None}
