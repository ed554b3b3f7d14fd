"""Names that JAX had in 2022, and what they do here."""

import pickle

import numpy as np
import pytest

import shardwise as sw
from shardwise import prng, random
from shardwise.experimental.pjit import AUTO, FROM_GDA, pjit
from shardwise.interpreters import xla
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message

MESH = Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def test_groups_of_replicas():
    env = xla.AxisEnv(8, ("i", "j"), (2, 2))
    assert xla.axis_groups(env, "j") == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert xla.axis_groups(env, "i") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert xla.axis_groups(env, ("i", "j")) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert message(NameError, xla.axis_groups, env, "k") == (
        "axis_groups: there is no axis 'k'; there are ('i', 'j')."
    )


def test_keys():
    seeds = np.arange(6, dtype=np.uint32).reshape(2, 3)
    keys = prng.seed_with_impl(prng.threefry_prng_impl, seeds)
    assert isinstance(keys, random.KeyArray) and not isinstance(sw.numpy.ones(2), random.KeyArray)
    np.testing.assert_array_equal(keys.unsafe_raw_array()[1, 2], random.PRNGKey(5))
    traced = sw.jit(lambda k: k if isinstance(k, random.KeyArray) else None)(keys)
    assert traced is not None
    assert message(TypeError, random.KeyArray, keys) == (
        "KeyArray cannot be constructed; make keys with `shardwise.random.key`."
    )


def test_attributes_of_arrays():
    x = sw.device_put(X, NamedSharding(MESH, P("x")))
    assert x.mesh is MESH and x.mesh_axes == P("x")
    assert len(x.device_buffers) == len(x._arrays) == 8
    np.testing.assert_array_equal(x.device_buffers[3], X[2:4])
    assert message(ValueError, lambda: x.device_buffer) == (
        "device_buffer: array of type f32[8,4] has 8 shards. Use `addressable_data(i)`."
    )
    np.testing.assert_array_equal(sw.numpy.asarray(X).device_buffer, X)


@pytest.mark.parametrize("specs", [FROM_GDA, (FROM_GDA, P("x"))])
def test_from_gda_keeps_the_sharding(specs):
    x = sw.device_put(X, NamedSharding(MESH, P("y", "x")))
    with MESH:
        found, _ = pjit(lambda x, y: (x, y), in_axis_resources=specs)(x, X)
    assert found.sharding == x.sharding


def test_pickled_functions_replicate_in_a_mesh_where_none_is_stated():
    f = pjit(sw.numpy.square, None, P("x"))
    for each in (f, pickle.loads(pickle.dumps(f))):
        with MESH:
            assert each.lower(X).compile().input_shardings[0][0].is_fully_replicated
            assert each(X).sharding == NamedSharding(MESH, P("x"))


def test_the_compiler_chooses_auto_shardings():
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
    rows = NamedSharding(mesh, P("x"))
    auto = AUTO(mesh)
    assert auto.mesh is mesh and auto == AUTO(mesh)
    f = pjit(lambda x, y: (x * 2, y), in_shardings=(auto, P("x")), out_shardings=auto)
    for g in (f, pickle.loads(pickle.dumps(pjit(sw.numpy.square, auto, auto)))):
        assert (
            message(ValueError, g.lower, X, X)
            == message(ValueError, g, X, X)
            == (
                f"pjit of {g.__name__}: AUTO(Mesh('x': 2, 'y': 2)) is for programs on this mesh, and "
                "no mesh is in scope. Call it in `with mesh:`."
            )
        )
    with mesh:
        shape = sw.ShapeDtypeStruct((4, 4), np.float32)
        compiled = f.lower(shape, shape).compile()
        (chosen, second), _ = compiled.input_shardings
        assert second == rows
        assert [s.mesh for s in (chosen, *compiled.output_shardings)] == [mesh] * 3
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        first, _ = compiled(sw.device_put(x, chosen), sw.device_put(x, rows))
        np.testing.assert_array_equal(first, x * 2)
        assert f(sw.device_put(x, rows), x)[0].sharding == rows


def test_modules_of_compiled_programs():
    compiled = sw.jit(lambda x: x + 1).lower(X).compile()
    assert [m.to_string() for m in compiled.compiler_ir()] == [compiled.as_text()]
