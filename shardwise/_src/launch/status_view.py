"""Collects the status of running launches for `shardwise top`: `look`.

It reads the status files of launchers and processes (`status_files`), and queries the system about
processes of this machine. Launchers exchange the status of other machines (`status_relay`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shardwise._src.distributed.status_files import (
    LAUNCH,
    LOOKED,
    LOOKING,
    folder,
    launches,
    make_private,
    node_card,
    read,
)
from shardwise._src.messages.formatting import as_json, plain_text

WAITS = 1.0  # seconds after which a process is shown as waiting
_LONGEST = 500  # characters of a string from another machine


class Process(NamedTuple):
    """A process of a launch. waits, waited: what it waits for, and for how many seconds; line: the
    current line of its program.

    Unknown numbers are None.
    """

    rank: int
    pid: int
    state: str
    step: int | None = None
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    resident_bytes: int | None = None
    device_bytes: int | None = None
    waits: str = ""
    waited: float = 0.0
    line: str = ""
    facts: dict[str, float] = {}  # noqa: RUF012  never changed
    host: str = ""

    @classmethod
    def of_another(cls, row: Mapping[str, Any]) -> Process:
        """A process described by another machine.

        Raises:
          ValueError, TypeError, LookupError, OverflowError: the row is malformed. Facts may be
            infinite or NaN, as a loss may be; other numbers may not.
        """

        def number(name: str, kind: Any = float) -> Any:
            return None if row[name] is None else _finite(row[name], kind)

        facts = {_plain(name): float(value) for name, value in dict(row["facts"]).items()}
        return cls(
            _finite(row["rank"], int), _finite(row["pid"], int), _plain(row["state"]),
            number("step", int), number("steps_per_second"), number("tokens_per_second"),
            number("resident_bytes", int), number("device_bytes", int), _plain(row["waits"]),
            _finite(row["waited"], float), _plain(row["line"]), facts, _plain(row["host"]),
        )  # fmt: skip


def _finite(value: Any, kind: Any) -> Any:
    """A number that a table can show: finite, and in the range of floats."""
    if not math.isfinite(float(value)):
        raise ValueError(f"a number that is not finite: {value}")
    return kind(value)


def _plain(text: Any) -> str:
    """A string of another process, truncated."""
    return plain_text(str(text)[:_LONGEST])


class Launch(NamedTuple):
    """facts: published by the launcher; silent: machines without a recent status."""

    facts: dict[str, Any]
    processes: list[Process]
    silent: tuple[int, ...] = ()
    complete: bool = True  # whether all have published their current status

    def record(self) -> dict[str, Any]:
        """The launch as JSON data."""
        own = {k: v for k, v in self.facts.items() if k != "workers"}
        workers = [
            {**p._asdict(), "facts": {name: as_json(value) for name, value in p.facts.items()}}
            for p in self.processes
        ]
        return {**own, "workers": workers, "silent_nodes": list(self.silent)}


def look(pid: int | None, seconds: float) -> list[Launch]:
    """The current launches: all, or the one of the launcher `pid`.

    seconds: maximum time to wait for processes to publish their status.

    Raises:
      OSError: the folder with the status files belongs to another user.
    """
    root, now = folder(), time.time()
    make_private(root)
    paths = [p for p in launches(root) if pid in (None, int(p.name))]
    for path in paths:
        try:
            (path / LOOKED).touch(mode=0o600)
        except OSError:
            continue  # it has just ended
    found: list[Launch] = []
    for path in paths:
        while (launch := shown(path, now)) and not launch.complete and time.time() - now < seconds:
            time.sleep(0.05)
        found += [_with_others(path, launch, now, seconds)] if launch else []
    return found


def _with_others(path: Path, launch: Launch, since: float, seconds: float) -> Launch:
    """Adds the processes of other machines to a launch."""
    facts, processes = launch.facts, launch.processes
    others = set(range(facts.get("nodes", 1))) - {facts.get("node", 0)}
    cards = {node: read(path / node_card(node)) for node in others}
    while (
        any(card.get("at", 0.0) < since or not card["complete"] for card in cards.values())
        and time.time() - since < seconds
    ):
        time.sleep(0.05)
        cards = {node: read(path / node_card(node)) for node in others}
    silent = [n for n, card in cards.items() if time.time() - card.get("at", 0.0) > LOOKING]
    for node in others.difference(silent):
        processes = [*processes, *[Process.of_another(row) for row in cards[node]["workers"]]]
    return Launch(facts, sorted(processes, key=lambda p: p.rank), tuple(sorted(silent)))


def shown(path: Path, since: float) -> Launch | None:
    """The status of a launcher and its processes on this machine; None if none has started.

    since: a status published before this time does not count as complete.
    """
    facts = read(path / LAUNCH)
    workers = facts.get("workers")
    if not isinstance(workers, dict):
        return None
    cards: dict[str, dict[str, Any]] = {}
    for rank, (pid, status) in workers.items():
        card = read(path / f"rank-{rank}")
        if status is None and card.get("pid") == pid:
            cards[rank] = card
    missing = len(cards) < sum(status is None for _, status in workers.values())
    host = str(facts.get("host", ""))
    processes = [
        _process(int(rank), pid, status, cards.get(rank, {}))._replace(host=host)
        for rank, (pid, status) in workers.items()
    ]
    late = any(card["at"] < since for card in cards.values())
    return Launch(facts, processes, complete=not (missing or late))


def _process(rank: int, pid: int, status: int | None, card: dict[str, Any]) -> Process:
    if status is not None:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Process(rank, pid, f"ended, {how}" if status else "ended")
    import psutil

    try:
        system = psutil.Process(pid)
        resident = system.memory_info().rss
        stopped = system.status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return Process(rank, pid, "ended")
    waited = float(card.get("since", 0.0))
    doing = f"{card.get('waiting')}" if waited > WAITS else ""
    if card.get("kind") == "launch" and doing:
        doing = f"the result of {doing}"
    state = "stopped" if stopped else "waits" if doing else "runs"
    shown = ("step", "steps_per_second", "tokens_per_second", "device_bytes", "line", "facts")
    return Process(
        rank,
        pid,
        state,
        resident_bytes=resident,
        waits=doing,
        waited=waited if doing else 0.0,
        **{name: card[name] for name in shown if name in card},
    )
