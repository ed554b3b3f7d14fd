"""Platforms from outside: a second client of XLA's CPU backend, as if it were other hardware.

Registered platforms remain, so each test runs in a separate process.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardwise._src.extend import rule_tables
from shardwise._src.runtime import platforms
from shardwise._src.runtime.platforms import CPU, CUDA, ROCM, TPU, Platform, named, platform_of
from shardwise.extend import backend
from shardwise.interpreters import mlir
from tests.helpers.patience import seconds

ROOT = Path(__file__).parents[2]
TWIN = """
import dataclasses
from jaxlib import xla_client as xc
from shardwise._src.runtime.platforms import CPU

def make_client():
    return xc.make_cpu_client(asynchronous=True, num_devices=4)

TWIN = dataclasses.replace(CPU, name="twin", priority=-1, make_client=make_client)
"""
USE = """
import pickle
import numpy as np
import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.runtime.platforms import platform_of
from shardwise.experimental import serialize_executable

cpu, twin = sw.devices("cpu"), sw.devices("twin")
assert sw.devices() == cpu and (len(cpu), len(twin)) == (2, 4)
assert platform_of(twin[0]).name == "twin" and platform_of(cpu[0]).name == "cpu"

ones = sw.device_put(np.arange(8.0, dtype=np.float32), twin[1])
assert (ones * 2).devices() == {twin[1]} and (ones * 2).tolist() == [2 * i for i in range(8)]

grid = np.arange(64, dtype=np.float32).reshape(8, 8)
mesh = sw.sharding.Mesh(np.array(twin), "x")
split = sw.device_put(grid, sw.NamedSharding(mesh, sw.P("x")))
f = sw.jit(lambda a: jnp.linalg.cholesky(a @ a.T + 1e4 * jnp.eye(8)).sum(0))
assert np.allclose(f(split), f(grid), rtol=1e-5) and f(split).devices() == {*twin}

there = sw.device_put(split, cpu[1])
back = sw.device_put(there, split.sharding)
assert there.devices() == {cpu[1]} and back.sharding == split.sharding
assert np.array_equal(there, grid) and np.array_equal(back, grid)

