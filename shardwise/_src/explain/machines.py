"""Machine models for time estimates: a table that users can extend.

    machines["h200"]                                    # vendor specifications
    machines["ours"] = replace(machines["h200"], node=4)  # for `explain(f, machine="ours")`

Numbers are per-device peaks stated by vendors. The "cpu" entry is measured for one virtual device
among eight on a small host; it indicates what dominates, not the absolute time.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, NamedTuple

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.lazy import public
from shardwise._src.messages.formatting import join
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.runtime.target_machines import Target, target_of
from shardwise._src.targets.gpus import Gpu
from shardwise._src.targets.machine_names import named
from shardwise._src.targets.tpus import Tpu, tpu_of_kind


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


machines: dict[str, Machine] = {}


def machine_of(asked: Any, device: Any) -> Machine:
    """The machine with that name, or the one for a device; without both, an H100."""
    if isinstance(asked, str) and ":" in asked:
        found = named(asked)
        return rates_of(found.kind, found.name, found.node)
    if asked is not None:
        return named_machine(asked)
    if (target := target_of(device)) is not None:
        return rates_of(target.kind, target.name, target.node)
    name = getattr(device, "device_kind", "")
    if (tpu := tpu_of_kind(name)) is not None:
        return machines[tpu.name]
    kind = name.lower().replace(" ", "-")
    found = [m for n, m in machines.items() if n in kind]
    usual = machines[platform_of(device).typical_machine if device is not None else "h100"]
    return max(found, key=lambda m: len(m.name)) if found else usual


class Chosen(NamedTuple):
    """What estimates are for.

    machine: its rates; None for those of the program's devices.
    target:  a machine that is compiled for by its own compiler.
    missing: why its own compiler is not used, if it was asked for.
    """

    machine: Machine | None
    target: Target | None = None
    missing: str = ""


def chosen(asked: str | Machine | None) -> Chosen:
    """Reads the argument `machine` of functions that estimate.

    A name with a number of devices, such as "h100:2x8", is a target, whose own compiler is used if
    it is installed.

    Raises:
      ValueError: for an unknown name, or a target that cannot exist; TypeError: if it is neither a
        name nor a `Machine`.
    """
    if asked is None:
        return Chosen(None)
    if not isinstance(asked, str) or ":" not in asked:
        return Chosen(named_machine(asked))
    found = named(asked)
    rates = rates_of(found.kind, found.name, found.node)
    try:
        target = found.target()
    except ImportError as error:
        return Chosen(rates, missing=str(error))
    return Chosen(rates, target)


def rates_of(kind: Gpu | Tpu, name: str, node: int | None) -> Machine:
    """The rates of a machine of a target's kind, under its own name."""
    if isinstance(kind, Tpu):
        rates = machines[kind.name]
    else:
        rates = replace(machines[kind.like], memory_bytes=kind.memory)
        if kind.name != kind.like:  # a user has described it
            rates = replace(rates, memory_bandwidth=kind.memory_bandwidth)
        if rates.node is not None and rates.node > kind.host:  # the link within a node joins hosts
            node = rates.node
    return replace(rates, name=name, node=rates.node if node is None else node)


def named_machine(asked: str | Machine) -> Machine:
    """Looks up a machine by name.

    Raises:
      ValueError: for an unknown name; TypeError: if it is neither a name nor a `Machine`.
    """
    if isinstance(asked, Machine):
        return asked
    if not isinstance(asked, str):
        raise TypeError(
            "`machine` must be the name of one of `shardwise.explain.machines`, such as 'h100', "
            "for its rates; a name with a number of devices, such as 'h100:8', to compile for "
            f"them; or a `shardwise.explain.Machine`. Got {type(asked).__name__}.{_name_of(asked)}"
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


def _name_of(asked: Any) -> str:
    """The name to pass instead of devices that are not attached, the end of a message."""
    first = asked[0] if isinstance(asked, list | tuple) and asked else asked
    target = target_of(first)
    return "" if target is None else f" The name of these devices is {target.name!r}."


def _read_table() -> None:
    table = files("shardwise._src.explain").joinpath("machines.toml").read_text(encoding="utf-8")
    for name, row in tomllib.loads(table).items():
        links = {kind: Link(*row.pop(kind)) for kind in ("near", "far")}
        machines[name] = Machine(name, memory_bytes=row.pop("memory_gib") << 30, **links, **row)


_read_table()
