"""Predicts the cost of moving arrays to other shardings, before they move.

    found = plan(params, NamedSharding(mesh, P("data")))
    found.bytes_moved, found.peak_bytes, found.seconds
    print(found)                                        # with the steps, in order

A plan follows the same decisions as `device_put` (`reshard_steps`); `transfer_cost` adds up the
cost of each step. Nothing is moved. Programs are compiled, and a later `device_put` reuses them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shardwise._src.arguments.prefixes import broadcast_prefix
from shardwise._src.arguments.shape_dtype_struct import ShapeDtypeStruct
from shardwise._src.arrays.array import Array
from shardwise._src.arrays.signature import Signature, signature, stored_type
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.explain.machines import Machine, machine_of
from shardwise._src.lowering.layouts_and_memory import bare
from shardwise._src.messages.formatting import columns, in_bytes, pluralize
from shardwise._src.messages.tree_paths import leaf_paths, similar
from shardwise._src.ops.memory_kinds import Space
from shardwise._src.ops.sharded.device_put_op import placed_over
from shardwise._src.planner.transfer_cost import HOST, Accounts, Step, buffers, put
from shardwise._src.runtime.pytree import flatten
from shardwise._src.targets.machine_names import named
from shardwise._src.transfers.parts import extent
from shardwise._src.transfers.regions import is_abstract, moved, places
from shardwise._src.transfers.targets import as_placement, check_fit, is_sharding_leaf
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.types.array_type import ArrayType, check_countable
from shardwise._src.types.layout import Format
from shardwise._src.types.sharding import NamedSharding
from shardwise._src.visualize.html import STYLE, table_html
from shardwise._src.visualize.svg import escape

FIRST = 0  # a position present in meshes of all sizes, so it represents the fullest device
SHOWN = 12  # leaves and steps shown in text; `to_dict()` has all


@dataclass(frozen=True)
class PlannedLeaf:
    """The cost of moving one array of a pytree.

    peak_bytes: as in `Plan`, while this array moves and the ones before it have been moved.
    """

    path: str
    type: str
    source: Any
    target: Any
    bytes_moved: int
    peak_bytes: int
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        return sum([step.seconds for step in self.steps])

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "source": None if self.source is None else str(self.source),
            "target": str(self.target),
            "seconds": self.seconds,
            "steps": [step.to_dict() for step in self.steps],
        }


@public("shardwise")
@dataclass(frozen=True)
class Plan:
    """A prediction of what `device_put` will do, returned by `shardwise.plan`.

    bytes_moved: bytes that devices receive because they do not hold them, over all target devices.
    bytes_sent: bytes that the steps send to achieve this; a program may send more.
    peak_bytes: the most that one device holds at a time: source, target and temporaries.
    host_bytes: the most host memory of this process that the moves use. CPU devices use host
        memory, so their new shards are included; their replicas may share one buffer.
    seconds: of all steps, according to `machine`.
    leaves: array by array, in the order in which they move.
    memory_bytes: of a device of `machine`; fits: whether `peak_bytes` does not exceed it.
    complete: whether `peak_bytes` includes the temporaries of all programs. It lacks those of
        programs on meshes without devices, and of other processes' programs, which are not
        compiled here.
    """

    bytes_moved: int
    peak_bytes: int
    host_bytes: int
    machine: str
    leaves: tuple[PlannedLeaf, ...]
    memory_bytes: int
    complete: bool = True

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.memory_bytes

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple([step for leaf in self.leaves for step in leaf.steps])

    @property
    def bytes_sent(self) -> int:
        return sum([step.bytes_sent for step in self.steps])

    @property
    def seconds(self) -> float:
        return sum([leaf.seconds for leaf in self.leaves])

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists only, JSON-serializable."""
        return {
            **vars(self),
            "bytes_sent": self.bytes_sent,
            "fits": self.fits,
            "seconds": self.seconds,
            "leaves": [leaf.to_dict() for leaf in self.leaves],
        }

    def __str__(self) -> str:
        lines = [f"{name}: {value}" for name, value in self._facts()]
        if len(self.leaves) == 1:
            lines += _numbered(self.leaves[0].steps)
        else:
            lines += ["", *columns(self._table())]
            lines += self._rest()
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = "".join([f"<li><b>{n}</b>: {escape(v)}</li>" for n, v in self._facts()])
        body = f'<ul style="margin:0;padding-left:1.2em">{facts}</ul>'
        if len(self.leaves) == 1:
            steps = [f"<li>{escape(_step_text(s))}</li>" for s in self.leaves[0].steps[:SHOWN]]
            body += f"<ol>{''.join(steps)}</ol>{escape(_more(len(self.leaves[0].steps)))}"
        else:
            rest = "".join([f"<div>{escape(text)}</div>" for text in self._rest()])
            body += table_html(self._table(), len(_HEAD)) + rest
        return f'<figure style="{STYLE}">{body}</figure>'

    def _facts(self) -> list[tuple[str, str]]:
        least = "" if self.complete else "at least "
        note = "" if self.complete else f" ({_UNKNOWN})"
        return [
            *self._excess(),
            ("moved", f"{in_bytes(self.bytes_moved)} that devices do not hold yet"),
            ("sent", f"{in_bytes(self.bytes_sent)} between devices, or from the host"),
            ("peak", f"{least}{in_bytes(self.peak_bytes)} on one device{note}"),
            ("host", f"{in_bytes(self.host_bytes)} of this process's memory"),
            ("time", f"{_time(self.seconds)} on {self.machine}"),
        ]

    def _excess(self) -> list[tuple[str, str]]:
        """Advice if the peak exceeds the memory of a device."""
        if self.fits:
            return []
        times = math.ceil(self.peak_bytes / self.memory_bytes)
        return [
            (
                "does not fit",
                f"{in_bytes(self.peak_bytes)} on one device, and a device of {self.machine} has "
                f"{in_bytes(self.memory_bytes)}. Shard over {times:,} times as many devices or "
                "more, or use a smaller dtype",
            )
        ]

    def _table(self) -> list[tuple[str, ...]]:
        """The header, and rows of the largest arrays, with similar arrays merged."""
        rows = _together(self.leaves)
        return [_HEAD, *[_row(*row) for row in rows[:SHOWN]]]

    def _rest(self) -> list[str]:
        rest = _together(self.leaves)[SHOWN:]
        if not rest:
            return []
        left = in_bytes(sum([leaf.bytes_moved * count for _, leaf, count in rest]))
        number = sum([count for *_, count in rest])
        return [f"… and {pluralize(number, 'smaller array')}, {left} in all"]


