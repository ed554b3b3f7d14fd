"""A program traced and lowered for one mesh serves every mesh of its shape: counts lowerings."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import NamedSharding, P
from shardwise._src.running import plan
from shardwise.sharding import AbstractMesh, AxisType, Mesh
from tests.helpers.errors import message


def mesh_of(devices, *sizes, axis_types=AxisType.Auto):
    return Mesh(np.array(devices).reshape(sizes), ("x", "y")[: len(sizes)], axis_types)


@pytest.fixture
def lowered(monkeypatch):
    """The names of the modules that have been lowered."""
    written = []
    make = plan.module_and_results

    def counted(program, *args, **kwargs):
        written.append(program.name)
        return make(program, *args, **kwargs)

    monkeypatch.setattr(plan, "module_and_results", counted)
    return written


V = np.arange(16, dtype=np.float32).reshape(8, 2)


@pytest.mark.parametrize("types", [AxisType.Auto, AxisType.Explicit], ids=str)
@pytest.mark.parametrize("rows", [8, 7])
def test_another_mesh_of_equal_shape(lowered, types, rows):
    traces = []

    @sw.jit
    def step(x, w):
        traces.append(x)
        return jnp.tanh(x @ w)

    devices = sw.devices()
    results = []
    for chosen in (devices[:4], devices[4:], devices[3::-1]):
        mesh = mesh_of(chosen, 2, 2, axis_types=types)
        x = sw.device_put(V[:rows], NamedSharding(mesh, P("x")))
        w = sw.device_put(V[:2], NamedSharding(mesh, P(None, "y")))
        results.append(step(x, w))
        assert results[-1].sharding.mesh is mesh
        np.testing.assert_allclose(results[-1], np.tanh(V[:rows] @ V[:2]), rtol=1e-6)
    assert len(traces) == 1
    assert lowered.count("step") == 1
    assert len({str(r.sharding.spec) for r in results}) == 1


def test_another_shape_is_another_program(lowered):
    traces = []

    @sw.jit
    def f(x):
        traces.append(x)
        return x * 2

    for sizes in ((2, 2), (4, 1), (4,)):
        f(sw.device_put(V, NamedSharding(mesh_of(sw.devices()[:4], *sizes), P("x"))))
    assert len(traces) == 1  # shardings over Auto axes are not part of types
    assert lowered.count("f") == 3


def test_in_a_mesh_context(lowered):
    traces = []

    @sw.jit
    def f(x):
        traces.append(x)
        return sw.with_sharding_constraint(x * 2, P("x"))

    devices = sw.devices()
    for chosen in (devices[:4], devices[4:]):
        with mesh_of(chosen, 4) as mesh:
            y = f(V)
            assert y.sharding == NamedSharding(mesh, P("x"))
            np.testing.assert_array_equal(y, V * 2)
    assert len(traces) == 1 and lowered.count("f") == 1


def test_constraints_by_an_abstract_mesh(lowered):
    abstract = AbstractMesh((4,), ("x",), axis_types=AxisType.Auto)
    wanted = NamedSharding(abstract, P(None, "x"))

    @sw.jit
    def f(x):
        return sw.with_sharding_constraint(x * 2, wanted)

    v = np.arange(32.0, dtype=np.float32).reshape(8, 4)
    devices = sw.devices()
    for chosen in (devices[:4], devices[4:]):
        mesh = mesh_of(chosen, 4)
        for run in (f, lambda x: sw.with_sharding_constraint(x * 2, wanted)):
            y = run(sw.device_put(v, NamedSharding(mesh, P("x"))))
            assert y.sharding == NamedSharding(mesh, P(None, "x"))
            np.testing.assert_array_equal(y, v * 2)
    assert lowered.count("f") == 1


def test_without_a_concrete_mesh():
    wanted = NamedSharding(AbstractMesh((4,), ("x",), axis_types=AxisType.Auto), P("x"))
    for run in (sw.with_sharding_constraint, sw.jit(sw.with_sharding_constraint, static_argnums=1)):
        assert message(ValueError, run, jnp.ones(8), wanted) == (
            "a sharding over AbstractMesh('x': 4) is required, but the program runs on no mesh. "
            "Pass an argument on a mesh of this shape, or enter one with `set_mesh`."
        )
    x = sw.device_put(jnp.ones(8), NamedSharding(mesh_of(sw.devices()[:2], 2), P("x")))
    assert message(ValueError, sw.with_sharding_constraint, x, wanted) == (
        "a sharding over AbstractMesh('x': 4) is required, but the program runs on Mesh('x': 2). "
        "Pass an argument on a mesh of this shape, or enter one with `set_mesh`."
    )
