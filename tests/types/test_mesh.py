"""Meshes: construction, identity, scope, subgrids, errors. jax is the reference."""

import copy
import gc
import pickle
import threading
import weakref
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.base.config import disallow_mesh_context_manager
from shardwise._src.base.context import NamedAxis, current
from shardwise._src.types.device_grids import create_device_mesh, make_mesh
from shardwise._src.types.mesh import AbstractMesh, Mesh
from shardwise._src.types.mesh_axes import AxisType
from tests.helpers.errors import message as error_of
from tests.helpers.errors import messages
from tests.helpers.threads import at_once

AUTO, EXPLICIT, MANUAL = AxisType.Auto, AxisType.Explicit, AxisType.Manual


class FakeDevice:
    """A device of process `process`, seen from process `here`."""

    def __init__(self, id, process=0, here=0):
        self.id, self.process_index = id, process
        self.client = SimpleNamespace(process_index=lambda: here)

    def __repr__(self):
        return f"Fake({self.id})"

    def __reduce__(self):
        return fake, (self.id, self.process_index, self.client.process_index())


FAKES: dict[tuple, FakeDevice] = {}


def fake(id, process=0, here=0):
    return FAKES.setdefault((id, process, here), FakeDevice(id, process, here))


def fakes(count, process_of=lambda i: 0, here=0):
    return [fake(i, process_of(i), here) for i in range(count)]


def grid(*shape):
    return np.array(fakes(int(np.prod(shape))), object).reshape(shape)


