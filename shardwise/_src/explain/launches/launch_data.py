"""The data of a report of a launch of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardwise._src.explain.machines import Machine
from shardwise._src.kernels.launch_work import LaunchWork


@dataclass(frozen=True)
class LaunchData(LaunchWork):
    """The work of a launch on a machine.

    count:    how often it runs in one execution of the function; numbers are those of one run.
    on_chip:  bytes of fast memory that one program needs: for TPUs VMEM, with two buffers for each
              block; for GPUs an estimate of registers and shared memory. limit: how much there is;
              0 if not known, as for CPUs.
    cores:    of the machine, which run programs at the same time.
    compute, memory: the minimum seconds of each.
    bound:    which of them takes longest: "compute", "memory", or "programs" if there are fewer
              programs than cores.
    advice:   a sentence on what is plainly wrong; "" if nothing is.
    line:     `file:line` of the user code.
    """

    machine: Machine
    count: int
    on_chip: int
    limit: int
    cores: int
    compute: float
    memory: float
    bound: str
    advice: str
    line: str

    @property
    def is_impossible(self) -> bool:
        """Whether it cannot run, or does nothing, for the reason that `advice` states."""
        return not self.programs or 0 < self.limit < self.on_chip

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
        rows = [row | {"block": list(row["block"])} for row in found["operands"]]
        lists = {"operands": rows, "notes": list(found["notes"])}
        return found | lists | {"intensity": self.intensity, "seconds": self.seconds}
