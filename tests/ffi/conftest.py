"""The foreign functions of kernels.cc, compiled once for all tests of this folder."""

import ctypes
import shutil
from pathlib import Path

import pytest

import shardwise as sw

NAMES = {
    "rms": "Rms", "rms.parts": "Rms", "rms_back": "RmsBack", "add": "Add", "add-parts": "Add",
    "increment": "Increment", "memory": "Memory", "describe": "Describe", "tick": "Tick",
    "root": "Root", "count": {"instantiate": "NewCount", "execute": "NextCount"},
}  # fmt: skip


@pytest.fixture(scope="session")
def compiler():
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("there is no C++ compiler")


@pytest.fixture(scope="session")
def kernels(compiler, tmp_path_factory):
    """The library; its functions are registered in lower case."""
    source = Path(__file__).with_name("kernels.cc")
    folder = tmp_path_factory.mktemp("libraries")
    library = sw.ffi.build_and_load(
        source, NAMES, types={"Count": ("CountId", "CountInfo")}, flags=["-O0"], folder=folder
    )
    for name in ("rms.parts", "add-parts"):
        sw.ffi.register_ffi_target_as_batch_partitionable(name)
    library.Seen.restype = library.Calls.restype = ctypes.c_int64
    library.Seen.argtypes = (ctypes.c_int64,)
    return library


@pytest.fixture
def shapes(kernels):
    """The shapes of the operands of the last call that notes them."""

    def found():
        rows, i = [[]], 0
        while (n := kernels.Seen(i)) != -2:
            rows[-1:] = [[*rows[-1], n]] if n != -1 else [rows[-1], []]
            i += 1
        return [tuple(row) for row in rows[:-1]]

    return found
