"""What programs for GPUs and TPUs consist of: each collective more would cost time on every device."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from benchmarks import gpt
from benchmarks.rows.steps import fully_sharded, tensor_parallel
from benchmarks.targets.machines import Target
from benchmarks.targets.programs import gpt_over
from benchmarks.targets.reading import read
from shardwise import lax, nn
from tests.helpers.targets import mesh_on, needs_cuda, needs_tpu, on

HOST = sw.memory.Space.Host
SMALL = gpt.Config(layers=1, width=64, heads=4, vocabulary=256, length=64, batch=16)
# The collectives of a training step of the GPT, on each machine that has another number of them.
STEPS = [
    pytest.param(machine, setup, wanted, marks=mark, id=f"{wanted}, {machine}")
    for machine, mark, setup, wanted in (
        (
            "h100:2x4",
            [needs_cuda, pytest.mark.sweep],
            gpt_over(tensor_parallel, SMALL, dp=4, tp=2),
            "6 all-reduce",
        ),
        (
            "h100:8",
            needs_cuda,
            gpt_over(fully_sharded, SMALL, dp=8),
            "2 all-gather, 1 all-reduce, 2 reduce-scatter",
        ),
        ("tpu-v5e:8", needs_tpu, gpt_over(tensor_parallel, SMALL, dp=4, tp=2), "6 all-reduce"),
    )
]
OVER_8 = [pytest.param("h100:8", marks=needs_cuda), pytest.param("tpu-v5e:8", marks=needs_tpu)]


@pytest.mark.parametrize("machine, setup, wanted", STEPS)
def test_collectives_of_a_training_step(machine, setup, wanted):
    made = setup(Target("shardwise", itertools.count(1), machine))
    facts = read(sw.jit(made.function, **made.options).lower(*made.arguments).compile())
    found = Counter()
    for text, count in facts.collectives.items():
        found[text.partition(" ")[0]] += count
    assert ", ".join(f"{n} {kind}" for kind, n in sorted(found.items())) == wanted


def optimized(machine, f, size=64, dtype=np.float32):
    x = on(mesh_on(machine, (8,), ("x",)), np.ones(size, dtype), "x")
    return sw.jit(f).lower(x).compile().as_text()


def reductions(hlo):
    """The dtypes and instructions of reductions over devices."""
    bodies = dict(re.findall(r"%(\S+) \([^\n]*-> [^\n]*\{\n(.*?)\n\}", hlo, re.DOTALL))
    rows = re.findall(r"= (\w+)\[[^\n]* all-reduce(?:-start)?\([^\n]*to_apply=%([\w.]+)", hlo)
    found = []
    for dtype, name in rows:
        root = bodies[name].rpartition("ROOT")[2]
        found.append(f"{dtype} {re.search(r' ([a-z]+)[(]', root)[1]}")
    return found


def softmaxes(x):
    return nn.softmax(2 * x, 0) + nn.softmax(x, 1)


# A function, the spec of its argument of 16 × 16, and how many reductions between devices it has.
EXTREMES = [
    (jnp.max, ("x",), 1),
    (lambda x: jnp.max(x, 1), ("x",), 0),
    (lambda x: jnp.min(x, 0), ("x",), 1),
    (softmaxes, ("x",), 1),
    (softmaxes, (), 0),
    (lambda x: lax.scan(lambda c, row: (c + jnp.max(row), None), 0.0, x)[0], (None, "x"), 1),
    (lambda x: lax.scan(lambda c, row: (c + jnp.max(row), None), 0.0, x)[0], (), 0),
    (lambda x: jnp.zeros(8).at[jnp.arange(16) % 8].max(x[:, 0]), ("x",), 1),
    (lambda x: jnp.zeros(8).at[jnp.arange(16) % 8].max(x[:, 0]), (), 0),
]


@needs_cuda
@pytest.mark.parametrize("f, spec, count", EXTREMES)
def test_maxima_between_gpus_are_of_integers(f, spec, count):
    """NCCL loses NaN; within a device, maxima of floats take fewer kernels."""
    x = on(mesh_on("h100:8", (8,), ("x",)), np.ones((16, 16), np.float32), *spec)
    lowered = sw.jit(f).lower(x)
    text = lowered.as_text()
    keys = text.count("shift_right_arithmetic") // 2
    assert keys == count or ("scatter" in text and keys > 0 < count)
    assert "extreme" not in text
    found = reductions(lowered.compile().as_text())
    assert all(kind in ("f32 add", "s32 maximum", "s32 minimum") for kind in found)
    assert sum(kind != "f32 add" for kind in found) == count


@needs_cuda
@pytest.mark.parametrize(
    "f, spec",
    [
        (lambda x: jnp.max(x.ravel()), (None, "x")),
        (lambda x: jnp.max(jnp.tile(x[:8], (2, 1)), 0), ("x",)),
        (lambda x: jnp.max(x.reshape(16, 2, 8).reshape(32, 8).reshape(16, 16), 1), (None, "x")),
        (lambda x: jnp.max(jnp.real(jnp.fft.fft(x, axis=1)), 0), ("x",)),
        (lambda x: jnp.max(jnp.nextafter(x, x + 1)), ("x",)),
        (lambda x: jnp.max(lax.composite(jnp.sin, "my.sin")(x), 0), ("x",)),
        (lambda x: jnp.max(jnp.real(jnp.arccosh(lax.complex(x, x))), 0), ("x",)),
        (lambda x: lax.scan(lambda c, _: (2 * c, None), x, None, length=1)[0].max(0), ("x",)),
    ],
)
def test_maxima_of_what_xla_simplifies(f, spec):
    """Where a value is sharded is decided after that."""
    x = on(mesh_on("h100:8", (8,), ("x",)), np.ones((16, 16), np.float32), *spec)
    lowered = sw.jit(f).lower(x)
    assert "shift_right_arithmetic" in lowered.as_text()
    assert "f32 maximum" not in reductions(lowered.compile().as_text())


@needs_cuda
def test_exports_for_gpus():
    """The caller chooses shardings: all maxima are of integers."""
    mesh = mesh_on("h100:8", (8,), ("x",))
    x = on(mesh, np.ones((16, 16), np.float32), "x")
    for platforms in (["cuda"], ["cuda", "rocm"]):
        text = sw.export.export(sw.jit(softmaxes), platforms=platforms)(x).mlir_module()
        assert text.count("stablehlo.shift_right_arithmetic") == 4
        assert "extreme" not in text and "stablehlo.case" not in text


@needs_tpu
def test_maxima_between_tpus_are_of_floats():
    hlo = optimized("tpu-v5e:8", lambda x: (jnp.max(x), jnp.min(x)))
    assert sorted(set(reductions(hlo))) == ["f32 maximum", "f32 minimum"]


@pytest.mark.parametrize("machine", OVER_8)
def test_pmax_keeps_nans(machine):
    """NCCL loses them, so GPUs compare integers in the order of the floats."""
    mesh, spec = mesh_on(machine, (8,), ("x",)), sw.sharding.PartitionSpec
    f = sw.shard_map(lambda x: lax.pmax(x, "x"), mesh=mesh, in_specs=spec("x"), out_specs=spec())
    assert reductions(optimized(machine, f)) == [
        "s32 maximum" if machine.startswith("h100") else "f32 maximum"
    ]


def folded(x):
    return lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b, (0,))


def exclusive(x):
    return lax.reduce(x, np.int32(0), lax.bitwise_xor, (0,))


@needs_cuda
def test_gpus_have_few_reductions():
    """XLA ends the process for others."""
    assert reductions(optimized("h100:8", folded)) == []
    assert reductions(optimized("h100:8", exclusive, dtype=np.int32)) == []


@needs_tpu
def test_tpus_have_all_reductions():
    assert reductions(optimized("tpu-v5e:8", folded)) == ["f32 add"]
    assert reductions(optimized("tpu-v5e:8", exclusive, dtype=np.int32)) == ["s32 xor"]


@pytest.mark.parametrize("machine", OVER_8)
def test_derivatives_of_pooling_gather_nothing(machine):
    def loss(x):
        y = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.sum(jnp.square(y))

    x = on(mesh_on(machine, (8,), ("x",)), np.ones((8, 8, 8, 4), np.float32), "x")
    assert read(sw.jit(sw.grad(loss)).lower(x).compile()).collectives == {}


@needs_cuda
def test_repeated_operands_need_no_barrier():
    text = sw.jit(lambda x: jnp.concatenate([x, x])).lower(on("h100", np.ones(4))).as_text()
    assert "stablehlo.concatenate %arg0, %arg0" in text


@needs_cuda
def test_operands_change_sides_in_derivatives():
    """Each is copied once, to the form that a product and a derivative of it have in common."""

    def loss(q, k):
        return jnp.sum(jnp.square(jnp.einsum("bqhd,bkhd->bhqk", q, k)))

    x = on("h100", np.ones((2, 16, 4, 8), np.float32))
    text = sw.jit(sw.grad(loss, argnums=(0, 1))).lower(x, x).as_text()
    pairs = re.findall(r"dot_general (%\w+), (%\w+),", text)
    for name in ("%arg0", "%arg1"):
        assert {pair.index(name) for pair in pairs if name in pair} == {0, 1}


def in_jit(x):
    return sw.jit(lambda x: sw.device_put(jnp.sin(x), HOST))(x)


def in_scan(x):
    return lax.scan(lambda c, row: (c, sw.device_put(jnp.sin(row), HOST)), 0.0, x)[1]


def in_branches(x):
    def of(f):
        return lambda x: sw.device_put(f(x), HOST)

    return lax.cond(x[0, 0] > 0, of(jnp.sin), of(jnp.cos), x)


@needs_cuda
@pytest.mark.parametrize("f", [in_jit, in_scan, in_branches])
def test_results_that_nested_programs_leave_in_host_memory(f):
    place = sw.sharding.SingleDeviceSharding(sw.targets.devices("h100")[0])
    made = sw.jit(f).lower(sw.ShapeDtypeStruct((8, 8), np.float32, sharding=place)).compile()
    assert made.output_shardings.memory_kind == "pinned_host"
