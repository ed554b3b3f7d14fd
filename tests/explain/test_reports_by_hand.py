"""Reports of programs that a new user writes: numbers, causes, and options of reports."""

import json
import pickle
import types

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import explain, lax
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH


def struct(shape, *spec, mesh=MESH, dtype=np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def rows_of(report):
    return [(c.kind, c.axes, c.count, c.bytes, c.call, c.why) for c in report.communication]


def mapped(f, ins, outs):
    return sw.shard_map(f, mesh=MESH, in_specs=ins, out_specs=outs, check_vma=False)


# ---- causes --------------------------------------------------------------------------------------


def partly_manual(a, w):
    def each(v, w):
        return lax.psum((v @ w).sum(), "x")

    return sw.shard_map(
        each, mesh=MESH, in_specs=(P("x"), P()), out_specs=P(), axis_names={"x"}
    )(a, w)  # fmt: skip


CAUSES = {
    "a result elsewhere than it is made": (
        sw.jit(lambda a: a * 2, out_shardings=NamedSharding(MESH, P())), [struct((8, 8), "x")],
        [("all-gather", ("x",), 1, 256, "mul(f32[8@x,8]) → f32[8@x,8]",
          "'x' shards dimension 0 of the result, but not in the program's output")],
    ),
    "an operand is gathered for another that is whole": (
        lambda a: a @ np.ones((16, 512), np.float32), [struct((4, 16), None, "x")],
        [("all-gather", ("x",), 1, 256, "dot_general(f32[4,16@x], f32[16,512]) → f32[4,512]",
          "'x' shards dimension 1 of operand 0, but not operand 1")],
    ),
    "axes that a map leaves to the compiler": (
        partly_manual, [struct((8, 8), "x", "y"), struct((8, 8), "y")],
        [("all-reduce", ("y",), 1, 64, "dot_general(f32[2,8@y], f32[8@y,8]) → f32[2,8]",
          "sums over dimension 1 of operand 0, which is sharded over 'y'"),
         ("all-reduce", ("x",), 1, 4, "psum(f32[]) → f32[]", "requested by psum")],
    ),
    "an operand of a map": (
        lambda a: sw.shard_map(jnp.sin, mesh=MESH, in_specs=P("x"), out_specs=P("x"))(a),
        [struct((8, 8), None, "x")],
        [("all-to-all", ("x",), 1, 64, "shard_map", "shard_map changes the sharding")],
    ),
    "axes of one dimension in another order than the mesh's": (
        lambda a: a.sum(0), [struct((8, 8), ("y", "x"))],
        [("all-reduce", ("x", "y"), 1, 32, "reduce_sum(f32[8@y+x,8]) → f32[8]",
          "sums over dimension 0 of operand 0, which is sharded over 'y' and 'x'")],
    ),
    "behind a function of each element": (
        lambda a: sw.scipy.special.erfinv(a).sum(0), [struct((8, 8), "x")],
        [("all-reduce", ("x",), 1, 32, "reduce_sum(f32[8@x,8]) → f32[8]",
          "sums over dimension 0 of operand 0, which is sharded over 'x'")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_causes(name):
    f, args, wanted = CAUSES[name]
    assert rows_of(explain(f)(*args)) == wanted


def test_callbacks_do_not_add():
    whole = sw.ShapeDtypeStruct((8, 4), np.float32)
    report = explain(lambda a: sw.pure_callback(np.sin, whole, a))(struct((8, 4), "x"))
    assert {c.why for c in report.communication} == {
        "pure_callback works along dimension 0 of operand 0, which is sharded over 'x'"
    }


def test_products_of_elements_do_not_work_along_dimensions():
    def attention(q, k, v):
        scores = q @ k.swapaxes(-1, -2) / 4.0
        powers = jnp.exp(scores - sw.lax.stop_gradient(scores.max(-1, keepdims=True)))
        return powers / powers.sum(-1, keepdims=True) @ v

    f = sw.grad(lambda *v: attention(*v).sum(), (0, 1, 2))
    report = explain(f)(*[struct((2, 16, 16), None, "x", "y")] * 3)
    reasons = {c.op: c.why for c in report.communication}
    assert reasons["div"] == (
        "the partitioner moves parts of it: dimension 1 of operand 0 is sharded over 'x'"
    )
    others = [why for op, why in reasons.items() if op in ("div", "mul", "add")]
    assert not any("works along" in why for why in others)


def test_an_operand_that_is_taken_twice():
    report = explain(lambda a: a @ a)(struct((16, 16), "x"))
    assert rows_of(report) == [
        ("all-gather", ("x",), 1, 1024, "dot_general(f32[16@x,16], f32[16@x,16]) → f32[16@x,16]",
         "'x' shards dimension 0 of operand 1, but dimension 0 of operand 0")
    ]  # fmt: skip


def test_axes_are_those_of_the_mesh_that_a_line_is_about():
    renamed = NamedSharding(Mesh(MESH.devices, ("y", "x")), P("y", "x"))

    def rows(a, b):
        return a.sum(0), lax.with_sharding_constraint(b * 2, renamed).sum(0)

    report = explain(rows)(struct((8, 6), "x", "y"), struct((8, 6)))
    assert sorted((c.axes, c.bytes, c.why) for c in report.communication) == [
        (("x",), 12, "sums over dimension 0 of operand 0, which is sharded over 'x'"),
        (("y",), 12, "sums over dimension 0 of operand 0, which is sharded over 'y'"),
    ]
    assert (report.mesh, report.others) == ({"x": 4, "y": 2}, ({"y": 4, "x": 2},))
    assert {c.axes: c.mesh for c in report.communication} == {("x",): 0, ("y",): 1}


def test_meshes_of_other_names_sizes_and_orders_of_devices():
    turned = Mesh(MESH.devices.ravel()[::-1].reshape(2, 4), ("a", "b"))

    def both(a, b):
        u = sw.shard_map(lambda v: lax.psum(v, "x"), mesh=MESH, in_specs=P("x"), out_specs=P())(a)
        w = lax.with_sharding_constraint(b * 2, NamedSharding(turned, P("a", "b"))).max(0)
        return u, sw.shard_map(
            lambda v: lax.psum(v, "b"), mesh=turned, in_specs=P("a", "b"), out_specs=P("a")
        )(b), w  # fmt: skip

    report = explain(both)(struct((8, 6), "x"), struct((8, 8)))
    assert sorted((c.op, c.axes, c.groups, c.mesh, c.bytes) for c in report.communication) == [
        ("psum", ("b",), 4, 1, 4 * 2 * 4), ("psum", ("x",), 4, 0, 2 * 6 * 4),
        ("reduce_max", ("a",), 2, 1, 2 * 4),
    ]  # fmt: skip
    assert report.count("all-reduce", "b") == report.count("all-reduce", "x") == 1
    assert str(report).startswith(
        "both: 8 devices, meshes (x=4, y=2) and (a=2, b=4), estimated for machine 'cpu'\n"
    )
    assert " of mesh 2 " in str(report)
    assert report.to_dict()["others"] == [{"a": 2, "b": 4}]
    assert (
        message(ValueError, report.count, "all-reduce", "c")
        == "the meshes have no axis 'c'; they have 'x', 'y', 'a' and 'b'."
    )


def test_axes_that_are_numbers():
    mesh = Mesh(MESH.devices, (0, 1))
    report = explain(lambda a: jnp.sin(a).sum(0))(struct((8, 8), 0, 1, mesh=mesh))
    assert rows_of(report) == [
        ("all-reduce", (0,), 1, 16, "reduce_sum(f32[8@0,8@1]) → f32[8@1]",
         "sums over dimension 0 of operand 0, which is sharded over 0")
    ]  # fmt: skip
    assert report.count("all-reduce", [0]) == report.count("all-reduce", 0) == 1


# ---- lines ---------------------------------------------------------------------------------------


def in_a_map(a):
    return mapped(lambda v: lax.psum(v, "x"), P("x"), P())(a)


def in_another_map(a):
    return mapped(lambda v: lax.psum(v, "x"), P("x"), P())(a)


def in_a_loop(a):
    return lax.fori_loop(0, 3, lambda i, v: v + v.sum(), a)


def in_another_loop(a):
    return lax.fori_loop(0, 3, lambda i, v: v + v.sum(), a)


@pytest.mark.parametrize(
    "pair", [(in_a_map, in_another_map), (in_a_loop, in_another_loop)], ids=["map", "loop"]
)
def test_the_same_on_another_line_is_of_that_line(pair):
    for f in pair:
        report = explain(f)(struct((8, 6), "x"))
        assert [c.line for c in report.communication] == [
            f"{__file__}:{f.__code__.co_firstlineno + 1}"
        ]


def test_joined_collectives_are_of_their_own_lines():
    def each(a, b, c):
        first = sw.jit(lambda v: lax.psum(v * 2, "x"))
        return (first(a), lax.psum(b, "x"), lax.psum(c, "x"))

    f = mapped(each, P("x"), P())
    report = explain(f)(struct((8, 6), "x"), struct((8, 7), "x"), struct((8, 5), "x"))
    start = each.__code__.co_firstlineno
    assert sorted((c.line, c.bytes, c.count) for c in report.communication) == [
        (f"{__file__}:{start + line}", 2 * size * 4, 1) for line, size in ((1, 6), (2, 5), (2, 7))
    ]
    assert report.count("all-reduce") == 1
    largest = max(report.communication, key=lambda c: c.bytes)
    assert [c.shared for c in report.communication if c is not largest] == [1, 1]
    assert largest.shared == 0


def test_results_of_joined_collectives_are_of_their_own_equations():
    def loss(w, x):
        return (jnp.tanh(x @ w) ** 2).mean()

    report = explain(sw.value_and_grad(loss))(struct((16, 32), None, "y"), struct((64, 16), "x"))
    results = {b.bytes: b.what.partition("(")[0] for b in report.buffers if b.kind == "result"}
    assert results == {16 * 16 * 4: "dot_general", 4: "div"}


def test_devices_that_ask_whether_others_go_on_are_of_the_loop():
    def each(v):
        return lax.while_loop(
            lambda c: c[0] < 5,
            lambda c: (c[0] + 1, lax.ppermute(c[1], "x", [(i, (i + 1) % 4) for i in range(4)])),
            (v.sum(), v),
        )[1]

    f = mapped(each, P("x"), P("x"))
    report = explain(f)(struct((8, 8), "x"))
    start = each.__code__.co_firstlineno
    lines = {c.op: c.line for c in report.communication}
    assert lines == {"pmax": f"{__file__}:{start + 1}", "ppermute": f"{__file__}:{start + 3}"}
    assert not any(c.known for c in report.communication)


FACTORS = {
    "cholesky": jnp.linalg.cholesky, "qr": jnp.linalg.qr, "eigh": jnp.linalg.eigh,
    "svd": jnp.linalg.svd, "inv": jnp.linalg.inv, "det": jnp.linalg.det, "pinv": jnp.linalg.pinv,
}  # fmt: skip


@pytest.mark.parametrize("name", everyday(FACTORS, 4))
def test_what_ops_are_made_of_is_of_the_users_line(name):
    f = FACTORS[name]

    def first(a):
        return f(a)

    def second(a):
        return f(a)

    for user in (first, second):  # the definitions of ops are cached between reports
        report = explain(user)(struct((16, 16), "x"))
        line = f"{__file__}:{user.__code__.co_firstlineno + 1}"
        assert report.communication
        assert {c.line for c in report.communication} == {line}
        assert {b.line for b in report.buffers} <= {line, ""}


# ---- dtypes that CPU lacks -----------------------------------------------------------------------

BF16 = [struct((8, 16), "x", "y", dtype="bfloat16"), struct((16, 4), "y", dtype="bfloat16")]


@pytest.mark.parametrize(
    ("machine", "sent", "bytes_"), [("cpu", "f32", 32), ("h200", "bf16", 16), ("a100", "bf16", 16)]
)
def test_bf16_is_sent_as_the_machine_sends_it(machine, sent, bytes_):
    report = explain(lambda a, b: a @ b, machine=machine)(*BF16)  # bf16[2,4] per device
    (row,) = report.communication
    assert (row.dtypes, row.bytes) == ((sent,), bytes_)
    assert dict(report.computation.flops) == {sent: 2 * 2 * 8 * 4}
    assert report.seconds.communication == pytest.approx(row.seconds)
    rate = explain.machines[machine].flop_rate(sent)
    assert report.seconds.compute == pytest.approx(2 * 2 * 8 * 4 / rate)


@pytest.mark.parametrize(("machine", "sent", "size"), [("h100", "f8e4m3fn", 1), ("a100", "f16", 2)])
def test_f8_is_sent_as_the_machine_sends_it(machine, sent, size):
    f = mapped(lambda v: lax.all_gather(v, "x", tiled=True), P("x"), P())
    report = explain(f, machine=machine)(struct((8, 8), "x", dtype="float8_e4m3fn"))
    (row,) = report.communication
    assert (row.dtypes, row.bytes) == ((sent,), 8 * 8 * size)


def test_products_of_bf16_that_give_f32():
    def product(a, b):
        return jnp.matmul(a, b, preferred_element_type=np.float32)

    report = explain(product, machine="h200")(*BF16)
    assert [(c.dtypes, c.bytes) for c in report.communication] == [(("f32",), 32)]
    assert dict(report.computation.flops) == {"bf16": 2 * 2 * 8 * 4}


def test_joined_collectives_of_bf16():
    def loss(w, v, x):
        return (jnp.tanh(x @ w) @ v).astype(np.float32).sum()

    args = [
        struct(shape, *spec, dtype="bfloat16")
        for shape, *spec in [((16, 32), None, "y"), ((32, 16), "y"), ((8, 16), "x")]
    ]
    report = explain(sw.grad(loss, (0, 1)), machine="h200")(*args)
    assert report.bytes("all-reduce", ["x"]) == 2 * 16 * 16 * 2
    assert report.seconds.communication == pytest.approx(
        sum(c.seconds for c in report.communication)
    )


# ---- counts by hand ------------------------------------------------------------------------------


def test_a_pipeline_counts_each_turn():
    def each(v):
        def step(c, _):
            return lax.ppermute(c, "x", [(i, (i + 1) % 4) for i in range(4)]), None

        return lax.scan(step, v, None, length=6)[0]

    report = explain(mapped(each, P("x"), P("x")))(struct((8, 8), "x"))
    assert rows_of(report) == [
        ("collective-permute", ("x",), 6, 6 * 2 * 8 * 4, "ppermute(f32[2,8]) → f32[2,8]",
         "requested by ppermute")
    ]  # fmt: skip


def test_all_branches_count():
    f = mapped(
        lambda p, v: lax.cond(p, lambda: lax.psum(v, "x"), lambda: lax.pmax(v, "x")),
        (P(), P("x")), P(),
    )  # fmt: skip
    report = explain(f)(struct((), dtype=np.bool_), struct((8, 8), "x"))
    assert sorted((c.op, c.count, c.bytes) for c in report.communication) == [
        ("pmax", 1, 64), ("psum", 1, 64)
    ]  # fmt: skip


def test_devices_in_another_order():
    order = [sw.devices("cpu")[i] for i in (7, 3, 5, 1, 6, 2, 4, 0)]
    mesh = Mesh(np.array(order).reshape(4, 2), ("x", "y"))
    report = explain(lambda a: (a.sum(0), a.sum(1)))(struct((8, 6), "x", "y", mesh=mesh))
    assert sorted((c.axes, c.bytes) for c in report.communication) == [(("x",), 12), (("y",), 8)]


# ---- options of reports --------------------------------------------------------------------------


def both(a):
    return mapped(lambda v: lax.psum(v, ("x", "y")), P("x", "y"), P())(a)


def test_axes_are_asked_for_in_any_order():
    report = explain(both)(struct((8, 8), "x", "y"))
    assert report.count("all_reduce", ("y", "x")) == report.count("all-reduce", ["x", "y"]) == 1
    assert report.count("all_reduce", "x") == 0 == report.count("all_gather")
    single = explain(lambda a: a.sum())(struct((8,), "data", mesh=LINE))
    assert single.count("all_reduce", "data") == 1


LINE = Mesh(np.array(sw.devices("cpu")[:8]), ("data",))


def test_what_there_is_not_is_refused():
    report = explain(both)(struct((8, 8), "x", "y"))
    assert message(ValueError, report.count, "allreduce") == (
        "unknown collective 'allreduce'; known collectives are 'all-reduce', 'all-gather', "
        "'reduce-scatter', 'all-to-all', 'ragged-all-to-all', 'collective-permute' and "
        "'collective-broadcast'. Did you mean 'all-reduce'?"
    )
    assert (
        message(ValueError, report.bytes, "all-reduce", ["data"])
        == "the mesh has no axis 'data'; it has 'x' and 'y'."
    )


def test_a_loop_of_unknown_length_leaves_other_kinds_known():
    def halved(a):
        return lax.while_loop(lambda v: v.sum() > 1, lambda v: v / v.sum(), a)

    explain.assert_comm(halved, all_gather=0, all_gather_bytes=0)(struct((8,), "x"))
    for limit in ({"all_reduce": 2}, {"collectives": 2}, {"bytes": "<1MB"}):
        with pytest.raises(AssertionError, match="is unknown, because a loop's length is"):
            explain.assert_comm(halved, **limit)(struct((8,), "x"))


@pytest.mark.parametrize(
    "asked", [3, sw.jit(jnp.sin).lower(1.0), sw.jit(jnp.sin).lower(1.0).compile()],
    ids=["number", "lowered", "compiled"],
)  # fmt: skip
def test_only_functions_are_explained(asked):
    assert message(TypeError, explain, asked) == (
        f"explain takes a function; got {type(asked).__name__}. Pass the function's arguments "
        "in a second call: `explain(f)(*args)`."
    )


def test_machines_of_any_mapping_are_data():
    link = explain.Link(bandwidth=1e9, latency=1e-6)
    flops = types.MappingProxyType({"f32": 1e12})
    ours = explain.Machine("ours", flops, 1e12, 1 << 30, link, link, 4)
    report = explain(lambda a: a.sum(), machine=ours)(struct((8, 8), "x"))
    assert json.loads(json.dumps(report.to_dict()))["machine"]["flops"] == {"f32": 1e12}
    assert pickle.loads(pickle.dumps(report)) == report


def test_described_devices_beside_real_ones():
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    held = sw.device_put(np.ones((4, 4), np.float32), NamedSharding(MESH, P("x")))
    with pytest.raises(ValueError) as caught:
        explain(lambda a, b: a @ b)(struct((8, 4), "x", mesh=mesh), held)
    ids = [d.id for d in MESH.devices.flat]
    assert str(caught.value) == (
        "<lambda> got arguments on different devices: a of type f32[8,4] is on 8 devices "
        f"that are not attached, b of type f32[4,4] on devices {ids}. Use shardings over the same "
        "AbstractMesh for both."
    )


def test_what_xla_would_warn_of_is_not_on_the_terminal(capfd):
    report = explain(lambda a: lax.associative_scan(jnp.add, a))(struct((16, 4), "data", mesh=LINE))
    assert report.communication
    assert capfd.readouterr() == ("", "")


# ---- invalid arguments ---------------------------------------------------------------------------


def test_numbers_of_collectives_have_no_unit():
    for name, bytes_ in (("all_gather", "all_gather_bytes"), ("collectives", "bytes")):
        assert message(ValueError, explain.assert_comm, jnp.sin, **{name: "<4MiB"}) == (
            f"assert_comm: {name}='<4MiB' is a number of collectives, which takes no unit; to "
            f"limit bytes, use {bytes_}."
        )


def test_limits_that_are_no_numbers():
    for limit in ("<.", "<1.5.2", 1.5, True):
        assert message(ValueError, explain.assert_comm, jnp.sin, bytes=limit) == (
            f"assert_comm: bytes={limit!r} is not a limit; pass an integer, or a string such as "
            "'<=3' or '<4MiB'."
        )


def test_limits_are_of_the_machine():
    def product(a, b):
        return a @ b

    explain.assert_comm(product, all_reduce_bytes=np.int64(32))(*BF16)
    explain.assert_comm(product, machine="h200", all_reduce_bytes=16)(*BF16)


def test_only_functions_are_checked():
    with pytest.raises(TypeError, match=r"^explain takes a function; got int\."):
        explain.assert_comm(3, all_gather=0)


def test_what_is_compared_and_searched():
    report = explain(jnp.sin)(struct((8,), "x"))
    assert message(TypeError, explain.diff, report, 3) == (
        "diff takes two reports, as returned by `explain(f)(*args)`; got int."
    )
    assert message(TypeError, lambda: explain.suggest(jnp.sin, struct((8,)), MESH)) == (
        "suggest takes the arguments as a tuple, `suggest(f, (x,), mesh)`; got ShapeDtypeStruct."
    )
    assert message(
        TypeError, lambda: explain.suggest(jnp.sin, (struct((8,)),), MESH.devices.flat[0])
    ).startswith("suggest takes a Mesh or an AbstractMesh; got ")
