"""Dimensions sharded over axes in another order than the mesh's: XLA error `turned-axes`."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import AxisType, Mesh, NamedSharding, reshard
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

ANY = P.UNCONSTRAINED
PLACES = [
    (a, b, c)
    for a in (P(("y", "x")), P("x", "y"), P())
    for b in (P(("y", "x"), ANY), P(ANY, ("y", "x")), P(("y", "x")), P("x", "y"))
    for c in (P(("y", "x")), P(None, ("y", "x")), P("x", "y"))
]


def cube(types):
    return Mesh(np.array(sw.devices()).reshape(2, 2, 2), ("x", "y", "z"), axis_types=types)


@pytest.mark.parametrize(("given", "within", "wanted"), everyday(PLACES, 2))
def test_values_go_from_place_to_place(given, within, wanted):
    mesh = Mesh(np.array(sw.devices()[:6]).reshape(3, 2), ("x", "y"))
    given, within, wanted = [NamedSharding(mesh, spec) for spec in (given, within, wanted)]
    x = np.arange(72, dtype=np.float32).reshape(12, 6)

    def f(x):
        return lax.with_sharding_constraint(3 * x, within)[::-1]

    found = sw.jit(f, in_shardings=given, out_shardings=wanted)(x)
    assert found.sharding == wanted
    np.testing.assert_array_equal(found, 3 * x[::-1])


def test_of_explicit_axes_beside_auto_ones():
    mesh = cube((AxisType.Explicit, AxisType.Explicit, AxisType.Auto))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    held = sw.device_put(x, NamedSharding(mesh, P(("y", "x"), None)))
    found = sw.jit(lambda x: reshard(2 * x, P("x", "y")))(held)
    assert sw.typeof(found).str_short(True) == "f32[8@x,8@y]"
    np.testing.assert_array_equal(found, 2 * x)


def test_with_sums_that_are_left():
    mesh = cube((AxisType.Explicit,) * 3)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    a, b = [sw.device_put(x, NamedSharding(mesh, s)) for s in (P(("z", "y"), "x"), P("x", None))]
    left = P(("z", "y"), unreduced={"x"})
    sums = sw.jit(lambda a, b: jnp.matmul(a, b, out_sharding=left))(a, b)
    assert sw.typeof(sums).str_short(True) == "f32[8@(z,y),8]{U:x}"
    found = sw.jit(lambda c: reshard(c, P(("z", "y"))))(sums)
    np.testing.assert_array_equal(found, x @ x)
