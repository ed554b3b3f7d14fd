"""Machines, as far as estimates of time need them: a table that users may add to.

    machines["h200"]                                    # as its makers state it
    machines["ours"] = replace(machines["h200"], node=4)  # for `explain(f, machine="ours")`

Figures are peaks that makers state, per device. Those of "cpu" are of one virtual device among
eight on a small host, measured; they are there to tell what dominates, not how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.lazy import public
from shardwise._src.messages.words import join


@public("shardwise.explain")
@dataclass(frozen=True)
class Link:
    """What connects devices: bytes per second that one device sends, and seconds per step."""

    bandwidth: float
    latency: float


@public("shardwise.explain")
@dataclass(frozen=True)
class Machine:
    """Devices of one kind and what connects them.

    flops:   per second and device, of products of matrices, by dtype as HLO writes it (`bf16`,
             `f32`); others count as the one that is nearest in bits, from above. Numbers of a
             dtype that is not here are multiplied and sent as wider ones, as CPU does with bf16.
    memory_bandwidth: bytes per second that a device reads and writes.
    memory_bytes: of a device.
    near:    connects the devices of a node; far: nodes.
    node:    how many devices are near each other: those whose positions in the mesh follow each
             other. None: all.
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
        object.__setattr__(self, "flops", dict(self.flops))  # plain, as data and to be pickled

    def flop_rate(self, dtype: str) -> float:
        """Of products of matrices of a dtype; of a complex one, that of its parts."""
        dtype = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
        if dtype in self.flops:
            return self.flops[dtype]
        bits = {name: _bits(name) for name in self.flops}
        wider = [n for n, b in bits.items() if b >= _bits(dtype)] or list(bits)
        return min([self.flops[n] for n in wider if bits[n] == min(bits[w] for w in wider)])

    def link(self, groups: Sequence[Sequence[int]], count: int) -> Link:
        """What connects the devices of groups, given by their positions; () is all `count`."""
        node = self.node
        if node is None or (count <= node):
            return self.near
        if not groups:
            return self.far
        crosses = any([min(g) // node != max(g) // node for g in groups])
        return self.far if crosses else self.near

    def collective_seconds(self, kind: str, bytes_: int, size: int, link: Link) -> float:
        """The least time of a collective over `size` devices, by rings.

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
    """The machine of that name, or the one that devices of a kind are of."""
    if asked is not None:
        return named_machine(asked)
    named = kind.lower().replace(" ", "-")
    found = [m for n, m in machines.items() if n in named]
    usual = machines["cpu" if platform == "cpu" else "h100"]
    return max(found, key=lambda m: len(m.name)) if found else usual


def named_machine(asked: str | Machine) -> Machine:
    """A machine by its name.

    Raises:
      ValueError: for a name that there is not; TypeError: for what is neither.
    """
    if isinstance(asked, Machine):
        return asked
    if not isinstance(asked, str):
        raise TypeError(
            "`machine` is the name of one of `shardwise.explain.machines`, or a "
            f"`shardwise.explain.Machine`; got {type(asked).__name__}."
        )
    if asked in machines:
        return machines[asked]
    some = [name for name in machines if asked and name.startswith(asked.lower())]
    meant = f" Did you mean {join(some, 'or')}?" if some else (
        did_you_mean(asked, machines, likeness=0.8))  # fmt: skip
    raise ValueError(
        f"no machine {asked!r}; known are {join(machines)}.{meant} To add one of your own: "
        "`shardwise.explain.machines['mine'] = dataclasses.replace("
        "shardwise.explain.machines['h200'], name='mine', node=4)`."
    )


def _add(*rows: Machine) -> None:
    machines.update({m.name: m for m in rows})


_add(
    Machine(
        "cpu", {"f64": 8e9, "f32": 16e9}, 5 * GB, 2 << 30,
        Link(1.0 * GB, 30e-6), Link(1.0 * GB, 150e-6), source="measured on a host of two cores",
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
