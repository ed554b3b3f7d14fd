"""Descriptions of GPUs for XLA's compiler: those of a table, and those that users add.

XLA reads a description as the text of a `GpuTargetConfigProto`, which has the limits and rates that
its decisions depend on: shared memory, registers, clocks, bandwidth.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from shardwise._src.messages.formatting import join
from shardwise._src.runtime import cuda
from shardwise._src.runtime.backend import Device
from shardwise._src.runtime.platforms import CPU, CUDA, ROCM, Platform, platform_of
from shardwise._src.runtime.target_machines import target_of
from shardwise._src.targets.tpus import TPUS


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU.

    config: XLA's text; like: the machine whose rates estimates use, unless it has its own.
    host:   the most GPUs that one host has.
    """

    name: str
    config: str
    like: str
    host: int
    platform: Platform = CUDA

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return int(self._number("device_memory_size"))

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per second."""
        return self._number("memory_bandwidth")

    @property
    def cores(self) -> int:
        """How many multiprocessors it has."""
        return int(self._number("core_count"))

    @property
    def shared_memory(self) -> int:
        """Bytes of shared memory that a block of threads can use."""
        return int(self._number("shared_memory_per_block_optin"))

    @property
    def kernel_memory(self) -> int:
        """Bytes of shared memory and registers that one program can use at most."""
        return self.shared_memory + int(4 * self._number("registers_per_block_limit"))

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA's compute capability."""
        block = self.config.partition("cuda_compute_capability")[2].partition("}")[0]
        numbers = [re.search(rf"{part}:\s*(\d+)", block) for part in ("major", "minor")]
        major, minor = [0 if n is None else int(n[1]) for n in numbers]
        return major, minor

    def _number(self, field: str) -> float:
        found = re.search(rf"\b{field}:\s*(\d[\d.]*(?:e\+?\d+)?)", self.config)
        return 0.0 if found is None else float(found[1])


GPUS: dict[str, Gpu] = {}
_ARCHITECTURES = (9, 10)  # with features for one architecture alone: sm_90a
# XLA's numbers of dtypes, by the row of `tensor` in the table that has their rate.
_TENSOR_DTYPES = ((2, 6, 19, 20, 23, 24, 25, 28, 29, 33), (10, 16), (11,), (12,))
_FIELDS = ("gpu_device_info", "core_count", "device_memory_size", "memory_bandwidth",
           "platform_name")  # fmt: skip
_POSITIVE = re.compile(
    r"\b(core_count|fpus_per_core|device_memory_size|memory_bandwidth|clock_rate_ghz|threads_per_warp"
    r"|threads_per_block_limit|threads_per_core_limit|shared_memory_per_block|shared_memory_per_core"
    r"|registers_per_core_limit|registers_per_block_limit|block_dim_limit_\w|thread_dim_limit_\w)"
    r":\s*([^\s}]*)"
)


def config_text(row: dict[str, Any]) -> str:
    """XLA's description of a GPU of the table."""
    amd = "architecture" in row
    if amd:
        capability = f'rocm_compute_capability {{ gcn_arch_name: "{row["architecture"]}" }}'
    else:
        major, minor = row["capability"]
        feature = "feature_extension: ACCELERATED_FEATURES" if major in _ARCHITECTURES else ""
        capability = f"cuda_compute_capability {{ major: {major} minor: {minor} {feature} }}"
    warp, block, registers = (64, 65536, 131072) if amd else (32, 65535, 65536)
    shared, shared_optin = row["shared_memory"]
    clock, *rates = row.get("tensor", (0,))
    units = "\n".join(
        f"rate_infos {{ key: {dtype} value {{ clock_rate_ghz: {clock} units_per_core: 4 "
        f"ops_per_clock: {rate} }} }}"
        for rate, dtypes in zip(rates, _TENSOR_DTYPES, strict=False)
        for dtype in dtypes
    )
    links = (
        ""
        if amd
        else (
            f"matrix_unit_description {{ {units} }}\n"
            f"device_interconnect_info {{ active_links: {row['links']} }}"
        )
    )
    return f"""gpu_device_info {{
threads_per_block_limit: 1024
threads_per_warp: {warp}
shared_memory_per_block: {shared if amd else 49152}
shared_memory_per_core: {shared}
shared_memory_per_block_optin: {shared_optin}
threads_per_core_limit: 2048
core_count: {row["cores"]}
fpus_per_core: {row["fpus"]}
block_dim_limit_x: 2147483647
block_dim_limit_y: {block}
block_dim_limit_z: {block}
thread_dim_limit_x: 1024
thread_dim_limit_y: 1024
thread_dim_limit_z: 64
registers_per_core_limit: {registers}
registers_per_block_limit: {registers}
memory_bandwidth: {row["memory_bandwidth"]}
device_memory_size: {row["memory"]}
l2_cache_size: {row["l2_cache"]}
clock_rate_ghz: {row["clock"]}
{capability}
{links}
}}
platform_name: "{"ROCM" if amd else "CUDA"}"
dnn_version_info {{ {"" if amd else "major: 9 minor: 10 patch: 0"} }}
device_description_str: "{row["title"]}"
"""


