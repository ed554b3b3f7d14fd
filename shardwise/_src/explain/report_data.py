"""The data of a report: what a compiled program communicates, stores and computes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from shardwise._src.base.errors import did_you_mean
from shardwise._src.base.lazy import public
from shardwise._src.explain.communication import KINDS
from shardwise._src.explain.device_axes import Axis, SubAxis, as_text, is_part
from shardwise._src.explain.launches.launch_data import LaunchData
from shardwise._src.explain.machines import Machine
from shardwise._src.messages.formatting import join

FORMAT = 1  # version of the format of `to_dict`
Along: TypeAlias = Sequence[Any] | str | int | SubAxis


@public("shardwise.explain")
@dataclass(frozen=True)
class Communication:
    """Collectives of one kind, along the same mesh axes, that one line of the program causes.

    axes:   mesh axis names; for a sub-axis, a `SubAxis`, as data `x:(2)4`. None if groups are
            not along axes. groups: number of devices per group.
    mesh:   the mesh, if the program uses several: 0 is the report's `mesh`, 1 the first of its
            `others`.
    count:  number of runs in one execution; a lower bound if `known` is false: in a loop whose trip
            count is unknown until it runs. Collectives in branches of `cond` and `switch` count as
            if all branches ran. shared: how many of these are parts of combined collectives that
            another row counts (XLA merged them).
    bytes:  of one device in one execution, in total: what it holds after each collective; for a
            reduce-scatter, its input. dtypes: of these.
    seconds: minimum total time on the machine.
    call:   the operation with the types and shardings of its operands and results.
    why:    which of these makes it communicate.
    line:   `file:line` of the user code; function: the enclosing one; scope: its named scopes.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    groups: int
    count: int
    known: bool
    bytes: int
    dtypes: tuple[str, ...]
    seconds: float
    op: str
    call: str
    why: str
    line: str
    function: str
    scope: str = ""
    shared: int = 0
    mesh: int = 0


@public("shardwise.explain")
@dataclass(frozen=True)
class Buffer:
    """A range of a device's memory: its kind, and the value stored in it.

    kind: "argument", "result", "donated", "temporary" or "constant".
    what: the path of an argument, or the operation that makes the value.
    """

    bytes: int
    kind: str
    what: str
    line: str


@public("shardwise.explain")
@dataclass(frozen=True)
class Memory:
    """Bytes on one device while the program runs.

    donated: bytes of donated arguments that results reuse; they count as both.
    peak:    the maximum total.
    """

    arguments: int
    results: int
    donated: int
    temporaries: int
    peak: int


@public("shardwise.explain")
@dataclass(frozen=True)
class Computation:
    """The computation of one device in one execution.

    flops: of matrix products and convolutions, by dtype; elementwise: other arithmetic operations.
    bytes: read from and written to its memory. uncounted: foreign functions, whose work is unknown.
    known: false if a loop counts once because its trip count is unknown until it runs. Branches of
    `cond` and `switch` count as if all ran.
    """

    flops: Mapping[str, int]
    elementwise: int
    bytes: int
    uncounted: tuple[str, ...]
    known: bool

    @property
    def total_flops(self) -> int:
        return sum(self.flops.values()) + self.elementwise


