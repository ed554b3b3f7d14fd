"""Programs that ask for shardings over an `AbstractMesh`: reports for devices that do not exist."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise._src.explain import abstract_devices
from shardwise.experimental.layout import Format, Layout
from shardwise.sharding import AbstractDevice, AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

SIZES, NAMES = (4, 2), ("x", "y")
HERE = Mesh(np.array(sw.devices("cpu")[:8]).reshape(SIZES), NAMES)
AUTO = AbstractMesh(SIZES, NAMES, axis_types=(AxisType.Auto,) * 2)
EXPLICIT = AbstractMesh(SIZES, NAMES, axis_types=(AxisType.Explicit,) * 2)
A, B = [sw.ShapeDtypeStruct(shape, np.float32) for shape in ((8, 16), (16, 8))]


def over(mesh, *spec):
    return NamedSharding(mesh, P(*spec))


def product(a, b):
    return a @ b


def of_arguments(mesh):
    return sw.jit(product, in_shardings=(over(mesh, "x", "y"), over(mesh, "y")))


def of_arguments_and_results(mesh):
    given = over(mesh, "x", "y"), over(mesh, "y")
    return sw.jit(product, in_shardings=given, out_shardings=over(mesh))


def of_results(mesh):
    return sw.jit(product, out_shardings=over(mesh, "x"))


def with_layouts(mesh):
    given = Format(Layout((1, 0)), over(mesh, "x", "y"))
    return sw.jit(product, in_shardings=(given, over(mesh, "y")))


def of_constraints(mesh):
    return lambda a, b: lax.with_sharding_constraint(a @ b, over(mesh, "x", "y")).sum(0)


def of_maps(mesh):
    return lambda a, b: sw.shard_map(
        lambda v: lax.psum(v, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()
    )(a)


def test_layouts_of_arguments_are_those_of_the_program():
    mesh = AbstractMesh((4, 2), ("x", "y"))
    given = Format(Layout((1, 0)), over(mesh, "x", "y"))
    there = abstract_devices.described(sw.ShapeDtypeStruct((8, 8), np.float32, sharding=given))
    assert there.layout == Layout((1, 0)) and there.sharding.spec == P("x", "y")
    assert isinstance(there.sharding.mesh, Mesh)


ASKED = [of_arguments, of_arguments_and_results, of_results, with_layouts, of_constraints, of_maps]


@pytest.mark.parametrize("asked", everyday(ASKED, 1), ids=lambda f: f.__name__)
def test_shardings_that_a_program_asks_for(asked):
    here, there = explain(asked(HERE))(A, B), explain(asked(AUTO))(A, B)
    assert there.communication or asked is of_results
    assert here.communication == there.communication
    assert (here.mesh, here.devices, here.memory) == (there.mesh, there.devices, there.memory)


def test_explicit_shardings_that_a_program_asks_for():
    f = sw.jit(lambda a: a.sum(0), in_shardings=over(EXPLICIT, "x"))
    (row,) = explain(f)(A).communication
    assert (row.kind, row.axes, row.call) == (
        "all-reduce", ("x",), "reduce_sum(f32[8@x,16]) → f32[16]"
    )  # fmt: skip


def test_specs_over_an_abstract_mesh_in_scope():
    with sw.sharding.use_abstract_mesh(AUTO):
        report = explain(sw.jit(product, in_shardings=(P("x", "y"), P("y"))))(A, B)
    assert [(c.kind, c.axes) for c in report.communication] == [("all-reduce", ("y",))]


def test_an_abstract_device_in_scope_names_the_machine_only():
    mesh = AUTO.update(abstract_device=AbstractDevice("NVIDIA H200", None, "gpu"))
    arguments = [
        sw.ShapeDtypeStruct(t.shape, t.dtype, sharding=over(mesh, *spec))
        for t, spec in ((A, ("x", "y")), (B, ("y",)))
    ]
    with sw.sharding.use_abstract_mesh(mesh):
        report = explain(product)(*arguments)
    assert (report.count("all-reduce", "y"), report.machine.name) == (1, "h200")


def test_described_arguments_must_be_as_asked():
    there = sw.ShapeDtypeStruct(A.shape, A.dtype, sharding=over(AUTO, "y"))
    assert message(ValueError, lambda: explain(of_arguments(AUTO))(there, B)) == (
        "jit of product: a of type f32[8,16] is on NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
        "spec=P('y')), but in_shardings requires NamedSharding(mesh=Mesh('x': 4, 'y': 2), "
        "spec=P('x', 'y')). Use `device_put` to move it, or None in in_shardings to accept it "
        "unchanged."
    )


def test_shardings_over_meshes_of_other_sizes():
    line = AbstractMesh((4,), ("z",), axis_types=(AxisType.Auto,))
    f = sw.jit(product, in_shardings=(over(AUTO, "x"), over(line, "z")))
    assert message(ValueError, lambda: explain(f)(A, B)) == (
        "product got arguments on different devices: a of type f32[8,16] is on 8 devices that are "
        "not attached, b of type f32[16,8] on 4 devices that are not attached. Use shardings over "
        "the same AbstractMesh for both."
    )


def test_where_there_are_devices_abstract_shardings_are_theirs():
    placed = sw.device_put(np.ones(A.shape, np.float32), over(HERE, "x", "y"))
    report = explain(sw.jit(jnp.sin, out_shardings=over(AUTO)))(placed)
    assert "described" not in report.hlo and report.count("all-gather") > 0
    with pytest.raises(ValueError, match="has no devices"):
        explain(of_arguments(AUTO))(placed, B)


def calls():
    """Functions and arguments that do not fit, each for a different reason."""
    wide = np.ones((8, 16), np.float32)
    columns = sw.device_put(wide, over(HERE, "y"))
    few = NamedSharding(Mesh(np.array(sw.devices("cpu")[:2]), ("z",)), P("z"))
    rank = over(HERE, "x", None, "y")
    return {
        "placed otherwise": (sw.jit(jnp.sin, in_shardings=over(HERE, "x")), columns),
        "other devices": (sw.jit(jnp.sin, in_shardings=few), columns),
        "two places": (sw.jit(product), columns, sw.device_put(wide.T, few)),
        "count": (sw.jit(product, in_shardings=(over(HERE, "x"),)), wide, wide.T),
        "tree": (sw.jit(jnp.sin, in_shardings=({"a": over(HERE, "x")},)), wide),
        "rank": (sw.jit(jnp.sin, in_shardings=rank), wide),
        "rank of results": (sw.jit(jnp.sin, out_shardings=rank), wide),
        "results elsewhere": (sw.jit(jnp.sin, out_shardings=few), columns),
        "spec without mesh": (sw.jit(jnp.sin, in_shardings=P("x")), wide),
        "missing": (sw.jit(product), wide),
        "text": (sw.jit(product), wide, "text"),
    }


@pytest.mark.parametrize("name", calls())
def test_messages_are_those_of_a_call(name):
    f, *args = calls()[name]
    texts = []
    for run in (f, explain(f)):
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            run(*args)
        texts.append(f"{type(caught.value).__name__}: {caught.value}")
    assert texts[0] == texts[1]