_UNKNOWN = "temporaries of programs are unknown if their devices are not attached"
_HEAD = ("array", "type", "moved", "time", "steps")


def _together(leaves: Sequence[PlannedLeaf]) -> list[tuple[str, PlannedLeaf, int]]:
    """(path, representative, count): merges leaves whose paths differ only in numbers.

    Sorted by bytes moved, most first.
    """
    alike = similar(leaves, lambda leaf: (leaf.path, leaf.type, leaf.bytes_moved, _kinds(leaf)))
    found = [(path, same[0], len(same)) for path, same in alike]
    return sorted(found, key=lambda row: -row[1].bytes_moved * row[2])


def _row(path: str, leaf: PlannedLeaf, count: int) -> tuple[str, ...]:
    return (
        f"{path} ({count:,} times)" if count > 1 else path,
        leaf.type,
        in_bytes(leaf.bytes_moved * count),
        _time(leaf.seconds * count),
        ", ".join(_kinds(leaf)) or "nothing",
    )


def _kinds(leaf: PlannedLeaf) -> tuple[str, ...]:
    return tuple(dict.fromkeys([step.kind for step in leaf.steps]))


def _numbered(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["nothing to do: already in place"]
    lines = [f"{i}. {_step_text(step)}" for i, step in enumerate(steps[:SHOWN], 1)]
    return lines + ([_more(len(steps))] if len(steps) > SHOWN else [])


def _step_text(step: Step) -> str:
    sent = f" ({in_bytes(step.bytes_sent)} sent)" if step.bytes_sent else ""
    return f"{step.kind}: {step.text}{sent}"


def _more(count: int) -> str:
    return f"… and {pluralize(count - SHOWN, 'more step')}" if count > SHOWN else ""


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


# ---------------------------------------------------------------------------------- making plans


def plan(x: Any, sharding: Any, *, machine: str | Machine | None = None) -> Plan:
    """The cost of moving values to other shardings, before `device_put` does so.

    Args:
      x: a pytree of arrays, NumPy arrays, scalars and `ShapeDtypeStruct`s. A struct with a sharding
        represents an existing array, one without represents a host value.
      sharding: any target of `device_put`: a sharding, device, spec over the mesh in scope or
        `Format`, or a pytree of them that is a prefix of `x`; None leaves values where they are.
        Shardings may be over an `AbstractMesh`, whose devices are then identified by position.
      machine: the machine for `seconds`: a name in `explain.machines`, or a `Machine`; by default
        the machine of the devices.

    Returns:
      A `Plan`: bytes moved, the peak memory of a device, and the steps.

    Raises:
      TypeError: a value is traced or not an array, or a target is not valid.
      ValueError: a sharding does not match a shape, or a pytree is not a prefix of `x`.
    """
    leaves, _ = flatten(x)
    paths = [f"x{p}" for p in leaf_paths(x)] if len(leaves) != 1 or leaves[0] is not x else ["x"]
    types = [_typed(leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
    targets = _targets(x, sharding, leaves)
    check_fit(targets, types, paths, "plan")
    accounts = Accounts(_machine(machine, leaves, targets))
    decided = not any([is_abstract(s) for s in (*map(_place, leaves), *map(bare, targets)) if s])
    different = {id(leaf): (leaf, t) for leaf, t in zip(leaves, types, strict=True)}
    for leaf, t in different.values():
        if _place(leaf) is not None:
            accounts.take(_held(leaf, t, decided))
    start = accounts.held[HOST]
    rows = zip(paths, leaves, types, targets, strict=True)
    found = tuple([_planned(accounts, *row, decided) for row in rows])
    return Plan(
        bytes_moved=sum([leaf.bytes_moved for leaf in found]),
        peak_bytes=_most(accounts.peak),
        host_bytes=max(accounts.peak[HOST] - start, 0),
        machine=accounts.machine.name,
        leaves=found,
        memory_bytes=accounts.machine.memory_bytes,
        complete=decided and accounts.complete,
    )


def _typed(leaf: Any, path: str) -> ArrayType:
    if isinstance(leaf, Tracer):
        raise TypeError(
            f"plan: {path} of type {leaf.aval.str_short(True)} is a tracer, which is not on "
            "devices yet. Call plan outside of the traced function, on arrays or on "
            "`ShapeDtypeStruct`s."
        )
    try:
        t = leaf.aval if isinstance(leaf, ShapeDtypeStruct) else type_of(leaf)
        check_countable(t)
    except (TypeError, ValueError) as error:
        raise type(error)(f"plan: {path}: {error}") from None
    return t


def _targets(x: Any, sharding: Any, leaves: Sequence[Any]) -> list[Any]:
    """For each leaf a sharding or Format; None if it stays."""
    if sharding is None or is_sharding_leaf(sharding) or _is_device(sharding):
        found = [sharding] * len(leaves)
    else:
        found = broadcast_prefix(sharding, x, "plan: sharding", is_sharding_leaf)
    placed = [as_placement(one, "plan") for one in found]
    return [_over(one, _place(leaf)) for one, leaf in zip(placed, leaves, strict=True)]


def _is_device(x: Any) -> bool:
    return hasattr(x, "platform") and hasattr(x, "process_index")


def _over(target: Any, here: Any) -> Any:
    if isinstance(target, Space):
        return target.over(here if here is not None else placed_over(None, None))
    if target is None or target.__class__ is Format:
        return target
    if is_abstract(target):
        mesh = here.mesh if isinstance(here, NamedSharding) and not is_abstract(here) else None
        if mesh is None or mesh.shape_tuple != target.mesh.shape_tuple:
            return target
    return placed_over(target, here)


def _place(leaf: Any) -> Any:
    """The sharding of a device array; None for host values."""
    return leaf.sharding if isinstance(leaf, Array | ShapeDtypeStruct) else None


def _machine(asked: Any, leaves: Sequence[Any], targets: Sequence[Any]) -> Machine:
    shardings = [*map(bare, targets), *map(_place, leaves)]
    concrete = [s for s in shardings if s is not None and not is_abstract(s)]
    needed = max([s.num_devices for s in shardings if s is not None], default=0)
    if isinstance(asked, str) and ":" in asked and needed > (count := named(asked).size):
        raise ValueError(
            f"plan: a sharding is over {needed} devices, and {asked!r} has {count}. Choose a "
            "larger machine, or a smaller mesh."
        )
    return machine_of(asked, concrete[0].devices[0] if concrete else None)


def _signature(leaf: Any, t: ArrayType) -> Signature:
    if isinstance(leaf, Array):
        return leaf._sig
    return signature(t, leaf.sharding, True, leaf.layout)


def _held(leaf: Any, t: ArrayType, decided: bool) -> Counter[Any]:
    if not decided:
        return Counter({FIRST: _tile(t, leaf.sharding)})
    return buffers(_signature(leaf, t))


def _tile(t: ArrayType, sharding: Any) -> int:
    stored = stored_type(t)
    return math.prod(sharding.tile_shape(stored.shape)) * stored.dtype.itemsize


def _most(amounts: Counter[Any]) -> int:
    return max([n for place, n in amounts.items() if place != HOST], default=0)


def _planned(
    a: Accounts, path: str, leaf: Any, t: ArrayType, target: Any, decided: bool
) -> PlannedLeaf:
    here, goal = _place(leaf), bare(target)
    before, a.steps = a.peak, []
    a.peak = Counter(a.held)
    there = here if goal is None else goal
    if target is not None and not decided:
        _undecided(a, t, here, goal)
    elif target is not None and here is None:
        put(a, t, goal, getattr(leaf, "dtype", None))
    elif target is not None:
        sig = _signature(leaf, t)
        array = isinstance(leaf, Array)
        ready = leaf.is_ready if array else lambda: True
        a.move(sig, target, ready, array and leaf._host is not None)
    peak = _most(a.peak)
    a.peak = before | a.peak
    count = 0 if there is None else _moved(here, there, t)
    return PlannedLeaf(path, t.str_short(True), here, target, count, peak, tuple(a.steps))


def _moved(here: Any, there: Any, t: ArrayType) -> int:
    """Bytes that devices of `there` need but do not hold."""
    stored = stored_type(t)
    if here is None or here.partial_axes[0]:  # partial sums do not contain the value
        found = [extent(index, stored.shape) for index in there.indices(stored.shape)]
        return sum([math.prod(n) for n in found]) * stored.dtype.itemsize
    return moved(here, there, stored.shape) * stored.dtype.itemsize


def _undecided(a: Accounts, t: ArrayType, here: Any, there: Any) -> None:
    """The cost if one of the shardings has no devices: estimates valid for any devices."""
    new = _tile(t, there)
    count = _moved(here, there, t)
    if here is None:
        positions: Sequence[Any] = range(there.num_devices)
        kind, text = "copies to devices", "each device gets its shard of a host value"
    else:
        old, positions = places(here, there)
        kind, text = "program", "one program over all devices; the compiler chooses its collectives"
        if len(old) != len(positions):
            kind, text = "copies between devices", "each device gets its missing parts from others"
    a.take({FIRST: new})
    most = count / max(len(positions), 1)
    link = a.machine.link((), len(positions))
    seconds = most / link.bandwidth + link.latency if count else 0.0
    if count or kind != "program":
        a.steps.append(Step(kind, text, count, seconds))
