"""Reading collectives from HLO text: from compiled programs over a 4 x 2 mesh, and by spelling."""

from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console

import shardwise as sw
from shardwise._src.explain.communication import (
    Collective,
    collectives,
    mesh_axes,
    summarize,
    table,
)
from tests.helpers.errors import message

LINE = "  %{name} = {shape} {op}(%x), channel_id=1, {rest}"
MODULE = """HloModule jit_f, is_scheduled=true, num_partitions=8

ENTRY %main (x: f32[2,8]) -> f32[2,8] {{
{lines}
}}
"""


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:8]).reshape(4, 2), ("data", "model"))


def manual(mesh, f):
    """Collectives of `f` on f32[2,8] blocks of f32[8@data,16@model]."""
    spec = P("data", "model")
    mapped = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(mesh, spec))
    return collectives(jax.jit(mapped).lower(x).compile().as_text())


def read(shape: str, op: str, rest: str) -> Collective:
    line = LINE.format(name="c", shape=shape, op=op, rest=rest)
    (only,) = collectives(MODULE.format(lines=line))
    return only


def grid(**sizes: int) -> SimpleNamespace:
    return SimpleNamespace(shape=sizes)


# ---- compiled programs ---------------------------------------------------------------------------

CASES = {
    # name: function, kind, axes, group size, bytes per device
    "psum": (lambda x: lax.psum(x, "data"), "all-reduce", ("data",), 4, 64),
    "psum_all": (lambda x: lax.psum(x, ("data", "model")), "all-reduce", ("data", "model"), 8, 64),
    "pmax": (lambda x: lax.pmax(x, "model"), "all-reduce", ("model",), 2, 64),
    "all_gather": (lambda x: lax.all_gather(x, "model"), "all-gather", ("model",), 2, 128),
    "gather_both": (
        lambda x: lax.all_gather(x, ("model", "data")),
        "all-gather",
        ("data", "model"),
        8,
        512,
    ),
    "psum_scatter": (
        lambda x: lax.psum_scatter(x, "model", scatter_dimension=1, tiled=True),
        "reduce-scatter",
        ("model",),
        2,
        64,
    ),
    "all_to_all": (
        lambda x: lax.all_to_all(x, "model", 1, 0, tiled=True),
        "all-to-all",
        ("model",),
        2,
        64,
    ),
    "ppermute": (
        lambda x: lax.ppermute(x, "data", [(i, (i + 1) % 4) for i in range(4)]),
        "collective-permute",
        ("data",),
        8,
        64,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_kind_axes_and_bytes(mesh, name):
    function, kind, axes, size, count = CASES[name]
    (found,) = manual(mesh, function)
    assert (found.kind, found.group_size, found.bytes) == (kind, size, count)
    assert found.elements == count // 4
    assert {array.dtype for array in found.arrays} == {"f32"}
    assert mesh_axes(found, mesh) == axes
    assert (found.runs, found.runs_known) == (1, True)
    assert found.op_name.startswith("jit(")


def test_source_line_is_this_file(mesh):
    (found,) = manual(mesh, CASES["psum"][0])
    file, _, line = found.source.rpartition(":")
    assert file == __file__
    assert (
        'lax.psum(x, "data")' in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
    )


def test_partitioner_collectives(mesh):
    """A contraction over `model` and a replicated result: the compiler's own spelling of groups."""

    def placed(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    x, w = placed((8, 16), "data", "model"), placed((16, 8), "model", None)
    compiled = jax.jit(jnp.matmul, out_shardings=NamedSharding(mesh, P())).lower(x, w).compile()
    found = {c.kind: mesh_axes(c, mesh) for c in collectives(compiled.as_text())}
    assert found == {"all-reduce": ("model",), "all-gather": ("data",)}


def test_variadic_collective_is_one_with_summed_bytes(mesh):
    found = manual(mesh, lambda x: sum(map(jnp.sum, lax.psum((x, x[0]), "data"))) + x)
    assert [c.kind for c in found] == ["all-reduce"]
    assert found[0].bytes == (16 + 8) * 4
    assert [str(array) for array in found[0].arrays] == ["f32[2,8]", "f32[8]"]


def test_loop_with_known_trip_count(mesh):
    def f(x):
        return lax.scan(lambda c, _: (lax.psum(c, "model") * 0.5, None), x, None, length=5)[0]

    (found,) = manual(mesh, f)
    assert (found.runs, found.runs_known) == (5, True)
    (row,) = summarize([found], mesh)
    assert (row.count, row.bytes) == (5, 5 * 64)


def test_loop_of_unknown_length(mesh):
    def f(x):
        return lax.while_loop(lambda c: c.sum() < 10, lambda c: lax.pmax(c, "data") + 1, x)

    (found,) = manual(mesh, f)
    assert not found.runs_known
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        console.print(table(summarize([found], mesh)))
    assert "1+" in captured.get() and "64 B+" in captured.get()


def test_what_takes_the_text_takes_the_function():
    mesh = sw.sharding.Mesh(sw.devices(), "x")
    x = sw.device_put(np.ones(8, np.float32), sw.NamedSharding(mesh, sw.P("x")))
    lowered = sw.jit(lambda x: x.sum()).lower(x)
    assert [c.kind for c in collectives(lowered.compile())] == ["all-reduce"]
    assert message(ValueError, lambda: collectives(lowered.as_text())) == (
        "collectives takes optimized HLO; got the StableHLO of a function that is lowered but not "
        "compiled. Collectives appear only in a compiled function: "
        "collectives(f.lower(...).compile())."
    )


def test_program_without_collectives():
    compiled = jax.jit(jnp.sin).lower(jnp.ones(3)).compile()
    assert collectives(compiled.as_text()) == []


# ---- spellings of groups -------------------------------------------------------------------------

DATA = ((0, 2, 4, 6), (1, 3, 5, 7))
MODEL = ((0, 1), (2, 3), (4, 5), (6, 7))
FAR = ((0, 4), (1, 5), (2, 6), (3, 7))


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", MODEL),
        ("{{0,2,4,6},{1,3,5,7}}", DATA),
        ("[4,2]<=[8]", MODEL),
        ("[2,4]<=[4,2]T(1,0)", DATA),
        ("[1,8]<=[8]", (tuple(range(8)),)),
        ("[4,2]<=[2,2,2]T(0,2,1)", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", MODEL),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", DATA),
        ("mesh[axis_0=4,axis_1=2] {axis_0}", DATA),
        ("mesh['a'=8] {'a':(4)2}", MODEL),
        ("mesh['a'=8] {'a':(1)4}", DATA),
        ("mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}", DATA),
        ("mesh['a'=4,'b'=2], device_ids=(0,4,1,5,2,6,3,7) {'b'}", FAR),
        ("{}", ()),
    ],
)
def test_replica_groups(text, groups):
    found = read(
        "f32[2,8]{1,0}", "all-reduce", f"replica_groups={text}, use_global_device_ids=true"
    )
    assert found.groups == groups
    assert found.group_size == (len(groups[0]) if groups else 8)


def test_unknown_groups_name_the_known_forms():
    with pytest.raises(ValueError, match=r"cannot read replica_groups='\?\?.*\[2,2\]<=\[4\]"):
        read("f32[2]{0}", "all-reduce", "replica_groups=??")


def test_groups_along_parts_of_axes_and_none():
    odd = read("f32[2]{0}", "all-reduce", "replica_groups={{0,3},{1,2},{4,7},{5,6}}")
    assert mesh_axes(odd, grid(data=4, model=2)) is None

    halves = read("f32[2]{0}", "all-reduce", "replica_groups={{0,2},{4,6},{1,3},{5,7}}")
    assert [str(a) for a in mesh_axes(halves, grid(data=4, model=2))] == ["data:(2)2"]
    assert mesh_axes(halves, grid(a=2, b=2, c=2)) == ("b",)
    everyone = read("f32[2]{0}", "all-reduce", "replica_groups={}")
    assert mesh_axes(everyone, grid(data=4, model=2)) == ("data", "model")


# ---- asynchronous forms --------------------------------------------------------------------------


def asynchronous(start: str, kind: str, rest: str, result: str) -> Collective:
    lines = "\n".join(
        [
            LINE.format(name="s", shape=start, op=f"{kind}-start", rest=rest),
            f"  ROOT %d = {result} {kind}-done(%s)",
        ]
    )
    (only,) = collectives(MODULE.format(lines=lines))
    return only


@pytest.mark.parametrize(
    ("start", "kind", "rest", "result", "count"),
    [
        ("f32[2,8]{1,0}", "all-reduce", "replica_groups=[4,2]<=[8]", "f32[2,8]{1,0}", 64),
        (
            "(f32[2,8]{1,0}, bf16[4]{0})",
            "all-reduce",
            "replica_groups=[4,2]<=[8]",
            "(f32[2,8]{1,0}, bf16[4]{0})",
            64 + 8,
        ),
        (
            "(f32[2,8]{1,0}, f32[4,8]{1,0})",
            "all-gather",
            "replica_groups=[4,2]<=[8], dimensions={0}",
            "f32[4,8]{1,0}",
            128,
        ),
        (
            "((f32[2]{0}, s8[3]{0}), (f32[4]{0}, s8[6]{0}))",
            "all-gather",
            "replica_groups=[4,2]<=[8], dimensions={0}",
            "(f32[4]{0}, s8[6]{0})",
            16 + 6,
        ),
        (
            "(f32[2,8]{1,0:T(8,128)}, f32[2,8]{1,0:T(8,128)}, u32[], u32[])",
            "collective-permute",
            "source_target_pairs={{0,2},{2,0}}",
            "f32[2,8]{1,0}",
            64,
        ),
        (
            "((f32[2,8]{1,0}), f32[2,4]{1,0}, u32[])",
            "reduce-scatter",
            "replica_groups=[4,2]<=[8], dimensions={1}",
            "f32[2,4]{1,0}",
            64,
        ),
    ],
)
def test_start_and_done_are_one(start, kind, rest, result, count):
    found = asynchronous(start, kind, rest, result)
    assert (found.kind, found.bytes) == (kind, count)


def test_wrapped_asynchronous_computation_is_one():
    text = """HloModule m, num_partitions=8

%async_computation (p: f32[2,8]) -> f32[2,8] {
  %p = f32[2,8]{1,0} parameter(0)
  ROOT %a = f32[2,8]{1,0} all-to-all(%p), replica_groups=[4,2]<=[8], dimensions={0}
}, execution_thread="main"

ENTRY %main (x: f32[2,8]) -> f32[2,8] {
  %x = f32[2,8]{1,0} parameter(0)
  %s = ((f32[2,8]{1,0}), f32[2,8]{1,0}, u32[]) async-start(%x), calls=%async_computation
  ROOT %d = f32[2,8]{1,0} async-done(%s), calls=%async_computation
}
"""
    (found,) = collectives(text)
    assert (found.kind, found.runs) == ("all-to-all", 1)


@pytest.mark.parametrize(
    ("shape", "count"),
    [("pred[3]{0}", 3), ("s4[3]{0}", 2), ("c64[2]{0}", 16), ("f8e4m3fn[5]{0}", 5), ("f32[]", 4)],
)
def test_bytes_by_dtype(shape, count):
    assert read(shape, "all-reduce", "replica_groups={}").bytes == count


def test_older_metadata():
    rest = 'replica_groups={}, metadata={op_name="f/dot" source_file="/a/b.py" source_line=12}'
    found = read("f32[2]{0}", "all-reduce", rest)
    assert (found.op_name, found.source) == ("f/dot", "/a/b.py:12")
    assert str(found) == "all-reduce(f32[2]) over 8 devices"


# ---- summary -------------------------------------------------------------------------------------


def test_summary_table():
    model = read("f32[1024]{0}", "all-reduce", "replica_groups=[4,2]<=[8]")
    data = read("f32[2048]{0}", "all-gather", "replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}")
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        console.print(table(summarize([model, data, model, model], grid(data=4, model=2))))
    lines = [line.rstrip() for line in captured.get().splitlines() if line.strip()]
    assert lines == [
        "  collective   over    count   bytes per device",
        " ───────────────────────────────────────────────",
        "  all-reduce   model       3           12.0 KiB",
        "  all-gather   data        1            8.0 KiB",
        "  total                    4           20.0 KiB",
    ]
    assert [row.axes for row in summarize([model, data])] == [None, None]
