"""The part of a compilation cache key that is independent of the module's text."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator

from jaxlib import _jax
from jaxlib import xla_client as xc

from shardwise._src.runtime.backend import JAXLIB_VERSION

# Variables read by XLA and its libraries. Memory allocation does not affect compiled code.
_VARIABLES = ("XLA_", "TF_XLA_", "TF_CUDNN_", "TF_ENABLE_ONEDNN", "DNNL_", "ONEDNN_", "NVIDIA_TF32")
_IRRELEVANT = ("XLA_PYTHON_CLIENT_", "XLA_CLIENT_MEM_FRACTION")
# The lines of /proc/cpuinfo that identify a processor; others vary over time.
_PROCESSOR = (
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "isa",
)


def fingerprint(devices: tuple[_jax.Device, ...], options: xc.CompileOptions) -> Iterator[bytes]:
    """The jaxlib, platform, processor, devices, options and environment of a compilation."""
    client = devices[0].client
    yield f"{JAXLIB_VERSION} {client.platform} {client.platform_version}".encode()
    yield f"{client.process_index()} {sorted({d.device_kind for d in devices})}".encode()
    yield _machine()
    yield _environment()
    overrides = options.env_option_overrides
    options.env_option_overrides = []  # their serialized order varies
    try:
        yield options.SerializeAsString()  # with the device assignment and XLA_FLAGS
    finally:
        options.env_option_overrides = overrides
    yield repr(sorted(overrides)).encode()


def dumps(options: xc.CompileOptions) -> bool:
    """Whether XLA should write dump files during compilation, so that it must compile."""
    asked = [name for name, _ in options.env_option_overrides]
    return "--xla_dump_" in os.environ.get("XLA_FLAGS", "") or any(
        name.startswith("xla_dump_") for name in asked
    )


@functools.cache
def _machine() -> bytes:
    """The processor: XLA generates code for the instructions that it has."""
    system = os.uname()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).split("\n\n")[0].splitlines()
    except OSError:  # not Linux; on other systems the version identifies the processor
        return f"{system.sysname} {system.machine} {system.version}".encode()
    facts = [line for line in lines if line.partition(":")[0].strip() in _PROCESSOR]
    return "\n".join([system.machine, *facts]).encode()


@functools.cache
def _environment() -> bytes:
    """The values of the variables at the first call, since XLA reads them only once."""
    held = sorted(
        item
        for item in os.environ.items()
        if item[0].startswith(_VARIABLES) and not item[0].startswith(_IRRELEVANT)
    )
    return repr(held).encode()