def add(name: str, description: str | os.PathLike[str], *, like: str = "h100") -> None:
    """Adds a GPU, by which programs can be compiled as `name:8` or `name:2x8`.

    Args:
      name: letters, digits, "-" and "_"; a GPU that was added before is replaced.
      description: a file, or its content: the text of XLA's `GpuTargetConfigProto`, such as
        those that XLA publishes, or one of `shardwise.targets.description`.
      like: the GPU or TPU whose arithmetic and network rates time estimates use; memory size and
        bandwidth are read from the description.

    Raises:
      TypeError: if an argument is of another type.
      ValueError: for other names and texts.
    """
    if not isinstance(name, str):
        raise TypeError(f"targets.add: name must be a string; got {name!r}.")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(
            f"targets.add: name must consist of lowercase letters, digits, '-' and '_'; got "
            f"{name!r}."
        )
    known = [*_TABLE, *TPUS]
    if name in (*known, CPU.typical_machine):
        raise ValueError(f"targets.add: {name!r} is the name of another machine.")
    if like not in known:
        raise ValueError(f"targets.add: like must be one of {join(known, 'or')}; got {like!r}.")
    if isinstance(description, os.PathLike) or (
        isinstance(description, str) and "{" not in description
    ):
        path = Path(description)
        if not path.is_file():
            raise ValueError(
                f"targets.add: {str(description)[:60]!r} is neither a file nor the text of a "
                "GpuTargetConfigProto."
            )
        description = path.read_text(encoding="utf-8", errors="replace")
    if not isinstance(description, str):
        raise TypeError(
            "targets.add: description must be the path of a file, or its text; got "
            f"{type(description).__name__}."
        )
    missing = [field for field in _FIELDS if not re.search(rf"\b{field}\s*[:{{]", description)]
    if missing:
        raise ValueError(
            "targets.add: description must be the text of a GpuTargetConfigProto; it has no "
            f"{missing[0]!r}. `shardwise.targets.description('h100')` is an example."
        )
    found = re.search(r'platform_name:\s*"(\w+)"', description)
    if found is None or found[1] != CUDA.xla_name:
        named = "none" if found is None else repr(found[1])
        raise ValueError(
            f"targets.add: the platform_name of the description must be 'CUDA'; got {named}. No "
            "compiler for others is supported."
        )
    for field, number in _POSITIVE.findall(description):
        if not _is_positive(number):
            raise ValueError(
                f"targets.add: {field} of the description must be a positive number; got {number}."
            )
    GPUS[name] = Gpu(name, description, like, 8)


def _is_positive(number: str) -> bool:
    try:
        return 0 < float(number) < math.inf
    except ValueError:
        return False


def description(of: str | Device) -> str:
    """XLA's description of a GPU, as text for a file: see `add`.

    Args:
      of: the name of a known GPU, or a device: an attached GPU, or one of a target.

    Raises:
      ValueError: for another name, and for devices that are not GPUs.
    """
    if isinstance(of, str):
        if of not in GPUS:
            kind, colon, _ = of.partition(":")
            reason = f"unknown GPU {of!r}; known: {', '.join(GPUS)}."
            if colon and kind in GPUS:
                reason = f"a description is of one GPU; got {of!r}. Leave out the number: {kind!r}."
            raise ValueError(f"targets.description: {reason}")
        return GPUS[of].config
    target = target_of(of)
    if target is not None and isinstance(target.kind, Gpu):
        return target.kind.config
    if target is None and platform_of(of) is CUDA:
        return cuda.description_of(of)
    raise ValueError(f"targets.description: {of} is not a GPU that XLA describes.")


_TABLE: dict[str, dict[str, Any]] = tomllib.loads(
    files("shardwise._src.targets").joinpath("gpus.toml").read_text(encoding="utf-8")
)
for _name, _row in _TABLE.items():
    _platform = ROCM if "architecture" in _row else CUDA
    GPUS[_name] = Gpu(_name, config_text(_row), _name, _row["host"], _platform)
