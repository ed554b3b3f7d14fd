"""Predicts the cost of moving arrays, without moving them: bytes held, bytes sent, seconds.

`Accounts` follows the strategy that `reshard_steps` returns, step by step, as `transfer.move` does,
and records what each step allocates, holds temporarily, and releases. The memory needs of a program
are read from the compiled program, which is the one that runs when the array is moved.

It does not handle pytrees and text output: see `plan`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import SMALL
from shardwise._src.arrays.signature import Signature, signature
from shardwise._src.base.caches import cached
from shardwise._src.explain.communication import Collective, collectives
from shardwise._src.explain.machines import Link, Machine
from shardwise._src.jit.jit import jit
from shardwise._src.lowering.layouts_and_memory import order_of, stated_kind
from shardwise._src.messages.formatting import pluralize
from shardwise._src.placement.explicit_axes import reshard
from shardwise._src.runtime.platforms import platform_of
from shardwise._src.transfers import between_devices, reshard_strategy
from shardwise._src.transfers.between_processes import as_stored, both_sides, stack, steps, stops
from shardwise._src.transfers.from_host import is_large
from shardwise._src.transfers.regions import bounds_of
from shardwise._src.transfers.reshard_strategy import ReshardStep, is_subbyte, reshard_steps
from shardwise._src.transfers.transfer import resharder
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.devices import is_addressable
from shardwise._src.types.extended import ExtendedDType
from shardwise._src.types.layout import Format

HOST = "host"  # key in byte counts for the memory of this process's host

Amounts = Counter[Any]  # bytes by device, and on HOST
Moved = tuple[Signature, Amounts, bool]  # result, allocations, whether buffers are unchanged


@dataclass(frozen=True)
class Step:
    """One action, and its cost.

    kind: "program", "copies between devices", "slices on devices", "copies on the host", "copies to
          devices" or "exchange between processes".
    text: a human-readable description.
    bytes_sent: total bytes sent between devices, or between host and devices.
    seconds: estimated with a machine; 0 if nothing is sent or copied.
    collectives: of the program, if it is one.
    """

    kind: str
    text: str
    bytes_sent: int = 0
    seconds: float = 0.0
    collectives: tuple[Collective, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        collectives = [
            {"kind": c.kind, "arrays": [str(a) for a in c.arrays], "bytes": c.bytes,
             "devices": c.group_size, "runs": c.runs}
            for c in self.collectives
        ]  # fmt: skip
        return {**vars(self), "collectives": collectives}


@dataclass(frozen=True)
class ProgramFacts:
    """Facts about a compiled program: bytes of temporaries on each device, and its collectives."""

    temporaries: int
    collectives: tuple[Collective, ...]


NOTHING_KNOWN = ProgramFacts(0, ())


class Accounts:
    """Bytes on each device and on the host while arrays are moved, one after the other.

    held: now; peak: maximum so far. `peak[HOST]` is the host memory that the moves themselves used
    in this process; on CPU this includes its devices' memory, where replicas may share buffers.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.held: Amounts = Counter()
        self.peak: Amounts = Counter()
        self.steps: list[Step] = []
        self.read = self.pending = False
        self.complete = True  # whether the temporaries of all programs are known

    # -- bytes --

    def meanwhile(self, *amounts: Mapping[Any, int]) -> None:
        """Records memory that is held temporarily, in addition to the memory already held."""
        extra: Amounts = Counter()
        for one in amounts:
            extra.update(one)
        for place, count in extra.items():
            self.peak[place] = max(self.peak[place], self.held[place] + count)

    def take(self, amounts: Mapping[Any, int]) -> None:
        self.held.update(amounts)
        self.meanwhile(dict.fromkeys(amounts, 0))

    def free(self, amounts: Mapping[Any, int]) -> None:
        self.held.subtract(amounts)

    # -- moving --

    def move(
        self,
        sig: Signature,
        target: Any,
        ready: Callable[[], bool] = lambda: True,
        read: bool = False,
    ) -> Moved:
        """Moves an array. ready: whether it is computed; read: whether its value is on the host."""
        self.read, self.pending = read, not ready()
        if target.__class__ is Format:
            there = ReshardStep("move", target.sharding), ReshardStep("layout", target.layout)
            return self.follow(sig, there)
        if sig.sharding is target:
            return signature(sig.type, target, True, sig.layout), Counter(), True
        return self.follow(sig, reshard_steps(sig, target, on_cpu(sig.sharding), ready))

    def follow(self, sig: Signature, way: Sequence[ReshardStep]) -> Moved:
        """Runs the steps of a strategy; intermediate arrays are released."""
        owned: Amounts = Counter()
        same = True
        for leg in way:
            sig, new, nothing_new = EXECUTORS[leg.act](self, sig, leg.to)
            if not nothing_new:
                self.free(owned)
                owned, same = new, False
        return sig, owned, same

    def run(
        self,
        sig: Signature,
        target: Signature,
        ask: Callable[[Signature, Signature], Any],
        what: str,
    ) -> Moved:
        """A program from one signature to another; `ask` returns its `ProgramFacts`."""
        if target.sharding.has_addressable_devices:
            facts = ask(sig, target)
        else:
            what, facts = f"{what} of other processes", NOTHING_KNOWN
            self.complete = False
        new = buffers(target)
        here = {d: facts.temporaries for d in target.devices}
        if on_cpu(target.sharding):
            local = len(target.sharding.addressable_positions)
            here[HOST] = facts.temporaries * local
        self.meanwhile(new, here)
        self.take(new)
        self.pending = True
        n = len(target.devices)
        sent = sum([_sent(one, n) for one in facts.collectives])
        seconds = (tile_bytes(sig) + tile_bytes(target)) / self.machine.memory_bandwidth
        for one in facts.collectives:
            link = self.machine.link(one.pairs or one.groups, n)
            took = self.machine.collective_seconds(one.kind, one.bytes, one.group_size, link)
            seconds += one.runs * took
        if facts is NOTHING_KNOWN:
            words = "its collectives are known there only"
        else:
            words = ", ".join(map(str, facts.collectives)) or "no communication"
        text = f"{what} on {pluralize(n, 'device')}: {words}"
        self.steps.append(Step("program", text, sent, seconds, facts.collectives))
        return target, new, False

    def copied(self, kind: str, text: str, sent: Mapping[Any, int], link: Link | None) -> None:
        """A step of copies; sent: bytes by receiving device."""
        most = max(sent.values(), default=0)
        seconds = most / link.bandwidth + link.latency if link is not None and most else 0.0
        self.steps.append(Step(kind, text, sum(sent.values()), seconds))

    def link(self, here: Sequence[Any], there: Sequence[Any]) -> Link:
        """The link between source and target devices."""
        ids = [d.id for d in (*here, *there)]
        return self.machine.link([ids], max(ids) + 1)


