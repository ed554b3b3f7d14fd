"""Which slices copy their operand: XLA error `shared-reshards`, checked in the lowered text."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import MESH, mesh_of

X = np.zeros((16, 16), np.float32)


def barriers(fun, mesh=MESH, x=X):
    """The number of copies in the program of a function whose argument is sharded along columns."""
    place = sw.sharding.NamedSharding(mesh, P(None, mesh.axis_names))
    text = sw.jit(fun).lower(sw.device_put(x, place)).as_text()
    return text.count("stablehlo.optimization_barrier")


@pytest.mark.parametrize(
    ("fun", "count"),
    [
        (
            lambda x: (x[:, :8], x[:, 1:], x[:, 3:9], x[:, :4]),
            1,
        ),  # no device has equal shards of both
        (lambda x: (x[:, :15], x[:, :15].sum(1)), 1),
        (lambda x: (x[:, :15], x[:, :14]), 2),
        (lambda x: (x[:, :15], x[:, :14], x[:, :15], x[:14, :14]), 3),
        (lambda x: (x[:, :15], x[:, 1:], x[:, 2:]), 2),
        (lambda x: (x[:, ::2], x * 2, x.T, x.reshape(-1)), 0),
        (lambda x: snp.pad(x, 1), 0),
        (lambda x: lax.pad(x, np.float32(0), [(0, 0, 0), (0, -1, 0)]), 1),
    ],
)
def test_a_slice_has_a_copy_of_its_own_if_devices_may_have_the_same_part(fun, count):
    assert barriers(fun) == count


def test_the_number_of_devices_counts():
    assert barriers(lambda x: (x[:, :15], x[:, :14]), mesh_of(2, 1)) == 2
    assert barriers(lambda x: (x[:, :14], x[:, :12]), mesh_of(2, 1)) == 1
    assert barriers(lambda x: (x[:, :14], x[:, :12]), mesh_of(2, 2)) == 2
    odd = np.zeros((16, 17), np.float32)  # over two devices: 9 elements of 17, and 8 of 16 or 15
    place = sw.sharding.NamedSharding(mesh_of(2, 1), P("x"))
    text = sw.jit(lambda x: (x[:, :16], x[:, :15])).lower(sw.device_put(odd, place)).as_text()
    assert text.count("stablehlo.optimization_barrier") == 1


def test_none_on_one_device():
    text = sw.jit(lambda x: (x[:, :15], x[:, :14])).lower(X).as_text()
    assert text.count("stablehlo.optimization_barrier") == 0


def test_a_rotation_has_one_copy_for_both_slices():
    place = sw.sharding.NamedSharding(MESH, P(None, ("x", "y")))
    x = sw.device_put(X, place)
    text = sw.jit(lambda x: snp.roll(x, 1, 1), out_shardings=place).lower(x).compile().as_text()
    assert "collective-permute" in text and "all-gather" not in text


def test_adjacent_slices_are_merged_where_that_is_such_a_slice():
    place = sw.sharding.NamedSharding(MESH, P(None, ("x", "y")))
    x = sw.device_put(X, place)

    def text(end):
        return sw.jit(lambda x: snp.concatenate([x[:, :4], x[:, 4:end]], 1)).lower(x).as_text()

    assert "concatenate" in text(8)
    assert "concatenate" not in text(15) and "[0:16, 0:15]" in text(15)
    assert "concatenate" not in text(16)


def both(v):
    return v.at[:, :15].add(v[:, :15]).at[:, :14].add(v[:, :14])


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: lax.fori_loop(0, 2, lambda i, v: both(v), x),
        lambda x: lax.scan(lambda c, _: (both(c), None), x, None, length=3)[0],
        lambda x: sw.jit(both)(x),
        lambda x: sw.checkpoint(both)(x),
    ],
    ids=["fori_loop", "scan", "jit", "checkpoint"],
)
def test_in_programs_in_programs(fun):
    assert barriers(fun) == barriers(both)


def test_in_branches_each_has_copies():
    def fun(x):
        return lax.cond(x[0, 0] > 0, both, lambda v: v * 2, x)

    assert barriers(fun) == barriers(both) + barriers(lambda x: x[0, 0])


def test_code_of_single_devices_has_none():
    mesh, spec = mesh_of(2, 2), P("x", "y")

    def fun(x):
        return sw.shard_map(
            lambda v: v[:, :15].sum(1) + v[:, :14].sum(1),
            mesh=mesh,
            in_specs=spec,
            out_specs=P(("x", "y")),
        )(x)

    assert barriers(fun, mesh, np.zeros((32, 32), np.float32)) == 0


def test_code_that_is_partitioned_along_some_axes():
    """The part that the partitioner sees is only sharded over two devices."""

    def fun(x):
        return sw.shard_map(
            lambda v: (v[:, :15], v[:, :14]),
            mesh=mesh_of(2, 2),
            in_specs=P("x"),
            out_specs=P("x"),
            axis_names={"x"},
        )(x)

    assert barriers(fun, mesh_of(2, 2)) == 2
