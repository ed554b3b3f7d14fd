"""Windows, gathers and bits that XLA gets wrong: further cases of the errors in docs/values.md."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.helpers.meshes import mesh_of

X = np.arange(1, 9, dtype=np.float32)
STARTS = (-20, -1, 0, 3, 4, 5, 7, 20)


def sliced(x, start, size):
    start = min(max(start + (len(x) if start < 0 else 0), 0), len(x) - size)
    return x[start : start + size]


def two_slices(x, i, j):
    return lax.dynamic_slice(lax.dynamic_slice(x, (i,), (4,)), (j,), (2,))


def gather_and_slice(x, i, j):
    numbers = lax.GatherDimensionNumbers((0,), (), (0,))
    window = lax.gather(x, i[None], numbers, (4,), mode="clip")
    return lax.dynamic_slice(window, (j,), (2,))


def faults(fun, from_end):
    """The starts for which `fun` is wrong. from_end: whether negative starts count from the end."""
    run = sw.jit(fun)
    found = []
    for i, j in itertools.product(STARTS, STARTS):
        first = i if from_end else max(i, 0)
        if not np.array_equal(run(X, np.int32(i), np.int32(j)), sliced(sliced(X, first, 4), j, 2)):
            found.append((i, j))
    return found


@pytest.mark.parametrize(("fun", "from_end"), [(two_slices, True), (gather_and_slice, False)])
def test_windows_of_windows(fun, from_end):
    """XLA error `merged-slices`, on one device."""
    assert faults(fun, from_end) == []


def test_a_window_whose_result_is_split():
    """XLA error `merged-slices`: the slice of each device is merged with the program's slice."""
    mesh = mesh_of(2, 2)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    run = sw.jit(
        lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)),
        out_shardings=NamedSharding(mesh, PartitionSpec("x")),
    )
    placed = sw.device_put(x, NamedSharding(mesh, PartitionSpec("x", "y")))
    for i in range(4):
        first, second = min(i, 1), min(i, 2)
        np.testing.assert_array_equal(
            run(placed, np.int32(i)), x[first : first + 2, second : second + 2]
        )


SUBBYTE = ("int8", "uint8", "int16", "uint16")


@pytest.mark.parametrize("dtype", SUBBYTE)
def test_indices_of_few_bits(dtype):
    """XLA error `narrow-indices`: the process crashed (gather_scatter_handler.cc, "Unsupported
    indices type").
    """
    mesh = mesh_of(2)
    split, whole = (NamedSharding(mesh, PartitionSpec(*p)) for p in ("x", ""))
    numbers = lax.GatherDimensionNumbers((), (0,), (0,))
    taken = sw.jit(lambda x, i: lax.gather(x, i, numbers, (1,), mode="clip"), out_shardings=whole)
    one = sw.jit(lambda x, i: lax.dynamic_slice(x, (i,), (1,)), out_shardings=whole)
    x = sw.device_put(X, split)
    np.testing.assert_array_equal(taken(x, np.array([[1], [5], [9]], dtype)), [2, 6, 8])
    np.testing.assert_array_equal(one(x, np.array(5, dtype)), [6])


@pytest.mark.parametrize("shape", [(2, 4, 4), (3, 4, 5)])
def test_indices_in_unequal_parts(shape):
    """XLA error `uneven-indices`: the program did not compile."""
    mesh = mesh_of(2, 2)
    table = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    places = np.array([0, 1, 1, 0, 1], np.int32)
    run = sw.jit(
        lambda x, i: x[i], out_shardings=NamedSharding(mesh, PartitionSpec(None, "x", None))
    )
    found = run(
        sw.device_put(table, NamedSharding(mesh, PartitionSpec("x", None, "y"))),
        sw.device_put(places, NamedSharding(mesh, PartitionSpec("x"))),
    )
    np.testing.assert_array_equal(found, table[places])


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_bits_of_integers_over_devices(dtype):
    """XLA error `no-xor`: on CPU the program did not compile."""
    x = np.array([[7, 12], [13, 10], [5, 3], [15, 6]], dtype)
    placed = sw.device_put(x, NamedSharding(mesh_of(4), PartitionSpec("x")))
    for name in ("and", "or", "xor"):
        reduce, wanted = getattr(lax, f"reduce_{name}"), getattr(np, f"bitwise_{name}").reduce(x)
        np.testing.assert_array_equal(sw.jit(lambda x, f=reduce: f(x, (0,)))(placed), wanted)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "float32"])
@pytest.mark.parametrize(
    "taken",
    [
        lambda x, j: x[j],
        lambda x, j: lax.dynamic_slice(x, (j,), (1,))[0],
        lambda x, j: snp.take(x, j),
        lambda x, j: lax.dynamic_index_in_dim(x, j, keepdims=False),
    ],
    ids=["index", "slice", "take", "dynamic_index"],
)
def test_an_element_of_a_product(dtype, taken):
    """XLA error `lost-factor`, on one device."""
    x, i, j = np.arange(1, 7, dtype=dtype), np.int32(1), np.int32(2)

    def fun(x, i, j, k):
        window = lax.dynamic_slice(x, (i,), (3,))
        return taken(window * 2, j), taken(window * k, j), taken(3 * window, j)

    assert [int(y) for y in sw.jit(fun)(x, i, j, x[4])] == [8, 20, 12]


@pytest.mark.parametrize("size", [3, 5, 6])
def test_a_product_between_shardings(size):
    """XLA error `lost-factor`, if the partitioner extracts the windows."""
    mesh = mesh_of(3, 2)
    x = np.arange(1, size + 1, dtype=np.int32)
    y, xy, yx = [PartitionSpec(axes) for axes in ("y", ("x", "y"), ("y", "x"))]

    def placed(x, spec):
        return lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    for first, last in ((y, xy), (y, yx), (PartitionSpec("x"), yx)):
        then = PartitionSpec("x") if first is y else y
        found = sw.jit(lambda x, a=first, b=then, c=last: placed(placed(placed(x, a) * 3, b), c))(x)
        np.testing.assert_array_equal(found, x * 3)
