"""What `shardwise top` finds of running launches: `look`.

It reads what launchers and processes show (`board`), and asks the system about processes of this
machine. Those of other machines are in what their launchers tell each other (`mirror`).
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
from shardwise._src.messages.words import as_json, plain_text

WAITS = 1.0  # seconds after which a process is said to wait
_LONGEST = 500  # characters of a text of another machine


class Process(NamedTuple):
    """One of a launch. waits: what for, and how many seconds; line: where the program is.

    Numbers are None that are not known.
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
        """One that another machine tells of.

        Raises:
          ValueError, TypeError, LookupError, OverflowError: it is no such row. Facts may be
            infinite or NaN, as a loss is; other numbers may not.
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
    """A number that a table can show: neither NaN nor beyond what floats are."""
    if not math.isfinite(float(value)):
        raise ValueError(f"a number that is not finite: {value}")
    return kind(value)


def _plain(text: Any) -> str:
    """A text of another process, not too long."""
    return plain_text(str(text)[:_LONGEST])


class Launch(NamedTuple):
    """facts: what the launcher says; silent: machines of which nothing is known."""

    facts: dict[str, Any]
    processes: list[Process]
    silent: tuple[int, ...] = ()
    complete: bool = True  # whether all have shown how they are now

    def record(self) -> dict[str, Any]:
        """As data."""
        own = {k: v for k, v in self.facts.items() if k != "workers"}
        workers = [
            {**p._asdict(), "facts": {name: as_json(value) for name, value in p.facts.items()}}
            for p in self.processes
        ]
        return {**own, "workers": workers, "silent_nodes": list(self.silent)}


def look(pid: int | None, seconds: float) -> list[Launch]:
    """The launches now: all, or that of a launcher.

    seconds: that processes have at most to show themselves.

    Raises:
      OSError: the folder with what they show is somebody else's.
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
    """With the processes of other machines."""
    facts, processes = launch.facts, launch.processes
    others = set(range(facts.get("nodes", 1))) - {facts.get("node", 0)}
    cards = {node: read(path / node_card(node)) for node in others}
    while any(
        card.get("at", 0.0) < since or not card["complete"] for card in cards.values()
    ) and time.time() - since < seconds:
        time.sleep(0.05)
        cards = {node: read(path / node_card(node)) for node in others}
    silent = [n for n, card in cards.items() if time.time() - card.get("at", 0.0) > LOOKING]
    for node in others.difference(silent):
        processes = [*processes, *[Process.of_another(row) for row in cards[node]["workers"]]]
    return Launch(facts, sorted(processes, key=lambda p: p.rank), tuple(sorted(silent)))


def shown(path: Path, since: float) -> Launch | None:
    """What a launcher and its processes on this machine show; None if it has not started any.

    since: what they have shown before is not complete.
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
    return Process(
        rank, pid, state, card.get("step"), card.get("steps_per_second"),
        card.get("tokens_per_second"), resident, card.get("device_bytes"), doing,
        waited if doing else 0.0, card.get("line", ""), card.get("facts", {}),
    )
