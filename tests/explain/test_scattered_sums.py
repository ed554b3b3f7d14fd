"""All-reduces of which each device keeps its part count as reduce-scatters on other machines."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
SPLIT, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
W, X = [sw.ShapeDtypeStruct(s, np.float32, sharding=SPLIT) for s in ((64, 64), (128, 64))]


def one(w, x):
    return (jnp.tanh(x @ sw.lax.with_sharding_constraint(w, WHOLE)) ** 2).sum()


def two(ws, x):
    return one(ws[0], x) + one(ws[1], x * 2)


@pytest.mark.parametrize(("f", "w", "sums"), [(one, W, 1), (two, (W, W), 2)])
def test_gradients_of_split_weights(f, w, sums):
    step = sw.jit(sw.grad(f), out_shardings=SPLIT)
    there = sw.explain(step, machine="h100")(w, X)
    assert there.count("all-reduce") == 0
    assert there.bytes("reduce-scatter") == sums * 64 * 64 * 4
    assert {row.op for row in there.communication if row.kind == "reduce-scatter"} == {
        "dot_general"
    }
    here = sw.explain(step)(w, X)
    assert here.count("reduce-scatter") == 0
    assert here.bytes("all-reduce") == there.bytes("reduce-scatter")


def test_sums_that_are_needed_whole():
    def both(w, x):
        g = sw.grad(one)(w, x)
        return g, sw.lax.with_sharding_constraint(g * 2, WHOLE)

    report = sw.explain(sw.jit(both, out_shardings=(SPLIT, WHOLE)), machine="h100")(W, X)
    assert report.count("all-reduce") == 1 and report.count("reduce-scatter") == 0
