"""XLA's flags for programs in other processes, and for those that compile slowly by the everyday ones."""

import os

DEVICE_COUNT = "--xla_force_host_platform_device_count"
EMITTERS = "xla_cpu_use_fusion_emitters"


def fusions_by_mlir() -> dict[str, bool]:
    """Compiler options for programs whose long fusions only MLIR's passes emit in little time."""
    return {EMITTERS: True} if f"--{EMITTERS}=false" in os.environ["XLA_FLAGS"] else {}


def xla_flags(devices: int = 0, *more: str) -> str:
    """The flags of this process, with which everyday tests compile faster, for another number of
    CPU devices (0: the default), and further flags, which are the last and so take effect."""
    words = [w for w in os.environ.get("XLA_FLAGS", "").split() if not w.startswith(DEVICE_COUNT)]
    count = [f"{DEVICE_COUNT}={devices}"] if devices else []
    return " ".join([*words, *count, *more])
