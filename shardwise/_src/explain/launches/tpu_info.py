"""What is known of a TPU, by JAX's names: sizes of memory, shapes of registers, rates.

    get_tpu_info(shardwise.targets.devices("tpu-v5e")[0]).vmem_capacity_bytes

The numbers are those of `targets.tpus` and of `explain.machines`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.context import current
from shardwise._src.explain.machines import machines
from shardwise._src.messages.formatting import join
from shardwise._src.targets.tpus import SMEM_BYTES, TPUS, tpu_of_kind
from shardwise._src.transfers.transfer import default_single
from shardwise._src.types.dtypes import canonicalize, itemsize_bits
from shardwise._src.types.mesh import Mesh


class ChipVersion(enum.Enum):
    """A generation of TPUs."""

    TPU_V2 = "v2"
    TPU_V3 = "v3"
    TPU_V4I = "v4i"
    TPU_V4 = "v4"
    TPU_V5E = "v5e"
    TPU_V5P = "v5p"
    TPU_V6E = "v6e"
    TPU_7 = "7"
    TPU_7X = "7x"
    TPU_8I = "8i"

    def __str__(self) -> str:
        return self.value

    @property
    def is_lite(self) -> bool:
        """Whether its chips have one core, for inference and small training."""
        return self.value in ("v4i", "v5e", "v6e")

    @property
    def num_physical_tensor_cores_per_chip(self) -> int:
        """1 or 2."""
        return 1 if self.is_lite else 2

    @property
    def supports_megacore(self) -> bool:
        """Whether the two cores of a chip can be one device."""
        return self.value in ("v4", "v5p")


class Tiling(enum.Enum):
    """How arrays are divided into tiles in memory: for the vector cores, or the sparse cores."""

    COMPACT = 1
    SPARSE_CORE = 2

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a tile of 32-bit elements."""
        return (8, 128) if self is Tiling.COMPACT else (8,)


_FLOATS = "float32", "bfloat16", "float8_e5m2", "float8_e4m3b11fnuz"
_FLOAT8 = "float8_e5m2", "float8_e4m3fn"
# By generation: dtypes of the left and of the right operand of products.
_PRODUCTS = {
    **dict.fromkeys(
        (5, 6), ((_FLOATS, _FLOATS), (("int8", "uint8"),) * 2, (("int4", "uint4"),) * 2)
    ),
    7: ((_FLOATS[:2], (*_FLOATS[:2], *_FLOAT8)), (_FLOAT8, _FLOAT8)),
}
# Dtypes by the names of rates, and by those of `explain.machines`.
_RATES = {"bf16": "bf16", "int8": "s8", "fp8": "f8e4m3fn", "int4": "s4"}


@dataclass(frozen=True, kw_only=True)
class TpuInfo:
    """What is known of a TPU. Memory and rates are those of a core; bytes, and per second.

    num_cores: of a device. num_lanes, num_sublanes: the shape of a vector register.
    mxu_column_size, num_mxus, num_accumulators: of the units for matrix products of a core; 0
      accumulators: products are not accumulated in these units.
    int8_ops_per_second, fp8_ops_per_second, int4_ops_per_second: 0 if no rate is known.
    sparse_core: None, since sparse cores are not described.
    """

    chip_version: ChipVersion
    generation: int
    num_cores: int
    num_lanes: int = 128
    num_sublanes: int = 8
    mxu_column_size: int
    num_mxus: int
    num_accumulators: int
    vmem_capacity_bytes: int
    cmem_capacity_bytes: int = 0
    smem_capacity_bytes: int = SMEM_BYTES
    hbm_capacity_bytes: int
    mem_bw_bytes_per_second: int
    bf16_ops_per_second: int
    int8_ops_per_second: int
    fp8_ops_per_second: int
    int4_ops_per_second: int
    sparse_core: None = None

    @property
    def is_lite(self) -> bool:
        """As of its `ChipVersion`."""
        return self.chip_version.is_lite

    @property
    def is_megacore(self) -> bool:
        """Whether the cores of a chip are one device."""
        return self.num_cores > 1

    @property
    def is_split_chip(self) -> bool:
        """Whether each of several cores of a chip is a device."""
        return not self.is_megacore and self.chip_version.num_physical_tensor_cores_per_chip > 1

    def is_matmul_supported(self, lhs_dtype: Any, rhs_dtype: Any) -> bool:
        """Whether its units multiply matrices of these dtypes without a cast."""
        left, right = [canonicalize(dtype).name for dtype in (lhs_dtype, rhs_dtype)]
        return any(left in a and right in b for a, b in _PRODUCTS[self.generation])

    def get_sublane_tiling(self, dtype: Any) -> int:
        """How many rows a tile of a dtype has in XLA's layout of arrays."""
        bits = itemsize_bits(canonicalize(dtype))
        is_small = bits in (16, 32) and self.generation < 7
        return self.num_sublanes if is_small else self.num_sublanes * 32 // bits


