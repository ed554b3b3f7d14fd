"""The minimum that must work on every supported pair of Python and jaxlib."""

import importlib
import subprocess
import sys

from shardwise._version import __version__


def test_base_imports():
    base = importlib.import_module("shardwise._src.base")
    assert base.__doc__


def test_the_version_is_a_release_number():
    assert all(part.isdigit() for part in __version__.split("."))


def run(code: str) -> str:
    """The output of a fresh process."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_importing_imports_neither_jax_nor_what_is_slow():
    code = "import sys, shardwise as sw; print({'jax', 'rich', 'scipy'} & set(sys.modules))"
    assert run(code) == "set()\n"


def test_namespaces_are_imported_on_first_use():
    code = "import shardwise as sw; print(sw.tree.leaves((1, [2])), sw.sharding.Mesh.__name__)"
    assert run(code) == "[1, 2] Mesh\n"


def test_devices_can_be_chosen_after_importing():
    count = "import os, shardwise as sw\n{}\nprint(len(sw.devices('cpu')))"
    flag = "os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=3'"
    assert run(count.format(flag)) == "3\n"
    assert run(count.format("sw.config.update('num_cpu_devices', 5)")) == "5\n"


def test_importing_starts_no_client():
    code = "import shardwise; from shardwise._src.runtime import backend; print(backend._clients)"
    assert run(code) == "{}\n"
