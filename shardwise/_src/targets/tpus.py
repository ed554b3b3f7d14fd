"""TPU generations: their names in libtpu, and the shapes that their chips are connected in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SMEM_BYTES = 1 << 20  # the scalar memory of a core, of every generation


MIB = 2**20


@dataclass(frozen=True)
class Tpu:
    """A TPU generation.

    prefix: its name in libtpu; axes: of the grid of its chips; chips: the most that are connected.
    devices: on a chip. vmem: bytes of the vector memory of a core; scoped_vmem: how much of it a
      kernel has by default.
    kinds: the vendor's names of its devices. cores: of a device.
    mxus, mxu_size, accumulators: the units for matrix products of a core, their width, and the
      buffers in which each can add products.
    """

    name: str
    prefix: str
    axes: int
    chips: int
    devices: int = 1
    vmem: int = 128 * MIB
    scoped_vmem: int = 16 * MIB
    kinds: tuple[str, ...] = ()
    cores: int = 1
    mxus: int = 4
    mxu_size: int = 128
    accumulators: int = 0

    @property
    def version(self) -> str:
        """Its name without "tpu-"."""
        return self.name.removeprefix("tpu-")

    @property
    def generation(self) -> int:
        """Its number."""
        return int(self.version.strip("vepx"))

    def grid(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """The grid of chips for a shape or a number of chips; None if it cannot have it."""
        if len(shape) == 1:
            return self._of(shape[0])
        even = all(n == 1 or n % 2 == 0 for n in shape)
        return tuple(shape) if len(shape) == self.axes and even and self._fits(shape) else None

    def _of(self, count: int) -> tuple[int, ...] | None:
        """The most compact grid of this many chips, with its shorter axes first."""
        grid = [1] * self.axes
        while math.prod(grid) < count:
            shortest = min(range(self.axes), key=lambda axis: (grid[axis], axis))
            grid[shortest] *= 2
        found = tuple(sorted(grid))
        if self.axes == 3 and found[0] == 1:  # small ones are flat: 2x2x1
            found = (*found[1:], 1)
        return found if math.prod(found) == count and self._fits(found) else None

    def _fits(self, shape: Sequence[int]) -> bool:
        return 0 < math.prod(shape) <= self.chips

    def layout(self, grid: Sequence[int]) -> tuple[str, tuple[int, int, int]]:
        """The grid in libtpu's notation, and the chips of a host along each axis."""
        host = [min(n, 2) for n in grid][:2]
        return f"{self.prefix}:{'x'.join(map(str, grid))}", (host[0], host[1], 1)


TPUS = {
    tpu.name: tpu
    for tpu in (
        Tpu("tpu-v5e", "v5e", 2, 256, kinds=("TPU v5 lite", "TPU v5e")),
        Tpu("tpu-v5p", "v5p", 3, 8960, vmem=64 * MIB, kinds=("TPU v5", "TPU v5p"), cores=2),
        Tpu("tpu-v6e", "v6e", 2, 256, scoped_vmem=32 * MIB, kinds=("TPU v6 lite", "TPU v6e"),
            mxus=2, mxu_size=256),
        Tpu("tpu-7x", "tpu7x", 3, 9216, devices=2, vmem=64 * MIB, scoped_vmem=45 * MIB,
            kinds=("TPU7x",), mxus=2, mxu_size=256, accumulators=128),
    )
}  # fmt: skip


def tpu_of_kind(kind: str) -> Tpu | None:
    """The generation of devices with the vendor's name; None if it is not described."""
    return next((tpu for tpu in TPUS.values() if kind in tpu.kinds), None)
