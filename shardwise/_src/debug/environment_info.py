"""Information about the environment for bug reports."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from typing import Literal, overload

import numpy as np

from shardwise._src.runtime import backend
from shardwise._src.runtime.platforms import platform_of
from shardwise._version import __version__


@overload
def print_environment_info(return_string: Literal[True]) -> str: ...
@overload
def print_environment_info(return_string: Literal[False] = False) -> None: ...
def print_environment_info(return_string: bool = False) -> str | None:
    """Prints versions, devices and the machine; initializes the devices.

    Args:
      return_string: whether to return the text instead of printing it.
    """
    here, everywhere = backend.local_devices(), backend.devices()
    kinds = sorted({d.device_kind for d in here})
    rows = {
        "shardwise": __version__,
        "jaxlib": backend.JAXLIB_VERSION,
        "numpy": np.__version__,
        "python": sys.version,
        "device info": f"{', '.join(kinds)}-{len(everywhere)}, {len(here)} local devices",
        "process_count": str(len({d.process_index for d in everywhere})),
        "platform": str(platform.uname()),
    }
    lines = [f"{name + ':':<15}{text}" for name, text in rows.items()]
    if not platform_of(here[0]).shares_memory and (tool := shutil.which("nvidia-smi")):
        found = subprocess.run([tool], capture_output=True, text=True, timeout=30, check=False)
        lines += ["", "$ nvidia-smi", found.stdout or found.stderr]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None
