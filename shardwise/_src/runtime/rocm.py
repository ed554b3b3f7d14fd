"""The ROCm compiler, from the plugin's wheel (`pip install jax-rocm7-pjrt jax-rocm7-plugin`).

It needs no GPU, but the plugin is linked to ROCm's libraries, so it loads only where these are
installed. Untested.
"""

from __future__ import annotations

import functools
import importlib.util
import os

from jaxlib import _jax
from jaxlib import xla_client as xc
from jaxlib.version import __version__ as JAXLIB_VERSION

from shardwise._src.runtime import plugins

COMPILER = f"jax-rocm7-pjrt=={JAXLIB_VERSION}' 'jax-rocm7-plugin=={JAXLIB_VERSION}"
_PACKAGE = "jax-rocm7-pjrt"


@functools.cache
def _plugin_path() -> str | None:
    spec = importlib.util.find_spec("jax_plugins")
    for root in (spec.submodule_search_locations if spec else None) or ():
        path = os.path.join(root, "xla_rocm7", "xla_rocm_plugin.so")
        if os.path.exists(path):
            return path
    return None


def compiler_version() -> str | None:
    """The package of the compiler and its version; None if it is not installed."""
    path = _plugin_path()
    return path and (plugins.version_of(_PACKAGE) or f"plugin at {path}")


def topology(name: str, config: str, slices: int, hosts: int, gpus: int) -> _jax.DeviceTopology:
    """Slices of hosts with GPUs, for the compiler alone; see `cuda.topology`."""
    path = _plugin_path()
    if path is None:
        raise ImportError(f"the ROCm plugin is not installed: pip install '{COMPILER}'.")
    plugins.check_version(_PACKAGE, JAXLIB_VERSION, COMPILER)
    try:
        api = plugins.loaded("rocm", path)
    except _jax.JaxRuntimeError as error:
        raise ImportError(
            f"the ROCm plugin could not be loaded: {error}. It needs ROCm's libraries, also where "
            "there is no GPU: install ROCm 7."
        ) from None
    return xc.make_c_api_device_topology(
        api, name, target_config=config, topology=f"{slices}x{hosts}x{gpus}"
    )
