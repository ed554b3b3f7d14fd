"""Collectives along sub-axes, which reports name as Shardy does; and along none."""

import json
import math

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise._src.explain.device_axes import Refined, SubAxis, axes_of, part_of
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

DEVICES = np.array(sw.devices("cpu")[:8])
LINE = Mesh(DEVICES, ("x",))
PERMUTED = Mesh(DEVICES[[3, 1, 4, 0, 5, 2, 7, 6]], ("x",))
GRID = Mesh(DEVICES.reshape(4, 2), ("x", "y"))
TURNED = Mesh(DEVICES.reshape(2, 4).T, ("x", "y"))


def sums(mesh, groups):
    """Sums along `x` over groups of an array that is sharded over all axes; its argument."""
    spec = P(*mesh.axis_names)
    f = sw.shard_map(
        lambda v: lax.psum(v, "x", axis_index_groups=groups), mesh=mesh, in_specs=spec,
        out_specs=spec, check_vma=False,
    )  # fmt: skip
    return f, sw.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, spec))


def described(shape, *spec):
    return sw.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(LINE, P(*spec)))


# ---- what groups are -----------------------------------------------------------------------------


FACTORS = {1: [], 2: [2], 3: [3], 4: [2, 2], 6: [2, 3], 8: [2, 2, 2], 12: [2, 3, 2]}


