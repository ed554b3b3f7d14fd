"""TPU clients, and the TPU compiler, which needs no TPU: both are in the package libtpu.

pip install shardwise[tpu]              # on a TPU machine
pip install shardwise[compile-tpu]      # anywhere
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from jaxlib import _jax
from jaxlib import xla_client as xc
from jaxlib.version import __version__ as JAXLIB_VERSION

from shardwise._src.runtime import plugins

COMPILER = "shardwise[compile-tpu]"
# The libtpu release that goes with a jaxlib release.
_RELEASES = {"0.10": "0.0.42", "0.11.0": "0.0.44", "0.11.1": "0.0.46", "0.11.2": "0.0.48",
             "0.12": "0.0.50"}  # fmt: skip
# Without them the library asks a metadata server, and writes warnings.
_NOT_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
}


@functools.cache
def _library_path() -> str | None:
    named = os.environ.get("TPU_LIBRARY_PATH")
    if named:
        return named
    spec = importlib.util.find_spec("libtpu")
    for root in (spec.submodule_search_locations if spec else None) or ():
        path = os.path.join(root, "libtpu.so")
        if os.path.exists(path):
            return path
    return None


def _is_attached() -> bool:
    """Whether this machine has TPUs."""
    return bool(glob.glob("/dev/accel*") or glob.glob("/dev/vfio/[0-9]*"))


def available() -> bool:
    """Whether libtpu is installed and this machine has TPUs."""
    return _is_attached() and _library_path() is not None


def make_client() -> _jax.Client:
    """The client of the TPUs of this machine. Untested on hardware."""
    return plugins.make_client("tpu", _checked_path("shardwise[tpu]"), {})


def compiler_version() -> str | None:
    """The package of the compiler and its version; None if it is not installed."""
    path = _library_path()
    return path and (plugins.version_of("libtpu") or f"libtpu at {path}")


def check_compiler() -> str:
    """The path of libtpu. Raises ImportError if it is missing, or does not go with jaxlib."""
    return _checked_path(COMPILER)


def topology(name: str, host: Sequence[int], **options: Any) -> _jax.DeviceTopology:
    """Chips for the compiler alone.

    name: in libtpu's notation: "v5p:2x2x2"; host: how many chips of a host are along each axis;
    options: for libtpu.

    Raises:
      ImportError: if libtpu is missing, or does not go with jaxlib.
      RuntimeError: if it rejects the shape.
    """
    path = check_compiler()
    plugins.loaded("tpu", path, {} if _is_attached() else _NOT_HERE)
    options = {"chips_per_host_bounds": list(host), **options}
    return xc.make_tfrt_tpu_c_api_device_topology(name, **options)


def _checked_path(extra: str) -> str:
    path = _library_path()
    if path is None:
        raise ImportError(f"libtpu is not installed: pip install '{extra}'.")
    if wanted := release():
        plugins.check_version("libtpu", wanted, extra)
    return path


def release() -> str:
    """The libtpu release that goes with jaxlib; "" if it is not known."""
    minor, patch = JAXLIB_VERSION.split(".")[1:3]
    return _RELEASES.get(f"0.{minor}", "") or _RELEASES.get(f"0.{minor}.{patch}", "")
