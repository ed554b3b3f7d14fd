"""Machine models for time estimates: a table that users can extend.

    machines["h200"]                                    # vendor specifications
    machines["ours"] = replace(machines["h200"], node=4)  # for `explain(f, machine="ours")`

Numbers are per-device peaks stated by vendors. The "cpu" entry is measured for one virtual device
among eight on a small host; it indicates what dominates, not the absolute time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.lazy import public
from shardwise._src.messages.formatting import join


@public("shardwise.explain")
@dataclass(frozen=True)
class Link:
    """A connection between devices: bytes per second sent by a device, and seconds per step."""

    bandwidth: float
    latency: float


@public("shardwise.explain")
@dataclass(frozen=True)
class Machine:
    """Devices of one kind, and their interconnect.

    flops:   per second and device, for matrix products, by HLO dtype name (`bf16`, `f32`); other
             dtypes count as the next wider one. A dtype that is absent is computed and sent as a
             wider one, like bf16 on CPU.
    memory_bandwidth: bytes per second that a device reads and writes.
    memory_bytes: of a device.
    near:    the link within a node; far: the link between nodes.
    node:    number of devices in a node, which have consecutive positions in the mesh. None: all
             devices are in one node.
    """

    name: str
    flops: Mapping[str, float]
    memory_bandwidth: float
    memory_bytes: int
    near: Link
    far: Link
    node: int | None = None
    source: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flops", dict(self.flops))  # plain, for data and pickling

    def flop_rate(self, dtype: str) -> float:
        """Rate of matrix products in a dtype; for a complex dtype, the rate of its real dtype."""
        dtype = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
        if dtype in self.flops:
            return self.flops[dtype]
        bits = {name: _bits(name) for name in self.flops}
        wider = [n for n, b in bits.items() if b >= _bits(dtype)] or list(bits)
        return min([self.flops[n] for n in wider if bits[n] == min(bits[w] for w in wider)])

    def link(self, groups: Sequence[Sequence[int]], count: int) -> Link:
        """The link between the devices in groups of positions; () is a group of all `count`."""
        node = self.node
        if node is None or (count <= node):
            return self.near
        if not groups:
            return self.far
        crosses = any([min(g) // node != max(g) // node for g in groups])
        return self.far if crosses else self.near

    def collective_seconds(self, kind: str, bytes_: int, size: int, link: Link) -> float:
        """The minimum time of a collective over `size` devices, with ring algorithms.

        bytes_: what a device holds after it, or before a reduce-scatter: the larger side.
        """
        if size < 2:
            return 0.0
        part = (size - 1) / size
        if kind == "all-reduce":
            return 2 * part * bytes_ / link.bandwidth + 2 * _steps(size) * link.latency
        if kind in ("all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"):
            return part * bytes_ / link.bandwidth + _steps(size) * link.latency
        return bytes_ / link.bandwidth + link.latency


def _steps(size: int) -> int:
    return math.ceil(math.log2(size))


def _bits(dtype: str) -> int:
    digits = "".join([c for c in dtype.partition("e")[0] if c.isdigit()])
    return int(digits or 8)


GB, TB = 1e9, 1e12
machines: dict[str, Machine] = {}


def machine_of(asked: Any, platform: str, kind: str = "") -> Machine:
    """The machine with that name, or the one for a kind of devices."""
    if asked is not None:
        return named_machine(asked)
    named = kind.lower().replace(" ", "-")
    found = [m for n, m in machines.items() if n in named]
    usual = machines["cpu" if platform == "cpu" else "h100"]
    return max(found, key=lambda m: len(m.name)) if found else usual


def named_machine(asked: str | Machine) -> Machine:
    """Looks up a machine by name.

    Raises:
      ValueError: for an unknown name; TypeError: if it is neither a name nor a `Machine`.
    """
    if isinstance(asked, Machine):
        return asked
    if not isinstance(asked, str):
        raise TypeError(
            "`machine` must be the name of one of `shardwise.explain.machines`, or a "
            f"`shardwise.explain.Machine`; got {type(asked).__name__}."
        )
    if asked in machines:
        return machines[asked]
    some = [name for name in machines if asked and name.startswith(asked.lower())]
    meant = f" Did you mean {join(some, 'or')}?" if some else (
        did_you_mean(asked, machines, likeness=0.8))  # fmt: skip
    raise ValueError(
        f"unknown machine {asked!r}; known machines are {join(machines)}.{meant} To add one of "
        "your own: `shardwise.explain.machines['mine'] = dataclasses.replace("
        "shardwise.explain.machines['h200'], name='mine', node=4)`."
    )


def _add(*rows: Machine) -> None:
    machines.update({m.name: m for m in rows})


_add(
    Machine(
        "cpu", {"f64": 8e9, "f32": 16e9}, 5 * GB, 2 << 30,
        Link(1.0 * GB, 30e-6), Link(1.0 * GB, 150e-6), source="measured on a two-core host",
    ),
    Machine(
        "a100", {"f64": 19.5 * TB, "f32": 156 * TB, "bf16": 312 * TB, "f16": 312 * TB,
                 "s8": 624 * TB},
        2039 * GB, 80 << 30, Link(300 * GB, 3e-6), Link(25 * GB, 10e-6), 8,
        "NVIDIA A100 80GB SXM data sheet; f32 is TF32",
    ),
    Machine(
        "h100", {"f64": 67 * TB, "f32": 494 * TB, "bf16": 989 * TB, "f16": 989 * TB,
                 "f8e4m3fn": 1979 * TB, "f8e5m2": 1979 * TB, "s8": 1979 * TB},
        3350 * GB, 80 << 30, Link(450 * GB, 3e-6), Link(50 * GB, 10e-6), 8,
        "NVIDIA H100 SXM data sheet; f32 is TF32",
    ),
    Machine(
        "h200", {"f64": 67 * TB, "f32": 494 * TB, "bf16": 989 * TB, "f16": 989 * TB,
                 "f8e4m3fn": 1979 * TB, "f8e5m2": 1979 * TB, "s8": 1979 * TB},
        4800 * GB, 141 << 30, Link(450 * GB, 3e-6), Link(50 * GB, 10e-6), 8,
        "NVIDIA H200 SXM data sheet; f32 is TF32",
    ),
    Machine(
        "tpu-v5e", {"f32": 49 * TB, "bf16": 197 * TB, "s8": 393 * TB}, 819 * GB, 16 << 30,
        Link(45 * GB, 1e-6), Link(25 * GB, 10e-6), 256, "Google Cloud TPU v5e page",
    ),
    Machine(
        "tpu-v5p", {"f32": 115 * TB, "bf16": 459 * TB, "s8": 918 * TB}, 2765 * GB, 95 << 30,
        Link(90 * GB, 1e-6), Link(25 * GB, 10e-6), 8960, "Google Cloud TPU v5p page",
    ),
    Machine(
        "tpu-v6e", {"f32": 230 * TB, "bf16": 918 * TB, "s8": 1836 * TB}, 1640 * GB, 32 << 30,
        Link(90 * GB, 1e-6), Link(25 * GB, 10e-6), 256, "Google Cloud TPU v6e page",
    ),
)  # fmt: skip