# ------------------------------------------------------------------------------- bytes of arrays


def tile_bytes(sig: Signature) -> int:
    """Bytes of one shard, including padding."""
    tile = sig.sharding.tile_shape(sig.stored.shape)
    return math.prod(tile) * sig.stored.dtype.itemsize


def buffers(sig: Signature, shared: bool = False) -> Amounts:
    """Bytes of an array by location. shared: replicas share a buffer, as in CPU host memory."""
    size, sharding = tile_bytes(sig), sig.sharding
    found: Amounts = Counter()
    on_host = stated_kind(sharding) is not None
    if not on_host:
        found.update(dict.fromkeys(sig.devices, size))
    if on_host or on_cpu(sharding):
        local = sharding.addressable_positions
        if shared:
            indices = sharding.indices(sig.stored.shape)
            count = len({bounds_of(indices[p], sig.stored.shape) for p in local})
        else:
            count = len(local)
        found[HOST] = count * size
    return found


def on_cpu(sharding: Any) -> bool:
    return platform_of(sharding.devices[0]).shares_memory


def _sent(one: Collective, count: int) -> int:
    """Bytes that all devices receive from others in a collective."""
    if one.pairs:
        return one.bytes * sum([a != b for a, b in one.pairs]) * one.runs
    part = one.bytes * (one.group_size - 1) // max(one.group_size, 1)
    twice = 2 if one.kind == "all-reduce" else 1
    return twice * part * count * one.runs


# ------------------------------------------------------------------------------------- programs


@cached(1024)
def _resharding(sig: Signature, target: Signature) -> ProgramFacts:
    module = resharder(sig, target)
    return _facts(module.memory().temp_size_in_bytes, module.hlo_text())


@cached(1024)
def _adding_up(sig: Signature, target: Signature) -> ProgramFacts:
    place = target.sharding
    t = ShapeDtypeStruct(sig.type.shape, sig.type.dtype, sharding=sig.sharding)
    compiled = jit(lambda x: reshard(x, place)).lower(t).compile()
    return _facts(compiled.memory_analysis().temp_size_in_bytes, compiled.as_text())


