"""The CUDA client, from the plugin wheel (`pip install shardwise[cuda13]`).

The plugin is loaded from the path of its shared library, since its Python package would import jax.
"""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.base.interrupts import import_module
from shardwise._src.runtime import plugins

_VERSIONS = ("13", "12")


@functools.cache
def _plugin_path() -> tuple[str, str] | None:
    """(CUDA major version, path of the plugin's library), or None if no wheel is installed."""
    spec = importlib.util.find_spec("jax_plugins")
    for root in (spec.submodule_search_locations if spec else None) or ():
        for version in _VERSIONS:
            path = os.path.join(root, f"xla_cuda{version}", "xla_cuda_plugin.so")
            if os.path.exists(path):
                return version, path
    return None


def available() -> bool:
    """Whether the plugin is installed and an NVIDIA device is visible to this process."""
    visible = os.path.exists("/dev/nvidiactl") or os.path.exists("/proc/driver/nvidia/version")
    return visible and os.environ.get("CUDA_VISIBLE_DEVICES") != "" and _plugin_path() is not None


def _preload_libraries() -> None:
    """Loads NVIDIA's libraries from their wheels, so that the plugin finds them without a path."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations if spec else None) or ():
        folders = (os.path.join(root, "*", "lib"), os.path.join(root, "lib"))
        for path in sorted(p for f in folders for p in glob.glob(os.path.join(f, "lib*.so*"))):
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError:
                continue  # optional libraries need others; the plugin reports missing required ones


def make_client() -> _jax.Client:
    found = _plugin_path()
    if found is None:
        raise ImportError("the CUDA plugin is not installed: pip install 'shardwise[cuda13]'.")
    version, path = found
    _preload_libraries()
    client = plugins.make_client("cuda", path, xc.generate_pjrt_gpu_plugin_options())
    _register_extension(version, plugins.c_api("cuda"))
    return client


def _register_extension(version: str, api: Any) -> None:
    ext = import_module(f"jax_cuda{version}_plugin.cuda_plugin_extension")
    xc.register_custom_type_handler("CUDA", functools.partial(ext.register_custom_type, api))
    xc.register_custom_call_handler("CUDA", functools.partial(ext.register_custom_call_target, api))
    for name, value in ext.ffi_types().items():
        xc.register_custom_type(name, value, platform="CUDA")
    for name, value in ext.ffi_handlers().items():
        xc.register_custom_call_target(name, value, platform="CUDA", api_version=1)
