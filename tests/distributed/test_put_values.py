"""Host values that processes put on devices: which of them are cached, and what is sent."""

import numpy as np

from shardwise._src.coordination.coordinator_server import LINE, encoded
from shardwise._src.distributed.put_values import BLOCK, CACHED, COUNT, Put, Values, value_of


def put(*arrays):
    found = Put()
    for array in arrays:
        found.add(value_of(np.asarray(array), None))
    return found


def test_checksums_are_of_all_values_in_order():
    a, b = np.arange(3), np.arange(3.0)
    sums = [found.checksum for found in (put(), put(a), put(a, b), put(b, a), put(a, b, a[:0]))]
    assert sums[0] == 0 and len({*sums[:4]}) == 4 and sums[4] == sums[2]
    assert put(a).checksum == put(a.copy()).checksum != put(a + 1).checksum
    many = put(*[a] * (COUNT + 1), b)
    assert many.checksum != put(*[a] * (COUNT + 1), a).checksum


def test_large_values_before_one_launch_take_no_memory():
    found = put(*[np.full(1 << 20, i, np.uint8) for i in range(40)])
    assert found.nbytes == CACHED == sum(value.nbytes for value in found.values)
    values = Values()
    values.add("0,1", 1, found)
    assert len(values.answer("0,1", 1, None)["about"]) == 40
    assert values.answer("0,1", 1, (39, 0)) == {"first": 0, "texts": [], "bytes": ""}
    assert values.answer("0,1", 1, (1, 2))["texts"] == ["1"] * BLOCK


def test_answers_about_many_values_are_messages():
    found, large = Put(), value_of(np.zeros(1 << 20, np.uint8), None)
    for _ in range(2000):
        found.add(large)
    values = Values()
    values.add("0,1", 1, found)
    assert len(encoded(values.answer("0,1", 1, None))) < LINE
    small = put(*[0] * (2 * COUNT))
    values.add("0,1", 2, small)
    assert len(values.answer("0,1", 2, None)["about"]) == COUNT


def test_a_value_that_is_evicted_between_two_questions():
    values = Values()
    for number in range(20):
        values.add("0,1", number, put(np.full(1 << 20, number, np.uint8)))
    assert values.answer("0,1", 0, None) == {"about": []}
    assert values.answer("0,1", 0, (0, 0)) == {"first": 0, "texts": [], "bytes": ""}
