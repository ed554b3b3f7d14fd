"""The CUDA client, from the plugin wheel (`pip install shardwise[cuda13]`), and its compiler, which
needs no GPU (`pip install shardwise[compile-cuda]`).

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
from jaxlib.version import __version__ as JAXLIB_VERSION

from shardwise._src.base.interrupts import import_module, uninterrupted
from shardwise._src.runtime import plugins

COMPILER = "shardwise[compile-cuda]"
_VERSIONS = ("13", "12")
# Modules of jaxlib that collect the functions of cuSOLVER and others from the plugin's wheel.
_LIBRARIES = ("jaxlib.gpu_solver", "jaxlib.gpu_linalg", "jaxlib.gpu_sparse", "jaxlib.gpu_prng")


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
    version, path = _installed("shardwise[cuda13]")
    _preload_libraries()
    client = plugins.make_client("cuda", path, xc.generate_pjrt_gpu_plugin_options())
    _register_functions(version)
    return client


def compiler_version() -> str | None:
    """The package of the compiler and its version; None if it is not installed."""
    found = _plugin_path()
    if found is None:
        return None
    return plugins.version_of(f"jax-cuda{found[0]}-pjrt") or f"plugin at {found[1]}"


def check_compiler() -> tuple[str, str]:
    """The CUDA version of the plugin, and its path.

    Raises ImportError if it is missing, or of another version than jaxlib.
    """
    version, path = _installed(COMPILER)
    plugins.check_version(f"jax-cuda{version}-pjrt", JAXLIB_VERSION, COMPILER)
    return version, path


def oldest_capability() -> tuple[int, int]:
    """The oldest compute capability that the installed compiler has."""
    found = _plugin_path()
    return (7, 0) if found is None or found[0] == "12" else (7, 5)


def topology(name: str, config: str, slices: int, hosts: int, gpus: int) -> _jax.DeviceTopology:
    """Slices of hosts with GPUs, for the compiler alone.

    config: the text of XLA's `GpuTargetConfigProto`, which describes a GPU.

    Raises:
      ImportError: if the compiler is missing, or of another version than jaxlib.
    """
    version, path = check_compiler()
    with plugins.silenced():  # each library reports that a GPU is missing
        api = plugins.loaded("cuda", path, {"TF_CPP_MIN_LOG_LEVEL": "2"})
        _register_functions(version)
    return xc.make_c_api_device_topology(
        api, name, target_config=config, topology=f"{slices}x{hosts}x{gpus}"
    )


def description_of(device: _jax.Device) -> str:
    """The text of XLA's `GpuTargetConfigProto` for an attached GPU."""
    topology: Any = _jax.get_topology_for_devices([device])
    return topology.target_config


def _installed(extra: str) -> tuple[str, str]:
    found = _plugin_path()
    if found is None:
        raise ImportError(f"the CUDA plugin is not installed: pip install '{extra}'.")
    return found


@functools.cache
def _register_functions(version: str) -> None:
    """Registers the foreign functions of the plugin's wheel with XLA."""
    api = plugins.c_api("cuda")
    ext = import_module(f"jax_cuda{version}_plugin.cuda_plugin_extension")
    xc.register_custom_type_handler("CUDA", functools.partial(ext.register_custom_type, api))
    xc.register_custom_call_handler("CUDA", functools.partial(ext.register_custom_call_target, api))
    for name, value in ext.ffi_types().items():
        xc.register_custom_type(name, value, platform="CUDA")
    for name, value in ext.ffi_handlers().items():
        xc.register_custom_call_target(name, value, platform="CUDA", api_version=1)
    for library in _LIBRARIES:
        for name, value, api_version in import_module(library).registrations()["CUDA"]:
            xc.register_custom_call_target(name, value, platform="CUDA", api_version=api_version)
    partitionable = [
        name for m in _LIBRARIES[:3] for name in import_module(m).batch_partitionable_targets()
    ]
    for name in (*partitionable, "cu_tridiagonal_solve_perturbed"):
        _jax.register_custom_call_as_batch_partitionable(name, c_api=api)


@functools.cache
def register_host_functions() -> None:
    """Makes SciPy's LAPACK available to functions of CUDA that compute on the host."""
    with uninterrupted():
        import_module("jaxlib.gpu_solver").initialize_hybrid_kernels()
