"""The interface to jaxlib: bytes in and out, compiled programs, and their failures."""

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from shardwise._src.arrays.signature import signature
from shardwise._src.base.config import config
from shardwise._src.runtime import backend, buffers, cuda
from shardwise._src.runtime.compiler.modules import compile_options, compile_text, load
from shardwise._src.runtime.in_flight import CPU_WINDOW, LIMIT, MANY, Window
from shardwise._src.types.array_type import array_type
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec
from shardwise._src.types.sharding import NamedSharding, SingleDeviceSharding
from tests.helpers.patience import seconds

F32 = np.dtype("float32")
ADD = """module @m {
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
%1 = stablehlo.add %a, %a : tensor<4xf32>
func.return %1 : tensor<4xf32>
}
}
"""
SUM = """module @m attributes {mhlo.num_partitions = 8 : i32} {
sdy.mesh @mesh = <["x"=8]>
func.func public @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
    -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
%0 = stablehlo.constant dense<0.0> : tensor<f32>
%1 = stablehlo.reduce(%a init: %0) applies stablehlo.add across dimensions = [0]
    : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
func.return %1 : tensor<f32>
}
}
"""


def one_device():
    return signature(array_type((4,), F32), SingleDeviceSharding(backend.devices()[0]), True)


def put(values):
    sig = one_device()
    return buffers.put(sig.physical, sig.placement, [values], sig.devices)


def compiled(text=ADD, count=1, **options):
    devices = tuple(backend.devices()[:count])
    return compile_text(backend.client(), text, devices, compile_options(devices, **options))


def test_put_copies_the_bytes_before_it_returns():
    values = np.ones(4, np.float32)
    raw = put(values)
    values[:] = 7
    np.testing.assert_array_equal(buffers.fetch_one(raw, F32), np.ones(4))


def test_fetch_is_read_only_and_shares_memory_on_cpu():
    raw = put(np.arange(4, dtype=np.float32))
    first, second = buffers.fetch_one(raw, F32), buffers.fetch_one(raw, F32)
    assert np.shares_memory(first, second)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "bool", "complex64", "int8"])
def test_every_kind_of_dtype_comes_back(name):
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name, name))
    sig = signature(array_type((3,), dtype), SingleDeviceSharding(backend.devices()[0]), True)
    values = np.array([0, 1, 2]).astype(dtype)
    raw = buffers.put(sig.physical, sig.placement, [values], sig.devices)
    found = buffers.fetch_one(raw, dtype)
    assert found.dtype == dtype and found.tobytes() == values.tobytes()


def test_a_program_runs_and_survives_serialization():
    program = compiled()
    again = load(
        backend.client(), program.serialize(), program.devices, compile_options(program.devices)
    )
    for each in (program, again):
        (raw,) = each.launch([put(np.arange(4, dtype=np.float32))], [one_device().handler])
        np.testing.assert_array_equal(buffers.fetch_one(raw, F32), [0, 2, 4, 6])


def test_statistics():
    program = compiled()
    assert program.cost()["flops"] == 4
    memory = program.memory()
    assert memory.argument_size_in_bytes == 16 and memory.output_size_in_bytes == 16
    assert "add" in program.hlo_text()


def test_an_unknown_compile_option_fails_the_compilation():
    with pytest.raises(backend.RuntimeFailure, match="No such compile option: 'xla_no_such_flag'"):
        compiled(overrides={"xla_no_such_flag": True})


def test_programs_with_collectives_are_windowed():
    program = compiled(SUM, 8, free_outputs=(False,))
    assert program.has_collectives and program.window is CPU_WINDOW
    assert not compiled().has_collectives
    mesh = Mesh(np.array(backend.devices(), object), ("x",))
    source = signature(array_type((8,), F32), NamedSharding(mesh, PartitionSpec("x")), True)
    result = signature(array_type((), F32), NamedSharding(mesh, PartitionSpec()), True)
    parts = [np.full(1, i, np.float32) for i in range(8)]
    raw = buffers.put(source.physical, source.placement, parts, source.devices)
    outs = [program.launch([raw], [result.handler])[0] for _ in range(5 * LIMIT)]
    assert 0 < len(CPU_WINDOW._pending) <= LIMIT
    buffers.block_until_ready(outs)


