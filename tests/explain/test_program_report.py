"""`explain(f)(*args)`: collectives, memory and work against manual counts."""

import inspect
import json

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH
from tests.helpers.targets import needs_cuda


def struct(shape, *spec, mesh=MESH, dtype=np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def line_of(f, text):
    """`file:line` of a line of a function."""
    lines, first = inspect.getsourcelines(f)
    (at,) = [i for i, line in enumerate(lines) if text in line]
    return f"{__file__}:{first + at}"


def told(report):
    return [(c.kind, c.axes, c.count, c.bytes, c.call, c.why) for c in report.communication]


W = lax.with_sharding_constraint
CASES = {
    "sum": (
        lambda a: a.sum(0), [struct((8, 6), "x")],
        [("all-reduce", ("x",), 1, 24, "reduce_sum(f32[8@x,6]) → f32[6]",
          "sums over dimension 0 of operand 0, which is sharded over 'x'")],
    ),
    "max": (
        lambda a: a.max(1), [struct((8, 6), None, "y")],
        [("all-reduce", ("y",), 1, 32, "reduce_max(f32[8,6@y]) → f32[8]",
          "takes the maximum over dimension 1 of operand 0, which is sharded over 'y'")],
    ),
    "product over the model axis": (
        lambda a, b: a @ b, [struct((8, 16), "x", "y"), struct((16, 6), "y")],
        [("all-reduce", ("y",), 1, 2 * 6 * 4,
          "dot_general(f32[8@x,16@y], f32[16@y,6]) → f32[8@x,6]",
          "sums over dimension 1 of operand 0, which is sharded over 'y'")],
    ),
    "operands that disagree": (
        lambda a, b: a + b, [struct((8, 8), "x"), struct((8, 8), None, "x")],
        [("all-to-all", ("x",), 1, 64, "add(f32[8@x,8], f32[8,8@x]) → f32[8@x,8]",
          "'x' shards dimension 0 of operand 0, but dimension 1 of operand 1")],
    ),
    "a constraint": (
        lambda a: W(a, NamedSharding(MESH, P())), [struct((8, 8), "x")],
        [("all-gather", ("x",), 1, 256, "sharding_constraint(f32[8@x,8]) → f32[8,8]",
          "sharding_constraint changes the sharding")],
    ),
    "a scan along a split dimension": (
        lambda a: jnp.cumsum(a, 0), [struct((8, 8), "x")],
        [("all-gather", ("x",), 1, 256, "cumsum(f32[8@x,8]) → f32[8@x,8]",
          "cumsum works along dimension 0 of operand 0, which is sharded over 'x'")],
    ),
    "what a map asks for": (
        lambda a: sw.shard_map(
            lambda v: lax.psum(v, "x"), mesh=MESH, in_specs=P("x"), out_specs=P()
        )(a), [struct((8, 8), "x")],
        [("all-reduce", ("x",), 1, 64, "psum(f32[2,8]) → f32[2,8]", "requested by psum")],
    ),
    "nothing": (lambda a: jnp.sin(a) * 2, [struct((8, 8), "x", "y")], []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_collectives_and_their_causes(name):
    f, args, wanted = CASES[name]
    assert told(explain(f)(*args)) == wanted


def layers(w, v, x):
    def layer(h, _):
        z = jnp.tanh(h @ w)
        return z @ v, None

    return (lax.scan(layer, x, None, length=5)[0] ** 2).mean()


ARGS = (struct((32, 64), None, "y"), struct((64, 32), "y"), struct((16, 32), "x"))


def test_loops_count_as_often_as_they_run_and_lines_are_the_users():
    report = explain(sw.grad(layers, (0, 1)))(*ARGS)
    forward, back = line_of(layers, "return z @ v"), line_of(layers, "z = jnp.tanh(h @ w)")
    rows = [(c.line, c.axes, c.count, c.bytes) for c in report.communication]
    assert sorted(rows) == sorted(
        [
            (back, ("x",), 5, 5 * 32 * 32 * 4),  # the gradient of w: f32[32,64@y]
            (forward, ("x",), 5, 5 * 32 * 32 * 4),  # and of v
            (forward, ("y",), 5, 5 * 4 * 32 * 4),  # h: f32[16@x,32]
            (back, ("y",), 5, 5 * 4 * 32 * 4),  # its cotangent
        ]
    )
    assert report.lines[forward] == "return z @ v, None"
    assert {c.function for c in report.communication} == {"layer"}
    assert report.count("all_reduce", ["y"]) == 10
    assert report.bytes("all-reduce", ["x"]) == 2 * 5 * 32 * 32 * 4
    assert report.seconds.communication == pytest.approx(
        sum(c.seconds for c in report.communication)
    )


def test_products_are_counted_by_their_shapes():
    report = explain(sw.grad(layers, (0, 1)))(*ARGS)
    one = 2 * 4 * 32 * 32  # on each device: f32[16@x,32] @ f32[32,64@y], and the like
    assert dict(report.computation.flops) == {"f32": 5 * 6 * one}
    assert report.computation.known and report.computation.uncounted == ()


def test_loops_of_unknown_length_count_once_and_say_so():
    def halved(x):
        return lax.while_loop(lambda v: v.sum() > 1, lambda v: v / v.sum(), x)

    report = explain(halved)(struct((8,), "x"))
    assert {c.known for c in report.communication} == {False}
    assert not report.computation.known


def test_memory_is_that_of_xla():
    args = [struct((64, 32), "x"), struct((32, 16))]
    report = explain(lambda a, b: jnp.exp(a @ b))(*args)
    found = sw.jit(lambda a, b: jnp.exp(a @ b)).lower(*args).compile().memory_analysis()
    m = report.memory
    assert (m.arguments, m.results) == (16 * 32 * 4 + 32 * 16 * 4, 16 * 16 * 4)
    assert m.arguments == found.argument_size_in_bytes
    assert m.temporaries == found.temp_size_in_bytes
    assert m.peak == m.arguments + m.results + m.temporaries - m.donated
    rows = {(b.kind, b.what): b.bytes for b in report.buffers}
    assert rows["argument", "a"] == 16 * 32 * 4 and rows["argument", "b"] == 32 * 16 * 4


def test_donated_arguments():
    step = sw.jit(lambda a: a + 1, donate_argnums=0)
    report = explain(step)(struct((8, 8), "x"))
    assert report.memory.donated == 64
    assert [b.kind for b in report.buffers if b.what == "a"] == ["donated"]


def test_buffers_fill_the_memory_of_temporaries():
    report = explain(sw.grad(layers, (0, 1)))(*ARGS)
    temporaries = [b for b in report.buffers if b.kind == "temporary"]
    parts = sum(b.bytes for b in temporaries)
    assert 0.9 * report.memory.temporaries <= parts <= report.memory.temporaries
    assert temporaries[0].line in {line_of(layers, "z @ v"), line_of(layers, "h @ w)")}


@pytest.mark.parametrize("name", everyday(CASES, 2))
def test_described_devices_give_the_same(name):
    f, args, _ = CASES[name]
    if name in ("a constraint", "what a map asks for"):
        pytest.skip("names devices")
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    there = [struct(a.shape, *a.sharding.spec, mesh=mesh) for a in args]
    here, elsewhere = explain(f)(*args), explain(f)(*there)
    assert told(here) == told(elsewhere)
    assert here.memory == elsewhere.memory
    assert here.computation == elsewhere.computation


@pytest.mark.sweep
def test_thousands_of_described_devices():
    mesh = AbstractMesh((1024, 8), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    args = [
        struct((32, 64), None, "y", mesh=mesh), struct((64, 32), "y", mesh=mesh),
        struct((4096, 32), "x", mesh=mesh),
    ]  # fmt: skip
    report = explain(sw.grad(layers, (0, 1)), machine="h200")(*args)
    assert (report.devices, dict(report.mesh)) == (8192, {"x": 1024, "y": 8})
    assert report.count("all_reduce", ["y"]) == 10
    assert report.seconds.dominant == "communication"


def test_explicit_axes_on_described_devices():
    mesh = AbstractMesh((16,), ("x",))
    report = explain(lambda a: a.sum())(struct((64,), "x", mesh=mesh))
    assert told(report) == [
        ("all-reduce", ("x",), 1, 4, "reduce_sum(f32[64@x]) → f32[]",
         "sums over dimension 0 of operand 0, which is sharded over 'x'")
    ]  # fmt: skip


def test_as_data():
    report = explain(lambda a: a.sum())(struct((8,), "x"))
    data = json.loads(json.dumps(report.to_dict()))
    assert data["format"] == 1 and data["devices"] == 8 and data["mesh"] == {"x": 4, "y": 2}
    assert data["communication"][0]["axes"] == ["x"]
    assert data["seconds"]["dominant"] == report.seconds.dominant
    assert "hlo" not in data


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("h20", " Did you mean 'h200'?"), ("H100", " Did you mean 'h100'?"),
        ("tpu", " Did you mean 'tpu-v5e', 'tpu-v5p', 'tpu-v6e' or 'tpu-7x'?"),
        ("tpu_v5e", " Did you mean 'tpu-v5e'?"), ("gpu", ""), ("", ""),
    ],
)  # fmt: skip
def test_unknown_machines_are_refused_at_once(asked, meant):
    assert message(ValueError, explain, jnp.sin, machine=asked) == (
        f"unknown machine {asked!r}; known machines are 'cpu', 'v100', 'a100-40', 'a100', 'h100', "
        "'h200', 'b200', 'gb200', 'mi300', 'tpu-v5e', 'tpu-v5p', 'tpu-v6e' and 'tpu-7x'."
        f"{meant} To add one of your own: "
        "`shardwise.explain.machines['mine'] = "
        "dataclasses.replace(shardwise.explain.machines['h200'], name='mine', node=4)`."
    )


NO_MACHINE = (
    "`machine` must be the name of one of `shardwise.explain.machines`, such as 'h100', for its "
    "rates; a name with a number of devices, such as 'h100:8', to compile for them; or a "
    "`shardwise.explain.Machine`. Got "
)


@pytest.mark.parametrize("asked", [200, [], sw.devices("cpu")])
def test_what_is_no_machine_is_refused_at_once(asked):
    with pytest.raises(TypeError) as caught:
        explain(jnp.sin, machine=asked)  # type: ignore[arg-type]
    assert str(caught.value) == f"{NO_MACHINE}{type(asked).__name__}."


@pytest.mark.parametrize("others", [("h100:8",), (np.ones(3), np.ones(3))], ids=len)
def test_other_arguments_are_keywords_or_for_a_second_call(others):
    assert message(TypeError, explain, jnp.sin, *others) == (
        f"explain takes one positional argument, a function; got {1 + len(others)}. The machine is "
        "a keyword, and the function's arguments belong in a second call: "
        '`explain(f, machine="h100:8")(*args)`.'
    )


@needs_cuda
def test_devices_are_no_name_of_a_machine():
    assert message(TypeError, explain, jnp.sin, machine=sw.targets.devices("h100:8")) == (
        f"{NO_MACHINE}list. The name of these devices is 'h100:8'."
    )


def test_times_are_those_of_the_machine():
    link = explain.Link(bandwidth=100.0, latency=0.5)
    slow = explain.Machine("slow", {"f32": 10.0}, 1000.0, 1 << 30, link, link)
    report = explain(lambda a, b: (a @ b).sum(), machine=slow)(
        struct((8, 16), None, "x"), struct((16, 4), "x")
    )
    assert report.seconds.compute == 2 * 8 * 4 * 4 / 10
    row = report.communication[0]
    wire = 2 * (3 / 4) * row.bytes / 100 + 2 * 2 * 0.5  # a ring of four, both ways
    assert row.seconds == pytest.approx(wire)
    assert report.seconds.total == (
        max(report.seconds.compute, report.seconds.memory) + report.seconds.communication
    )


def test_factors_and_transforms_on_described_devices():
    mesh = AbstractMesh((16,), ("x",), axis_types=(AxisType.Auto,))
    one = explain(jnp.linalg.cholesky)(struct((32, 8, 8), "x", mesh=mesh))
    assert one.communication == () and one.computation.uncounted == ("lapack_spotrf_ffi",)
    across = struct((32, 64), None, "x", mesh=mesh, dtype=np.complex64)
    found = explain(jnp.fft.fft)(across)
    assert [(c.kind, c.axes, c.op) for c in found.communication] == [("all-to-all", ("x",), "fft")]
    assert found.computation.elementwise == 5 * 2 * 64 * 6


def test_functions_of_this_process_cannot_be_asked_elsewhere():
    @sw.experimental.custom_partitioning.custom_partitioning
    def doubled(x):
        return x * 2

    doubled.def_partition(
        partition=lambda mesh, args, out: (mesh, lambda x: x * 2, out.sharding, (out.sharding,)),
        sharding_rule="i -> i",
    )
    mesh = AbstractMesh((16,), ("x",), axis_types=(AxisType.Auto,))
    assert message(
        NotImplementedError, lambda: explain(doubled)(struct((32,), "x", mesh=mesh))
    ) == (
        "the program is partitioned by Python functions (`custom_partitioning`), which exist in "
        "this process only, so it cannot be compiled for devices that are not attached. Use "
        "shardings over attached devices."
    )


def test_compiling_for_described_devices_has_a_deadline():
    mesh = AbstractMesh((16,), ("x",), axis_types=(AxisType.Auto,))
    assert message(
        TimeoutError, lambda: explain(jnp.sin, timeout=0.01)(struct((32,), "x", mesh=mesh))
    ) == ("compiling a program for 16 abstract devices took more than 0.01 s.")


def test_options_of_the_compiler_count_on_described_devices():
    mesh = AbstractMesh((16,), ("x",), axis_types=(AxisType.Auto,))
    f = sw.jit(jnp.sin, compiler_options={"xla_no_such_option": True})
    with pytest.raises(RuntimeError, match="No such compile option: 'xla_no_such_option'"):
        explain(f)(struct((32,), "x", mesh=mesh))
