"""Machines by name: their devices, programs that are compiled for them, and what cannot be."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime import cuda, platforms, plugins, tpu
from shardwise._src.targets import machine_names
from shardwise._src.targets.gpus import GPUS
from shardwise._src.targets.machine_names import named
from shardwise._src.targets.tpus import TPUS
from shardwise.experimental import serialize_executable, topologies
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.explain import machines
from shardwise.sharding import Mesh, NamedSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message, messages
from tests.helpers.targets import MACHINES, compiled, mesh_on, needs_cuda, needs_tpu, on

X = np.ones((8, 16), np.float32)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_is_compiled_and_read(machine):
    made = compiled(lambda x, y: jnp.tanh(x @ y), machine, np.ones((64, 32)), np.ones((32, 16)))
    assert made.as_text().startswith("HloModule")
    assert made.memory_analysis().argument_size_in_bytes >= 4 * (64 * 32 + 32 * 16)
    assert made.cost_analysis()["flops"] >= 2 * 64 * 32 * 16
    assert len(made.serialize()) > 1000
    assert made.runtime_executable() is not None


@pytest.mark.parametrize(
    ("machine", "count", "processes"),
    [
        pytest.param("h100:2x4", 8, 2, marks=needs_cuda),
        pytest.param("A100-40:8", 8, 1, marks=needs_cuda),
        pytest.param("tpu-v5e:2x4", 8, 2, marks=needs_tpu),
        pytest.param("tpu-v5p:8", 8, 2, marks=needs_tpu),
        pytest.param("tpu-7x:2x2x1", 8, 1, marks=needs_tpu),
    ],
)
def test_a_mesh_of_its_devices(machine, count, processes):
    devices = sw.targets.devices(machine)
    assert len(devices) == count and len({d.process_index for d in devices}) == processes
    assert sw.targets.devices(machine)[3] is devices[3]
    assert pickle.loads(pickle.dumps(devices[3])) is devices[3]
    mesh = sw.make_mesh((4, 2), ("a", "b"), devices=devices)
    made = sw.jit(lambda x: x.sum(0)).lower(on(mesh, X, "a", "b")).compile()
    assert "all-reduce" in made.as_text()
    assert made.output_shardings.spec == P("b")
    assert pickle.loads(pickle.dumps(made.output_shardings)) == made.output_shardings


@needs_cuda
def test_arguments_without_a_place_follow_the_others():
    mesh, held = mesh_on("h100:8", (8,), ("x",)), jnp.arange(16.0)
    made = sw.jit(lambda x, y: x + y * held).lower(on(mesh, X, "x"), jnp.ones(16)).compile()
    assert [s.spec for s in made.input_shardings[0]] == [P("x"), P()]
    assert made.memory_analysis().argument_size_in_bytes == 3 * 64
    found = message(ValueError, serialize_executable.serialize, made)
    assert found.endswith("captures arrays from outside. Pass them as arguments.")


@needs_cuda
def test_memory_kinds_without_a_device():
    device = sw.targets.devices("h100")[0]
    here = SingleDeviceSharding(device)
    assert here.memory_kind == "device"
    host = SingleDeviceSharding(device, memory_kind="pinned_host")
    x = sw.ShapeDtypeStruct((8, 16), np.float32, sharding=host)
    stats = sw.jit(lambda x: x + 1, out_shardings=here).lower(x).compile().memory_analysis()
    assert stats.host_argument_size_in_bytes == 512 and stats.output_size_in_bytes == 512
    assert message(ValueError, SingleDeviceSharding, device, memory_kind="tape") == (
        f"the device {device} has no memory of kind 'tape'; it has 'device', 'pinned_host' and "
        "'unpinned_host'."
    )


NOT_HERE = (
    "cannot be put on the devices of 'h100:8': they are only described, so that programs for them "
    "can be compiled. Pass `ShapeDtypeStruct`s with shardings over them to `jit(f).lower` or "
    "`explain(f)`."
)
NOT_RUN = (
    " needs the devices of 'h100:8', but they are only described here: programs for them can be "
    "compiled, and not run. Run it on the machine itself, or on `shardwise.devices()`."
)


@needs_cuda
def test_nothing_is_put_there_or_run():
    mesh = mesh_on("h100:8", (8,), ("x",))
    there = NamedSharding(mesh, P("x"))
    for call in (
        lambda: sw.device_put(X, there),
        lambda: sw.device_put(jnp.ones(8), mesh.devices[0]),
        lambda: jnp.asarray(X, device=there),
    ):
        assert message(RuntimeError, call) == f"an array {NOT_HERE}"
    assert message(RuntimeError, sw.make_array_from_callback, (8,), there, X.__getitem__) == (
        f"make_array_from_callback: an array {NOT_HERE}"
    )
    made = sw.jit(jnp.sin).lower(on(mesh, X, "x")).compile()
    assert message(RuntimeError, made, X) == f"sin{NOT_RUN}"
    assert message(RuntimeError, sw.jit(jnp.cos, in_shardings=there), X) == f"cos{NOT_RUN}"
    assert message(RuntimeError, jnp.zeros, 8, device=there) == f"zeros{NOT_RUN}"
    with sw.default_device(mesh.devices[0]):
        assert message(RuntimeError, jnp.add, 1, 2) == f"an array {NOT_HERE}"


@needs_cuda
def test_devices_of_different_machines():
    mesh, here = mesh_on("h100:2", (2,), ("x",)), Mesh(np.array(sw.devices()[:2]), ("x",))
    h200 = mesh_on("h200:2", (2,), ("x",))
    assert message(ValueError, Mesh, np.array([*mesh.devices, *h200.devices]), ("x",)) == (
        "Mesh mixes 'h100:2' and 'h200:2'. Its devices must be of one machine, since one compiler "
        "makes a program for all of them."
    )
    add = sw.jit(jnp.add)
    assert message(ValueError, add.lower, on(mesh, X, "x"), on(h200, X, "x")) == (
        "add got arguments on different devices: x1 of type f32[8,16] is on all 2 devices of "
        "'h100:2', x2 of type f32[8,16] on all 2 devices of 'h200:2'. A program is compiled for "
        "the devices of one machine."
    )
    real = sw.device_put(X, NamedSharding(here, P("x")))
    assert message(ValueError, add.lower, on(mesh, X, "x"), real) == (
        "add got arguments on different devices: x1 of type f32[8,16] is on all 2 devices of "
        "'h100:2', x2 of type f32[8,16] on devices [0, 1]. For devices that are only described, "
        "pass a `ShapeDtypeStruct` with a sharding over them as each argument, also for an array "
        "that the function closes over."
    )


test_names_that_are_refused = messages(
    """
    devices(8)
        TypeError: targets: a name is a string such as 'h100:8'; got 8.
    devices("h10:8")
        ValueError: targets: unknown machine 'h10'. Did you mean 'h100'? Known are v100, a100-40,
        a100, h100, h200, b200, gb200, mi300, tpu-v5e, tpu-v5p, tpu-v6e, tpu-7x; `shardwise.targets.add`
        adds a GPU from a description.
    devices("h100:8:1")
        ValueError: targets: cannot read 'h100:8:1'. A name is a kind of GPU or TPU and how many
        there are: 'h100:8' for 8 GPUs, 'h100:2x8' for 2 hosts with 8 GPUs each, 'tpu-v5p:2x2x2'
        for a grid of chips.
    devices("h100:2x3x4")
        ValueError: targets: 'h100:2x3x4' must have one number of GPUs, or hosts × GPUs, such as
        'h100:8' or 'h100:2x8'.
    devices("h100:16")
        ValueError: targets: 'h100:16' has 16 GPUs in a host; a host has at most 8 h100. Write
        hosts × GPUs: 'h100:2x8'.
    devices("h100:5000x8")
        ValueError: targets: 'h100:5000x8' has 5000 hosts; at most 4096 are possible.
    devices("tpu-v5p:2x4")
        ValueError: targets: tpu-v5p cannot have the shape of 'tpu-v5p:2x4': it has at most 8960
        chips in a grid a×b×c, whose axes are even or 1, such as 'tpu-v5p:2x2x2'.
    devices("tpu-v5e:3x5")
        ValueError: targets: tpu-v5e cannot have the shape of 'tpu-v5e:3x5': it has at most 256
        chips in a grid a×b, whose axes are even or 1, such as 'tpu-v5e:2x2'.
    devices("tpu-v6e:512")
        ValueError: targets: tpu-v6e cannot have the shape of 'tpu-v6e:512': it has at most 256
        chips in a grid a×b, whose axes are even or 1, such as 'tpu-v6e:2x2'.
    add("My GPU", "x")
        ValueError: targets.add: name must consist of lowercase letters, digits, '-' and '_'; got
        'My GPU'.
    add("h100", "{")
        ValueError: targets.add: 'h100' is the name of another machine.
    add("tpu-v5e", "{")
        ValueError: targets.add: 'tpu-v5e' is the name of another machine.
    add(3, "{")
        TypeError: targets.add: name must be a string; got 3.
    add("mine", "{", like="h300")
        ValueError: targets.add: like must be one of 'v100', 'a100-40', 'a100', 'h100', 'h200',
        'b200', 'gb200', 'mi300', 'tpu-v5e', 'tpu-v5p', 'tpu-v6e' or 'tpu-7x'; got 'h300'.
    add("mine", description("h100").replace("memory_bandwidth: ", "memory_bandwidth: many"))
        ValueError: targets.add: device_memory_size and memory_bandwidth of the description must be
        positive numbers.
    add("mine", 3)
        TypeError: targets.add: description must be the path of a file, or its text; got int.
    add("mine", "gpu {}")
        ValueError: targets.add: description must be the text of a GpuTargetConfigProto; it has no
        'gpu_device_info'. `shardwise.targets.description('h100')` is an example.
    add("mine", description("h100").replace("CUDA", "ROCM"))
        ValueError: targets.add: the platform_name of the description must be 'CUDA'; got 'ROCM'.
        No compiler for others is supported.
    description("h300")
        ValueError: targets.description: unknown GPU 'h300'; known: v100, a100-40, a100, h100,
        h200, b200, gb200, mi300.
    description(cpu)
        ValueError: targets.description: cpu:0 is not a GPU that XLA describes.
    get_topology_desc("v9:2x2")
        ValueError: get_topology_desc: unknown topology 'v9:2x2'; write it as 'v5e:2x2',
        'v5p:2x2x2', 'v6e:2x2' or 'tpu7x:2x2x2'.
    get_topology_desc("mine", "cuda")
        ValueError: get_topology_desc: GPUs need target_config, the text of XLA's
        GpuTargetConfigProto, unless they are one of 'v100', 'a100-40', 'a100', 'h100', 'h200',
        'b200', 'gb200' and 'mi300', and topology, such as '1x2x8' for 2 hosts with 8 GPUs each; got {} of
        type dict.
    """,
    {
        **{name: getattr(sw.targets, name) for name in ("devices", "add", "description")},
        **{"get_topology_desc": topologies.get_topology_desc, "cpu": sw.devices("cpu")[0]},
    },
)


def test_grids_by_the_number_of_chips():
    for name, count, grid in (
        *(("tpu-v5e", 1, (1, 1)), ("tpu-v5e", 8, (2, 4)), ("tpu-v6e", 256, (16, 16))),
        *(("tpu-v5p", 1, (1, 1, 1)), ("tpu-v5p", 4, (2, 2, 1)), ("tpu-v5p", 8, (2, 2, 2))),
        *(("tpu-v5p", 64, (4, 4, 4)), ("tpu-v5p", 4096, (16, 16, 16)), ("tpu-v5e", 6, None)),
    ):
        assert TPUS[name].grid((count,)) == grid, (name, count)


def test_every_machine_has_rates():
    assert {*sw.targets.names()} <= {*machines}
    for name, gpu in GPUS.items():
        assert gpu.memory == pytest.approx(machines[name].memory_bytes, rel=0.08)
        assert gpu.memory_bandwidth == pytest.approx(machines[name].memory_bandwidth, rel=0.03)


@needs_cuda
def test_a_gpu_of_ones_own(tmp_path, monkeypatch):
    for name in ("mine", "theirs"):
        monkeypatch.setitem(GPUS, name, GPUS["h100"])
    text = sw.targets.description("h200").replace("151397597184", "64000000000")
    file = tmp_path / "gpu.txtpb"
    file.write_text(text)
    sw.targets.add("mine", file, like="h200")
    (device,) = sw.targets.devices("mine")
    assert sw.targets.description(device) == text
    sw.targets.add("theirs", str(file), like="a100")
    report = sw.explain(lambda x: x @ x.T, machine="theirs:1")(sw.ShapeDtypeStruct((8, 8), "f4"))
    assert report.machine.memory_bytes == 64000000000 and report.compiler.startswith("jax-cuda")
    assert report.machine.flops == machines["a100"].flops
    assert message(ValueError, sw.targets.add, "other", "none.txtpb") == (
        "targets.add: 'none.txtpb' is neither a file nor the text of a GpuTargetConfigProto."
    )


def test_old_gpus_need_an_older_compiler(monkeypatch):
    monkeypatch.setattr(cuda, "oldest_capability", lambda: (7, 5))
    monkeypatch.setattr(cuda, "compiler_version", lambda: "jax-cuda13-pjrt 0.10.2")
    found = message(ValueError, sw.targets.devices, "v100:4")
    assert found.startswith(
        "targets: v100 has compute capability 7.0; the installed compiler, jax-cuda13-pjrt 0.10.2, "
        "makes programs for 7.5 and newer. CUDA 12's has it: pip uninstall"
    )


def test_compilers_that_are_missing(monkeypatch):
    monkeypatch.setattr(machine_names, "_found", {})
    monkeypatch.setattr(cuda, "_plugin_path", lambda: None)
    monkeypatch.setattr(tpu, "_library_path", lambda: None)
    assert sw.targets.available() == {}
    assert message(ImportError, sw.targets.devices, "h100:8") == (
        "the CUDA plugin is not installed: pip install 'shardwise[compile-cuda]'."
    )
    assert message(ImportError, sw.targets.devices, "tpu-v5e:8") == (
        "libtpu is not installed: pip install 'shardwise[compile-tpu]'."
    )
    report = sw.explain(lambda x: x * 2, machine="h100:8")(jnp.ones(3))
    assert " ".join(str(report).split()).startswith(
        "<lambda>: 1 device, estimated for machine 'h100:8' from the program for CPUs: the CUDA "
        "plugin is not installed: pip install 'shardwise[compile-cuda]' "
    )
    assert report.compiler == "" and report.machine.memory_bytes == GPUS["h100"].memory
    assert message(ImportError, sw.explain.assert_fits, jnp.sin, machine="h100:8") == (
        "assert_fits: the CUDA plugin is not installed: pip install 'shardwise[compile-cuda]'."
    )


@pytest.mark.parametrize(
    ("module", "package", "installed", "needed"),
    [
        (cuda, "jax-cuda13-pjrt", "0.9.1", plugins.JAXLIB_VERSION),
        (tpu, "libtpu", "0.0.21", "0.0.42"),
    ],
)
def test_compilers_of_other_versions(monkeypatch, module, package, installed, needed):
    monkeypatch.setattr(cuda, "_plugin_path", lambda: ("13", "/none"))
    monkeypatch.setattr(tpu, "_library_path", lambda: "/none")
    monkeypatch.setattr(plugins, "version_of", lambda package: f"{package} {installed}")
    monkeypatch.setattr(tpu, "release", lambda: "0.0.42")
    assert message(ImportError, module.check_compiler) == (
        f"{package} {installed} is installed, but jaxlib {plugins.JAXLIB_VERSION} needs {package} "
        f"{'.'.join(needed.split('.')[:3])}: pip install '{module.COMPILER}'."
    )


def test_a_plugin_is_loaded_once(monkeypatch):
    calls: list[tuple] = []
    monkeypatch.setattr(plugins, "_apis", {})
    monkeypatch.setattr(plugins, "_paths", {})
    monkeypatch.setattr(plugins.xc, "pjrt_plugin_loaded", lambda name: name == "theirs")
    monkeypatch.setattr(plugins.xc, "pjrt_plugin_initialized", lambda name: name == "theirs")
    monkeypatch.setattr(plugins.xc, "initialize_pjrt_plugin", lambda name: calls.append((name,)))
    load = lambda *given: (calls.append(given), "new")[1]  # noqa: E731
    monkeypatch.setattr(plugins.xc, "load_pjrt_plugin_dynamically", load)
    monkeypatch.setattr(plugins, "_api_in", lambda path: f"api of {path}")
    assert plugins.loaded("theirs", "/a") == plugins.c_api("theirs") == "api of /a"
    assert plugins.loaded("ours", "/b") == plugins.loaded("ours", "/b") == "new"
    assert calls == [("ours", "/b"), ("ours",)]
    assert message(RuntimeError, plugins.loaded, "ours", "/c") == (
        "the plugin 'ours' is loaded from /b already, so /c cannot be."
    )


@needs_tpu
def test_topologies_by_the_names_of_jax():
    found = topologies.get_topology_desc("v5e:2x4", "tpu")
    assert repr(found) == "TopologyDescription(8 devices of TPU v5 lite)"
    assert len(topologies.get_topology_desc("v5e:2x2", num_slices=2).devices) == 8
    one = topologies.get_topology_desc("v5e:1x1", chips_per_host_bounds=(1, 1, 1))
    assert len(one.devices) == 1
    assert topologies.get_topology_desc("tpu-v5e:2x4").devices == sw.targets.devices("tpu-v5e:8")
    mesh = topologies.make_mesh(found, (2, 4), ("a", "b"))
    assert (
        "all-gather"
        in sw.jit(lambda x: x, out_shardings=NamedSharding(mesh, P()))
        .lower(on(mesh, X, "a"))
        .compile()
        .as_text()
    )
    assert message(ValueError, topologies.get_topology_desc, "v5e:3x3", "tpu").startswith(
        "targets: the compiler rejects 'v5e:3x3': INVALID_ARGUMENT: Topology layout"
    )


@needs_cuda
def test_gpus_by_the_names_of_jax():
    text = sw.targets.description("a100")
    found = topologies.get_topology_desc("a", "cuda", target_config=text, topology="1x2x8")
    assert len(found.devices) == 16 and found.devices[0].device_kind == "NVIDIA A100-SXM4-80GB"
    assert sw.targets.description(found.devices[0]) == text
    place = SingleDeviceSharding(found.devices[0])
    report = sw.explain(jnp.sin)(sw.ShapeDtypeStruct((8,), np.float32, sharding=place))
    assert report.machine.memory_bytes == GPUS["a100"].memory
    assert message(TypeError, pickle.dumps, found.devices[0]) == (
        "cannot pickle a device of 'a:1x2x8', a topology without a name. Use the devices of "
        "`shardwise.targets.devices(name)`."
    )
    assert len(topologies.get_topology_desc("h200", "gpu", topology="1x1x4").devices) == 4


@needs_cuda
def test_programs_are_stored_for_the_machine(monkeypatch):
    mesh = mesh_on("h100:2", (2,), ("x",))
    made = sw.jit(jnp.sin).lower(on(mesh, X, "x")).compile()
    data, ins, outs = serialize_executable.serialize(made)
    assert serialize_executable.serialize(made)[0] == data
    cpu = dataclasses.replace(platforms.CUDA, make_client=None)
    monkeypatch.setitem(platforms._by_name, "cuda", cpu)
    load = serialize_executable.deserialize_and_load
    assert message(RuntimeError, load, data, ins, outs).startswith(
        "this was written for devices of 'cuda', which this process cannot use. Read it on such a "
        "machine. (no client for the platform 'cuda' is installed"
    )


@needs_cuda
def test_programs_that_call_the_host_are_not_stored():
    mesh = mesh_on("h100:2", (2,), ("x",))
    calls = sw.jit(lambda x: sw.pure_callback(np.sin, x, x))
    found = message(ValueError, serialize_executable.serialize, calls.lower(on(mesh, X)).compile())
    assert found == (
        "serialize: the program of <lambda> calls host functions. They exist in this process only."
    )


@needs_tpu
@pytest.mark.parametrize("name", TPUS)
def test_numbers_of_devices(name):
    for shape in ("4", "2x2" if TPUS[name].axes == 2 else "2x2x1"):
        devices = sw.targets.devices(f"{name}:{shape}")
        assert named(f"{name}:{shape}").size == len(devices)


@needs_tpu
def test_partitioning_rules_of_users_are_rejected():
    double = custom_partitioning(lambda x: 2 * x)
    double.def_partition(
        partition=lambda mesh, ins, out: (mesh, lambda x: 2 * x, out.sharding, (out.sharding,)),
        sharding_rule="i j -> i j",
    )
    lowered = sw.jit(double).lower(on(mesh_on("tpu-v5e:2x2", (4,), ("x",)), X, "x"))
    assert message(NotImplementedError, lowered.compile) == (
        "functions with their own partitioning rules, such as those of `custom_partitioning`, "
        "cannot be compiled for several devices of 'tpu': its compiler does not call such rules. "
        "Call the function for each shard instead, inside of `shardwise.shard_map`."
    )


@needs_tpu
def test_exports_are_for_the_machine_of_their_arguments():
    mesh = mesh_on("tpu-v5e:2x2", (4,), ("x",))
    made = sw.export.export(sw.jit(jnp.sin))(on(mesh, X, "x"))
    assert made.platforms == ("tpu",) and made.nr_devices == 4


@needs_tpu
def test_a_program_that_does_not_fit():
    big = sw.ShapeDtypeStruct((80000, 4096), np.float32)

    def sorted_product(x: Any) -> Any:
        return jnp.sort(x @ x.T) @ x

    found = message(
        AssertionError, sw.explain.assert_fits(sorted_product, machine="tpu-v5e:1"), big
    )
    assert found.startswith("sorted_product does not fit 'tpu-v5e:1x1': it needs ")
    assert " are available: " in found and f"{Path(__file__).name}:" in found


@needs_cuda
def test_reports_of_the_machines_own_compiler():
    mesh = sw.sharding.AbstractMesh((8,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    split = NamedSharding(mesh, P("x"))

    def loss(w: Any, x: Any) -> Any:
        w = sw.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return (jnp.tanh(x @ w) ** 2).sum()

    step = sw.jit(sw.grad(loss), out_shardings=split)
    w, x = [sw.ShapeDtypeStruct(s, np.float32, sharding=split) for s in ((512, 512), (1024, 512))]
    for machine in ("h100:8", "h100:2x4", *["tpu-v5e:2x4"] * ("tpu" in sw.targets.available())):
        report = sw.explain(step, machine=machine)(w, x)
        assert report.compiler in sw.targets.available().values()
        assert f"compiled for '{machine}' by {report.compiler}" in str(report)
        counts = {kind: report.count(kind) for kind in ("all-gather", "reduce-scatter")}
        assert counts == {"all-gather": 1, "reduce-scatter": 1} and report.count("all-reduce") == 0
        assert report.bytes("reduce-scatter") == 2**20
        assert all(row.line for row in report.communication)
    assert sw.explain(step, machine="h100")(w, x).count("reduce-scatter") == 1  # by CPU's compiler
    assert sw.explain(step)(w, x).count("all-reduce") == 1
    sw.explain.assert_fits(step, machine="h100:8")(w, x)
    found = message(
        AssertionError, sw.explain.assert_fits(step, machine="h100:8", share=1e-5), w, x
    )
    assert found.startswith("loss does not fit 'h100:8': it needs 3.5 MiB of a device, and ")
    few = sw.explain(step, machine="h100:4")
    assert message(ValueError, few, w, x) == (
        "the program runs on 8 devices, and 'h100:4' has 4. Choose a larger machine, or a smaller "
        "mesh."
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_functions_by_platform(machine):
    def f(x: Any) -> Any:
        return sw.lax.platform_dependent(x, cuda=jnp.sin, tpu=jnp.cos)

    name = {"gpu": "sine", "tpu": "cosine"}[sw.targets.devices(machine)[0].platform]
    assert f"stablehlo.{name} " in sw.jit(f).lower(on(machine, X)).as_text()
    assert message(NotImplementedError, f, X) == (
        "platform_dependent: there is no function for 'cpu', on which this runs, and no default; "
        "got cuda, tpu."
    )


@needs_cuda
def test_calls_of_libraries_count():
    device = SingleDeviceSharding(sw.targets.devices("h100")[0])

    def like(shape: tuple[int, ...], dtype: Any) -> sw.ShapeDtypeStruct:
        return sw.ShapeDtypeStruct(shape, dtype, sharding=device)

    def conv(x: Any, w: Any) -> Any:
        return sw.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    x, w = like((8, 16, 32, 32), "bfloat16"), like((64, 16, 3, 3), "bfloat16")
    once = 2 * 8 * 64 * 32 * 32 * 16 * 3 * 3
    assert sw.explain(conv)(x, w).computation.flops == {"bf16": once}
    both = sw.grad(lambda x, w: (conv(x, w) ** 2).sum(), argnums=(0, 1))
    assert sw.explain(both)(x, w).computation.flops == {"bf16": 3 * once}
    a, b = like((256, 512), "complex64"), like((512, 128), "complex64")
    assert sw.explain(lambda a, b: a @ b)(a, b).computation.flops == {"c64": 8 * 256 * 512 * 128}
    q = like((2, 128, 4, 64), "bfloat16")
    f = sw.explain(lambda q: sw.nn.dot_product_attention(q, q, q, implementation="cudnn"))
    assert f(q).computation.flops == {"bf16": 4 * 2 * 4 * 128 * 128 * 64}


@pytest.mark.parametrize("machine", MACHINES)
def test_bytes_of_the_main_memory_count(machine):
    """A product reads and writes each matrix once; TPU's copies to its VMEM are no more."""
    x = sw.ShapeDtypeStruct((4096, 4096), "bfloat16")
    report = sw.explain(lambda a, b: a @ b, machine=f"{machine}:1")(x, x)
    assert report.computation.bytes == pytest.approx(3 * 2**25, rel=0.01)


@pytest.mark.parametrize("machine", MACHINES)
def test_combined_collectives_belong_to_all_their_lines(machine):
    devices = sw.targets.devices({"h100": "h100:8", "tpu-v5e": "tpu-v5e:8"}[machine])
    mesh = Mesh(np.array(devices), ("x",))

    def loss(p: Any, x: Any) -> Any:
        return ((jnp.tanh(x @ p["w1"]) @ p["w2"] + p["b"]) ** 2).sum()

    shapes = {"w1": (512, 512), "w2": (512, 512), "b": (512,)}
    p = {k: on(mesh, np.ones(s, np.float32)) for k, s in shapes.items()}
    x = on(mesh, np.ones((1024, 512), np.float32), "x")
    rows = sw.explain(sw.grad(loss))(p, x).communication
    assert {row.op for row in rows} == {"dot_general", "reduce_sum"}
    sizes = sorted(row.bytes for row in rows if row.kind == "all-reduce")
    assert sizes[-2:] == [2**20, 2**20] or sizes == [2048, 2**21]