@pytest.mark.parametrize("seed", range(40))
def test_any_parts_of_any_axes(seed):
    """Groups made of factors of axes, in any order, are named by these, with neighbors joined."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice(list(FACTORS), size=rng.integers(1, 4)).tolist()
    factors = [(axis, f) for axis, n in enumerate(sizes) for f in FACTORS[n]]
    varying = rng.random(len(factors)) < 0.5
    kept = [i for i, v in enumerate(varying) if not v]
    moved = [i for i, v in enumerate(varying) if v]
    grid = np.arange(math.prod(sizes)).reshape([f for _, f in factors])
    size = math.prod([factors[i][1] for i in moved])
    groups = rng.permuted(grid.transpose(kept + moved).reshape(-1, size), axis=1)
    wanted = []
    for axis, n in enumerate(sizes):
        before, runs = 1, []
        for i, (of, f) in enumerate(factors):
            if of == axis:
                joined = varying[i] and runs and math.prod(runs[-1]) == before
                if joined:
                    runs[-1][1] *= f
                elif varying[i]:
                    runs.append([before, f])
                before *= f
        wanted += [f"{axis}" if f == n else f"{axis}:({b}){f}" for b, f in runs]
    found = axes_of(tuple(map(tuple, rng.permutation(groups).tolist())), (), _mesh(sizes))
    assert [str(a) for a in found] == wanted


def _mesh(sizes):
    return AbstractMesh(tuple(sizes), tuple(range(len(sizes))))


@pytest.mark.parametrize(
    "groups",
    [
        [[0, 3], [1, 2], [4, 7], [5, 6]], [[0, 1, 2], [3, 4, 5, 6, 7]], [[0, 1, 2, 3]],
        [[0, 1], [2, 3], [4, 6], [5, 7]], [[0, 1, 3, 4], [2, 5, 6, 7]], [[1, 2]], [[0, 8]],
        [[0, 2, 4], [1, 3, 5], [6], [7]],
    ],
    ids=str,
)  # fmt: skip
def test_groups_of_no_axes_have_no_name(groups):
    assert axes_of(tuple(map(tuple, groups)), (), LINE) is None


def test_words():
    near, far = SubAxis("x", 2, 4, 8), SubAxis("x", 1, 4, 8)
    assert (str(near), repr(near), near.apart, far.apart) == ("x:(2)4", "'x:(2)4'", 1, 2)
    assert near.description == "groups of 4 of the 8 devices along x, neighbors"
    assert far.description == "groups of 4 of the 8 devices along x, 2 apart"


def test_parts_of_axes_that_are_written_as_one():
    mesh = AbstractMesh((4, 6), ("a", "b"))
    whole = ["a", "b"]
    assert part_of(whole, mesh, 1, 4) == ["a"]
    assert part_of(whole, mesh, 2, 4) == [SubAxis("a", 2, 2, 4), SubAxis("b", 1, 2, 6)]
    assert part_of(whole, mesh, 8, 3) == [SubAxis("b", 2, 3, 6)]
    assert part_of(whole, mesh, 4, 6) == ["b"]
    assert part_of(["b", "a"], mesh, 1, 4) is None


def test_refined_axes_are_equal_or_apart():
    near, far = SubAxis("x", 4, 2, 8), SubAxis("x", 1, 4, 8)
    parts = Refined([near, "y"])
    assert parts.axes(["x", "y"]) == (far, near, "y")
    assert parts.dims((("x",), ())) == ((far, near), ())
    assert Refined(["x"]).axes(["x"]) == ("x",)
    crossing = SubAxis("z", 1, 4, 12), SubAxis("z", 2, 3, 12)
    assert Refined(crossing).axes(crossing) == crossing


# ---- reports -------------------------------------------------------------------------------------

GROUPS = {
    "x:(2)4": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "x:(1)4": [[0, 2, 4, 6], [1, 3, 5, 7]],
    "x:(1)2, x:(4)2": [[0, 1, 4, 5], [2, 3, 6, 7]],
    "groups of 2 devices": [[0, 3], [1, 2], [4, 7], [5, 6]],
}


@pytest.mark.parametrize("mesh", [LINE, PERMUTED], ids=["in order", "permuted"])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_along_an_axis(name, mesh):
    f, x = sums(mesh, GROUPS[name])
    report = explain(f)(x)
    (row,) = report.communication
    axes = None if "devices" in name else name.split(", ")
    assert report.to_dict()["communication"][0]["axes"] == axes
    assert json.loads(json.dumps(report.to_dict()))["communication"][0]["groups"] == row.groups
    assert (row.groups, row.bytes, row.why) == (len(GROUPS[name][0]), 32, "requested by psum")
    assert f" {name} " in str(report)
    assert report.count("all-reduce") == 1 and report.count("all-reduce", "x") == 0
    if axes:
        assert report.count("all-reduce", axes) == 1


@pytest.mark.parametrize("mesh", [GRID, TURNED], ids=["in order", "turned"])
def test_groups_along_one_of_two_axes(mesh):
    f, x = sums(mesh, [[0, 1], [2, 3]])
    report = explain(f)(x)
    (row,) = report.communication
    assert row.axes == (SubAxis("x", 2, 2, 4),)
    assert report.bytes("all-reduce", "x:(2)2") == report.bytes("all-reduce", row.axes[0]) == 32
    assert report.count("all-reduce", "x:(1)2") == 0
    with pytest.raises(ValueError) as caught:
        report.count("all-reduce", "z:(1)2")
    assert str(caught.value) == "the mesh has no axis 'z:(1)2'; it has 'x' and 'y'."


def test_what_the_report_says_of_parts():
    f, x = sums(LINE, GROUPS["x:(1)4"])
    report = explain(f)(x)
    note = "x:(1)4: groups of 4 of the 8 devices along x, 2 apart"
    assert f"\n  {note}\n" in str(report)
    assert note in report._repr_html_()


def test_assertions_say_which_groups():
    f, x = sums(LINE, GROUPS["x:(2)4"])
    with pytest.raises(AssertionError) as caught:
        explain.assert_comm(f, all_reduce=0)(x)
    line = f"{__file__}:{sums.__code__.co_firstlineno + 4}"
    assert str(caught.value) == (
        "<lambda> does not communicate as expected: all_reduce is 1; expected 0. Its "
        f"communication:\n  {line}: all-reduce over x:(2)4 (groups of 4 of the 8 devices along x, "
        "neighbors), 1 x, 32 B: psum(f32[1,8]) → f32[1,8]: requested by psum"
    )
    f, x = sums(LINE, GROUPS["groups of 2 devices"])
    with pytest.raises(AssertionError, match="all-reduce over groups of 2 devices, 1 x, 32 B: "):
        explain.assert_comm(f, all_reduce=0)(x)


def test_differences_say_which_groups():
    reports = [explain(f)(x) for f, x in (sums(LINE, groups) for groups in GROUPS.values())]
    near, far, _, odd = reports
    found = explain.diff(near, far).to_dict()["communication"]
    assert [(c["axes"], c["count"]) for c in found] == [(["x:(2)4"], [1, 0]), (["x:(1)4"], [0, 1])]
    assert "- all-reduce over groups of 2 devices: 32 B → 0 B" in str(explain.diff(odd, near))


# ---- causes --------------------------------------------------------------------------------------


def test_a_dimension_that_is_split_becomes_two():
    report = explain(lambda a: jnp.sin(a).reshape(4, 16).sum(1))(described((64,), "x"))
    call = "reduce_sum(f32[4@x:(1)4,16@x:(4)2]) → f32[4@x:(1)4]"
    assert [(c.kind, *map(str, c.axes), c.bytes, c.call, c.why) for c in report.communication] == [
        ("all-gather", "x:(1)4", 16, call,
         "the partitioner moves parts of it: dimension 0 of operand 0 is sharded over 'x:(1)4'"),
        ("all-reduce", "x:(4)2", 4, call,
         "sums over dimension 1 of operand 0, which is sharded over 'x:(4)2'"),
    ]  # fmt: skip


def test_heads_that_are_fewer_than_devices():
    def weights(a):
        return sw.nn.softmax(jnp.sin(a).reshape(16, 4, 8), axis=-1)

    report = explain(weights)(described((16, 32), None, "x"))
    found = {c.op: (c.kind, *map(str, c.axes), c.bytes) for c in report.communication}
    assert found["reduce_max"] == found["reduce_sum"] == ("all-reduce", "x:(4)2", 16 * 4 // 4 * 4)


def test_a_whole_axis_beside_parts_of_it():
    f = sw.jit(
        lambda a: jnp.sin(a).reshape(2, 4, 8) * 2, out_shardings=NamedSharding(LINE, P(None, "x"))
    )
    report = explain(f)(described((64,), "x"))
    told = {str(c.axes[0]): c.why for c in report.communication}
    assert told["x:(1)2"] == (
        "'x:(1)2' shards dimension 0 of the result, but not in the program's output"
    )
