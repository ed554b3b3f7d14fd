"""`PositionalSharding` against the NumPy array of device sets that it represents."""

import copy
import pickle

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings

import shardwise as sw
from shardwise._src.types.tiling import tile_slices
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec, PositionalSharding

DEVICES = jax.devices()[:8]
SHAPES = [(8,), (4, 2), (2, 2, 2), (1, 8), (2, 1, 4)]


def start():
    """(the sharding, the array of sets that it represents)"""
    return PositionalSharding(DEVICES), np.array([frozenset([d]) for d in DEVICES], object)


def united(grid, axis, keepdims):
    """The array with the unions of the sets along an axis."""
    union = np.frompyfunc(frozenset.union, 2, 1)
    axes = tuple(range(grid.ndim)) if axis is None else (axis,)
    for a in sorted(axes, reverse=True):
        grid = union.reduce(grid, axis=a, keepdims=keepdims)
    return np.asarray(grid, object)


@st.composite
def histories(draw):
    """A sharding after some method calls, and the array after the same ones."""
    sharding, grid = start()
    for _ in range(draw(st.integers(0, 4))):
        method = draw(st.sampled_from(["reshape", "transpose", "T", "replicate"]))
        if method == "reshape":
            wanted = draw(st.sampled_from([s for s in SHAPES if np.prod(s) == grid.size] + [(-1,)]))
            sharding, grid = sharding.reshape(*wanted), grid.reshape(wanted)
        elif method == "T":
            sharding, grid = sharding.T, grid.T
        elif method == "transpose":
            axes = draw(st.permutations(range(grid.ndim)))
            sharding, grid = sharding.transpose(axes), grid.transpose(axes)
        elif grid.ndim:
            axis = draw(st.one_of(st.none(), st.integers(-grid.ndim, grid.ndim - 1)))
            keep = draw(st.booleans())
            sharding = sharding.replicate(axis, keepdims=keep)
            grid = united(grid, axis if axis is None else axis % grid.ndim, keep)
    return sharding, grid


@settings(max_examples=300)
@given(histories(), st.data())
def test_parts_go_to_the_sets_of_the_grid(history, data):
    sharding, grid = history
    assert (sharding.shape, sharding.ndim) == (grid.shape, grid.ndim)
    assert sharding.devices == tuple(DEVICES)
    assert sharding.is_fully_replicated == (grid.size == 1)
    shape = tuple(data.draw(st.integers(0, 9)) for _ in grid.shape)
    index_map = sharding.devices_indices_map(shape)
    for place, holders in np.ndenumerate(grid):
        slices = (tile_slices(n, k) for n, k in zip(shape, grid.shape, strict=True))
        expected = tuple(cut[i] for cut, i in zip(slices, place, strict=True))
        assert [index_map[d] for d in holders] == [expected] * len(holders)


@settings(max_examples=100)
@given(histories(), histories())
def test_equal_grids_are_one_object(one, other):
    same = one[1].shape == other[1].shape and one[1].tolist() == other[1].tolist()
    assert (one[0] is other[0]) == same
    assert pickle.loads(pickle.dumps(one[0].shape)) == one[0].shape
    assert copy.deepcopy(one[0]) is one[0]


def test_pickles():
    sharding = PositionalSharding(sw.devices()).reshape(4, 2).replicate(1)
    assert pickle.loads(pickle.dumps(sharding)) is sharding


def test_grids_of_devices_and_memory_kinds():
    grid = np.array(DEVICES, object).reshape(4, 2)
    assert PositionalSharding(grid) is PositionalSharding(DEVICES).reshape(4, 2)
    assert PositionalSharding(grid).reshape((2, -1)).shape == (2, 4)
    default = DEVICES[0].default_memory().kind
    assert PositionalSharding(grid, memory_kind=default) is PositionalSharding(grid)
    other = PositionalSharding(grid).with_memory_kind("unpinned_host")
    assert (other.memory_kind, other.T.memory_kind) == ("unpinned_host", "unpinned_host")
    assert other.with_memory_kind(None) is PositionalSharding(grid)


def test_prints():
    sharding = PositionalSharding(DEVICES).reshape(4, 2)
    assert repr(sharding) == "PositionalSharding(shape=(4, 2), 8 devices)"
    assert repr(sharding.replicate(1)) == "PositionalSharding(shape=(4, 1), 8 devices, replicas=2)"


def test_arrays_take_part_in_everything():
    x = np.arange(24, dtype="float32").reshape(8, 3)
    rows = PositionalSharding(sw.devices()).reshape(8, 1)
    placed = sw.device_put(x, rows)
    assert placed.sharding is rows
    assert placed.addressable_shards[3].index == (slice(3, 4), slice(None))
    doubled = sw.jit(lambda a: 2 * a, out_shardings=rows)(placed)
    assert doubled.sharding is rows
    np.testing.assert_array_equal(doubled, 2 * x)
    named = NamedSharding(Mesh(sw.devices(), "x"), PartitionSpec("x"))
    assert rows.is_equivalent_to(named, 2)
    for other in (named, rows.replicate(), PositionalSharding(sw.devices()[::-1]).reshape(8, 1)):
        moved = sw.device_put(placed, other)
        assert moved.sharding is other
        np.testing.assert_array_equal(moved, x)
    copies = PositionalSharding(sw.devices()).replicate()  # for any rank
    assert sw.device_put(x, copies).is_fully_replicated


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: PositionalSharding([]),
         "PositionalSharding needs at least one device, got none."),
        (lambda s: PositionalSharding([DEVICES[0]] * 2),
         f"PositionalSharding got the device {DEVICES[0]} twice; each device may occur only once."),
        (lambda s: s.reshape(3, 2),
         "cannot reshape PositionalSharding(shape=(8,), 8 devices) to (3, 2): "
         "it has 8 device sets."),
        (lambda s: s.reshape(4, 2).transpose(0, 0),
         "cannot transpose PositionalSharding(shape=(4, 2), 8 devices) by (0, 0): "
         "that is not a permutation."),
        (lambda s: s.replicate(1),
         "cannot replicate PositionalSharding(shape=(8,), 8 devices) along axis 1: "
         "there is no such axis."),
        (lambda s: s.shard_shape((8, 3)),
         "PositionalSharding(shape=(8,), 8 devices) is for arrays of 1 dimension, "
         "but the array has 2 dimensions."),
    ],
)  # fmt: skip
def test_errors(make, message):
    with pytest.raises(ValueError) as error:
        make(PositionalSharding(DEVICES))
    assert str(error.value) == message


def test_results_have_the_sharding_of_the_first_argument():
    place = PositionalSharding(sw.devices()).reshape(4, 2)
    x = sw.device_put(np.ones((8, 4), np.float32), place)
    for y in sw.jit(lambda x: x)(x), sw.jit(lambda x: x * 2)(x), x + 1:
        assert y.sharding == place
