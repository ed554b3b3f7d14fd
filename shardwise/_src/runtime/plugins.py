"""Clients of PJRT plugins, which are shared libraries of hardware vendors.

A plugin can be loaded once in a process. If another library, such as jax, has loaded it, that one
is used.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc
from jaxlib.version import __version__ as JAXLIB_VERSION

from shardwise._src.base.interrupts import import_module, uninterrupted
from shardwise._src.runtime import processes

_lock = threading.RLock()
_apis: dict[str, Any] = {}
_paths: dict[str, str] = {}
_CAPSULE = b"pjrt_c_api"  # capsules refer to this name, and do not copy it


def c_api(name: str) -> Any:
    """The API of a plugin that is loaded."""
    if name not in _apis:
        raise RuntimeError(
            f"the plugin of the platform {name!r} is not loaded yet; use one of its devices first."
        )
    return _apis[name]


def loaded(name: str, library_path: str, environment: Mapping[str, str] | None = None) -> Any:
    """The API of a plugin, which is loaded under a name unless it already is.

    environment: variables that the library reads while it is loaded.

    Raises RuntimeError if another library has this name.
    """
    with _lock, uninterrupted():
        if (before := _paths.setdefault(name, library_path)) != library_path:
            raise RuntimeError(
                f"the plugin {name!r} is loaded from {before} already, so {library_path} cannot be."
            )
        if name not in _apis:
            with _environment(environment or {}):
                if xc.pjrt_plugin_loaded(name):
                    _apis[name] = _api_in(library_path)
                else:
                    _apis[name] = xc.load_pjrt_plugin_dynamically(name, library_path)
                if not xc.pjrt_plugin_initialized(name):
                    xc.initialize_pjrt_plugin(name)
        return _apis[name]


def version_of(package: str) -> str | None:
    """A package and its version; None if it is not installed."""
    metadata = import_module("importlib.metadata")
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return None


def check_version(package: str, wanted: str, extra: str) -> None:
    """Raises ImportError unless a package, if it is known, has a version that starts like this."""
    found = version_of(package)
    if found is None:
        return
    version, parts = found.split()[1], wanted.split(".")[:3]
    if version.split(".")[: len(parts)] != parts:
        raise ImportError(
            f"{found} is installed, but jaxlib {JAXLIB_VERSION} needs {package} "
            f"{'.'.join(parts)}: pip install '{extra}'."
        )


@contextmanager
def silenced() -> Generator[None]:
    """Discards what C++ writes to the standard error of this process, in a `with` block."""
    with _lock:  # one at a time: each restores what it found
        sys.stderr.flush()
        before = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            os.close(nowhere)


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Sets variables of the environment that are not set, in a `with` block."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            del os.environ[name]


def _api_in(library_path: str) -> Any:
    """The API of a library that is loaded already."""
    library = ctypes.CDLL(library_path)
    library.GetPjrtApi.restype = ctypes.c_void_p
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(library.GetPjrtApi(), _CAPSULE, None)


def make_client(name: str, library_path: str, options: Mapping[str, Any]) -> _jax.Client:
    """Loads a plugin under a name and returns its client.

    options: for the plugin; those for several processes are added.
    """
    loaded(name, library_path)
    here = processes.link()
    given = {**options, **processes.plugin_options()}
    return xc.make_c_api_client(name, given, here and here.client)