@public("shardwise.explain")
@dataclass(frozen=True)
class Seconds:
    """The minimum time of each component on the machine: a device computes while it accesses
    memory, and communicates before or after. total: the larger of the first two, plus the third."""

    compute: float
    memory: float
    communication: float

    @property
    def total(self) -> float:
        return max(self.compute, self.memory) + self.communication

    @property
    def dominant(self) -> str:
        """ "compute", "memory" or "communication": the component that takes longest."""
        parts = {
            "compute": self.compute,
            "memory": self.memory,
            "communication": self.communication,
        }
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True)
class ReportData:
    """The fields of a `Report`, and queries of its collectives."""

    name: str
    devices: int
    mesh: Mapping[Any, int]
    machine: Machine
    communication: tuple[Communication, ...]
    memory: Memory
    buffers: tuple[Buffer, ...]
    computation: Computation
    seconds: Seconds
    lines: Mapping[str, str] = field(repr=False, default_factory=dict)
    program: str = field(repr=False, default="")
    hlo: str = field(repr=False, default="")
    others: tuple[Mapping[Any, int], ...] = ()
    launches: tuple[LaunchData, ...] = ()
    compiler: str = ""
    missing: str = ""
    target: str = ""

    def count(self, kind: str, axes: Along | None = None) -> int:
        """Number of collectives of a kind in one execution, along these axes if given.

        kind: as in HLO, "all-reduce", or with underscores. axes: in any order, of any mesh; a
        sub-axis in its text form, "x:(2)4".

        Raises:
          ValueError: for an unknown kind, or an axis that no mesh of the program has.
        """
        return sum([c.count - c.shared for c in self._of(kind, axes)])

    def bytes(self, kind: str | None = None, axes: Along | None = None) -> int:
        """Bytes per device of collectives; of a kind and along axes, if given.

        Raises:
          ValueError: as in `count`.
        """
        return sum([c.bytes for c in self._of(kind, axes)])

    def _of(self, kind: str | None, axes: Along | None) -> list[Communication]:
        wanted = None if kind is None else kind.replace("_", "-")
        if wanted not in (None, *KINDS):
            raise ValueError(
                f"unknown collective {kind!r}; known collectives are {join(KINDS)}."
                f"{did_you_mean(str(wanted), KINDS)}"
            )
        one = isinstance(axes, str | int | SubAxis)
        given = (axes,) if one else axes
        along = None if given is None else {as_text(a) for a in given}
        names = list(dict.fromkeys([name for m in (self.mesh, *self.others) for name in m]))
        for axis in along or ():
            if axis not in names and not is_part(axis, names):
                who = "meshes have no axis {!r}; they have" if self.others else (
                    "mesh has no axis {!r}; it has")  # fmt: skip
                raise ValueError(f"the {who.format(axis)} {join(names) or 'none'}.")
        return [
            c
            for c in self.communication
            if wanted in (None, c.kind)
            and (along is None or (c.axes is not None and set(map(as_text, c.axes)) == along))
        ]

    def to_dict(self) -> dict[str, Any]:
        """All data except program texts, as JSON-serializable plain data."""
        found = asdict(self)
        for name in ("program", "hlo"):
            del found[name]
        found["mesh"], *found["others"] = [
            {str(name): size for name, size in mesh.items()} for mesh in (self.mesh, *self.others)
        ]
        for row, c in zip(found["communication"], self.communication, strict=True):
            row["axes"] = None if c.axes is None else [str(a) for a in c.axes]
            row["dtypes"] = list(row["dtypes"])
        for name in ("communication", "buffers"):
            found[name] = list(found[name])
        rows = zip(self.launches, found["launches"], strict=True)
        found["launches"] = [launch.as_data(row) for launch, row in rows]
        found["computation"]["uncounted"] = list(self.computation.uncounted)
        found["seconds"] |= {"total": self.seconds.total, "dominant": self.seconds.dominant}
        return {"format": FORMAT, **found}


def merged(rows: Sequence[Communication]) -> tuple[Communication, ...]:
    """Merges rows that differ only in counts, bytes and dtypes; most bytes first."""
    alike: dict[Any, list[Communication]] = defaultdict(list)
    for row in rows:
        where = row.axes, row.mesh, row.groups, row.line, row.scope
        alike[row.kind, row.op, row.call, row.why, *where].append(row)
    found = [
        replace(
            same[0],
            count=sum([r.count for r in same]),
            known=all([r.known for r in same]),
            bytes=sum([r.bytes for r in same]),
            dtypes=tuple(sorted({d for r in same for d in r.dtypes})),
            seconds=math.fsum([r.seconds for r in same]),
            shared=sum([r.shared for r in same]),
        )
        for same in alike.values()
    ]
    return tuple(sorted(found, key=lambda r: (-r.bytes, r.kind, r.line)))