def get_tpu_info(device: Any = None) -> TpuInfo:
    """What is known of a TPU.

    Args:
      device: attached, or of `shardwise.targets.devices`; by default that of the mesh in scope, or
        the default device.

    Raises:
      ValueError: if it is not a TPU, or one that is not described.
    """
    kind, cores = _kind_and_cores(device)
    tpu = tpu_of_kind(kind)
    if tpu is None:
        raise ValueError(
            f"get_tpu_info: the device is a {kind!r}, not a TPU that is described: "
            f"{join(list(TPUS))}. Name one: `get_tpu_info_for_chip(ChipVersion.TPU_V5E, 1)`. Or "
            "trace and lower the function for a TPU that is not attached: `with shardwise."
            "default_device(shardwise.targets.devices('tpu-v5e')[0]): jit(f).lower(...)`."
        )
    return _info(tpu.version, tpu.cores if cores is None else cores)


def get_tpu_info_for_chip(
    chip_version: ChipVersion, num_tensor_cores_per_logical_device: int
) -> TpuInfo:
    """What is known of the TPUs of a generation.

    num_tensor_cores_per_logical_device: 1; or 2 if the two cores of a chip are one device.

    Raises:
      ValueError: for another number of cores, and for generations that are not described.
    """
    count = num_tensor_cores_per_logical_device
    most = 2 if chip_version.supports_megacore else 1
    if not 1 <= count <= most:
        raise ValueError(
            f"get_tpu_info_for_chip: a device of TPU {chip_version} has "
            f"{'1 core' if most == 1 else '1 or 2 cores'}; got {count}."
        )
    if f"tpu-{chip_version}" not in TPUS:
        raise ValueError(
            f"get_tpu_info_for_chip: TPU {chip_version} is not described; those that are: "
            f"{join(list(TPUS))}."
        )
    return _info(chip_version.value, count)


def is_tpu_device() -> bool:
    """Whether the device of the mesh in scope, or the default device, is a TPU."""
    return _kind_and_cores(None)[0].startswith("TPU")


def _kind_and_cores(device: Any) -> tuple[str, int | None]:
    """The vendor's name of a device, and how many cores it has; None: as usual."""
    if device is None:
        mesh = current().mesh
        is_real = isinstance(mesh, Mesh)
        device = mesh.flat_devices[0] if is_real else getattr(mesh, "abstract_device", None)
    device = default_single() if device is None else device
    return device.device_kind, getattr(device, "num_cores", None)


def _info(version: str, cores: int) -> TpuInfo:
    tpu, machine = TPUS[f"tpu-{version}"], machines[f"tpu-{version}"]
    rates: Any = {
        f"{name}_ops_per_second": int(machine.flops.get(dtype, 0) // tpu.cores)
        for name, dtype in _RATES.items()
    }
    return TpuInfo(
        chip_version=ChipVersion(version),
        generation=tpu.generation,
        num_cores=cores,
        mxu_column_size=tpu.mxu_size,
        num_mxus=tpu.mxus,
        num_accumulators=tpu.accumulators,
        vmem_capacity_bytes=tpu.vmem,
        hbm_capacity_bytes=machine.memory_bytes // tpu.cores,
        mem_bw_bytes_per_second=int(machine.memory_bandwidth // tpu.cores),
        **rates,
    )
