"""`explain.suggest`: shardings that are no worse than manually written ones."""

import dataclasses

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message

MESH = Mesh(np.array(sw.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))
F32 = np.float32


def struct(*shape, dtype=F32):
    return sw.ShapeDtypeStruct(shape, dtype)


def loss(weights, x):
    for layer in weights:
        x = jnp.tanh(x @ layer["up"]) @ layer["down"] + x
    return (x**2).mean()


WEIGHTS = [{"up": struct(64, 256), "down": struct(256, 64)} for _ in range(2)]
STEP = sw.jit(sw.grad(loss))


def reported(mesh, up, down, x):
    def put(leaf, spec):
        return sw.ShapeDtypeStruct(leaf.shape, F32, sharding=NamedSharding(mesh, spec))

    weights = [{"up": put(w["up"], up), "down": put(w["down"], down)} for w in WEIGHTS]
    return explain(STEP)(weights, put(struct(512, 64), x))


@pytest.fixture(scope="module")
def found():
    return explain.suggest(STEP, (WEIGHTS, struct(512, 64)), MESH, keep=4)


@pytest.fixture(scope="module")
def found_forward():
    """Suggestions for the loss alone, which compiles faster than with its gradient."""
    return explain.suggest(sw.jit(loss), (WEIGHTS, struct(512, 64)), MESH, keep=2)


@pytest.mark.sweep
def test_the_best_is_no_worse_than_what_a_person_writes(found):
    by_hand = reported(MESH, P(None, "model"), P("model", None), P("data", None))
    best = found[0].report
    assert best.seconds.total <= by_hand.seconds.total
    whole = reported(MESH, P(), P(), P())
    assert best.seconds.total < 0.3 * whole.seconds.total


@pytest.mark.sweep
def test_what_is_suggested_is_what_is_reported(found):
    assert len(found) == 4 and found.tried >= 10
    times = [one.report.seconds.total for one in found]
    assert times == sorted(times)
    args, kwargs = found[0].shardings
    assert kwargs == {}
    weights, x = args
    again = reported(MESH, weights[0]["up"].spec, weights[0]["down"].spec, x.spec)
    assert again.seconds.total == found[0].report.seconds.total
    assert weights[0] == weights[1]


def test_groups_and_text(found_forward):
    groups = {group.type: group.paths for group in found_forward[0].specs}
    assert groups == {
        "f32[64,256]": ("args[0][0]['up']", "args[0][1]['up']"),
        "f32[256,64]": ("args[0][0]['down']", "args[0][1]['down']"),
        "f32[512,64]": ("args[1]",),
    }
    text = str(found_forward)
    assert text.startswith("1. ") and "mostly" in text.splitlines()[0]
    assert text.splitlines()[-1].startswith(f"({found_forward.tried} programs compiled in ")


def test_memory_counts():
    link = explain.Link(1e12, 0.0)
    small = explain.Machine("small", {"f32": 1e15}, 1e12, 1 << 16, link, link)
    weight = struct(128, 128)  # 64 KiB: too much for one device
    (best,) = explain.suggest(lambda w: w + 1, (weight,), MESH, machine=small, keep=1)
    assert best.report.memory.peak <= 2 * 128 * 128 * 4 / 8


def test_what_fits_nowhere_says_so(found_forward):
    report = found_forward[0].report
    memory = dataclasses.replace(report.memory, peak=report.machine.memory_bytes + 2**30)
    large = dataclasses.replace(found_forward[0], report=dataclasses.replace(report, memory=memory))
    assert "GiB, 1.0 GiB MORE THAN A DEVICE HAS, and " in str(large)
    assert "MORE THAN" not in str(found_forward[0])


def test_of_a_mesh_that_is_not_there():
    mesh = AbstractMesh((16,), ("x",), axis_types=(AxisType.Auto,))
    with sw.set_mesh(sw.make_mesh((1,), ("other",))):
        (best,) = explain.suggest(jnp.sin, (struct(64),), mesh, keep=1)  # not of the mesh in scope
    assert best.shardings == ((NamedSharding(mesh, P("x")),), {})
    assert best.report.devices == 16


def test_explicit_axes_are_refused():
    default = "Axes of `AbstractMesh` and `make_mesh` are Explicit by default: create the"
    for mesh, start, types in (
        (AbstractMesh((8,), ("x",)), default, "AxisType.Auto,"),
        (sw.make_mesh((4, 2), ("x", "y")), default, "AxisType.Auto, AxisType.Auto"),
        (AbstractMesh((8,), ("x",), axis_types=(AxisType.Manual,)), "Create the", "AxisType.Auto,"),
    ):
        assert message(ValueError, explain.suggest, jnp.sin, (struct(8),), mesh) == (
            f"suggest needs a mesh whose axes are all Auto; got {mesh}. {start} mesh with "
            f"axis_types=({types}), where AxisType is `shardwise.sharding.AxisType`."
        )


@pytest.mark.parametrize("keep", [0, -1])
def test_one_suggestion_is_the_least(keep):
    assert message(ValueError, explain.suggest, jnp.sin, (struct(8),), MESH, keep=keep) == (
        f"suggest: keep must be at least 1; got {keep}."
    )


def test_the_budget_ends_the_search():
    found = explain.suggest(STEP, (WEIGHTS, struct(512, 64)), MESH, keep=1, budget=0.0)
    assert len(found) == 1 and found.tried == 1
