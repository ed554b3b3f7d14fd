"""`shardwise top`: the status of the processes of running launches, as a live table.

It shows the launches of this user that have a launcher on this machine
(`launch/status_view.py`), with their processes on all machines.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from shardwise._src.cli.arguments import command_parser, number, seconds
from shardwise._src.distributed.status_files import folder
from shardwise._src.launch.status_view import Launch, Process, look
from shardwise._src.messages.formatting import columns, pluralize

ANSWER = 2.5  # seconds for processes to publish their status for a new viewer
ENDS = "Ctrl-C ends this view, not the programs."


def parser() -> argparse.ArgumentParser:
    parser = command_parser("top")
    add = parser.add_argument
    add(
        "pid",
        nargs="?",
        type=number,
        help="pid of the launcher; without it, all launches of this user",
    )
    add(
        "--once",
        action="store_true",
        help="print one table and exit; the default without a terminal",
    )
    add("--json", action="store_true", help="print one JSON record and exit")
    add("--interval", type=seconds, default=1.0, metavar="SECONDS", help="between updates (1)")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Shows launches; returns the exit status: 1 if there are no launches."""
    asked = parser().parse_args(list(arguments))
    try:
        found = look(asked.pid, ANSWER)
    except OSError as error:
        raise SystemExit(f"shardwise top: {error}.") from None
    if not found:
        print(_none(asked.pid), file=sys.stderr)
        return 1
    if asked.json:
        print(json.dumps([launch.record() for launch in found], indent=2))
        return 0
    if asked.once or not sys.stdout.isatty():
        print(page(found))
        return 0
    return _watch(asked.pid, found, asked.interval)


def _none(pid: int | None) -> str:
    if pid is not None:
        return f"shardwise top: no launch of this user has a launcher with pid {pid}."
    return (
        f"shardwise top: no launch of this user is running on this machine (none in {folder()}). "
        "`shardwise launch -n 4 script.py` starts one."
    )


def _watch(pid: int | None, found: list[Launch], interval: float) -> int:
    from rich.live import Live

    before = signal.signal(signal.SIGTERM, _end_view)  # else the terminal would not be restored
    try:
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                live.update(_screen(pid, found, live.console.size.height), refresh=True)
                time.sleep(interval)
                found = look(pid, 0.0)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_view(number: int, _: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _screen(pid: int | None, found: Sequence[Launch], height: int) -> Any:
    """The contents of a terminal of `height` lines; lines that do not fit are counted."""
    from rich.text import Text

    if not found:
        return Text(f"{_none(pid)}\n\n{ENDS}")
    lines, room = page(found).splitlines(), max(2, height - 2)
    if len(lines) > room:
        hidden = len(lines) - room + 1
        lines[room - 1 :] = [f"… and {pluralize(hidden, 'line')} that do not fit"]
    return Text("\n".join([*lines, "", ENDS]), no_wrap=True, overflow="ellipsis")


# ----------------------------------------------------------------------------------- the table


def page(found: Sequence[Launch]) -> str:
    """The launches, one table each."""
    return "\n\n".join(map(table, found))


def table(launch: Launch) -> str:
    """The text of one launch: its command, and a row for each process."""
    facts = launch.facts
    command = " ".join(map(_word, facts.get("command", ())))
    lasts = _duration(time.time() - facts.get("started", time.time()))
    where = f", node {facts.get('node')} of {facts['nodes']}" if facts.get("nodes", 1) > 1 else ""
    head = f"{command}   launcher {facts.get('pid')} on {facts.get('host')}{where}, for {lasts}"
    lines = [head]
    generation = facts.get("generation", 0)
    if facts.get("restarts"):
        failure = f": {facts['failure']}" if facts.get("failure") else ""
        running, full = facts.get("running"), facts.get("processes", 0) * facts.get("nodes", 1)
        fewer = "" if running in (None, full) else f", with {running} of {full} processes"
        lines.append(f"restarts: {generation} of {facts['restarts']}{fewer}{failure}")
    heads = ("rank", "pid", "state", "step", "steps/s", "tokens/s", "memory", "devices")
    rows, ends = [heads, *map(_row, launch.processes)], ["", *map(_end, launch.processes)]
    sides = ">><>>>>>"
    if facts.get("nodes", 1) > 1:
        hosts = ["host", *[process.host for process in launch.processes]]
        rows = [(row[0], host, *row[1:]) for row, host in zip(rows, hosts, strict=True)]
        sides = f">{sides}"
    lines += columns([(*row, end) for row, end in zip(rows, ends, strict=True)], sides)
    if launch.silent:
        nodes = "node" if len(launch.silent) == 1 else "nodes"
        lines.append(f"No data from {nodes} {', '.join(map(str, launch.silent))}.")
    return "\n".join(lines)


def _row(process: Process) -> tuple[str, ...]:
    return (
        str(process.rank),
        str(process.pid),
        process.state,
        _number(process.step),
        _number(process.steps_per_second),
        _number(process.tokens_per_second),
        _bytes(process.resident_bytes),
        _bytes(process.device_bytes),
    )


def _end(process: Process) -> str:
    """The current wait of a process, or else the numbers that it reported."""
    if process.waits:
        return f"for {process.waits}, {_duration(process.waited)}"
    return "  ".join([f"{name} {value:.4g}" for name, value in process.facts.items()])


def _word(word: str) -> str:
    return os.path.relpath(word) if os.path.isabs(word) and word.startswith(os.getcwd()) else word


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def _bytes(size: int | None) -> str:
    """A human-readable size: 512 MiB, 1.5 GiB."""
    if size is None:
        return "-"
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 2**10:.1f} KiB"


def _duration(seconds: float) -> str:
    """1:02:03, 2:03, or 3 s."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