def test_facts_are_those_of_jax():
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    ours, theirs = Mesh(devices, ("x", "y")), jax.sharding.Mesh(devices, ("x", "y"))
    assert ours.shape == dict(theirs.shape)
    for name in ("axis_names", "axis_sizes", "shape_tuple", "size", "empty", "is_multi_process"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert list(ours.local_devices) == list(theirs.local_devices)
    assert [t.name for t in ours.axis_types] == [t.name for t in theirs.axis_types]
    np.testing.assert_array_equal(ours.device_ids, theirs.device_ids)
    np.testing.assert_array_equal(ours.devices, theirs.devices)
    assert ours.flat_devices == tuple(theirs.devices.flat)
    assert ours.local_mesh is ours


def test_devices_are_copied_and_read_only():
    devices = grid(2, 2)
    mesh = Mesh(devices, ("x", "y"))
    devices[0, 0] = None
    assert mesh.devices[0, 0] is fake(0)
    with pytest.raises(ValueError, match="read-only"):
        mesh.devices[0, 0] = None
    mesh.shape["x"] = 7  # a copy
    assert mesh.shape == {"x": 2, "y": 2}


def test_equal_meshes_are_one_object():
    mesh = Mesh(grid(4, 2), ("x", "y"))
    assert Mesh([list(row) for row in grid(4, 2)], ["x", "y"]) is mesh
    assert Mesh(grid(4, 2), ("x", "y"), AUTO) is mesh
    different = [
        Mesh(grid(4, 2), ("y", "x")),
        Mesh(grid(4, 2), ("x", "y"), EXPLICIT),
        Mesh(grid(2, 4), ("x", "y")),
        Mesh(grid(4, 2)[::-1], ("x", "y")),
    ]
    assert mesh not in different
    assert len({mesh, *different}) == 5
    assert mesh.update(axis_names=("y", "x")) is different[0]


def test_meshes_that_nobody_holds_go_away():
    mesh = Mesh(grid(2, 2), ("gone", "too"))
    reference = weakref.ref(mesh)
    del mesh
    gc.collect()
    assert reference() is None


def test_copies_and_pickles_are_the_same_object():
    mesh = Mesh(grid(4, 2), ("x", "y"), (AUTO, EXPLICIT))
    assert pickle.loads(pickle.dumps(mesh)) is mesh
    assert copy.deepcopy({"mesh": mesh})["mesh"] is mesh
    assert copy.copy(mesh) is mesh
    abstract = mesh.abstract_mesh
    assert pickle.loads(pickle.dumps(abstract)) is abstract


def test_prints():
    assert repr(Mesh(grid(4, 2), ("x", "y"))) == "Mesh('x': 4, 'y': 2)"
    types = (AUTO, EXPLICIT)
    assert repr(Mesh(grid(4, 2), ("x", "y"), types)) == (
        "Mesh('x': 4, 'y': 2, axis_types=(Auto, Explicit))"
    )
    assert repr(AbstractMesh((4,), "x")) == "AbstractMesh('x': 4, axis_types=(Explicit,))"
    assert repr(AxisType.Auto) == "Auto"


def test_axis_types():
    assert Mesh(grid(2), "x").axis_types == (AUTO,)
    assert AbstractMesh((2,), ("x",)).axis_types == (EXPLICIT,)
    assert make_mesh((2,), ("x",), devices=fakes(2)).axis_types == (EXPLICIT,)
    mesh = Mesh(grid(2, 2, 1), ("x", "y", "z"), (AUTO, EXPLICIT, MANUAL))
    assert (mesh.auto_axes, mesh.explicit_axes, mesh.manual_axes) == (("x",), ("y",), ("z",))
    assert not mesh.are_all_axes_auto
    assert Mesh(grid(2), "x").are_all_axes_auto


def test_the_mesh_without_devices():
    nothing = Mesh(np.empty((), object), ())
    assert (nothing.empty, nothing.size, nothing.flat_devices) == (True, 0, ())
    one = Mesh(np.array(fake(0), object), ())
    assert (one.empty, one.size, one.shape, one.flat_devices) == (False, 1, {}, (fake(0),))
    assert one.process_mesh(0) is one


# ---------------------------------------------------------------------------- processes


def test_local_mesh_is_the_subgrid_of_this_process():
    devices = np.array(fakes(8, lambda i: i // 4, here=1)).reshape(2, 4)
    mesh = Mesh(devices, ("x", "y"))
    assert mesh.is_multi_process
    assert mesh.local_devices == list(devices[1])
    assert mesh.local_mesh is Mesh(devices[1:], ("x", "y"))
    assert mesh.local_mesh is mesh.process_mesh(1)
    assert mesh.process_mesh(0) is Mesh(devices[:1], ("x", "y"))


def test_a_process_that_has_no_block_of_the_mesh():
    mesh = Mesh(fakes(4, lambda i: i % 2), "x")
    assert error_of(ValueError, lambda: mesh.local_mesh) == (
        "the devices of process 0 do not form a contiguous subgrid of Mesh('x': 4): "
        "they are at [[0], [2]]. Order the devices so that each process has a block of the mesh, "
        "as make_mesh does."
    )
    assert error_of(ValueError, mesh.process_mesh, 5) == "process 5 has no devices in Mesh('x': 4)."


# -------------------------------------------------------------------------------- scope


def test_scope_nests_and_a_mesh_may_be_entered_again():
    outer, inner = Mesh(grid(4), "x"), Mesh(grid(2, 2), ("y", "z"))
    root = current()
    with outer as entered:
        assert entered is outer
        with inner:
            assert current().mesh is inner
            with outer, outer:
                assert current().mesh is outer
            assert current().mesh is inner
        assert current().mesh is outer
    assert current() is root


def test_scope_ends_when_an_error_passes():
    with pytest.raises(KeyError), Mesh(grid(4), "x"):
        raise KeyError
    assert current().mesh is None


def test_decorator():
    mesh = Mesh(grid(4), "x")

    @mesh
    def scope(value: int, *, depth: int = 0):
        """What is in scope."""
        return scope(value, depth=depth - 1) if depth else (value, current().mesh)

    assert scope(3, depth=2) == (3, mesh)
    assert (scope.__name__, scope.__doc__) == ("scope", "What is in scope.")
    assert current().mesh is None


def test_threads_have_their_own_scope():
    meshes = [Mesh(grid(4), f"axis{i}") for i in range(4)]
    gate = threading.Barrier(4)
    seen = [[] for _ in meshes]

    def work(i):
        seen[i].append(current().mesh)
        for _ in range(20):
            with meshes[i], meshes[0]:
                pass
            with meshes[i]:
                gate.wait()
                seen[i].append(current().mesh)
        seen[i].append(current().mesh)

    with Mesh(grid(2), "outer"):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [[None, *[mesh] * 20, None] for mesh in meshes]


def test_leaving_out_of_order():
    outer, inner = Mesh(grid(4), "x"), Mesh(grid(2), "y")
    with outer:
        with inner, pytest.raises(RuntimeError) as error:
            outer.__exit__(None, None, None)
        assert str(error.value) == (
            "cannot leave Mesh('x': 4): Mesh('y': 2) is the innermost one entered here. "
            "Exit meshes in the reverse order of entering them, in the same thread."
        )
    with pytest.raises(RuntimeError, match="no mesh is entered here"):
        outer.__exit__(None, None, None)


def test_a_mesh_may_not_hide_an_axis_of_something_else():
    mesh = Mesh(grid(4), "i")
    with current().replace(axes=(NamedAxis("i", 3),)).entered():
        for enter in mesh.__enter__, lambda: sw.set_mesh(mesh):
            assert error_of(ValueError, enter) == (
                "entering Mesh('i': 4) would shadow the axis 'i' of size 3, which something other "
                "than a mesh (a map or a serial loop) has put in scope. Rename one of them."
            )
            assert current().mesh is None
    with mesh, current().replace(axes=(NamedAxis("i", 4),)).entered(), mesh:  # the mesh's own axis
        assert current().mesh is mesh


# ------------------------------------------------------------------------------- abstract


def test_abstract_mesh_has_the_axes():
    mesh = Mesh(grid(4, 2), ("x", "y"))
    abstract = mesh.abstract_mesh
    assert abstract is AbstractMesh((4, 2), ("x", "y"), AUTO)
    assert abstract is AbstractMesh((("x", 4), ("y", 2)), axis_types=(AUTO, AUTO))
    assert abstract is Mesh(grid(4, 2)[::-1], ("x", "y")).abstract_mesh
    assert abstract is not AbstractMesh((4, 2), ("x", "y"))
    assert abstract.abstract_mesh is abstract
    assert (abstract.shape, abstract.size, abstract.empty) == ({"x": 4, "y": 2}, 8, False)
    assert abstract.update_axis_types({"y": MANUAL}).axis_types == (AUTO, MANUAL)
    assert abstract.update(axis_sizes=(1, 2)).shape == {"x": 1, "y": 2}


@pytest.mark.parametrize(
    "name", ["devices", "device_ids", "local_devices", "is_multi_process", "local_mesh",
             "process_mesh"],
)  # fmt: skip
def test_abstract_mesh_has_no_devices(name):
    assert error_of(ValueError, lambda: getattr(AbstractMesh((4,), ("x",), AUTO), name)) == (
        f"AbstractMesh('x': 4) has no {name}: an AbstractMesh has axes but no devices. Use a Mesh "
        "where devices matter; inside a traced function only names and sizes are known."
    )


def test_abstract_mesh_is_no_scope():
    with pytest.raises(ValueError) as error, AbstractMesh((4,), ("x",), AUTO):
        pass
    assert str(error.value) == (
        "AbstractMesh('x': 4) cannot be entered: it has no devices. Enter a Mesh, or put an "
        "abstract mesh in scope with use_abstract_mesh."
    )


# --------------------------------------------------------------------------------- making


def test_make_mesh_takes_the_first_devices_in_order():
    mesh = make_mesh((2, 3), ("x", "y"), devices=fakes(8))
    np.testing.assert_array_equal(mesh.device_ids, [[0, 1, 2], [3, 4, 5]])
    assert make_mesh((2,), "x", devices=fakes(2), axis_types=AUTO) is Mesh(grid(2), "x")
    np.testing.assert_array_equal(create_device_mesh((2, 2), fakes(4)), grid(2, 2))


def test_trays_of_old_tpus_are_rings():
    devices = [SimpleNamespace(id=i, platform="tpu", device_kind="TPU v3") for i in range(16)]
    ring = [0, 1, 2, 3, 6, 7, 4, 5]

    def ids(shape, devices):
        return np.vectorize(lambda d: d.id)(create_device_mesh(shape, devices)).tolist()

    assert ids((2, 4), devices[:8]) == [ring[:4], ring[4:]]
    assert ids((2, 8), devices) == [ring, [8 + i for i in ring]]
    assert ids((4, 4), devices) == np.arange(16).reshape(4, 4).tolist()


test_errors = messages(
    """
Mesh(grid(4, 2), ("x",))
    ValueError: Mesh got devices in 2 dimensions, shape (4, 2), but 1 axis name, ('x',); there must
    be one name for each dimension.
Mesh(grid(2, 2), ("x", "x"))
    ValueError: mesh axis names must differ, but ('x', 'x') has 'x' twice.
Mesh(grid(2), (None,))
    ValueError: None cannot name a mesh axis; got axis_names=(None,).
Mesh(grid(2), 1)
    TypeError: axis_names must be a name or a sequence of names, got 1.
Mesh([fake(0), fake(0)], "x")
    ValueError: Mesh got the device Fake(0) twice; each device may occur only once.
Mesh([[fake(0), fake(1)], [fake(2)]], ("x", "y"))
    ValueError: Mesh got nested lists of devices with the lengths [2, 1]; lists at the same level
    must have the same length.
Mesh(grid(2, 2), (["x"], "y"))
    TypeError: the names of mesh axes must be hashable, got axis_names=(['x'], 'y').
AbstractMesh(4, "x")
    TypeError: AbstractMesh takes a sequence of axis sizes, got 4.
Mesh(grid(2, 2), ("x", "y"), (AUTO,))
    ValueError: a mesh got 1 axis type, (Auto,), but 2 axis names, ('x', 'y').
Mesh(grid(2), "x", ("auto",))
    TypeError: axis_types must be AxisType members, got 'auto'.
AbstractMesh((4, 2), ("x",))
    ValueError: AbstractMesh got 2 axis sizes, (4, 2), but 1 axis name, ('x',).
AbstractMesh((4, 2))
    TypeError: AbstractMesh takes sizes and names, or pairs (name, size) alone; got (4, 2) and no
    names.
Mesh(grid(2), "x").axis_size("z")
    ValueError: Mesh('x': 2) has no axis 'z'; its axes are 'x'.
make_mesh((4, 4), ("x", "y"), devices=fakes(8))
    ValueError: make_mesh needs 16 devices for the shape (4, 4), but only 8 can be used. Choose
    sizes whose product is at most 8; on CPU, SHARDWISE_NUM_CPU_DEVICES sets the number of virtual
    devices.
make_mesh((4,), ("x", "y"), devices=fakes(8))
    ValueError: make_mesh got 1 axis size, (4,), but 2 axis names, ('x', 'y').
make_mesh((0,), ("x",), devices=fakes(8))
    ValueError: each axis of a mesh must have at least one device; got shape (0,).
create_device_mesh((3,), fakes(4))
    ValueError: a mesh of shape (3,) takes 3 devices, but 4 devices were given.
setattr(Mesh(grid(2), "x"), "devices", None)
    AttributeError: cannot assign to 'devices': a Mesh is immutable; make a new one with Mesh(...)
    or mesh.update(...).
""",
    globals(),
)


def test_thousands_of_devices_are_compared_by_identity():
    devices = np.array(fakes(8192)).reshape(64, 128)
    mesh = Mesh(devices, ("x", "y"))
    assert Mesh(devices, ("x", "y")) is mesh
    assert type(mesh).__eq__ is object.__eq__
    assert type(mesh).__hash__ is object.__hash__
    assert (mesh.size, mesh.device_ids[-1, -1], len(mesh.local_devices)) == (8192, 8191, 8192)


def test_threads_get_the_same_object():
    made = at_once(lambda: [Mesh(grid(2, 2), (f"a{i}", "b")) for i in range(50)])
    assert all(len(set(map(id, same))) == 1 for same in zip(*made, strict=True))


def test_abstract_meshes_without_axes_are_empty():
    for kind in (AbstractMesh, jax.sharding.AbstractMesh):
        none, some = kind((), ()), kind((2, 4), ("x", "y"))
        assert (none.empty, none.size) == (True, 0)
        assert (some.empty, some.size) == (False, 8)


def test_meshes_that_must_not_be_entered():
    mesh = Mesh(np.array([FakeDevice(0)]), ("x",))
    with disallow_mesh_context_manager(True), pytest.raises(RuntimeError) as error, mesh:
        pass
    assert str(error.value) == (
        "Mesh('x': 1) cannot be entered with `with mesh:`, as the flag "
        "disallow_mesh_context_manager is on. Write `with shardwise.set_mesh(mesh):`."
    )
    with mesh:
        assert current().mesh is mesh