def test_unknown_platform():
    with pytest.raises(RuntimeError) as failure:
        backend.client("rocm")
    assert str(failure.value) == (
        "no client for the platform 'rocm' is installed; platforms with one: cpu, cuda, tpu. Add it with "
        "`shardwise.extend.backend.register_platform`."
    )


@pytest.mark.skipif(cuda.available(), reason="there is a GPU here")
def test_cuda_without_plugin_or_device_says_so():
    with pytest.raises(RuntimeError, match="platform 'cuda' could not be started"):
        backend.client("cuda")


def test_device_count_is_fixed_once_devices_exist():
    backend.devices()
    with pytest.raises(RuntimeError) as failure:
        config.update("num_cpu_devices", 3)
    assert str(failure.value) == (
        "num_cpu_devices cannot be set to 3 any more: the devices (8 of cpu) have already been "
        "started. Set it before the first use of an array or device, or with the environment "
        "variable SHARDWISE_NUM_CPU_DEVICES."
    )


SHOW = "import shardwise as sw; {0}; print(sw.device_count(), end='')"


@pytest.mark.parametrize(
    ("environment", "code", "count"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}, "", "3"),
        ({"SHARDWISE_NUM_CPU_DEVICES": "5"}, "", "5"),
        ({"XLA_FLAGS": ""}, "sw.config.update('num_cpu_devices', 2)", "2"),
        ({"XLA_FLAGS": ""}, "", "1"),
    ],
)
def test_number_of_virtual_devices(environment, code, count):
    env = {**os.environ, **environment}
    run = subprocess.run(
        [sys.executable, "-c", SHOW.format(code or "pass")],
        env=env,
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )
    assert run.stdout == count, run.stderr
    assert not re.search(r"pjrt_client|PjRt", run.stderr)


@pytest.mark.parametrize("collectives", [True, False])
def test_the_window_counts_programs_over_different_devices_together(collectives):
    window, limit = Window(), LIMIT if collectives else MANY
    launches = [_Pending() for _ in range(5 * limit)]
    for count, pending in enumerate(launches):
        window.admit(collectives)
        window.record(pending, collectives)
        older = launches[: count + 1]
        assert all(p.waited for p in older[:-limit])
        assert 0 < len(window._pending) <= limit
    assert not any(p.waited for p in launches[-limit // 2 :])


def test_a_program_with_collectives_waits_for_those_without_and_they_for_it():
    window = Window()
    launches = [_Pending() for _ in range(MANY + 2 * LIMIT)]
    for pending in launches[: MANY - 1]:
        window.admit(False)
        window.record(pending, False)
    assert not any(p.waited for p in launches)
    window.admit(True)
    window.record(launches[MANY - 1], True)
    assert [p.waited for p in launches[:MANY]].count(False) == LIMIT // 2 + 1
    for pending in launches[MANY:]:
        window.admit(False)
        window.record(pending, False)
    assert launches[MANY - 1].waited and not window._communicates
    assert LIMIT < len(window._pending) < MANY


def test_launches_of_other_threads_wait_while_one_waits():
    window, go = Window(), threading.Event()

    class Running(_Pending):
        def block_until_ready(self):
            go.wait(30)

    for _ in range(LIMIT):
        window.record(Running(), True)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(window.admit, True) for _ in range(4)]
        found = wait(calls, timeout=0.05)
        go.set()
    assert not found.done and len(window._pending) == LIMIT // 2


class _Pending:
    """Represents the result of a launch that has not ended."""

    waited = False

    def block_until_ready(self):
        self.waited = True