def _facts(temporaries: int, text: str) -> ProgramFacts:
    return ProgramFacts(temporaries, tuple(collectives(text)))


# -------------------------------------------------------------------------- cost of single steps


def _onward(a: Accounts, sig: Signature, target: Any) -> Moved:
    """A nested move: its strategy is chosen while the step just started is still running."""
    waits = a.pending
    return a.move(sig, target, lambda: not waits)


def _relayout(a: Accounts, sig: Signature, layout: Any) -> Moved:
    wanted: Any = order_of(Format(layout, sig.sharding), sig.type)
    if sig.layout is wanted:
        return sig, Counter(), True
    there = signature(sig.type, sig.sharding, sig.committed, wanted)
    return a.run(sig, there, _resharding, "one program, into another memory layout,")


def _converted(a: Accounts, sig: Signature, dtype: Any) -> Moved:
    there = signature(array_type(sig.type.shape, dtype), sig.sharding, True)
    what = f"one program, from {sig.type.dtype} to {dtype},"
    return a.run(sig, there, lambda *_: ProgramFacts(0, ()), what)


def _copied(a: Accounts, sig: Signature, target: Any) -> Moved:
    there = signature(sig.type, target, True)
    new = buffers(there)
    a.take(new)
    size = tile_bytes(sig)
    pairs = zip(sig.devices, there.devices, strict=True)
    sent = {to: size for start, to in pairs if start != to}
    text = f"each of {pluralize(len(sig.devices), 'shard')} is copied unchanged"
    kind = stated_kind(target)
    if kind is not None:
        text += f", to {kind} memory"
    a.copied("copies between devices", text, sent, a.link(sig.devices, there.devices))
    return there, new, False


def _joined(a: Accounts, sig: Signature, target: Any) -> Moved:
    """As `between_devices.by_pieces`: this process's devices slice, send and reassemble shards."""
    there = signature(sig.type, target, True)
    plan, _, devices = between_devices.sources(sig, target)
    tile, full = target.tile_shape(there.stored.shape), tile_bytes(sig)
    width = there.stored.dtype.itemsize
    whole = sig.sharding.tile_shape(sig.stored.shape)
    pieces: Amounts = Counter()  # in addition to the source and target shards
    sent: Amounts = Counter()
    for position, (low, high) in dict.fromkeys([c for cuts in plan for c in cuts]):
        if (low, high) != ((0,) * len(whole), whole):
            pieces[sig.devices[position]] += _box(low, high) * width
    for cuts, device in zip(plan, devices, strict=True):
        for position, (low, high) in cuts:
            size = _box(low, high) * width
            if sig.devices[position] != device:
                sent[device] += size
                shape = tuple(np.subtract(high, low).tolist())
                if len(cuts) > 1 or shape != tile:  # else the piece is the full shard
                    pieces[device] += size
    new = buffers(there)
    a.meanwhile(new, _at(pieces))
    a.take(new)
    count = len({c for cuts in plan for c in cuts})
    text = f"{pluralize(count, 'piece')} are sliced from shards of at most {full:,} bytes"
    a.copied("slices on devices", text, {}, None)
    text = "the pieces go to their devices, in one batch"
    a.copied("copies between devices", text, sent, a.link(sig.devices, there.devices))
    a.copied("slices on devices", "each device assembles its shard", {}, None)
    return there, new, False


def _box(low: Sequence[int], high: Sequence[int]) -> int:
    return math.prod([b - a for a, b in zip(low, high, strict=True)])


def _by_host(a: Accounts, sig: Signature, target: Any) -> Moved:
    """As `from_host.by_host`, for an array."""
    t, n = sig.stored, sig.stored.size * sig.stored.dtype.itemsize
    small = sig.sharding.is_fully_addressable and n < SMALL
    staged = n if not a.read and (is_subbyte(sig) or small or not on_cpu(sig.sharding)) else 0
    there = signature(sig.type, target, True)
    from_devices = {HOST: n} if not on_cpu(sig.sharding) and not a.read else {}
    if from_devices:
        a.copied("copies on the host", f"{n:,} bytes are read", from_devices, a.machine.far)
    return _put(a, there, staged, f"shards of {t.str_short(True)} are assembled")


