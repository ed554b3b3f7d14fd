"""The least that must work on every supported pair of Python and jaxlib."""

import importlib
import subprocess
import sys

from shardwise._version import __version__


def test_base_imports():
    base = importlib.import_module("shardwise.base")
    assert base.__doc__


def test_the_version_is_a_release_number():
    assert all(part.isdigit() for part in __version__.split("."))


def test_importing_does_not_import_jax():
    code = "import sys, shardwise.base; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
