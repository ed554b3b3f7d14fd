"""Which part of a global array is process-local data, on types alone: sizes, slices and shards."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from shardwise._src.transfers import parts
from shardwise.sharding import Mesh, NamedSharding, Sharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message as refused


@dataclass(frozen=True)
class _Client:
    process_index: int = 0


@dataclass(frozen=True)
class _Device:
    """A device as types see it, of any process; this process is process 0."""

    id: int
    process_index: int
    client: _Client = field(default_factory=_Client)


def over_processes(grid, spec):
    """A sharding over devices, given by their processes."""
    devices = np.empty(np.shape(grid), object)
    for i, at in enumerate(np.ndindex(*devices.shape)):
        devices[at] = _Device(i, grid[at] if isinstance(grid, np.ndarray) else grid[at[0]])
    return NamedSharding(Mesh(devices, ("x", "y")[: devices.ndim]), spec)


def inferred(sharding, local, asked=None):
    shape = parts.global_shape(sharding, local, asked)
    return shape, parts.local_offsets(sharding, local, shape)


HALVES = over_processes([0, 0, 1, 1], P("x"))
APART = over_processes([0, 1, 0, 1], P("x"))
OTHERS = over_processes([1, 0, 0, 1, 1, 0, 1, 1], P("x"))
GRID = over_processes(np.array([[0, 1], [0, 1]]), P("x", "y"))


def test_the_global_shape_follows_from_the_share_of_a_process():
    assert inferred(HALVES, (4, 3)) == ((8, 3), [{0: 0, 2: 2}, None])
    assert inferred(APART, (4, 3)) == ((8, 3), [{0: 0, 4: 2}, None])
    assert inferred(OTHERS, (6,)) == ((16,), [{2: 0, 4: 2, 10: 4}])
    assert inferred(GRID, (4, 3)) == ((4, 6), [None, {0: 0}])
    assert inferred(HALVES.with_spec(P()), (4, 3)) == ((4, 3), [None, None])
    assert inferred(HALVES, (0, 3)) == ((0, 3), [None, None])


def test_a_given_global_shape_may_leave_dimensions_open():
    assert inferred(GRID, (4, 3), (None, 6)) == ((4, 6), [None, {0: 0}])
    assert inferred(GRID, (4, 6), (None, 6)) == ((4, 6), [None, None])  # all of the columns
    assert inferred(GRID, (4, 3), (4, None)) == ((4, 6), [None, {0: 0}])
    last = over_processes([1, 1, 0, 0], P("x"))
    assert inferred(last, (4,), (10,)) == ((10,), [{6: 0, 9: 3}])  # shards of 3, 3, 3 and 1
    assert inferred(last, (1,), (5,)) == ((5,), [{4: 0}])  # shards of 2, 2, 1 and 0
    assert inferred(APART, (6,), (10,))[1] == [{0: 0, 6: 3}]


def test_slices_that_are_apart_are_adjacent_in_the_local_data():
    shape, (offsets,) = inferred(OTHERS, (6,))
    values, local = np.arange(16), np.array([2, 3, 4, 5, 10, 11])
    for device, index in OTHERS.addressable_devices_indices_map(shape).items():
        assert device.process_index == 0
        here = parts.local_slice(index[0], offsets, 16)
        np.testing.assert_array_equal(local[here], values[index])


@pytest.mark.parametrize(
    ("sharding", "local", "asked", "message"),
    [
        (
            HALVES,
            (3, 3),
            (8, 3),
            "dimension 0 has size 3; expected 8, the global size, or 4, what the "
            "devices of this process hold under NamedSharding(mesh=Mesh('x': 4), spec=P('x')).",
        ),
        (
            HALVES,
            (4, 2),
            (8, 3),
            "dimension 1 has size 2; expected 3, the global size, or 3, what the "
            "devices of this process hold under NamedSharding(mesh=Mesh('x': 4), spec=P('x')).",
        ),
        (HALVES, (4, 3), (8,), "global_shape (8,) has 1 dimension, the data 2 dimensions."),
        (
            HALVES,
            (3, 3),
            None,
            "the global size of dimension 0 cannot be inferred from 3 elements on "
            "2 of 4 shards: for size 6, these shards would have 4. Pass global_shape.",
        ),
    ],
)
def test_local_data_of_no_possible_size_is_refused(sharding, local, asked, message):
    assert refused(ValueError, lambda: inferred(sharding, local, asked)) == message


def test_parts_are_those_of_the_devices_of_this_process():
    found = parts.distinct_parts(OTHERS, (16,))
    assert [(p.shape, len(p.devices)) for p in found] == [((2,), 1)] * 3
    whole = parts.distinct_parts(OTHERS.with_spec(P()), (16,))
    assert [(p.shape, len(p.devices)) for p in whole] == [((16,), 3)]
    assert isinstance(OTHERS, Sharding) and not OTHERS.is_fully_addressable