def put(a: Accounts, t: ArrayType, sharding: Any, dtype: Any = None) -> Moved:
    """Puts a host value, which is not itself counted, on devices.

    dtype: of the host value; None: already the dtype of the result.
    """
    there = signature(t, sharding, True)
    n = there.stored.size * there.stored.dtype.itemsize
    a.pending = False
    other = dtype is not None and np.dtype(dtype) != there.stored.dtype
    direct = is_large(there) and len(there.devices) > 1
    return _put(a, there, n if other and not direct else 0, "a host value is split")


def _put(a: Accounts, there: Signature, staged: int, what: str) -> Moved:
    sharding = there.sharding
    shared = is_large(there) and (len(there.devices) > 1)
    new = buffers(there, shared)
    if not shared and not there.even:
        staged += buffers(there, True)[HOST] or tile_bytes(there)
    a.meanwhile(new, {HOST: staged})
    a.take(new)
    sent = {d: tile_bytes(there) for d in there.devices}
    if on_cpu(sharding):
        bytes_, rate = new[HOST], a.machine.memory_bandwidth
        text = f"{what} in host memory, which the devices share"
        a.steps.append(Step("copies on the host", text, 0, bytes_ / rate))
    else:
        text = f"{what}, and each device gets its shard"
        a.copied("copies to devices", text, sent, a.machine.far)
    return there, new, False


# ---------------------------------------------------------------------------- between processes


def _between(a: Accounts, sig: Signature, target: Any) -> Moved:
    """As `between_processes.between_processes`."""
    wanted = signature(sig.type, target, True)
    if isinstance(sig.type.dtype, ExtendedDType):
        plain, there = as_stored(sig, target)
        _, new, same = _between(a, plain, there)
        return wanted, new, same
    here, there = stops(sig, target)
    sig, held, same = _onward(a, sig, here)
    if there is not None:
        sig, new, _ = _exchanged(a, sig, there)
        a.free(held)
        held, same = new, False
    _, new, nothing_new = _onward(a, sig, target)
    if nothing_new:
        return wanted, held, same
    a.free(held)
    return wanted, new, False


def _exchanged(a: Accounts, sig: Signature, there: Any) -> Moved:
    """As `_sent` there: programs over source and target devices that permute full tiles."""
    target = signature(sig.type, there, True)
    t, tile_shape = sig.stored, there.tile_shape(sig.stored.shape)
    tile = array_type(tile_shape or (1,), t.dtype)
    devices = both_sides(sig, there)
    size = math.prod(tile.shape) * t.dtype.itemsize
    arrived: dict[Any, int] = {}
    for step in steps(devices, sig, there) if t.size else ():
        before, after = stack(step, devices, tile)
        idle = [d for d in devices if d not in arrived and d not in sig.devices]
        zeros = _at(dict.fromkeys(idle, size))
        a.take(zeros)
        _, new, _ = a.follow(before, (ReshardStep("program", after),))
        a.free(zeros)
        a.free(new)
        came = {devices[to]: size for to in step.values() if devices[to] not in arrived}
        a.take(_at(came))
        arrived |= came
        program = a.steps.pop()
        text = f"{pluralize(len(step), 'tile')} of {size:,} bytes; {program.text}"
        sent, found = len(step) * size, program.collectives
        kind = "exchange between processes"
        a.steps.append(Step(kind, text, sent, program.seconds, found))
    return target, _at(arrived), False


def _at(amounts: dict[Any, int]) -> Amounts:
    """Adds the bytes on this process's CPU devices to its host."""
    found: Amounts = Counter(amounts)
    local = [
        n
        for d, n in amounts.items()
        if d != HOST and platform_of(d).shares_memory and is_addressable(d)
    ]
    if local:
        found[HOST] = sum(local)
    return found


EXECUTORS: dict[str, Callable[[Accounts, Signature, Any], Moved]] = {
    "program": lambda a, sig, to: a.follow(sig, reshard_strategy.on_same_devices(sig, to)),
    "copy": _copied,
    "host": _by_host,
    "pieces": lambda a, sig, to: a.follow(sig, reshard_strategy.by_pieces(sig, to)),
    "between": _between,
    "move": _onward,
    "layout": _relayout,
    "op": lambda a, sig, to: a.run(
        sig, signature(sig.type, to, True), _adding_up, "one program, reducing partial sums,"
    ),
    "convert": _converted,
    "reshard": lambda a, sig, to: a.run(
        sig, signature(sig.type, to, True), _resharding, "one program"
    ),
    "relabel": lambda a, sig, to: (signature(sig.type, to, True, sig.layout), Counter(), True),
    "join": _joined,
}