assert sw.jit(lambda a: sw.pure_callback(lambda v: v + 1, a, a))(ones)[0] == 1
assert pickle.loads(pickle.dumps(twin[2])) is twin[2] is not cpu[0]
step = sw.jit(lambda a: a + 1).lower(ones).compile()
loaded = serialize_executable.deserialize_and_load(*serialize_executable.serialize(step))
assert loaded(ones).devices() == {twin[1]}
assert {d for x in sw.live_arrays("twin") for d in x.devices()} == {*twin}
assert not {d for x in sw.live_arrays("cpu") for d in x.devices()} & {*twin}
print("all right")
"""


def run(program, **env):
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "SHARDWISE_NUM_CPU_DEVICES": "2", **env},
        capture_output=True,
        text=True,
        timeout=seconds(120),
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_platform_that_is_registered():
    register = "from shardwise.extend import backend\nbackend.register_platform(TWIN)\n"
    assert run(TWIN + register + USE) == "all right\n"


def test_a_platform_of_an_installed_package(tmp_path):
    (tmp_path / "twin_backend.py").write_text(TWIN)
    info = tmp_path / "twin_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twin-backend\nVersion: 1.0\n")
    points = "[shardwise.platforms]\ntwin = twin_backend:TWIN\n"
    (info / "entry_points.txt").write_text(points)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert run(USE, PYTHONPATH=path) == "all right\n"
    default = "import shardwise as sw; print(len(sw.devices()), sw.devices()[0].client.platform)"
    assert run(default, PYTHONPATH=path, SHARDWISE_PLATFORMS="twin") == "4 cpu\n"


def test_an_entry_point_that_is_something_else(tmp_path):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[shardwise.platforms]\nother = builtins:dict\n")
    program = (
        "import shardwise as sw\n"
        "try:\n    sw.devices('other')\nexcept TypeError as error:\n    print(error)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert run(program, PYTHONPATH=path) == (
        "the entry point 'builtins:dict' of the group 'shardwise.platforms' must be a Platform "
        "named 'other', or a function that returns one; got {} of type dict.\n"
    )


def test_the_default_is_the_available_platform_of_the_highest_priority():
    program = TWIN + (
        "import shardwise as sw\nfrom shardwise.extend import backend\n"
        "from shardwise._src.runtime import platforms\n"
        "for name, priority, there in (('a', 5, True), ('b', 500, False), ('c', 7, True)):\n"
        "    backend.register_platform(dataclasses.replace(\n"
        "        TWIN, name=name, priority=priority, is_available=lambda there=there: there))\n"
        "print(platforms.default(), platforms.platform_of(sw.devices()[0]))\n"
    )
    assert run(program, SHARDWISE_PLATFORMS="") == "c c\n"


def test_a_function_that_makes_a_client():
    program = TWIN + (
        "import shardwise as sw\nfrom shardwise.extend import backend\n"
        "backend.register_backend_factory('twin', make_client, priority=9)\n"
        "print(len(sw.devices()), backend.get_backend() is sw.devices('twin')[0].client)\n"
    )
    assert run(program, SHARDWISE_PLATFORMS="") == "4 True\n"


def test_a_library_that_is_not_there():
    program = (
        "import shardwise as sw\nfrom shardwise.extend import backend\n"
        "backend.register_platform(backend.pjrt_plugin('xpu', '/nowhere/plugin.so'))\n"
        "try:\n    sw.devices('xpu')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    text = run(program)
    assert text.startswith("platform 'xpu' could not be started: ") and "/nowhere/plugin.so" in text


def test_functions_by_platform():
    """A program has the function of the platform that it runs on, of the arguments' devices."""
    program = TWIN + (
        "import numpy as np\nimport shardwise as sw\nimport shardwise.numpy as jnp\n"
        "from shardwise.extend import backend\n"
        "backend.register_platform(dataclasses.replace(TWIN, is_xla_cpu=False, device_name='x'))\n"
        "one, other = [sw.device_put(np.ones((2, 2)), sw.devices(p)[0]) for p in ('cpu', 'twin')]\n"
        "def f(x):\n    return sw.lax.platform_dependent(x,\n"
        "        cpu=lambda x: jnp.linalg.qr(2 * x)[1].sum() * 0 + x.sum(), x=lambda x: x.sum() * 9)\n"
        "for g in (f, sw.jit(f), lambda x: sw.value_and_grad(f)(x)[0], sw.jit(sw.vmap(f, axis_size=1,\n"
        "    in_axes=None)), lambda x: sw.lax.scan(lambda c, _: (f(x), c), 0.0, length=1)[0]):\n"
        "    print(float(jnp.sum(g(one))), float(jnp.sum(g(other))))\n"
        "only = sw.jit(lambda x: sw.lax.platform_dependent(x, twin=lambda x: x + 1))\n"
        "print(float(only(other)[0, 0]))\n"
        "try:\n    only(one)\nexcept NotImplementedError as error:\n    print(error)\n"
    )
    assert run(program) == "4.0 36.0\n" * 5 + (
        "2.0\nplatform_dependent: there is no function for 'cpu', on which this runs, and no "
        "default; got twin.\n"
    )


def test_a_platform_that_is_added_after_a_program_was_traced():
    program = TWIN + (
        "import numpy as np\nimport shardwise as sw\nfrom shardwise.extend import backend\n"
        "f = sw.jit(lambda x: sw.lax.platform_dependent(\n"
        "    x, cpu=lambda x: x + 1, twin=lambda x: x + 2))\n"
        "x = np.zeros(2)\nprint(float(f(x)[0]))\n"
        "backend.register_platform(TWIN)\n"
        "print(float(f(sw.device_put(x, sw.devices('twin')[0]))[0]), float(f(x)[0]))\n"
    )
    assert run(program) == "1.0\n2.0 1.0\n"


def test_hardware_that_lacks_what_a_cpu_has():
    program = TWIN + (
        "import numpy as np\nimport shardwise as sw\nfrom shardwise.extend import backend\n"
        "backend.register_platform(backend.Platform(name='bare', make_client=make_client))\n"
        "x = sw.device_put(np.zeros(2), sw.devices('bare')[1])\n"
        "for call in (lambda: sw.jit(lambda x: sw.pure_callback(lambda v: v, x, x))(x),\n"
        "             x.__dlpack_device__, lambda: sw.scipy.linalg.schur(sw.numpy.outer(x, x))):\n"
        "    try:\n        print(call())\n"
        "    except (NotImplementedError, BufferError) as error:\n        print(error)\n"
        "print(sw.default_backend(), x.platform())\n"
        "backend.register_backend_factory('self', lambda: sw.devices('self'))\n"
        "try:\n    sw.devices('self')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    assert run(program, SHARDWISE_PLATFORMS="bare").splitlines() == [
        "programs on bare cannot call host functions (callbacks, `shardwise.debug.print`). Run "
        "this part on a CPU device: `shardwise.device_put(x, shardwise.devices('cpu')[0])`.",
        "DLPack has no type for cpu:1; copy the array to the host first.",
        "schur: is computed by LAPACK only; this program is for 'bare'. Compute it outside of "
        "this program, with operands on a CPU device: `shardwise.device_put(x, "
        "shardwise.devices('cpu')[0])`.",
        "bare bare",
        "platform 'self' could not be started: its `make_client` uses the devices of 'self' itself",
    ]


