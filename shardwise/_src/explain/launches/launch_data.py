"""The data of a report of a launch of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.explain.machines import Machine


@public("shardwise.kernels")
@dataclass(frozen=True)
class OperandReport:
    """An operand or result of a launch.

    what:   "argument 0", or "result 0". type: of the array; block: the shape of its blocks, "all"
            for whole arrays. space: the memory space of its refs.
    moved:  how often a block is moved from memory or to it; reused: for how many programs of the
            grid it is the block of the program before, so that it is not moved.
    blocks: how many different ones are moved.
    bytes:  that are moved, without those beyond the end of the array; for arrays in the spaces ANY
            and HBM those that the kernel loads and stores.
    """

    what: str
    type: str
    block: str
    space: str
    moved: int
    reused: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class LaunchData:
    """The fields of a `LaunchReport`.

    name:     of the kernel. grid: the sizes of its axes, by name or number; 1 if not known.
    count:    how often the launch runs in one execution of the function; numbers are of one.
    flops:    of matrix products, by dtype; elementwise: other arithmetic operations.
    bytes:    read from and written to memory.
    on_chip:  bytes of fast memory that one program needs: for TPUs VMEM, with two buffers for each
              block that changes; for GPUs an estimate of registers and shared memory. limit: how
              much there is; 0 if not known, as for CPUs.
    cores:    of the machine, which run programs at the same time.
    compute, memory: the minimum seconds of each.
    bound:    which of them takes longest: "compute", "memory", or "programs" if there are fewer
              programs than cores.
    advice:   a sentence on what is plainly wrong; "" if nothing is.
    notes:    what the numbers do not contain. line: `file:line` of the user code.
    """

    name: str
    grid: Mapping[str, int]
    count: int
    machine: Machine
    operands: tuple[OperandReport, ...]
    flops: Mapping[str, int]
    elementwise: int
    transcendentals: int
    bytes: int
    on_chip: int
    limit: int
    cores: int
    compute: float
    memory: float
    bound: str
    advice: str
    notes: tuple[str, ...]
    line: str

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values()) + self.elementwise

    @property
    def intensity(self) -> float:
        """Operations per byte of memory traffic."""
        return self.total_flops / self.bytes if self.bytes else 0.0

    @property
    def seconds(self) -> float:
        """The minimum time of one launch: it computes while it accesses memory."""
        return max(self.compute, self.memory)

    def as_data(self, found: dict[str, Any]) -> dict[str, Any]:
        """The fields as JSON-serializable data. found: those by `asdict`."""
        plain = {name: list(found[name]) for name in ("operands", "notes")}
        return found | plain | {"intensity": self.intensity, "seconds": self.seconds}
