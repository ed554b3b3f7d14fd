"""Kernels for TPUs: their modules are verified, and compiled where TPU's compiler is installed."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import export, lax
from shardwise._src.kernels.on_tpu.mosaic_call import config_text
from shardwise._src.runtime.compiler.mosaic import serialized
from shardwise.kernels import (
    ANY,
    VMEM,
    Block,
    CompilerParams,
    CostEstimate,
    SemaphoreType,
    async_remote_copy,
    call,
    get_barrier_semaphore,
    make_async_copy,
    semaphore_signal,
    semaphore_wait,
    sync_copy,
)
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.mosaic import kernels_in, text_of
from tests.helpers.targets import compiled, mesh_on, needs_tpu, on
from tests.kernels.kernels import CASES as SMALL
from tests.kernels.kernels import like, softmax
from tests.kernels.mosaic_cases import CASES, X, rows_of

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("SHARDWISE_UPDATE_GOLDENS", "") not in ("", "0")


@pytest.mark.parametrize("name", CASES)
def test_modules_are_verified(name):
    case = CASES[name]
    found = kernels_in(case.launch(), *case.args)
    assert found
    for kernel in found:
        assert serialized(kernel.kernel.text).startswith(b"ML\xefR")


@pytest.mark.parametrize("name", everyday(CASES, 8, "on cpu"))
def test_values_on_cpu(name):
    """That cases are the functions that they are said to be."""
    case = CASES[name]
    close = {"rtol": 3e-2, "atol": 1e-2} if "bf16" in name else {"rtol": 1e-3, "atol": 1e-3}
    found, wanted = (sw.jit(f)(*case.args) for f in (case.launch(), case.wanted))
    for a, b in zip(sw.tree.leaves(found), sw.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), **close)


@pytest.mark.parametrize("name", ["softmax", "matmul", "flash_causal"])
def test_golden(name):
    """To rewrite the texts: SHARDWISE_UPDATE_GOLDENS=1 pytest tests/kernels/test_mosaic.py"""
    case, path = CASES[name], GOLDEN / f"mosaic_{name}.txt"
    text = text_of(case.launch(), *case.args)
    if UPDATE:
        path.write_text(text)
    assert text == path.read_text()


def test_operations_have_the_lines_of_the_user():
    (kernel,) = kernels_in(CASES["softmax"].launch(), X)
    (line,) = [row for row in kernel.kernel.text.splitlines() if "math.exp" in row]
    assert "tests/kernels/kernels.py" in line


def test_configuration():
    """What the custom call tells the compiler."""
    params = CompilerParams(
        vmem_limit_bytes=2**20, collective_id=3, allow_input_fusion=[True],
        disable_bounds_checks=True, skip_device_barrier=True,
    )  # fmt: skip
    f = rows_of(softmax, params=params, cost=CostEstimate(1, 2, 3, 4))
    (kernel,) = kernels_in(f, X)
    found = json.loads(config_text(b"body", kernel.launch, kernel.kernel))
    assert found == {
        "custom_call_config": {
            "body": "Ym9keQ==",
            "serialization_format": 1,
            "needs_layout_passes": True,
            "cost_estimate": {
                "flops": 1,
                "transcendentals": 2,
                "bytes_accessed": 3,
                "remote_bytes_transferred": 4,
            },
            "allow_input_fusion": [True],
            "disable_bounds_checks": True,
            "skip_device_barrier": True,
        },
        "scoped_memory_configs": [{"memory_space": 1, "offset": 0, "size": 2**20}],
    }


def test_priorities_of_copies():
    def body(x, out, buffer, semaphore):
        copy = make_async_copy(x, buffer, semaphore)
        copy.start(priority=1)
        copy.wait()
        out[...] = buffer[...]

    scratch = [VMEM((8, 128), np.float32), SemaphoreType.DMA]
    f = call(body, like(8, 128), in_specs=Block(space=ANY), scratch=scratch)
    text = text_of(f, np.zeros((8, 128), np.float32))
    assert "{priority = 1 : i32}" in text
    assert serialized(text)


def test_what_the_compiler_copies():
    text = text_of(CASES["windows"].launch(), X)
    assert "window_kind = #tpu.element_window<[0, 0], [0, 0]>" in text
    whole = text_of(CASES["layer_norm"].launch(), X, X[:1])
    assert whole.count("pipeline_mode = #tpu.pipeline_mode<synchronous>") == 1  # the scale
    assert "window_params" not in text_of(CASES["strided"].launch(), X[:8])  # no grid
    dynamic = text_of(CASES["dynamic"].launch(), *CASES["dynamic"].args)
    assert "iteration_bounds = array<i64: -9223372036854775808>" in dynamic


def test_padding_of_windows():
    """The compiler counts elements from the beginning of the padding."""
    case = SMALL["windows"]
    with pytest.raises(NotImplementedError, match="a multiple of 128"):
        kernels_in(case.launch(), *case.args)


@needs_tpu
@pytest.mark.parametrize("name", everyday(CASES, 6, "compiled"))
def test_compiled(name):
    case = CASES[name]
    assert "tpu_custom_call" in compiled(case.launch(), "tpu-v5e", *case.args).as_text()


@needs_tpu
@pytest.mark.sweep
@pytest.mark.parametrize("machine", ["tpu-v5p", "tpu-v6e", "tpu-7x"])
@pytest.mark.parametrize("name", CASES)
def test_compiled_for_other_machines(machine, name):
    case = CASES[name]
    assert "tpu_custom_call" in compiled(case.launch(), machine, *case.args).as_text()


def symbolic_copy(x):
    rows = -(-x.shape[0] // 8), x.shape[1] // 128
    block = Block((8, 128), lambda i, j: (i, j))
    out = sw.ShapeDtypeStruct(x.shape, x.dtype)
    return call(lambda x, out: out.set(x[...]), out, grid=rows, in_specs=[block], out_specs=block)(
        x
    )


def exported_copy(platform):
    m, n = export.symbolic_shape("m, n", constraints=["mod(n, 128) == 0"])
    x = sw.ShapeDtypeStruct((m, n), np.float32)
    return export.export(sw.jit(symbolic_copy), platforms=[platform])(x)


def test_arrays_of_symbolic_sizes():
    """Their blocks have one size; the sizes of the grid are operands, computed from theirs."""
    (line,) = [
        x for x in exported_copy("tpu").mlir_module().splitlines() if "@tpu_custom_call" in x
    ]
    assert "(tensor<i32>, tensor<i32>, tensor<?x?xf32>, tensor<2xi32>) -> (tensor<?x?xf32>)" in line
    assert "indices_of_shape_operands = dense<[3]>" in line
    np.testing.assert_array_equal(exported_copy("cpu").call(X), X)


def test_prefetched_arrays_of_symbolic_sizes():
    block = Block((8, 128), lambda i, at: (at[i], 0))
    out = Block((8, 128), lambda i, at: (i, 0))

    def gathered(at, x):
        options = {"in_specs": [block], "out_specs": out, "prefetch": 1, "name": "gathered"}
        return call(lambda at, x, out: out.set(x[...]), like(16, 128), grid=2, **options)(at, x)

    (n,) = export.symbolic_shape("n")
    args = sw.ShapeDtypeStruct((n,), np.int32), like(32, 128)
    found = export.export(sw.jit(gathered), platforms=["cpu"])(*args)
    x = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    at = np.array([3, 1, 5], np.int32)
    np.testing.assert_array_equal(found.call(at, x), x.reshape(4, 8, 128)[at[:2]].reshape(16, 128))
    with pytest.raises(NotImplementedError) as caught:
        export.export(sw.jit(gathered), platforms=["tpu"])(*args)
    assert str(caught.value) == (
        "kernel gathered cannot be compiled for 'tpu' with symbolic sizes, which i32[n] has. "
        "Export the program for each size, or for CPUs."
    )


@needs_tpu
def test_exported_arrays_of_symbolic_sizes_compile():
    again = export.deserialize(exported_copy("tpu").serialize())
    text = compiled(again.call, "tpu-v5e", np.zeros((20, 256), np.float32)).as_text()
    assert "tpu_custom_call" in text


@needs_tpu
def test_the_custom_call():
    case = CASES["aliased"]
    text = sw.jit(case.launch()).lower(on("tpu-v5e", X)).as_text()
    assert 'kernel_name = "added"' in text
    assert "output_operand_alias<output_tuple_indices = [], operand_index = 1" in text
    kept = CASES["limited"]
    text = sw.jit(kept.launch()).lower(on("tpu-v5e", X)).as_text()
    assert "has_side_effect = true" in text
    cost = compiled(CASES["matmul"].launch(), "tpu-v5e", *CASES["matmul"].args).cost_analysis()
    assert cost["flops"] == 2 * 256 * 256 * 128


def test_exports_for_tpus():
    """They need no compiler for TPUs; the serialized module is for later releases, too."""
    case = CASES["softmax"]
    exported = export.export(sw.jit(case.launch()), platforms=["tpu", "cpu"])(*case.args)
    again = export.deserialize(exported.serialize())
    assert "tpu_custom_call" in again.mlir_module()
    np.testing.assert_allclose(again.call(X), case.wanted(X), rtol=1e-5)


# -- several devices --

COUNT = 4


def all_gather(x, out, send, receive):
    """Each device sends the newest block to its right neighbor."""
    me = lax.axis_index("x")
    left, right = lax.rem(me + COUNT - 1, COUNT), lax.rem(me + 1, COUNT)
    barrier = get_barrier_semaphore()
    semaphore_signal(barrier, device_id=(left,))
    semaphore_signal(barrier, device_id=(right,))
    semaphore_wait(barrier, 2)
    sync_copy(x, out.at[me])

    def step(i, _):
        own = lax.rem(me + COUNT - i, COUNT)
        ends = out.at[own], out.at[own], send.at[i], receive.at[i]
        async_remote_copy(*ends, device_id=(right,)).wait()

    lax.fori_loop(0, COUNT - 1, step, None)


def ring_kernel():
    whole, semaphores = Block(space=ANY), SemaphoreType.DMA((COUNT - 1,))
    return call(
        all_gather,
        like(COUNT, 8, 128),
        in_specs=whole,
        out_specs=whole,
        scratch=[semaphores, semaphores],
        params=CompilerParams(collective_id=0),
    )


def ring(mesh):
    return sw.shard_map(ring_kernel(), mesh=mesh, in_specs=P("x"), out_specs=P("x"))


def test_a_ring_of_devices():
    x = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    f = ring(sw.make_mesh((COUNT,), ("x",)))
    found = np.asarray(sw.jit(f)(x)).reshape(COUNT, 32, 128)
    np.testing.assert_array_equal(found, np.stack([x] * COUNT))
    text = text_of(f, x)
    assert serialized(text)
    assert "tpu.sem_barrier : memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>" in text
    assert "scalar_prefetch = 1 : i64" in text  # the position of the device
    assert text.count("tpu.enqueue_dma") == 2 and text.count("device_id(") == 3
    (kernel,) = kernels_in(f, x)
    config = json.loads(config_text(b"", kernel.launch, kernel.kernel))["custom_call_config"]
    assert config["has_communication"] and config["collective_id"] == 0


@needs_tpu
def test_a_ring_is_compiled():
    mesh = mesh_on("tpu-v5e:2x2", (COUNT,), ("x",))
    found = sw.jit(ring(mesh)).lower(on(mesh, like(32, 128), "x", None))
    assert "has_side_effect = true" in found.as_text()
    assert "tpu_custom_call" in found.compile().as_text()


def squared_after_barrier(x, out, square):
    """Squares; the left neighbor signals, so that all devices have begun."""
    barrier = get_barrier_semaphore()
    semaphore_signal(barrier, device_id=(lax.rem(lax.axis_index("x") + 1, COUNT),))
    semaphore_wait(barrier)
    square[...] = x[...] * x[...]
    out[...] = square[...] + 1


def tangents(mesh):
    memory, params = [VMEM((8, 128), np.float32)], CompilerParams(collective_id=5)
    f = call(squared_after_barrier, like(8, 128), scratch=memory, params=params)
    over = sw.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return lambda x, t: sw.jvp(over, (x,), (t,))


def test_tangents_of_a_kernel_with_a_barrier():
    """Their scratch memory does not take the place of the barrier."""
    x = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
    f = tangents(sw.make_mesh((COUNT,), ("x",)))
    out, tangent = sw.jit(f)(x, x + 1)
    np.testing.assert_array_equal(out, x * x + 1)
    np.testing.assert_array_equal(tangent, 2 * x * (x + 1))
    text = text_of(f, x, x)
    assert serialized(text)
    assert "tpu.sem_barrier : memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>" in text
    assert "scratch_operands = 2 : i64" in text  # the square and its tangent


@needs_tpu
def test_tangents_of_a_kernel_with_a_barrier_are_compiled():
    mesh = mesh_on("tpu-v5e:2x2", (COUNT,), ("x",))
    x = on(mesh, like(32, 128), "x", None)
    assert "tpu_custom_call" in sw.jit(tangents(mesh)).lower(x, x).compile().as_text()


@needs_tpu
def test_devices_of_other_axes():
    """Copies name devices by their numbers, which are known if all axes are manual."""
    mesh = mesh_on("tpu-v5e:2x4", (COUNT, 2), ("x", "y"))
    f = sw.shard_map(ring_kernel(), mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    with pytest.raises(NotImplementedError) as caught:
        sw.jit(f).lower(on(mesh, like(32, 128), "x", None))
    assert str(caught.value) == (
        "kernel all_gather copies to other devices along the mesh axes ('x',). On TPUs these must "
        "be all axes of the mesh, in order, and the mesh must have the order of the program's "
        "devices: use `shard_map` over all axes of a mesh of all devices."
    )