def test_a_client_for_a_platform_that_had_none():
    program = TWIN + (
        "import shardwise as sw\nfrom shardwise.extend import backend\n"
        "backend.register_platform(dataclasses.replace(TWIN, name='rocm', device_name='rocm'))\n"
        "print(len(sw.devices('rocm')))\n"
        "backend.register_backend_factory('nothing', lambda: None)\n"
        "try:\n    sw.devices('nothing')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    assert run(program) == (
        "4\nplatform 'nothing' could not be started: make_client must return a new PJRT client; "
        "got None of type NoneType.\n"
    )


def test_platforms_that_cannot_be_registered():
    with pytest.raises(ValueError) as failure:
        backend.register_platform(Platform(name="cuda"))
    assert str(failure.value) == (
        "a platform named 'cuda' already exists. Choose another name: devices and compiled "
        "programs may refer to the first one."
    )
    with pytest.raises(ValueError) as failure:
        backend.register_platform(Platform(name="gpu"))
    assert str(failure.value) == (
        "'gpu' is another name of the platform 'cuda'. Choose a different name."
    )
    with pytest.raises(TypeError) as failure:
        Platform(name="a,b")
    assert str(failure.value) == (
        "Platform: name must be a string without commas and spaces; got 'a,b'."
    )
    with pytest.raises(TypeError) as failure:
        Platform(name="w", is_available=True)
    assert str(failure.value) == (
        "Platform: is_available must be a function that returns a bool; got True."
    )
    for field, given, expected in (
        ("gaps", ["a"], "a tuple of `Gap`s (`runtime.dtype_gaps`)"),
        ("gaps", ("sort",), "a tuple of `Gap`s (`runtime.dtype_gaps`)"),
        ("memory_kinds", "device", "a tuple of names of memory kinds"),
        ("kinds_outside_programs", (None,), "a tuple of names of memory kinds"),
        ("linalg", ("blas",), "a tuple of some of ('lapack', 'cusolver', 'libtpu', 'xla')"),
    ):
        with pytest.raises(TypeError) as failure:
            Platform(name="w", **{field: given})
        assert str(failure.value) == f"Platform: {field} must be {expected}; got {given!r}."
    with pytest.raises(TypeError) as failure:
        backend.register_platform("cuda")
    assert str(failure.value) == ("register_platform takes a Platform; got 'cuda' of type str.")


def test_no_code_compares_names_of_platforms():
    """Not even through a table from names: decisions read the fields of a record."""
    names = {name for platform in platforms.known() for name in platform.names}
    found = []
    for path in sorted((ROOT / "shardwise").rglob("*.py")):
        text = path.read_text()
        if not any(name in text for name in names):
            continue  # without the time to parse it
        for node in ast.walk(ast.parse(text)):
            parts = node.keys if isinstance(node, ast.Dict) else []
            if isinstance(node, ast.Compare | ast.MatchValue):
                parts = list(ast.walk(node))
            for x in parts:
                if isinstance(x, ast.Constant) and x.value in names:
                    found.append(f"{path.relative_to(ROOT)}:{x.lineno}")
    assert found == []


def test_rules_are_found_by_the_names_of_a_platform():
    rules = {"gpu": "for GPUs", "rocm": "for ROCm", None: "for all"}
    for name, rule in rules.items():
        mlir.register_lowering("a primitive", rule, platform=name)
    found = [rule_tables.lowering("a primitive", p) for p in (CUDA, ROCM, TPU)]
    assert found == ["for GPUs", "for ROCm", "for all"]
    assert rule_tables.lowering("another", CPU) is None


def test_names():
    assert [named(name) for name in ("cpu", "cuda", "gpu", "rocm", "tpu")] == [
        *(CPU, CUDA, CUDA, ROCM, TPU)
    ]
    assert ROCM.names == ("rocm", "gpu") and TPU.xla_name == "TPU" and repr(CUDA) == "cuda"
    assert named("nowhere") is named("nowhere") and not named("nowhere").shares_memory
    assert platform_of(backend.get_default_device()) is CPU
    assert platforms.known()[:4] == [CPU, CUDA, ROCM, TPU]
