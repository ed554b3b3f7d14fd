"""Provokes each kind of process failure, and writes the times to docs/processes.md.

    python tools/failure_times.py [TIMES]      # ten times each by default

Three processes of two devices on this machine; times are measured from the failure to the last
message of the other processes, and to the error that they raise.
"""

from __future__ import annotations

import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.helpers.failures import KINDS, provoke

PAGE = Path(__file__).resolve().parent.parent / "docs" / "processes.md"
BEGIN, END = "<!-- failure times -->\n", "<!-- end of failure times -->\n"
SETTINGS = {"heartbeat": "heartbeat", "deadline": "wait_timeout_secs", "arrival": "initialization"}


def shown(seconds: list[float]) -> str:
    found = [s for s in seconds if not math.isnan(s)]
    return f"{statistics.median(found):.2f} | {max(found):.2f}" if found else "– | –"


def row(name: str, times: int) -> str:
    runs = [provoke(name) for _ in range(times)]
    options = KINDS[name].options
    limits = [f"{words} {options[key]} s" for key, words in SETTINGS.items() if key in options]
    statuses = ", ".join(sorted({str(status) for run in runs for status in run.statuses}))
    kind = f"{name} ({', '.join(limits)})" if limits else name
    message, error = ([getattr(r, field) for r in runs] for field in ("to_message", "to_error"))
    return f"| {kind} | {shown(message)} | {shown(error)} | {statuses} |\n"


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    table = (
        f"{BEGIN}Process 1 of three, in seconds of {times} runs each (the defaults are "
        "heartbeat 20 s, wait_timeout_secs\n600 s; `tools/failure_times.py` measures it):\n\n"
        "| process 1 | message, median | max | error, median | max | exit statuses |\n"
        "|---|---|---|---|---|---|\n"
    )
    for name in KINDS:
        line = row(name, times)
        print(line, end="", flush=True)
        table += line
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + table + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
