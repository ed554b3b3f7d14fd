"""Differences between two programs: `explain.diff(a, b)`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from shardwise._src.base.lazy import public
from shardwise._src.explain.device_axes import Axis, over_text
from shardwise._src.explain.report import Report
from shardwise._src.explain.report_data import Communication
from shardwise._src.messages.formatting import in_bytes


@public("shardwise.explain")
@dataclass(frozen=True)
class Change:
    """One kind of collective, along the same axes, caused by one line: before and after.

    groups: the group size, for collectives that are not along axes; None for others. count, bytes,
    seconds: a pair with the value in each program; 0 if absent.
    """

    kind: str
    axes: tuple[Axis, ...] | None
    groups: int | None
    op: str
    line: str
    count: tuple[int, int]
    bytes: tuple[int, int]
    seconds: tuple[float, float]


@public("shardwise.explain")
@dataclass(frozen=True)
class Difference:
    """The difference from report `a` to report `b`.

    communication: the changes, largest difference in bytes first.
    """

    a: Report
    b: Report
    communication: tuple[Change, ...]

    @property
    def bytes(self) -> tuple[int, int]:
        """Bytes of all collectives, per device."""
        return self.a.bytes(), self.b.bytes()

    @property
    def peak(self) -> tuple[int, int]:
        """Peak memory of a device."""
        return self.a.memory.peak, self.b.memory.peak

    @property
    def seconds(self) -> tuple[float, float]:
        """The estimated times."""
        return self.a.seconds.total, self.b.seconds.total

    def to_dict(self) -> dict[str, Any]:
        """Converts to plain data."""
        rows = [
            {**asdict(c), "axes": None if c.axes is None else [str(a) for a in c.axes],
             "count": list(c.count), "bytes": list(c.bytes), "seconds": list(c.seconds)}
            for c in self.communication
        ]  # fmt: skip
        return {
            "communication": rows,
            "bytes": list(self.bytes),
            "peak": list(self.peak),
            "seconds": list(self.seconds),
            "flops": [r.computation.total_flops for r in (self.a, self.b)],
        }

    def __str__(self) -> str:
        head = [
            f"{self.a.name} on {self.a.devices} devices → {self.b.name} on {self.b.devices}",
            f"  communicated per device  {_sizes(*self.bytes)}",
            f"  peak memory per device   {_sizes(*self.peak)}",
            f"  operations per device    {_numbers(self.a, self.b)}",
            f"  estimated seconds        {self.seconds[0]:.3g} → {self.seconds[1]:.3g}"
            f"{_ratio(*self.seconds)}",
        ]
        rows = [
            f"  {_sign(c)} {c.kind} over {over_text(c.axes, c.groups or 0, c.kind)}: "
            f"{_sizes(*c.bytes)}, {c.count[0]} → {c.count[1]} x, {c.op} at {c.line or '?'}"
            for c in self.communication
        ]
        return "\n".join([*head, *(rows or ["  the same communication"])])


def diff(a: Report, b: Report) -> Difference:
    """Compares two reports: of two shardings, or of two versions, of a function.

    Lines match if they have the same location; collectives match if they also have the same kind,
    the same axis names, and the same causing operation.

    Raises:
      TypeError: an argument is not a `Report`.
    """
    for report in (a, b):
        if not isinstance(report, Report):
            raise TypeError(
                f"diff takes two reports, as returned by `explain(f)(*args)`; got "
                f"{type(report).__name__}."
            )
    rows: dict[tuple[Any, ...], list[list[Communication]]] = defaultdict(lambda: [[], []])
    for i, report in enumerate((a, b)):
        for c in report.communication:
            groups = c.groups if c.axes is None else None
            rows[c.kind, c.axes, groups, c.op, c.line][i].append(c)
    found = [
        Change(
            *key,
            count=(sum([c.count for c in before]), sum([c.count for c in after])),
            bytes=(sum([c.bytes for c in before]), sum([c.bytes for c in after])),
            seconds=(sum([c.seconds for c in before]), sum([c.seconds for c in after])),
        )
        for key, (before, after) in rows.items()
    ]
    changed = [c for c in found if c.count[0] != c.count[1] or c.bytes[0] != c.bytes[1]]
    largest = sorted(changed, key=lambda c: (-abs(c.bytes[1] - c.bytes[0]), c.kind, c.line))
    return Difference(a, b, tuple(largest))


def _sign(c: Change) -> str:
    return "+" if not c.count[0] else "-" if not c.count[1] else "~"


def _sizes(before: int, after: int) -> str:
    return f"{in_bytes(before)} → {in_bytes(after)}{_ratio(before, after)}"


def _numbers(a: Report, b: Report) -> str:
    before, after = a.computation.total_flops, b.computation.total_flops
    return f"{before:,} → {after:,}{_ratio(before, after)}"


def _ratio(before: float, after: float) -> str:
    return f" (x{after / before:.2f})" if before and after and before != after else ""
